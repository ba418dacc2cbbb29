// Package carry brings messages back from wait queues without a TTL: under
// topology.EngineCarry the consumers of a queue publish each message when it is due,
// and ack it in the wait when the copy is confirmed.
package carry

import (
	"context"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer/internal/durations"
	"github.com/rehop/rehop/internal/header"
	"github.com/rehop/rehop/internal/pause"
)

// carrier brings back what is due in one wait queue, under the engine carry. Its
// goroutine holds the messages at the head of the queue, which are those due first,
// publishes each when it is due, and acks it when the broker has confirmed it. When it
// ends, in whatever way, its messages go back to the head.
//
// The queue has a single active consumer. Otherwise each process of a service would hold a
// part of the messages. The messages that a process gives back at its end would then wait
// until another process has published the messages that it holds, although these are due
// later.
type carrier struct {
	queue   string        // the wait queue
	wait    time.Duration // of every message in it; 0: not known
	open    func(ctx context.Context, prefetch int) (session, error)
	publish func(ctx context.Context, messages []*waiting, user string, answered func([]answer))
	close   func()               // ends what publish uses
	hold    func() time.Duration // how long a message is in hand at most
	log     func(error)          // a failure
	state   func(error)          // why the wait as a whole is not carried; nil: it is

	hand     []*waiting // in the order of their delivery tags
	bounds   bounds     // of messages that were given back and will be in hand again
	prefetch int        // how many of these a session has at most
	failing  time.Time  // since when nothing that is due could be published
}

// session is the consuming of a wait queue on one channel.
type session interface {
	deliveries() <-chan amqp.Delivery
	// reason says why the deliveries have ended while the oldest message in hand
	// had been there for held.
	reason(held time.Duration) error
	done() <-chan struct{}
	ack(tag uint64, multiple bool) error
	user() string
	close()
}

const (
	// maxPrefetch is how many messages of a wait queue are in hand at most.
	maxPrefetch = 256

	// maxBytes is how large their bodies are together, about; one message may
	// be larger.
	maxBytes = 16 << 20
)

// run carries until stop ends.
func (c *carrier) run(stop context.Context) {
	defer c.close()
	c.prefetch = maxPrefetch
	pauses := pause.Grow(durations.CarrierFirstPause, durations.CarrierLongestPause)
	for stop.Err() == nil {
		started := time.Now()
		err := c.consume(stop)
		if stop.Err() != nil || errors.Is(err, connection.ErrClosed) {
			return
		}
		if time.Since(started) > durations.CarrierLongestPause {
			pauses.Reset()
		}
		if err == nil {
			continue // given back, and taken again at once
		}
		next := pauses.Next()
		if mayBeGone(err) {
			c.wait = 0 // another process may declare it again, for another wait
			next = max(next, durations.Declaring)
		}
		// A lost socket is no fault of the wait, and ends stop soon.
		if !pause.For(stop, durations.CarrierFirstPause/2) {
			return
		}
		c.log(err)
		c.state(err)
		pause.For(stop, next)
	}
}

// consume carries messages on one channel. It returns nil when a message was held for long
// enough, when the prefetch has to change, or when stop ends.
func (c *carrier) consume(stop context.Context) (err error) {
	s, err := c.open(stop, c.prefetch)
	if err != nil {
		return err
	}
	c.bounds = boundsOf(c.hand)
	c.hand, c.failing = nil, time.Time{}
	defer s.close()
	ctx, end := awaiting(stop, s.done())
	defer end()
	lives := time.NewTimer(durations.CarrierSound)
	defer lives.Stop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for stop.Err() == nil {
		if prefetch := fitting(c.hand, c.prefetch); prefetch != c.prefetch {
			c.prefetch = prefetch // a consumer that has begun keeps the one it has
			return nil
		}
		ready, again, over := next(c.hand, time.Now(), c.hold())
		switch {
		case len(ready) > 0:
			if err := c.bringBack(ctx, s, ready); err != nil {
				return err
			}
			if !c.receive(s) {
				return s.reason(c.oldest(time.Now()))
			}
			continue
		case over:
			return nil
		case again.IsZero():
			timer.Stop()
		default:
			timer.Reset(time.Until(again))
		}
		select {
		case raw, ok := <-s.deliveries():
			if !ok {
				return s.reason(c.oldest(time.Now()))
			}
			c.hand = append(c.hand, newWaiting(raw, time.Now(), c.wait, c.bounds))
			if !c.receive(s) {
				return s.reason(c.oldest(time.Now()))
			}
		case <-timer.C:
		case <-lives.C:
			if c.failing.IsZero() {
				c.state(c.ahead())
			}
		case <-s.done():
			return s.reason(c.oldest(time.Now()))
		case <-stop.Done():
		}
	}
	return nil
}

// awaiting returns the ctx of publishes, which ends with the session, or a
// little after stop.
func awaiting(stop context.Context, lost <-chan struct{}) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(stop))
	go func() { // until cancel
		stopping := stop.Done()
		var over <-chan time.Time
		for {
			select {
			case <-stopping:
				stopping, over = nil, time.After(durations.CarrierGrace)
			case <-over:
				cancel()
			case <-lost:
				cancel()
			case <-ctx.Done():
				return
			}
		}
	}()
	return ctx, cancel
}

// receive takes what has arrived meanwhile, and returns false if nothing more
// will.
func (c *carrier) receive(s session) bool {
	for {
		select {
		case raw, ok := <-s.deliveries():
			if !ok {
				return false
			}
			c.hand = append(c.hand, newWaiting(raw, time.Now(), c.wait, c.bounds))
		default:
			return true
		}
	}
}

// bringBack publishes the messages that are due, and acks those that are confirmed. It
// returns an error when none has been confirmed for so long that another process may try.
func (c *carrier) bringBack(ctx context.Context, s session, ready []*waiting) error {
	var failure error
	confirmed := false
	ahead := c.ahead()
	c.publish(ctx, ready, s.user(), func(batch []answer) {
		var done []*waiting
		for _, a := range batch {
			if a.err == nil {
				done = append(done, ready[a.index])
				continue
			}
			failure = a.err
			ready[a.index].failed(time.Now())
		}
		c.ack(s, done)
		confirmed = confirmed || len(done) > 0
	})
	if failure != nil {
		c.log(failure)
	}
	if confirmed {
		c.failing = time.Time{}
		c.state(ahead)
		return nil
	}
	if c.failing.IsZero() {
		c.failing = time.Now()
	}
	c.state(failure)
	if time.Since(c.failing) < durations.CarrierPatience {
		return nil
	}
	return failure
}

// ack acks what is brought back. An error means that the session is lost, which it
// says itself.
func (c *carrier) ack(s session, done []*waiting) {
	var upTo uint64
	var single []uint64
	c.hand, upTo, single = remove(c.hand, done)
	if upTo > 0 {
		_ = s.ack(upTo, true)
	}
	for _, tag := range single {
		_ = s.ack(tag, false)
	}
}

// ahead returns an error if the hand is full of messages whose due times are beyond their
// wait. The messages behind them wait too long.
func (c *carrier) ahead() error {
	if len(c.hand) < c.prefetch {
		return nil
	}
	if last := c.hand[len(c.hand)-1]; last.ahead > durations.MaxSkew {
		return fmt.Errorf("consumer: messages in wait queue %q are due %v after its wait of %v is over, want at most %v: the clock of the process that sent them is ahead, or something else wrote their header %s",
			c.queue, last.ahead.Round(time.Second), c.wait, durations.MaxSkew, header.Due)
	}
	return nil
}

// oldest returns how long the message that came first has been in hand.
func (c *carrier) oldest(now time.Time) time.Duration {
	if len(c.hand) == 0 {
		return 0
	}
	return now.Sub(c.hand[0].since)
}
