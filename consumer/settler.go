package consumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer/internal/durations"
	"github.com/rehop/rehop/consumer/internal/hand"
	"github.com/rehop/rehop/consumer/internal/work"
	"github.com/rehop/rehop/internal/confirm"
	"github.com/rehop/rehop/internal/hooks"
	"github.com/rehop/rehop/internal/hostname"
	"github.com/rehop/rehop/internal/pause"
	"github.com/rehop/rehop/internal/route"
	"github.com/rehop/rehop/internal/transport"
	"github.com/rehop/rehop/topology"
)

// Settler settles deliveries of a program that reads a queue in a loop of its own, with
// amqp091-go, by the rules of a Consumer: a confirmed copy in the wait queue or the
// dead-letter queue, and then the ack. It always republishes, which every engine
// allows. Under topology.EngineCarry messages come back from their waits only while a
// Consumer of their queue runs. It is safe for concurrent use.
type Settler struct {
	conn      *connection.Conn
	publisher *confirm.Publisher
	terms     terms
	cfg       SettlerConfig

	found   atomic.Pointer[terms] // on the broker; nil while they have to be looked for
	looking chan struct{}         // an element: a Settle looks for it
	latest  *terms                // that were found; belongs to the one who looks
}

// SettlerConfig configures a Settler. Its zero value is usable.
type SettlerConfig struct {
	// CopyTimeout is how long Settle waits for the confirm of a copy. Defaults to 1 min.
	CopyTimeout time.Duration

	// Logger gets a record at Warn for a copy that is not confirmed, and for headers that
	// are malformed. If nil, it is the Logger of the Conn.
	Logger *slog.Logger
}

// settlerCopies is how many copies of a Settler may be unconfirmed at a time.
const settlerCopies = 256

// NewSettler returns a Settler for the deliveries of a source. It publishes copies
// over conn, which must be of the same cluster as the deliveries. All faults of its
// arguments are returned at once. The Settler must be closed.
func NewSettler(conn *connection.Conn, source topology.Source, cfg SettlerConfig) (*Settler, error) {
	cfg.CopyTimeout = cmp.Or(cfg.CopyTimeout, durations.CopyTimeout)
	inherited, _ := transport.Inherited(conn)
	cfg.Logger = hooks.Logger(cmp.Or(cfg.Logger, inherited))
	var errs []error
	if cfg.CopyTimeout < 0 {
		errs = append(errs, fmt.Errorf("consumer: SettlerConfig.CopyTimeout is %v, want 0 (the default) or more", cfg.CopyTimeout))
	}
	if conn == nil {
		errs = append(errs, errors.New("consumer: conn is nil"))
	}
	from, err := route.Of(source)
	switch {
	case err != nil:
		errs = append(errs, fmt.Errorf("consumer: source: %w", err))
	case len(from.Routes) != 1:
		errs = append(errs, fmt.Errorf("consumer: source is %q, which has several queues, want one of its WorkQueues", nameOf(from)))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, rehop.WithClass(err, rehop.ClassBug)
	}
	return &Settler{
		conn:      conn,
		publisher: confirm.New(conn, confirm.Limits{Messages: settlerCopies}),
		terms:     terms{route: from.Routes[0], host: hostname.Get()},
		cfg:       cfg,
		looking:   make(chan struct{}, 1),
	}, nil
}

// Close gives up the copies that are not confirmed. No Settle may be in progress.
func (s *Settler) Close() error { return s.publisher.Close() }

// Delivery returns the Delivery that a handler would get, with the number of the
// attempt. A message whose RetryAfter is longer than the longest wait comes back after
// that wait. A Consumer does not hand it out before History.NotBefore, and a program that
// has a Settler should settle it with a [Snooze] until then.
func (s *Settler) Delivery(raw amqp.Delivery) *Delivery {
	d := new(Delivery)
	if malformed := d.read(&s.terms.route, raw); malformed != nil {
		s.cfg.Logger.Warn("malformed headers count as absent", "queue", d.Queue, "message", d.ID, "error", malformed)
	}
	return d
}

// Settle settles a delivery that was not auto-acked. The outcome is [OutcomeOf] of
// handled, the error of the program's own handling: where a Handler has handled a Delivery,
// its [Delivery.Err], or what the Handler returned if that is nil. The Settlement says where
// the message is then.
//
// Before its first copy the Settler asks the broker for the queues of the waits, as a
// Consumer does at the start of a session. It asks again after no queue took a copy.
//
// With [Hold], and where a failed message has no place to go to, it gives the
// delivery back to its queue. On a queue without waits a RetryAfter puts the message at the
// end of its queue at once. The caller should pause before the next delivery in both cases.
// [HoldFor] with a d of more than zero is a [Snooze] of d. An error means that the delivery is not settled, because the copy was not confirmed
// or the delivery's channel is closed: call Settle again, with pauses, or give the
// delivery back. A copy that was not confirmed may have arrived all the same.
func (s *Settler) Settle(ctx context.Context, raw amqp.Delivery, handled error) (Settlement, error) {
	if ctx == nil {
		return Settlement{}, rehop.WithClass(errors.New("consumer: Settle: ctx is nil"), rehop.ClassBug)
	}
	d := s.Delivery(raw)
	res := judged(handled)
	t := s.terms
	t.version = s.conn.Server().Version
	v := t.decideWithoutHold(raw, d, res)
	var found *terms
	if v.Move == hand.Copy {
		var err error
		if found, err = s.find(ctx); err != nil {
			return Settlement{}, fmt.Errorf("consumer: Settle: %w", err)
		}
		t = *found
		t.version = s.conn.Server().Version
		v = t.decideWithoutHold(raw, d, res)
	}
	switch v.Move {
	case hand.Ack:
		return settledBy(raw.Ack(false), v.settlement)
	case hand.Copy:
		if err := s.copy(ctx, raw, &v.Instruction); err != nil {
			if errors.Is(err, confirm.ErrReturned) {
				s.found.CompareAndSwap(found, nil) // somebody has changed the queues
			}
			s.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "copy not confirmed", slog.String("queue", d.Queue), slog.String("message", raw.MessageId), slog.Any("error", err))
			return Settlement{}, fmt.Errorf("consumer: copy to %s: %w", v.To, err)
		}
		return settledBy(raw.Ack(false), v.settlement)
	}
	return settledBy(raw.Nack(false, true), requeue.settlement)
}

// decideWithoutHold is decide for a program that holds nothing: a message that would be held
// goes to the end of its queue by a copy where its returns are counted.
func (t *terms) decideWithoutHold(raw amqp.Delivery, d *Delivery, res result) decision {
	v := t.decide(raw, d, res, false, time.Now())
	if v.Move == work.Hold && v.Instead != nil {
		v.Instruction, v.settlement = *v.Instead, requeue.settlement
	}
	return v
}

// find returns the terms on the broker. One call of Settle looks for it, and each other call
// waits for it no longer than its own ctx lasts. If a part of the topology is missing, the copy
// finds out whether it is the one that it needs.
func (s *Settler) find(ctx context.Context) (*terms, error) {
	if found := s.found.Load(); found != nil {
		return found, nil
	}
	select {
	case s.looking <- struct{}{}:
		defer func() { <-s.looking }()
	case <-ctx.Done():
		return nil, pause.Ended(ctx)
	}
	if found := s.found.Load(); found != nil {
		return found, nil
	}
	found, err := s.ask(ctx)
	switch {
	case err != nil && s.latest != nil && rehop.ClassOf(err) != rehop.ClassTransient:
		return s.latest, nil
	case err != nil:
		return nil, err
	}
	s.latest = found
	s.found.Store(found)
	return found, nil
}

func (s *Settler) ask(ctx context.Context) (*terms, error) {
	t := s.terms
	found, err := t.route.Broker.Resolve(ctx, s.conn)
	if err != nil {
		return nil, err
	}
	if found.Engine == route.Nack {
		found.Engine = route.Republish
	}
	session, err := s.conn.Session(ctx, connection.Publish)
	if err != nil {
		return nil, err
	}
	defer session.Close()
	socket := transport.Inside.Session(session)
	t.route, t.account, t.frame = found, socket.User(), socket.FrameSize()
	return &t, nil
}

// copy returns nil when the copy is confirmed.
func (s *Settler) copy(ctx context.Context, raw amqp.Delivery, i *work.Instruction) error {
	p, headers := i.Publishing(raw, time.Now())
	m := &confirm.Message{Exchange: i.To.Exchange, RoutingKey: i.To.RoutingKey, Publishing: p, Header: headers, Timeout: s.cfg.CopyTimeout}
	s.publisher.Send(ctx, m)
	return m.Wait(ctx)
}

func settledBy(err error, at Settlement) (Settlement, error) {
	if err != nil {
		return Settlement{}, fmt.Errorf("consumer: settle: %w: %w", connection.ErrSessionLost, err)
	}
	return at, nil
}
