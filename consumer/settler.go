package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/confirm"
	"github.com/rehop/rehop/topology"
)

// Settler settles deliveries of a program that reads a queue in a loop of its
// own, with amqp091-go, by the rules of a Consumer: a copy to the wait or the
// dead-letter queue, confirmed, and then the ack. It always republishes, which is
// right in every wiring; waits of the engine carry come back only while a Consumer
// of their queue runs. It is safe for concurrent use; copies are published one at
// a time.
type Settler struct {
	copies  *amqp.Channel
	returns chan amqp.Return
	route   way
	cfg     Config
	host    string
	turn    chan struct{} // held by the one that publishes

	unanswered []*amqp.DeferredConfirmation // copies that it waits for no more; guarded by turn
}

// maxUnanswered is how many copies without an answer stop further ones. Each may
// still be returned, and while there is no room for a return the library reads
// nothing more from the connection.
const maxUnanswered = 64

// NewSettler returns a Settler for the deliveries of a source. It puts the channel
// copies, which must be of the same cluster and used for nothing else from now on,
// in confirm mode; when that is closed, the Settler is of no use any more. Of the
// Config it uses CopyTimeout and Logger.
func NewSettler(copies *amqp.Channel, source topology.Source, cfg Config) (*Settler, error) {
	cfg = cfg.withDefaults()
	errs := []error{cfg.validate()}
	if copies == nil {
		errs = append(errs, errors.New("consumer: channel for copies is nil"))
	}
	if source == nil {
		errs = append(errs, errors.New("consumer: source is nil"))
	} else if err := source.Route().Validate(); err != nil {
		errs = append(errs, fmt.Errorf("consumer: source: %w", err))
	} else if lanes, ok := source.Route().Lanes(); ok {
		errs = append(errs, fmt.Errorf("consumer: source is Lanes %q, want one of its WorkQueues", lanes.Name))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, connection.WithClass(err, connection.Bug)
	}
	if err := copies.Confirm(false); err != nil {
		return nil, fmt.Errorf("consumer: confirm mode for copies: %w", err)
	}
	return &Settler{
		copies: copies, cfg: cfg, host: hostname(), turn: make(chan struct{}, 1),
		returns: copies.NotifyReturn(make(chan amqp.Return, maxUnanswered+1)),
		route:   wayOf(source.Route()),
	}, nil
}

// Delivery returns what a handler would be given, with the number of the attempt.
func (s *Settler) Delivery(raw amqp.Delivery) *Delivery {
	d, malformed := newDelivery(s.route, raw)
	if malformed != nil {
		s.cfg.Logger.Warn("malformed headers count as absent", "queue", d.Queue, "message", d.ID, "error", malformed)
	}
	return d
}

// Settle settles a delivery, that was not auto-acked, by what its handling
// returned, as OutcomeOf says, and returns where the message is then.
//
// With [Requeue], and where a failed message has no place to go to, it gives the
// delivery back to its queue: the caller pauses before the next. An error means
// that the delivery is not settled, because the copy was not confirmed or the
// delivery's channel is closed: call Settle again, with pauses, or give the
// delivery back. A copy that was not confirmed may have arrived all the same.
func (s *Settler) Settle(ctx context.Context, raw amqp.Delivery, handled error) (Settlement, error) {
	if ctx == nil {
		return Settlement{}, connection.WithClass(errors.New("consumer: Settle: ctx is nil"), connection.Bug)
	}
	m := &message{from: &origin{route: s.route}, raw: raw, delivery: s.Delivery(raw)}
	m.ending = &ending{result: result{err: handled, outcome: OutcomeOf(handled)}}
	if handled != nil {
		m.result.text = handled.Error()
	}
	m.verdict = decide(s.route, 0, raw, m.delivery, m.result.outcome, false, time.Now())
	switch m.verdict.move {
	case moveAck:
		return s.settled(Settlement{Place: PlaceDone}, raw.Ack(false))
	case moveWait, moveDeadLetter:
		if err := s.publish(ctx, destination(m), makeCopy(m, s.host, time.Now())); err != nil {
			s.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "copy not confirmed", slog.String("queue", m.delivery.Queue), slog.String("message", raw.MessageId), slog.Any("error", err))
			return Settlement{}, fmt.Errorf("consumer: copy to %s: %w", destination(m), err)
		}
		return s.settled(settledAt(m.verdict), raw.Ack(false))
	}
	return s.settled(Settlement{Place: PlaceQueue}, raw.Nack(false, true))
}

func (s *Settler) settled(end Settlement, err error) (Settlement, error) {
	if err != nil {
		return Settlement{}, fmt.Errorf("consumer: settle: %w: %w", connection.ErrSessionLost, err)
	}
	return end, nil
}

// publish returns nil when the copy is confirmed.
func (s *Settler) publish(ctx context.Context, to topology.Address, p amqp.Publishing) error {
	ctx, cancel := context.WithTimeoutCause(ctx, s.cfg.CopyTimeout, confirm.ErrLate)
	defer cancel()
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	s.unanswered = slices.DeleteFunc(s.unanswered, answered)
	for len(s.returns) > 0 {
		<-s.returns // of copies that were answered too late
	}
	if n := len(s.unanswered); n >= maxUnanswered {
		return fmt.Errorf("%w: %d copies before it have no answer yet", confirm.ErrLate, n)
	}
	confirmation, err := s.copies.PublishWithDeferredConfirm(to.Exchange, to.Key, true, false, p)
	if err != nil {
		return fmt.Errorf("%w: %w", confirm.ErrUnconfirmed, err)
	}
	select {
	case <-confirmation.Done():
	case <-ctx.Done():
		s.unanswered = append(s.unanswered, confirmation)
		return fmt.Errorf("%w: %w", confirm.ErrUnconfirmed, context.Cause(ctx))
	}
	switch {
	case confirmation.Acked():
		return s.returned(to, p.MessageId)
	case s.copies.IsClosed():
		return fmt.Errorf("%w: the channel for copies is closed", confirm.ErrUnconfirmed)
	}
	return confirm.ErrNacked
}

func answered(c *amqp.DeferredConfirmation) bool {
	select {
	case <-c.Done():
		return true
	default:
		return false
	}
}

// returned returns an error if the copy that was just confirmed was returned: the
// library delivers a return before the confirm. A return carries no delivery tag.
// That of an earlier copy of the same message to the same place is taken for this
// one's: the message may then be published twice, but it is not lost.
func (s *Settler) returned(to topology.Address, id string) error {
	for range len(s.returns) {
		r, ok := <-s.returns
		if ok && r.MessageId == id && r.Exchange == to.Exchange && r.RoutingKey == to.Key {
			return &confirm.ReturnedError{Exchange: to.Exchange, Key: to.Key, Code: r.ReplyCode, Text: r.ReplyText}
		}
	}
	return nil
}
