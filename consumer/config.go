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
	// Concurrency is how many messages are handled at a time. 1 to 10,000;
	// defaults to 1. A message that is held, see [Requeue], or whose copy is not
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
	// It defaults to Concurrency on a queue that others declared, and on a work queue
	// with priorities, where messages sent ahead are handled before any that come
	// later: with more, Run warns. Each lane of topology.Lanes has a prefetch of its
	// own, of at least one more than the lane's handlers by default: it delays no
	// message of a higher lane.
	Prefetch int

	// Lanes limits single lanes of topology.Lanes, by Lane.Name.
	Lanes map[string]LaneLimits

	// HandlerTimeout ends the handler's ctx. Nothing is settled before the
	// handler has returned. Defaults to none. The broker has a timeout of its
	// own, see [ErrConsumerTimeout].
	HandlerTimeout time.Duration

	// DrainTimeout is how long handlers may go on after Run was told to stop,
	// before their ctx ends; 5 s later Run waits for them no more. Closing, where
	// the broker does not answer, comes on top. Defaults to 20 s; Kubernetes
	// kills after 30 s.
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

	// Trace hooks.
	Trace Trace
}

// maxConcurrency bounds Config.Concurrency and Config.Prefetch.
const maxConcurrency = 10_000

func (c Config) withDefaults() Config {
	c.Concurrency = cmp.Or(c.Concurrency, 1)
	c.DrainTimeout = cmp.Or(c.DrainTimeout, 20*time.Second)
	c.CopyTimeout = cmp.Or(c.CopyTimeout, time.Minute)
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
	for _, t := range []struct {
		field string
		value time.Duration
	}{{"HandlerTimeout", c.HandlerTimeout}, {"DrainTimeout", c.DrainTimeout}, {"CopyTimeout", c.CopyTimeout}} {
		if t.value < 0 {
			errs = append(errs, fmt.Errorf("consumer: Config.%s is %v, want 0 (the default) or more", t.field, t.value))
		}
	}
	return errors.Join(errs...)
}
