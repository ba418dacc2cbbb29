package consumer

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer/internal/durations"
	"github.com/rehop/rehop/internal/hooks"
	"github.com/rehop/rehop/internal/transport"
)

// Config of a Consumer. Its zero value is usable.
type Config struct {
	// Concurrency is how many messages, or batches, are handled at a time. 1 to 10,000;
	// defaults to 1. A message that is held, see [Hold], or whose copy is not
	// confirmed yet counts as one that is handled.
	Concurrency int

	// Prefetch is how many unsettled messages the broker sends, those with handlers
	// included. 1 to 10,000; less than Concurrency leaves handlers idle, and Run warns of it.
	//
	// By default it follows the handlers: it is Concurrency plus the number of messages
	// that they handle in 100 ms, up to 2,000. It grows only to at least twice as many, and
	// only after 100 messages, or a second, without a redelivery, so that a message that
	// crashes the process again and again takes few other messages with it. When a message
	// has waited a second for a handler, the prefetch becomes Concurrency again for a minute
	// or more, and waiting messages beyond it go back to the queue. If all handlers are busy,
	// all waiting messages go back.
	//
	// With any Prefetch, a session on a queue with a delivery limit begins with 1, until a
	// message comes that was not delivered before. With a KeyLimit of 1, and with a single active
	// consumer, it begins with all, see KeyLimit. Messages that no handler has begun go back to
	// the queue when one of them has waited for a quarter of the consumer timeout, which is 7.5
	// minutes by default, or for less with RetryInPlace. The broker then sends fewer messages
	// ahead, until the handlers keep up with them.
	//
	// Without KeyLimit it defaults to Concurrency on a queue that others declared, on one with a single
	// active consumer, and on a work queue with NativePriority. With NativePriority a
	// message that was sent ahead is handled before one of a higher priority that
	// comes later, so Run warns of a larger Prefetch. Each shard of topology.Shards has a
	// prefetch of its own. So has each lane of topology.Lanes, by default at least one more
	// than the lane's handlers. It delays no message of a higher lane. With KeyLimit the
	// default is larger, see there.
	Prefetch int

	// Priority ranks the consumers of a queue, in all processes: the broker sends a
	// message to a consumer only while every consumer of a higher Priority has as many
	// messages as its Prefetch allows. -999 to 999; defaults to 0. It must be 0 on a queue
	// with topology.WorkQueue.SingleActiveConsumer: where its consumers have different
	// priorities, a quorum queue of 4.0 may deliver to none of them, and one of 4.3 may keep
	// messages for good (seen on 4.0.5 and 4.3.6).
	Priority int

	// Lanes limits single lanes of topology.Lanes, by Lane.Name.
	Lanes map[string]LaneLimits

	// KeyLimit is how many messages of one key are handled at a time; 0: no limit. With
	// 1 the messages of a key are handled one after the other, in the order of the
	// queue; messages of other keys, and messages without a key, are handled beside
	// them. A larger limit is a share: it keeps a key from taking more than so many slots of
	// the Concurrency, and promises no order. Without batches, a limit of Concurrency or more
	// limits nothing.
	//
	// The limit holds in each process, and in each lane of topology.Lanes and each shard of
	// topology.Shards: choose the lane by the key. Several processes keep an order only on a queue with a single active consumer, see
	// topology.WorkQueue.SingleActiveConsumer. One process needs that too: until the broker notices that a connection is lost, it keeps
	// back the messages of that one, and delivers later ones to the next. A consumer that finds others on the queue waits up to 3 s for
	// them to go, which is enough where a process has ended and its node has seen it. A message that waits for its next attempt lets
	// later ones of its key pass, unless RetryInPlace is set. After a lost connection the handlers
	// of the old connection and of the new one may overlap until the old ones obey their ctx. Run
	// warns where the setting keeps no order, or has no effect.
	//
	// Prefetch defaults to the larger of 4*Concurrency and Concurrency+50, up to 10,000: the
	// next messages may be of keys that are in hand. If slots are free, and all messages in hand
	// have one or wait for their keys, no message of another key can come. With a share the
	// prefetch then grows, to at most 10,000 messages in hand, or 64 MiB of bodies if the next ones
	// are like those in hand. It does not grow if Prefetch is set, with batches, with
	// NativePriority, on a queue that others declared or with a single active consumer, while
	// messages come that have used up a quarter of their delivery limit, and before 4.3 for a
	// minute or more after messages have waited for too long. When other keys were kept away for
	// a minute, Health is degraded and the log has a warning. Both name the key that most
	// messages wait for.
	//
	// With a limit of 1 the broker sends Prefetch messages from the start, and messages go back
	// only all together, to their places, after the handlers have returned: at a stop, when the
	// next message has waited for its key for a quarter of the consumer timeout or one was
	// held for 15 minutes (half of the consumer timeout if that is less), and when a message
	// comes that has used up half of its delivery limit, as in a crash loop. From then on one
	// message at a time is handled, until one comes for the first time. Of several shards or
	// lanes one at a time handles such messages, with any KeyLimit, and no message of another begins
	// meanwhile: until none is left, or a minute after the last one came. At four fifths of the
	// consumer timeout the ctx of handlers that are still at work ends, which spends no attempt.
	// A queue with a single active consumer behaves in the same way, without KeyLimit too. The
	// page order.md of the documentation has the cases in which a later message overtakes.
	KeyLimit int

	// Key returns the key of a message for KeyLimit; "" is none. It must be quick and
	// depend only on the Delivery. Defaults to Delivery.OrderKey, which a producer
	// sets.
	Key func(d *Delivery) string

	// RetryInPlace makes a failed message keep its slot, and its key, until its next
	// attempt, instead of waiting in the broker. A RetryAfter waits in place too, for the
	// longer of its own time and the wait that is due. Dead
	// letters and Snooze work as they do without RetryInPlace, and so does a handler that
	// ends its goroutine (runtime.Goexit). [Operator] shows a message that waits in place
	// as "held".
	//
	// The hold limit is 15 minutes, or half of the queue's ConsumerTimeout if that is less.
	// The waits of the queue must be less than the hold limit in sum. If the next wait would
	// end later than the hold limit after the delivery, the message waits in the broker
	// instead. A message that no handler has begun goes back to the queue after
	// (hold limit - sum of the waits) / 2, or after a sixteenth of the hold limit, whichever
	// is longer.
	//
	// A crash, a lost connection or a stop resets the count of attempts to 1. So does a pause,
	// an alarm, or a wait for another queue whose messages consumers may have died of, see KeyLimit,
	// if it lasts until the hold limit.
	RetryInPlace bool

	// Outage says when [Hold] outcomes count as an outage of something that all
	// handlers of a queue need, and how the consumer waits for its end.
	Outage Outage

	// HandlerTimeout is the time after which the handler's ctx ends. The message is
	// settled only after the handler has returned. A handler that has not returned 5 s
	// later is in the log and in Health, with the id of its message. Defaults to none. The
	// broker has a timeout of its own, see [ErrConsumerTimeout].
	HandlerTimeout time.Duration

	// DrainTimeout is how long handlers may go on after Run was told to stop,
	// before their ctx ends. Run returns 6 s later at the latest: in the first 5 s the
	// handlers that obey their ctx return, copies are confirmed, and the channel is
	// closed. Defaults to 15 s, so that a stop of a service with its Conn, which takes
	// up to 5 s more, ends before Kubernetes kills it after 30 s.
	DrainTimeout time.Duration

	// CopyTimeout is how long the consumer waits for the confirm of a copy before it
	// sends the copy again. The message may then be in its next place twice. Defaults
	// to 1 min.
	CopyTimeout time.Duration

	// Logger gets records at level Info for the start of consuming, for failed
	// attempts, and for messages that are discarded, snoozed, requeued or not due
	// yet. It gets records at Warn for a failed attempt that leaves one more,
	// for interruptions and for copies that are not confirmed, and at Error for dead
	// letters. Each failed attempt and each dead letter has a record. A fault that
	// repeats, such as a queue that cannot be consumed or a copy that is not confirmed,
	// is logged the first time, and then more and more rarely, with the number of
	// times. If nil, it is the Logger of the Conn.
	Logger *slog.Logger

	// Traces are sets of hooks, called for every delivery in their order. If nil, they
	// are those of connection.Config.Telemetry.
	Traces []Trace
}

// settings are what a Consumer was made with.
type settings struct {
	Config
	Batch Batch // zero: the Consumer has a Handler
}

// maxPriority bounds Config.Priority: below it is the priority of the question with which
// a consumer finds out whether its queue is alive.
const maxPriority = 999

// maxConcurrency bounds Config.Concurrency and Config.Prefetch.
const maxConcurrency = 10_000

func (c Config) withDefaults(conn *connection.Conn) Config {
	log, telemetry := transport.Inherited(conn)
	if t, ok := telemetry.(interface{ Consumer() Trace }); ok && c.Traces == nil {
		c.Traces = []Trace{t.Consumer()}
	}
	c.Logger = cmp.Or(c.Logger, log)
	c.Concurrency = cmp.Or(c.Concurrency, 1)
	c.DrainTimeout = cmp.Or(c.DrainTimeout, durations.DrainTimeout)
	c.CopyTimeout = cmp.Or(c.CopyTimeout, durations.CopyTimeout)
	c.Outage = c.Outage.withDefaults()
	c.Logger = hooks.Logger(c.Logger)
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
