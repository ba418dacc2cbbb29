// Package intake is one session of consuming: how many messages the broker sends
// ahead, which of them are suspect, whether the queue is alive, and how the fetching
// ends.
package intake

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer/internal/ask"
	"github.com/rehop/rehop/consumer/internal/flight"
	"github.com/rehop/rehop/internal/yield"
)

// Lane takes the messages of a queue.
type Lane interface {
	Push(m *flight.Message)
	TakeBack(keep int) []*flight.Message
	Busy() int
	Oldest() time.Time
	Opening()
	Opened(in *flight.Session, prefetch int, trips time.Duration, ask func())
	Answered(has int, took time.Duration, err error)
	Closed()
	Wants(prefetch int) int
	Waiting() int
	Changed() <-chan struct{}
}

// Config of a Session.
type Config struct {
	Conn          *connection.Conn
	Channel       *connection.Session
	Queue, Host   string
	DeliveryLimit int // of the queue; 0 for none
	Prefetch      Prefetch
	Ordered       bool       // messages must come in the order of the queue, or to one consumer at a time
	Arguments     amqp.Table // of each consumer
	Ledger        *flight.Session
	Lane          Lane
	Timeout       *flight.ConsumerTimeout
	Signs         *Signs
	Handled       func() int64             // how many runs of handlers have ended
	Requeue       func(...*flight.Message) // gives messages back to their queue
	GiveBack      func(...*flight.Message) // does so again and again, for outages
	Asking        context.Context          // of questions to the queue; ends with the session

	// Calling returns the ctx of a call to the broker while messages are in hand. A
	// stop does not cut it off, because a call that is left costs the channel, and
	// the handlers their messages. It does not last longer than the stop.
	Calling func() (context.Context, context.CancelFunc)

	// Fetching is told of each prefetch, and of its end by 0. It may be nil.
	Fetching func(queue string, prefetch int)
}

// Session is the consuming on one channel. What it delivers is settled on that
// channel or, after its end, by nobody: the broker delivers again.
type Session struct {
	Config
	version   connection.Version   // of the broker
	consumer                       // whose deliveries are taken
	before    <-chan amqp.Delivery // of the consumer that it replaces, until that has ended
	wider     chan consumer        // that widen has started
	widening  bool
	consumers int             // started on the channel so far
	qos       int             // that is set on the channel
	next      uint64          // the tag of the next message
	early     []amqp.Delivery // that came before one with a lower tag
	cancelled <-chan string   // the broker ended the consuming
	suspicion suspicion
	gated     bool // the lane wants fewer messages than the prefetch
	suspended bool // and none at all: there is no consumer
	live      *liveness
	tasks     sync.WaitGroup      // beside the fetching
	counting  *connection.Session // of the task that asks the queue, nil before the first
}

// Open starts to consume. The Session must be closed.
func Open(ctx context.Context, cfg Config) (*Session, error) {
	s := &Session{Config: cfg, version: cfg.Channel.Server().Version, next: 1, consumers: 1, wider: make(chan consumer, 1),
		// One for each consumer that a session has at a time.
		cancelled: cfg.Channel.Channel().NotifyCancel(make(chan string, 2)),
		suspicion: suspicion{half: cfg.DeliveryLimit / 2}}
	if cfg.Ordered {
		// To begin with few messages, a consumer of more would have to start beside the
		// first one. A quorum queue does not deliver to two in the order of its messages,
		// and one with a single active consumer could go to another process between them.
		s.suspicion.half = 0
	}
	base := cfg.Prefetch.Base
	return s, s.use(s.start(ctx, s.suspicion.first(base), base, 1))
}

// Run hands messages to the lane until the channel is lost or ctx ends, and returns
// why.
func (s *Session) Run(ctx context.Context) error {
	probing, stopProbing := context.WithCancel(s.Asking)
	tag := s.tag + "-health" // another consumer changes s.tag while a probe is under way
	s.live = newLiveness(func() error { return probe(probing, s.Conn, s.Queue, tag) })
	defer s.live.close()
	defer stopProbing()
	s.Signs.alive(s.live.sign)
	s.Prefetch.begin(s.Handled(), time.Now())
	measure := time.NewTimer(staleAfter)
	defer measure.Stop()
	measuring := true
	for {
		if !measuring && s.prefetch != s.Prefetch.Base { // else the deliveries are occasion enough
			measure.Reset(staleAfter)
			measuring = true
		}
		select {
		case raw, ok := <-s.deliveries:
			if !ok {
				return s.ended(s.reasonForEnd())
			}
			if err := s.receive(raw); err != nil {
				return s.ended(err)
			}
		case raw, ok := <-s.before:
			if !ok {
				s.before = nil
				break
			}
			if err := s.receive(raw); err != nil {
				return s.ended(err)
			}
		case c := <-s.wider:
			if err := s.widened(c); err != nil {
				return s.ended(err)
			}
		case <-s.Lane.Changed():
			if err := s.heed(time.Now()); err != nil {
				return s.ended(err)
			}
		case <-s.Ledger.Cleared():
			if err := s.adapt(time.Now()); err != nil {
				return s.ended(err)
			}
		case now := <-measure.C:
			measuring = false
			if err := s.adapt(now); err != nil {
				return s.ended(err)
			}
		case <-s.live.timer.C:
			s.live.look(s.busy())
			s.Signs.alive(s.live.sign)
		case err := <-s.live.answers:
			s.live.answered(err)
			if err == nil {
				s.Signs.alive(s.live.sign)
			} else if ctx.Err() == nil {
				s.Signs.refused(err)
			}
		case _, ok := <-s.cancelled:
			if ok { // this consumer, or an earlier one with messages here
				return s.cancelledByBroker()
			}
			<-s.Channel.Done()
			return s.ended(s.Channel.Err())
		case <-s.Channel.Done():
			return s.ended(s.Channel.Err())
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// receive takes a delivery.
func (s *Session) receive(raw amqp.Delivery) error {
	s.live.sign = time.Now()
	s.inOrder(raw, func(raw amqp.Delivery) { s.Lane.Push(s.note(raw, s.live.sign)) })
	return s.adapt(s.live.sign)
}

// inOrder calls do with the deliveries that have come, in the order of their tags.
// Two consumers of the channel, one of which replaces the other, deliver side by
// side; a message must not be settled before all with lower tags are noted.
func (s *Session) inOrder(raw amqp.Delivery, do func(amqp.Delivery)) {
	if (s.widening || s.before != nil) && raw.DeliveryTag != s.next {
		s.early = append(s.early, raw)
		return
	}
	s.next = raw.DeliveryTag + 1
	do(raw)
	for len(s.early) > 0 {
		i := slices.IndexFunc(s.early, func(raw amqp.Delivery) bool { return raw.DeliveryTag == s.next })
		if i < 0 {
			return
		}
		raw = s.early[i]
		s.early = slices.Delete(s.early, i, i+1)
		s.next++
		do(raw)
	}
}

// note makes a delivery a message and notes it.
func (s *Session) note(raw amqp.Delivery, now time.Time) *flight.Message {
	m := &flight.Message{Raw: raw, Received: now}
	if raw.Redelivered {
		s.Prefetch.redelivered(s.Handled(), now)
	}
	m.Suspect = s.suspicion.judge(s.Queue, raw, s.version, now)
	s.Ledger.Arrive(m)
	yield.Here()
	return m
}

// consumer is one basic.consume.
type consumer struct {
	tag        string
	prefetch   int
	deliveries <-chan amqp.Delivery
	took       time.Duration // to start
	err        error
}

// start starts a consumer, because basic.qos applies to consumers that start after
// it. next is the prefetch that the consumer after it is likely to have: the answer
// to its basic.qos stands for that to the consume, and saves a round trip later.
func (s *Session) start(ctx context.Context, prefetch, next, number int) consumer {
	c := consumer{tag: fmt.Sprintf("rehop-%s-%d-%d", s.Host, number, prefetch), prefetch: prefetch}
	began := time.Now()
	var deliveries <-chan amqp.Delivery // a call that is left may still write to it
	err := s.Channel.Do(ctx, func(ch *amqp.Channel) (err error) {
		if err = s.setQos(ch, prefetch); err != nil {
			return err
		}
		deliveries, err = ch.Consume(s.Queue, c.tag, false, false, false, next != prefetch, s.Arguments)
		if err != nil {
			return err
		}
		return s.setQos(ch, next)
	})
	if c.err = ask.Refused(s.Queue, err); err == nil {
		c.deliveries, c.took = deliveries, time.Since(began)
	}
	return c
}

// setQos sets the prefetch of consumers that start from now on. It runs in a call of
// Channel.Do, and those take turns.
func (s *Session) setQos(ch *amqp.Channel, prefetch int) error {
	if s.qos == prefetch {
		return nil
	}
	s.qos = prefetch
	return ch.Qos(prefetch, 0, false)
}

// use takes the deliveries of a consumer that has started.
func (s *Session) use(c consumer) error {
	if c.err == nil {
		s.consumer = c
		s.Lane.Opened(s.Ledger, c.prefetch, c.took, s.ask)
		s.fetching(c.prefetch)
	}
	return c.err
}

// widen replaces the consumer by one of a larger prefetch. The new one starts beside
// the fetching, which goes on meanwhile.
func (s *Session) widen(prefetch int) {
	if s.before != nil || s.widening {
		return // there is occasion again
	}
	s.Lane.Opening()
	s.consumers++
	s.widening = true
	number := s.consumers
	s.tasks.Go(func() {
		ctx, end := s.Calling()
		defer end()
		s.wider <- s.start(ctx, prefetch, prefetch, number)
	})
}

// widened takes the consumer that widen has started, and cancels the old one.
func (s *Session) widened(c consumer) error {
	s.widening = false
	old := s.consumer
	if err := s.use(c); err != nil {
		return err
	}
	s.before = old.deliveries
	s.tasks.Go(func() {
		ctx, end := s.Calling()
		defer end()
		_ = s.cancel(ctx, old.tag) // an error is the end of the session
	})
	return nil
}

// narrow replaces the consumer by one of a smaller prefetch. What the old one was
// sent stays, unless that is more, with what is in the handlers, than the new one is
// to have.
func (s *Session) narrow(prefetch int) error {
	if s.before != nil || s.widening {
		return nil // there is occasion again
	}
	s.Lane.Opening()
	if err := s.EndFetching(s.Lane.Push); err != nil {
		return err
	}
	s.Requeue(s.Lane.TakeBack(max(0, prefetch-s.Lane.Busy()))...)
	ctx, end := s.Calling()
	defer end()
	s.consumers++
	return s.use(s.start(ctx, prefetch, prefetch, s.consumers))
}

// heed gives the session the number of messages that the lane wants: in an outage, or
// while it is paused, none or one.
func (s *Session) heed(now time.Time) error {
	wants := s.Lane.Wants(s.Prefetch.Base)
	s.gated = wants < s.Prefetch.Base
	// A consumer of one message that is held by now gets no other one.
	spent := wants == 1 && s.Lane.Waiting() == 0
	if s.gated && (wants < s.prefetch || spent) && !s.suspended {
		if err := s.suspend(); err != nil {
			return err
		}
	}
	if wants > 0 && s.suspended {
		s.suspended = false
		ctx, end := s.Calling()
		defer end()
		s.consumers++
		if !s.gated {
			wants = s.suspicion.first(wants)
		}
		return s.use(s.start(ctx, wants, wants, s.consumers))
	}
	return s.adapt(now)
}

// suspend ends the fetching for a while, and gives back the messages that no worker has.
func (s *Session) suspend() error {
	s.Lane.Closed()
	if err := s.EndFetching(s.Lane.Push); err != nil {
		return err
	}
	s.GiveBack(s.Lane.TakeBack(0)...)
	s.suspended, s.deliveries, s.prefetch = true, nil, 0
	return nil
}

// EndFetching cancels the consuming, and returns when the last message that was sent
// has been handed to take.
func (s *Session) EndFetching(take func(*flight.Message)) error {
	if s.suspended {
		return nil
	}
	ctx, end := s.Calling()
	defer end()
	if s.widening {
		if err := s.widened(<-s.wider); err != nil {
			return err
		}
	}
	if err := s.cancel(ctx, s.tag); err != nil {
		return err
	}
	for _, left := range []<-chan amqp.Delivery{s.before, s.deliveries} {
		if left == nil {
			continue
		}
		for raw := range left {
			s.inOrder(raw, func(raw amqp.Delivery) { take(s.note(raw, time.Now())) })
		}
	}
	s.before = nil
	return nil
}

func (s *Session) fetching(prefetch int) {
	if s.Fetching != nil {
		s.Fetching(s.Queue, prefetch)
	}
}

func (s *Session) cancel(ctx context.Context, tag string) error {
	return s.Channel.Do(ctx, func(ch *amqp.Channel) error { return ch.Cancel(tag, false) })
}

// ask asks the queue of a lane whether it has messages. Its channel is one that a
// refusal may close: on broker 4.3.0 the user needs permission to configure.
func (s *Session) ask() {
	s.tasks.Go(func() {
		began := time.Now()
		ctx, cancel := context.WithTimeout(s.Asking, askLimit)
		defer cancel()
		ready, err := s.ready(ctx)
		s.Lane.Answered(ready, time.Since(began), err)
	})
}

// askLimit is how long lower lanes wait for the answer.
const askLimit = time.Second

// ready returns how many messages of the queue are not sent to anybody.
func (s *Session) ready(ctx context.Context) (n int, err error) {
	if s.counting == nil || s.counting.Err() != nil {
		if s.counting, err = s.Conn.Session(ctx, connection.Consume); err != nil {
			return 0, err
		}
	}
	return ask.Ready(ctx, s.counting, s.Queue)
}

// reasonForEnd tells why the deliveries ended.
func (s *Session) reasonForEnd() error {
	// The library puts the cancel in before it ends the deliveries, and closes
	// both when the channel is lost.
	if _, ok := <-s.cancelled; !ok {
		<-s.Channel.Done()
		return s.Channel.Err()
	}
	return s.cancelledByBroker()
}

// cancelledByBroker tells why the broker has cancelled the consuming. Whether a
// message was kept too long shows when it comes again.
func (s *Session) cancelledByBroker() error {
	if s.version.AtLeast(4, 3) {
		s.Timeout.Took(s.Ledger.Begun(), false)
	}
	return fmt.Errorf("consumer: the broker cancelled the consuming of queue %q: it was deleted, is not available, or a message was kept longer than its consumer timeout", s.Queue)
}

// ended returns why the channel was lost, after a look whether it was a message
// that was kept for too long.
func (s *Session) ended(err error) error {
	var reason *amqp.Error
	if !errors.As(err, &reason) || !s.Timeout.Closed(reason) {
		return err
	}
	s.Timeout.Took(s.Ledger.Begun(), s.version.AtLeast(4, 3))
	if limit := s.Timeout.HandlerLimit(); limit > 0 {
		return fmt.Errorf("consumer: a message of queue %q was kept longer than the broker's consumer timeout of %v: handlers are told to end after %v from now on: %w",
			s.Queue, s.Timeout.Limit().Round(time.Millisecond), limit.Round(time.Millisecond), err)
	}
	return fmt.Errorf("consumer: a message of queue %q was kept longer than the broker's consumer timeout: %w", s.Queue, err)
}

// Tag returns the tag of the latest consumer.
func (s *Session) Tag() string { return s.tag }

// Close waits for everything beside the consuming. The channel and the ctx Asking
// must have ended.
func (s *Session) Close() {
	s.fetching(0)
	s.tasks.Wait()
	if s.counting != nil {
		_ = s.counting.Close() // nothing is in flight on it
	}
}
