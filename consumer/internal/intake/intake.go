// Package intake is one session of consuming: how many messages the broker sends
// ahead, which of them are suspect, whether the queue is alive, and how the fetching
// ends.
package intake

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer/internal/consumertimeout"
	"github.com/rehop/rehop/consumer/internal/durations"
	"github.com/rehop/rehop/consumer/internal/hand"
	"github.com/rehop/rehop/internal/ask"
)

// Config of a Session.
type Config struct {
	Conn          *connection.Conn
	Channel       *connection.Session
	Queue, Host   string
	DeliveryLimit int // of the queue; 0 for none
	Prefetch      Prefetch
	Bound         *Bound     // of the prefetch
	Arguments     amqp.Table // of each consumer
	Hand          *hand.Session
	Lane          *hand.Lane
	Timeout       *consumertimeout.ConsumerTimeout
	Waits         time.Duration // what a message may spend in place before its last attempt
	Signs         Signs
	Handled       *atomic.Int64 // messages whose handlers have returned; each run counts again
	Consumer      Consumer
}

// Consumer is what a Session needs of package consumer.
type Consumer interface {
	// Message makes a message of a delivery. deaths is that of hand.Message.
	Message(raw amqp.Delivery, now time.Time, deaths int) *hand.Message

	// Do carries out what is to be done after events.
	Do(out *hand.Out)

	// Calling returns the ctx of a call to the broker while messages are in hand. A
	// stop does not cut it off, because a call that is left costs the channel, and
	// the handlers their messages. It does not last longer than the stop.
	Calling() (context.Context, context.CancelFunc)

	// Fetching is told of each prefetch, and of its end by 0.
	Fetching(prefetch int)
}

// Session is the consuming on one channel. Its messages must be settled on that
// channel; after its end the broker delivers them again.
type Session struct {
	Config
	version   connection.Version // of the broker
	consumer                     // whose deliveries are taken
	consumers int                // started on the channel so far
	qos       int                // that is set on the channel
	cancelled <-chan string      // the broker ended the consuming
	suspicion suspicion
	reopens   <-chan time.Time // no message begins to be handled until then
	again     bool             // the latest message was delivered before
	live      *liveness
	tasks     sync.WaitGroup // beside the fetching
	out       hand.Out       // of the goroutine of Run
	counting  ask.Aside      // of the task that asks the queue
}

// Open starts to consume. The Session must be closed.
func Open(ctx context.Context, cfg Config) (*Session, error) {
	s := &Session{Config: cfg, version: cfg.Channel.Server().Version,
		cancelled: cfg.Channel.Channel().NotifyCancel(make(chan string, 1)),
		suspicion: suspicion{half: cfg.DeliveryLimit / 2}, counting: ask.Aside{Conn: cfg.Conn}}
	return s, s.start(ctx, s.first(s.base()), s.base())
}

// Run hands messages to the lane until the channel is lost or ctx ends, and returns
// why.
func (s *Session) Run(ctx context.Context) error {
	visiting, stopVisiting := context.WithCancel(s.Hand.Copying)
	tag := s.tag + "-health" // another consumer changes s.tag while a visit is under way
	s.live = newLiveness(func() answer { return visit(visiting, s.Conn, s.Queue, tag) })
	defer s.live.close()
	defer stopVisiting()
	defer s.Consumer.Do(&s.out)
	defer s.tasks.Go(func() { // earlier consumers may be cancelled as well, and the library waits for whoever listens
		for range s.cancelled { //nolint:revive // see above
		}
	})
	s.Signs.Alive(s.live.sign)
	s.Prefetch.begin(s.Handled.Load(), time.Now())
	measure := time.NewTimer(durations.Stale)
	defer measure.Stop()
	measuring := true
	aging := time.NewTimer(min(s.BeginLimit(), durations.BoundRises))
	defer aging.Stop()
	for {
		if !measuring && s.prefetch != s.base() { // else the deliveries are occasion enough
			measure.Reset(durations.Stale)
			measuring = true
		}
		s.Consumer.Do(&s.out)
		var err error
		select {
		case raw, ok := <-s.deliveries:
			if !ok {
				return s.ended(s.reasonForEnd())
			}
			err = s.receive(raw)
		case <-s.Lane.Changed:
			if s.Lane.Asks() {
				s.ask()
			}
			if err = s.renewed(); err == nil {
				err = s.heed(time.Now())
			}
		case now := <-measure.C:
			measuring = false
			err = s.adapt(now)
		case now := <-aging.C:
			var again time.Duration
			again, err = s.age(now)
			aging.Reset(again)
		case <-s.live.timer.C:
			s.visits()
		case <-s.reopens:
			s.reopens = nil
			s.Hand.BeginAgain(hand.Visiting, time.Now(), &s.out)
		case answer := <-s.live.answers:
			if s.visited(answer, ctx.Err() != nil); ask.IsGone(answer.err) && s.Hand.Counts().Unsettled == 0 {
				err = answer.err // broker 3.10.8 does not always cancel the consuming of a queue that is deleted (measured)
			} else {
				err = s.renewed()
			}
		case _, ok := <-s.cancelled:
			if ok { // this consumer, or an earlier one with messages here
				return s.cancelledByBroker()
			}
			<-s.Channel.Done()
			err = s.Channel.Err()
		case <-s.Channel.Done():
			err = s.Channel.Err()
		case <-ctx.Done():
			return s.left(ctx)
		}
		if err != nil {
			return s.ended(err)
		}
	}
}

// receive takes a delivery.
func (s *Session) receive(raw amqp.Delivery) error {
	s.live.sign = time.Now()
	s.Hand.Delivered(s.note(raw, s.live.sign), &s.out)
	return s.adapt(s.live.sign)
}

// note makes a delivery a message.
func (s *Session) note(raw amqp.Delivery, now time.Time) *hand.Message {
	s.again = raw.Redelivered
	if raw.Redelivered {
		s.Prefetch.redelivered(s.Handled.Load(), now)
	}
	return s.Consumer.Message(raw, now, s.deathsOf(raw, now))
}

// BeginLimit returns how old a message is at most when its handler runs for the first time:
// the handler then has enough time, also for attempts in place.
func (s *Session) BeginLimit() time.Duration { return s.Timeout.BeginLimit(s.Waits) }

// Tag returns the tag of the latest consumer.
func (s *Session) Tag() string { return s.tag }

// Close waits for everything beside the consuming. The channel and the ctx Copying
// must have ended.
func (s *Session) Close() {
	s.Consumer.Fetching(0)
	s.tasks.Wait()
	s.counting.Close()
}
