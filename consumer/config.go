package consumer

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// Config of a Consumer. Its zero value is usable.
type Config struct {
	// Concurrency is how many messages, or batches, are handled at a time. 1 to 10,000;
	// defaults to 1. A message that is held, see [Unavailable], or whose copy is not
	// confirmed yet counts as one that is handled.
	Concurrency int

	// Prefetch is how many unsettled messages the broker sends, those in the
	// handlers included. 1 to 10,000; less than Concurrency leaves handlers idle.
	//
	// It defaults to what the handlers need: Concurrency, and on top what they do in
	// 100 ms, up to 2,000 in all. It grows after 100 messages, or a second, in which
	// no message came that had been delivered before, so that a message that ends
	// its consumer again and again takes few others with it. When handlers become
	// slow, what they do not get to within a second goes back to the queue.
	//
	// It defaults to Concurrency on a queue that others declared, on one with a single
	// active consumer, and on a work queue with priorities, where messages sent ahead are handled before any that come
	// later: with more, Run warns. Each lane of topology.Lanes has a prefetch of its
	// own, of at least one more than the lane's handlers by default: it delays no
	// message of a higher lane.
	Prefetch int

	// Priority among the consumers of the queue, of all processes: the broker sends a
	// message to a consumer only if all consumers of a higher Priority have their Prefetch
	// in hand. -999 to 999; defaults to 0. With a single active consumer a quorum queue of
	// 4.0 and later makes the highest consumer the active one, as soon as the one before
	// has settled its messages; other queues keep the first consumer.
	Priority int

	// Lanes limits single lanes of topology.Lanes, by Lane.Name.
	Lanes map[string]LaneLimits

	// KeyLimit is how many messages of one key are handled at a time; 0: no limit. With
	// 1 the messages of a key are handled one after the other, in the order of the
	// queue; messages of other keys, and those without one, are handled beside them.
	// With more, no key takes more than its share of the Concurrency.
	//
	// A message that fails and waits for its next attempt lets later ones of its key
	// pass, unless RetryInPlace is set. Several processes keep the order only on a queue
	// with a single active consumer, see topology.WorkQueue.SingleActiveConsumer, and
	// after a lost connection the handlers of the old one and of the new one may overlap
	// until the old ones obey their ctx. At a stop the queue is given up when the
	// handlers have returned.
	//
	// The broker sends Prefetch messages ahead, from the start, by default four times
	// Concurrency and at least 50 more; keys behind so many messages of other keys have to
	// wait. A message that ends its process again and again takes all of them with it, in
	// the end to the dead-letter queue: without KeyLimit it would go there alone.
	KeyLimit int

	// Key returns the key of a message for KeyLimit; "" is none. It must be quick, and
	// depend on nothing but the Delivery. Defaults to Delivery.OrderKey, which a
	// producer sets.
	Key func(d *Delivery) string

	// RetryInPlace has a failed message keep its slot, and its key, until its next
	// attempt, instead of a wait in the broker. The waits of the queue must be less than
	// 15 minutes in sum, and less than four fifths of its ConsumerTimeout. A crash, a lost
	// connection and a stop begin the count of attempts anew. Dead letters, RetryAfter and
	// Snooze are as ever, but that a RetryAfter waits in place too.
	RetryInPlace bool

	// Batch says how many messages a [BatchHandler] gets. It is for [NewBatch] alone.
	Batch Batch

	// Outage says when [Unavailable] outcomes count as an outage of something that all
	// handlers of a queue need, and how it is waited for.
	Outage Outage

	// HandlerTimeout ends the handler's ctx. Nothing is settled before the
	// handler has returned. Defaults to none. The broker has a timeout of its
	// own, see [ErrConsumerTimeout].
	HandlerTimeout time.Duration

	// DrainTimeout is how long handlers may go on after Run was told to stop,
	// before their ctx ends. Run returns 5 s later at the latest: in that time the
	// handlers that obey their ctx return, copies are confirmed, and the channel is
	// closed. Defaults to 15 s, so that a stop of a service with its Conn, which takes
	// up to 5 s more, ends before Kubernetes kills it after 30 s.
	DrainTimeout time.Duration

	// CopyTimeout is how long the consumer waits for a copy to be confirmed
	// before it sends it again: with it the message may be in its next place
	// twice. Defaults to 1 min.
	CopyTimeout time.Duration

	// Logger hears of the start of consuming, failed attempts, and messages
	// discarded, left to their queue or not due yet at level Info; of attempts
	// before the last one, interruptions and copies that are not confirmed at
	// Warn; of dead letters at Error. Each failed attempt and each dead letter is
	// said. What stops messages and happens again and again, such as a queue that
	// cannot be consumed or a copy that is not confirmed, is said the first time, and
	// then more and more rarely with the number of times. Nil: silent, also where the
	// Conn has a logger.
	Logger *slog.Logger

	// Traces are sets of hooks, called for every delivery in their order.
	Traces []Trace
}

// maxPriority bounds Config.Priority: below it is the priority of the question with which
// a consumer finds out whether its queue is alive.
const maxPriority = 999

// maxConcurrency bounds Config.Concurrency and Config.Prefetch.
const maxConcurrency = 10_000

func (c Config) withDefaults() Config {
	c.Concurrency = cmp.Or(c.Concurrency, 1)
	c.DrainTimeout = cmp.Or(c.DrainTimeout, 15*time.Second)
	c.CopyTimeout = cmp.Or(c.CopyTimeout, time.Minute)
	c.Outage = c.Outage.withDefaults()
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	} else {
		c.Logger = slog.New(recoveringHandler{c.Logger.Handler()})
	}
	return c
}

func (c Config) validate() error {
	var errs []error
	if c.Concurrency < 1 || c.Concurrency > maxConcurrency {
		errs = append(errs, fmt.Errorf("consumer: Config.Concurrency is %d, want 1 to 10000", c.Concurrency))
	}
	if c.Prefetch < 0 || c.Prefetch > maxConcurrency {
		errs = append(errs, fmt.Errorf("consumer: Config.Prefetch is %d, want 1 to 10000, or 0 (it follows the handlers)", c.Prefetch))
	}
	if c.Priority < -maxPriority || c.Priority > maxPriority {
		errs = append(errs, fmt.Errorf("consumer: Config.Priority is %d, want -999 to 999", c.Priority))
	}
	for _, t := range []struct {
		field string
		value time.Duration
	}{{"HandlerTimeout", c.HandlerTimeout}, {"DrainTimeout", c.DrainTimeout}, {"CopyTimeout", c.CopyTimeout}} {
		if t.value < 0 {
			errs = append(errs, fmt.Errorf("consumer: Config.%s is %v, want 0 (the default) or more", t.field, t.value))
		}
	}
	return errors.Join(append(errs, c.Outage.validate())...)
}
