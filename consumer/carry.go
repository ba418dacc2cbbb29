package consumer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v4"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/xdeath"
)

// carrier brings back what is due in one wait queue, under the engine carry. Its
// goroutine holds the messages at the head of the queue, which are those due
// first, publishes each when it is due, and acks it when the broker has confirmed
// it. What it holds when it ends, in whatever way, goes back to the head.
//
// The queue has a single active consumer. Without it the processes of a service
// would hold a part of the messages each, and what one of them gave back, at its
// end, would wait until another has sent on what it holds: later ones.
type carrier struct {
	queue   string        // the wait queue
	wait    time.Duration // of every message in it; 0: not known
	open    func(ctx context.Context, prefetch int) (waitSession, error)
	publish func(ctx context.Context, messages []*waiting, user string, answered func([]answer))
	close   func()               // what publish uses
	hold    func() time.Duration // how long a message is held at most
	failed  func(error)          // something: for the log
	trouble func(error)          // with the whole wait; nil: none (any more)

	hand     []*waiting // in the order of their delivery tags
	bounds   bounds     // of messages that were given back and will be in hand again
	prefetch int        // how many of these a session has at most
	failing  time.Time  // since when nothing that is due could be published
}

// waitSession is the consuming of a wait queue on one channel.
type waitSession interface {
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
	// carryPrefetch is how many messages of a wait queue are in hand at most.
	carryPrefetch = 256

	// carryBytes is how large their bodies are together, about; one message may
	// be larger.
	carryBytes = 16 << 20

	// carryPatience is how long what is due may fail to be published before the
	// wait is left to another process, if there is one.
	carryPatience = time.Minute

	// carryGrace is how long confirms are awaited when Run stops.
	carryGrace = 5 * time.Second

	// The pauses after a session that has failed.
	shortestCarryPause = 200 * time.Millisecond
	longestCarryPause  = time.Minute
)

// run carries until stop ends.
func (c *carrier) run(stop context.Context) {
	defer c.close()
	c.prefetch = carryPrefetch
	pauses := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(shortestCarryPause),
		backoff.WithMaxInterval(longestCarryPause),
		backoff.WithMaxElapsedTime(0))
	for stop.Err() == nil {
		started := time.Now()
		err := c.session(stop)
		if stop.Err() != nil || errors.Is(err, connection.ErrClosed) {
			return
		}
		if time.Since(started) > longestCarryPause {
			pauses.Reset()
		}
		if err == nil {
			continue // given back, and taken again at once
		}
		if mayBeGone(err) {
			c.wait = 0 // another process may declare it again, for another wait
		}
		pause := pauses.NextBackOff()
		// A lost socket is no trouble of the wait's, and ends stop soon.
		if !sleep(stop, shortestCarryPause/2) {
			return
		}
		c.failed(err)
		c.trouble(err)
		sleep(stop, pause)
	}
}

// sleep reports whether ctx has not ended meanwhile.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// session carries on one channel. It returns nil when a message was held for long
// enough, when the prefetch has to change, or when stop ends.
func (c *carrier) session(stop context.Context) (err error) {
	s, err := c.open(stop, c.prefetch)
	if err != nil {
		return err
	}
	c.bounds = boundsOf(c.hand)
	c.hand, c.failing = nil, time.Time{}
	defer s.close()
	ctx, end := awaiting(stop, s.done())
	defer end()
	sound := time.NewTimer(silentAfter)
	defer sound.Stop()
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
		case <-sound.C:
			if c.failing.IsZero() {
				c.trouble(c.ahead())
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
		var grace <-chan time.Time
		for {
			select {
			case <-stopping:
				stopping, grace = nil, time.After(carryGrace)
			case <-grace:
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
func (c *carrier) receive(s waitSession) bool {
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

// bringBack publishes what is due, and acks what is confirmed. An error says that
// nothing was for so long that another process may try.
func (c *carrier) bringBack(ctx context.Context, s waitSession, ready []*waiting) error {
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
		c.failed(failure)
	}
	if confirmed {
		c.failing = time.Time{}
		c.trouble(ahead)
		return nil
	}
	if c.failing.IsZero() {
		c.failing = time.Now()
	}
	c.trouble(failure)
	if time.Since(c.failing) < carryPatience {
		return nil
	}
	return failure
}

// ack acks what is brought back. An error means that the session is lost, which it
// says itself.
func (c *carrier) ack(s waitSession, done []*waiting) {
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

// ahead returns an error if the hand is full, with messages that have a due time
// beyond their wait: the next one waits for those, although less long than they say.
func (c *carrier) ahead() error {
	if len(c.hand) < c.prefetch {
		return nil
	}
	if last := c.hand[len(c.hand)-1]; last.ahead > maxSkew {
		return fmt.Errorf("consumer: messages in wait queue %q are due %v after its wait of %v is over, want at most %v: the clock of the process that sent them is ahead, or something else wrote their header %s",
			c.queue, last.ahead.Round(time.Second), c.wait, maxSkew, xdeath.HeaderDue)
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
