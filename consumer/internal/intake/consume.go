package intake

import (
	"context"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/consumer/internal/ask"
	"github.com/rehop/rehop/consumer/internal/flight"
)

// consumer is one basic.consume.
type consumer struct {
	tag        string
	prefetch   int
	deliveries <-chan amqp.Delivery
	took       time.Duration // to start
	err        error
}

// start starts a consumer of prefetch, because basic.qos applies to consumers that start
// after it. start also sets next, the likely prefetch of the next consumer. The broker's
// answer to this basic.qos shows that it has accepted the consume, so the consume needs no
// answer of its own.
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

// narrow replaces the consumer by one of a smaller prefetch. Messages that were sent to
// the old one stay, as many as the new one is to have with those in the handlers.
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

// Cancel cancels the consuming. The messages in hand stay, and are not handed out again
// before the end of the channel.
func (s *Session) Cancel(ctx context.Context) error { return s.cancel(ctx, s.tag) }

func (s *Session) fetching(prefetch int) {
	if s.Fetching != nil {
		s.Fetching(s.Queue, prefetch)
	}
}

func (s *Session) cancel(ctx context.Context, tag string) error {
	return s.Channel.Do(ctx, func(ch *amqp.Channel) error { return ch.Cancel(tag, false) })
}
