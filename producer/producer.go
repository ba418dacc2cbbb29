package producer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/confirm"
	"github.com/rehop/rehop/internal/header"
	"github.com/rehop/rehop/internal/repeats"
	"github.com/rehop/rehop/internal/transport"
)

// Producer publishes on one channel that all its callers share. It is safe for
// concurrent use.
type Producer struct {
	cfg       Config
	conn      *connection.Conn
	publisher *confirm.Publisher
	ids       *ids
	trace     Trace // Config.Traces as one
	repeats   *repeats.Log
	ordered   []orderedSink

	patience    time.Duration // FallbackAfter, or 0 where no sink takes messages that were not sent
	unconfirmed bool          // a sink takes messages without an answer

	window   window
	failing  failing
	decided  decided
	untold   untold
	sinkTime sinkTime
	behind   behinds

	sinks    context.Context // ends when a Shutdown has run out of time
	endSinks context.CancelCauseFunc
	stopping sync.Once
	settled  atomic.Bool   // all messages have receipts, and the sinks are closed
	ended    chan struct{} // closed when everything of the Producer has ended
	endErr   error         // set before
}

// New returns a Producer. It opens nothing before the first Publish.
func New(conn *connection.Conn, cfg Config) (*Producer, error) {
	cfg = cfg.withDefaults(conn)
	errs := []error{cfg.validate(), cfg.Defaults.validate()}
	if conn == nil {
		errs = append(errs, errors.New("producer: conn is nil"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, rehop.WithClass(err, rehop.ClassBug)
	}
	limits := confirm.Limits{Messages: cfg.Window, Bytes: cfg.WindowBytes, Advice: "publish more slowly, or raise Config.Window or Config.WindowBytes if the broker keeps up"}
	if cfg.Window == maxWindow {
		limits.Advice = "publish more slowly, or raise Config.WindowBytes if the broker keeps up; Config.Window is the largest"
	}
	publisher := confirm.New(conn, limits)
	p := &Producer{
		cfg:       cfg,
		conn:      conn,
		publisher: publisher,
		ids:       newIDs(),
		trace:     merged(cfg.Traces, cfg.Logger),
		repeats:   repeats.New(cfg.Logger),
		window:    window{limits: limits, outage: publisher.OutageOf},
		failing:   failing{most: cfg.Window},
		ended:     make(chan struct{}),
	}
	p.sinks, p.endSinks = context.WithCancelCause(context.Background())
	for _, sink := range cfg.Fallback {
		if s, ok := as[orderedSink](sink); ok {
			p.ordered = append(p.ordered, s)
		}
	}
	if p.taken(rehop.CauseUnreachable) || p.taken(rehop.CauseBlocked) {
		p.patience = cfg.FallbackAfter
	}
	p.unconfirmed = p.taken(rehop.CauseUnconfirmed)
	return p, nil
}

// Publish returns nil once the message is safe: confirmed by every queue that
// took it, or taken by a fallback; the Receipt says which. A message that a lost
// connection cuts off is sent again, with growing pauses, for Config.Timeout, or
// until Config.FallbackAfter is over. A message that is returned, nacked or
// refused goes to the fallback at once.
//
// With an error the message is not known to be safe. [ErrReturned], [ErrNacked],
// [ErrRefused] and [ErrUnconfirmed] say why; if the fallback failed too, the error
// holds both causes. Publish refuses a faulty message with all its faults, before
// anything is sent. If ctx has ended the wait, the error wraps its error and its cause.
func (p *Producer) Publish(ctx context.Context, m Message) (Receipt, error) {
	if ctx == nil {
		return Receipt{ID: m.ID, Err: errNoContext}, errNoContext
	}
	p.complete(&m)
	ctx, began := p.trace.publishing(ctx, &m)
	sending := sendings.Get().(*confirm.Message) // the pool has nothing else
	err := p.fill(ctx, sending, &m)
	if err == nil && !p.window.enter(1) {
		err = fmt.Errorf("producer: message %q: %w", m.ID, errClosed)
	}
	if err != nil {
		receipt := Receipt{ID: m.ID, Err: err}
		p.trace.published(ctx, &m, receipt, time.Since(began))
		return receipt, err
	}
	defer p.window.leave(false)

	if receipt, kept := p.putBehind(ctx, &m); kept {
		p.trace.published(ctx, &m, receipt, time.Since(began))
		return receipt, unsafe(receipt)
	}
	p.publisher.Send(ctx, sending)
	err = sending.Wait(ctx)
	maybeDuplicate := sending.Repeated
	if p.worthAnother(ctx, sending, err) {
		maybeDuplicate, err = p.again(ctx, &m, sending, err)
	}
	*sending = confirm.Message{}
	sendings.Put(sending)
	receipt := p.receipt(ctx, &m, maybeDuplicate, err)
	p.trace.published(ctx, &m, receipt, time.Since(began))
	return receipt, unsafe(receipt)
}

// sendings is a pool of messages whose call has returned.
var sendings = sync.Pool{New: func() any { return new(confirm.Message) }}

// complete sets the defaults of a message.
func (p *Producer) complete(m *Message) {
	if m.ID == "" {
		m.ID = p.ids.next()
	}
	if m.Timestamp.IsZero() {
		m.Timestamp = time.Now()
	}
	p.cfg.Defaults.complete(m)
}

// fill makes a message ready to be sent, or returns everything that is wrong
// with it.
func (p *Producer) fill(ctx context.Context, sending *confirm.Message, m *Message) error {
	publishing, err := m.publishing()
	if err != nil {
		return err
	}
	exchange, key := m.Exchange, m.RoutingKey
	if m.Delay > 0 {
		if exchange, key, err = p.delay(m, &publishing, time.Now()); err != nil {
			return err
		}
	}
	need := header.Need(publishing)
	*sending = confirm.Message{
		Exchange:   exchange,
		RoutingKey: key,
		Publishing: publishing,
		Size:       len(m.Body) + need,
		Header:     need,
		Headroom:   true,
		Timeout:    p.cfg.Timeout,

		Patience: p.patience,
	}
	if publishing.UserId != "" && header.Sender(publishing.Headers, publishing.UserId) != "" {
		sending.Fit = fitUser
	}
	p.reserve(ctx, sending)
	return nil
}

// fitUser sends the user-id of a former publish in a header if the broker would refuse it.
func fitUser(m *confirm.Message, socket transport.Transport) {
	header.KeepUser(&m.Publishing, socket.User())
	m.Header = header.Need(m.Publishing)
}

// prefixed returns the faults of a message, each with the index of the message.
func prefixed(i int, err error) (faults []error) {
	for fault := range strings.Lines(err.Error()) {
		faults = append(faults, fmt.Errorf("producer: messages[%d]: %s", i, strings.TrimPrefix(strings.TrimSpace(fault), "producer: ")))
	}
	return faults
}
