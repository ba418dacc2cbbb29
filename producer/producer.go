package producer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/confirm"
	"github.com/rehop/rehop/internal/repeats"
	"github.com/rehop/rehop/xdeath"
)

// Place is where a message is.
type Place uint8

// The places. The zero value says that no place is known.
//
// For a message with a Delay, PlaceQueue says that the levels of topology.Delays
// have it. It does not say that a queue takes it when it is due, see Message.Delay.
const (
	_             Place = iota
	PlaceQueue          // in every queue that its exchange and key lead to
	PlaceFallback       // in the sink that Receipt.Sink names
)

func (p Place) String() string {
	return [...]string{"unknown", "queue", "fallback"}[min(p, PlaceFallback)]
}

// Receipt says where a message is.
type Receipt struct {
	ID    string // of the message
	Place Place
	Sink  string       // of PlaceFallback
	Cause xdeath.Cause // why the message is not in its queue; empty with PlaceQueue
	Err   error        // the same as an error; nil with PlaceQueue

	// MaybeDuplicate says that the message may be in a further place, or in one
	// place twice, of its queue and the sinks of the Fallback: a try was written,
	// or given to a sink, and its answer did not come.
	MaybeDuplicate bool
}

// Producer publishes on one channel that all its callers share. It is safe for
// concurrent use.
type Producer struct {
	cfg       Config
	conn      *connection.Conn
	publisher *confirm.Publisher
	ids       *ids
	hooks     hooks
	repeats   *repeats.Log
	ordered   []OrderedSink

	// FallbackAfter, or 0 where no sink takes what is given up by it: before a
	// message is written, and afterwards.
	patience, answerPatience time.Duration

	mu     sync.Mutex
	closed bool
	calls  sync.WaitGroup // calls in progress, and asynchronous messages
	async  outstanding

	confirmed confirmed
}

// New returns a Producer. It opens nothing before the first Publish.
func New(conn *connection.Conn, cfg Config) (*Producer, error) {
	cfg = cfg.withDefaults()
	errs := []error{cfg.validate()}
	if conn == nil {
		errs = append(errs, errors.New("producer: conn is nil"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, connection.WithClass(err, connection.Bug)
	}
	for _, sink := range cfg.Fallback {
		if s, ok := sink.(*ExchangeSink); ok {
			s.patience = cfg.FallbackAfter
		}
	}
	p := &Producer{
		cfg:       cfg,
		conn:      conn,
		publisher: confirm.New(conn, confirm.Limits{Messages: cfg.Window, Bytes: cfg.WindowBytes}),
		ids:       newIDs(),
		hooks:     hooks{cfg.Trace, cfg.Logger},
		repeats:   repeats.New(cfg.Logger),
	}
	for _, sink := range cfg.Fallback {
		if s, ok := sink.(OrderedSink); ok {
			p.ordered = append(p.ordered, s)
		}
	}
	if p.taken(xdeath.CauseUnreachable) || p.taken(xdeath.CauseBlocked) {
		p.patience = cfg.FallbackAfter
	}
	if p.taken(xdeath.CauseUnconfirmed) {
		p.answerPatience = cfg.FallbackAfter
	}
	return p, nil
}

// Publish returns nil once the message is safe: confirmed by every queue that
// took it, or taken by a fallback; the Receipt says which. What a lost
// connection cuts off is sent again, with growing pauses, for Config.Timeout, or
// until Config.FallbackAfter is over. A message that is returned, nacked or
// refused goes to the fallback at once.
//
// With an error the message is not known to be safe. [ErrReturned],
// [ErrNacked], [ErrRefused] and [ErrUnconfirmed] say what is known of it; if
// the fallback failed too, the error holds both causes. A faulty message is
// refused with all its faults, before anything is sent.
func (p *Producer) Publish(ctx context.Context, m Message) (Receipt, error) {
	if ctx == nil {
		return Receipt{ID: m.ID, Err: errNoContext}, errNoContext
	}
	p.complete(&m)
	began := p.hooks.publishing(ctx, &m)
	sending := sendings.Get().(*confirm.Message) // the pool has nothing else
	err := p.fill(sending, &m)
	if err == nil && !p.enter() {
		err = fmt.Errorf("producer: message %q: %w", m.ID, errClosed)
	}
	if err != nil {
		receipt := Receipt{ID: m.ID, Err: err}
		p.hooks.published(ctx, &m, receipt, began)
		return receipt, err
	}
	defer p.calls.Done()

	if receipt, kept := p.putBehind(ctx, &m); kept {
		p.hooks.published(ctx, &m, receipt, began)
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
	p.hooks.published(ctx, &m, receipt, began)
	return receipt, unsafe(receipt)
}

// unsafe is what Publish returns with a receipt.
func unsafe(r Receipt) error {
	if r.Place == 0 {
		return r.Err
	}
	return nil
}

// sendings is a pool of messages whose call has returned.
var sendings = sync.Pool{New: func() any { return new(confirm.Message) }}

// complete sets what a message has by default.
func (p *Producer) complete(m *Message) {
	if m.ID == "" {
		m.ID = p.ids.next()
	}
	if m.Timestamp.IsZero() {
		m.Timestamp = time.Now()
	}
}

// fill makes a message ready to be sent, or returns everything that is wrong
// with it.
func (p *Producer) fill(sending *confirm.Message, m *Message) error {
	publishing, err := m.publishing()
	if err != nil {
		return err
	}
	exchange, key := m.Exchange, m.Key
	if m.Delay > 0 {
		if exchange, key, err = p.delay(m, &publishing, time.Now()); err != nil {
			return err
		}
	}
	header := xdeath.HeaderNeed(publishing)
	*sending = confirm.Message{
		Exchange:   exchange,
		Key:        key,
		Publishing: publishing,
		Size:       len(m.Body) + header,
		Header:     header,
		Headroom:   true,
		Timeout:    p.cfg.Timeout,

		Patience:       p.patience,
		AnswerPatience: p.answerPatience,
	}
	return nil
}

// enter counts a call, unless the Producer is closed.
func (p *Producer) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.calls.Add(1)
	return true
}

// Close refuses further messages, waits until those on their way have their
// receipts, and closes the channels and the fallback sinks. The Conn stays open.
// A second Close does nothing.
func (p *Producer) Close() error {
	p.mu.Lock()
	again := p.closed
	p.closed = true
	p.mu.Unlock()
	if again {
		return nil
	}
	p.calls.Wait()
	errs := []error{p.publisher.Close()}
	for _, sink := range p.cfg.Fallback {
		if c, ok := sink.(io.Closer); ok {
			errs = append(errs, c.Close())
		}
	}
	return errors.Join(errs...)
}

// prefixed returns the faults of a message as those of one of several.
func prefixed(i int, err error) (faults []error) {
	for fault := range strings.Lines(err.Error()) {
		faults = append(faults, fmt.Errorf("producer: messages[%d]: %s", i, strings.TrimPrefix(strings.TrimSpace(fault), "producer: ")))
	}
	return faults
}
