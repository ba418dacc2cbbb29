package intake

import (
	"context"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/consumer/internal/ask"
	"github.com/rehop/rehop/consumer/internal/hand"
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
		s.Hand.Opened(c.prefetch, c.took, time.Now(), &s.out)
		s.Consumer.Do(&s.out) // before the hook, which may take its time
		s.Consumer.Fetching(c.prefetch)
	}
	return c.err
}

// widen replaces the consumer by one of a larger prefetch. The new one starts beside
// the fetching, which goes on meanwhile.
func (s *Session) widen(prefetch int) {
	if s.before != nil || s.widening {
		return // there is occasion again
	}
	s.Lane.Opening(time.Now(), &s.out)
	s.consumers++
	s.widening = true
	number := s.consumers
	s.tasks.Go(func() {
		ctx, end := s.Consumer.Calling()
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
		ctx, end := s.Consumer.Calling()
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
	s.Lane.Opening(time.Now(), &s.out)
	if err := s.endFetching((*hand.Session).Delivered); err != nil {
		return err
	}
	s.Lane.TakeBack(max(0, prefetch-s.Lane.Busy()), false, time.Now(), &s.out)
	s.Consumer.Do(&s.out)
	ctx, end := s.Consumer.Calling()
	defer end()
	s.consumers++
	return s.use(s.start(ctx, prefetch, prefetch, s.consumers))
}

// EndFetching cancels the consuming, and returns when the last message that was sent
// has come. It goes back.
func (s *Session) EndFetching() error {
	defer s.Consumer.Do(&s.out)
	return s.endFetching((*hand.Session).GiveBack)
}

// endFetching has the messages that still come taken by take.
func (s *Session) endFetching(take func(*hand.Session, *hand.Message, *hand.Out)) error {
	if s.suspended {
		return nil
	}
	s.Consumer.Do(&s.out)
	ctx, end := s.Consumer.Calling()
	defer end()
	if s.widening {
		if err := s.widened(<-s.wider); err != nil {
			return err
		}
		s.Consumer.Do(&s.out)
	}
	if err := s.cancel(ctx, s.tag); err != nil {
		return err
	}
	for _, left := range []<-chan amqp.Delivery{s.before, s.deliveries} {
		if left == nil {
			continue
		}
		for raw := range left {
			s.inOrder(raw, func(raw amqp.Delivery) { take(s.Hand, s.note(raw, time.Now()), &s.out) })
			s.Consumer.Do(&s.out)
		}
	}
	s.before = nil
	return nil
}

// Cancel cancels the consuming. The messages in hand stay, and are not handed out again
// before the end of the channel.
func (s *Session) Cancel(ctx context.Context) error { return s.cancel(ctx, s.tag) }

func (s *Session) cancel(ctx context.Context, tag string) error {
	return s.Channel.Do(ctx, func(ch *amqp.Channel) error { return ch.Cancel(tag, false) })
}
