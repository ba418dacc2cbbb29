package intake

import (
	"context"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/consumer/internal/hand"
	"github.com/rehop/rehop/internal/ask"
)

// consumer is one basic.consume.
type consumer struct {
	tag        string
	prefetch   int
	deliveries <-chan amqp.Delivery
}

// start starts a consumer of prefetch, because basic.qos applies to consumers that start
// after it. start also sets next, the likely prefetch of the next consumer. The broker's
// answer to this basic.qos shows that it has accepted the consume, so the consume needs no
// answer of its own.
func (s *Session) start(ctx context.Context, prefetch, next int) error {
	c := consumer{tag: s.nextTag(prefetch), prefetch: prefetch}
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
	if err != nil {
		return ask.Refused(s.Queue, err)
	}
	c.deliveries = deliveries
	s.consumer = c
	s.Hand.Opened(c.prefetch, time.Since(began), time.Now(), &s.out)
	s.Consumer.Do(&s.out) // before the hook, which may take its time
	s.Consumer.Fetching(c.prefetch)
	return nil
}

// nextTag returns the tag of one more consumer. It sorts behind those of the others.
func (s *Session) nextTag(prefetch int) string {
	s.consumers++
	return fmt.Sprintf("rehop-%s-%06d-%d", s.Host, s.consumers, prefetch)
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

// replace replaces the consumer by one of another prefetch.
//
// Both consumers of the channel have unsettled messages then. At the end of the channel a queue puts
// those back into their order if the tag of the later consumer sorts behind (measured on quorum
// queues of 3.10.8; those of 4.0.5 and 4.3.6, and classic queues, need no such tag).
func (s *Session) replace(prefetch int) error {
	s.Lane.Opening(time.Now(), &s.out)
	if err := s.endFetching((*hand.Session).Delivered); err != nil {
		return err
	}
	// As many messages stay as the new consumer is to have, with those in the handlers. Where they may wait
	// for keys all stay: the next growth past a key would bring them again, and count one more return.
	if prefetch < s.prefetch && s.Lane.PerKey == 0 {
		s.Lane.TakeBack(max(0, prefetch-s.Lane.Busy()), false, time.Now(), &s.out)
	}
	return s.begin(prefetch)
}

// begin starts a consumer after another one has ended.
func (s *Session) begin(prefetch int) error {
	s.Consumer.Do(&s.out) // before a call that waits for the broker
	ctx, end := s.Consumer.Calling()
	defer end()
	return s.start(ctx, prefetch, prefetch)
}

// EndFetching cancels the consuming, and returns when the last message that was sent
// has come. It goes back.
func (s *Session) EndFetching() error {
	defer s.Consumer.Do(&s.out)
	return s.endFetching((*hand.Session).GiveBack)
}

// endFetching has the messages that still come taken by take.
func (s *Session) endFetching(take func(*hand.Session, *hand.Message, *hand.Out)) error {
	if s.prefetch == 0 {
		return nil
	}
	s.Consumer.Do(&s.out)
	ctx, end := s.Consumer.Calling()
	defer end()
	if err := s.cancel(ctx, s.tag); err != nil {
		return err
	}
	for raw := range s.deliveries {
		take(s.Hand, s.note(raw, time.Now()), &s.out)
		s.Consumer.Do(&s.out)
	}
	return nil
}

// Reach returns when the queue has done all that it was told. All messages stay in hand until the end of
// the channel.
func (s *Session) Reach(ctx context.Context) error {
	return ask.Join(ctx, s.Channel, s.Queue, s.nextTag(1))
}

func (s *Session) cancel(ctx context.Context, tag string) error {
	return s.Channel.Do(ctx, func(ch *amqp.Channel) error { return ch.Cancel(tag, false) })
}
