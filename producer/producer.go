package producer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/confirm"
)

// Config of a Producer. Its zero value is usable.
type Config struct {
	// Window is how many messages may be unconfirmed at a time; a further
	// Publish waits for room. 1 to 10,000; defaults to 1000.
	Window int

	// Timeout is how long Publish tries to get a message confirmed before it
	// turns to Fallback. The ctx of Publish bounds all of it. Defaults to 30 s.
	Timeout time.Duration

	// Fallback takes a message that could not be confirmed: the first sink
	// that does not fail has it. Each gets up to Timeout. A sink that is an
	// io.Closer is closed with the Producer, and belongs to no other.
	Fallback []Sink

	// FailWhenBlocked makes Publish fail at once while the broker is known to
	// block publishers, being short of memory or disk, instead of waiting for
	// Timeout: with an error that wraps *connection.BlockedError, after the
	// Fallback. It goes for an [ExchangeSink] as well. What was sent before the
	// alarm waits for its confirm.
	FailWhenBlocked bool

	// Logger hears of messages that took a fallback. Nil: silent.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	c.Window = cmp.Or(c.Window, 1000)
	c.Timeout = cmp.Or(c.Timeout, 30*time.Second)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c Config) validate() error {
	var errs []error
	if c.Window < 1 || c.Window > 10_000 {
		errs = append(errs, fmt.Errorf("producer: Config.Window is %d, want 1 to 10000", c.Window))
	}
	if c.Timeout < 0 {
		errs = append(errs, fmt.Errorf("producer: Config.Timeout is %v, want more than 0", c.Timeout))
	}
	for i, s := range c.Fallback {
		if s == nil {
			errs = append(errs, fmt.Errorf("producer: Config.Fallback[%d] is nil", i))
		}
	}
	return errors.Join(errs...)
}

// Place is where a message is.
type Place uint8

// The places. The zero value is invalid: the message is nowhere that we know.
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
	Sink  string // of PlaceFallback
	Err   error  // why the message is not in its queue: nil with PlaceQueue

	// MaybeDuplicate says that the message may be in its queue twice, or in its
	// queue and in the fallback: a try was cut off before its answer came.
	MaybeDuplicate bool
}

// Producer publishes on one channel that all its callers share. It is safe for
// concurrent use.
type Producer struct {
	cfg       Config
	publisher *confirm.Publisher
	ids       *ids

	mu     sync.Mutex
	closed bool
	calls  sync.WaitGroup
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
			s.publisher.FailWhenBlocked = cfg.FailWhenBlocked
		}
	}
	publisher := confirm.New(conn, cfg.Window)
	publisher.FailWhenBlocked = cfg.FailWhenBlocked
	return &Producer{
		cfg:       cfg,
		publisher: publisher,
		ids:       newIDs(),
	}, nil
}

// Publish returns nil once the message is safe: confirmed by every queue that
// took it, or taken by a fallback; the Receipt says which. What a lost
// connection cuts off is tried again, with growing pauses, for Config.Timeout. A
// message that is returned, nacked or refused goes to the fallback at once.
//
// With an error the message is not known to be safe. [ErrReturned],
// [ErrNacked], [ErrRefused] and [ErrUnconfirmed] say what is known of it; if
// the fallback failed too, the error holds both causes. A faulty message is
// refused with all its faults, before anything is sent.
func (p *Producer) Publish(ctx context.Context, m Message) (Receipt, error) {
	p.complete(&m)
	publishing, err := m.publishing()
	if err != nil {
		return Receipt{ID: m.ID, Err: err}, err
	}
	if !p.enter() {
		err := fmt.Errorf("producer: message %q: %w", m.ID, errClosed)
		return Receipt{ID: m.ID, Err: err}, err
	}
	defer p.calls.Done()

	sent := confirm.Message{Exchange: m.Exchange, Key: m.Key, Publishing: publishing, Deadline: time.Now().Add(p.cfg.Timeout)}
	pending, err := p.publisher.Send(ctx, sent)
	maybeDuplicate, err := answer(ctx, p.publisher, sent, pending, err)
	receipt := p.receipt(ctx, m, maybeDuplicate, err)
	if receipt.Place == 0 {
		return receipt, receipt.Err
	}
	return receipt, nil
}

// complete sets what a message has by default.
func (p *Producer) complete(m *Message) {
	if m.ID == "" {
		m.ID = p.ids.next()
	}
	if m.Timestamp.IsZero() {
		m.Timestamp = time.Now()
	}
}

// receipt turns to the fallback if need be, and says where the message is.
func (p *Producer) receipt(ctx context.Context, m Message, maybeDuplicate bool, err error) Receipt {
	receipt := Receipt{ID: m.ID, MaybeDuplicate: maybeDuplicate}
	if err == nil {
		receipt.Place = PlaceQueue
		return receipt
	}
	receipt.Err = fmt.Errorf("producer: message %q: %w", m.ID, err)
	if ctx.Err() == nil {
		p.fallBack(ctx, m, &receipt)
	}
	return receipt
}

var errClosed = connection.WithClass(errors.New("the Producer is closed"), connection.Bug)

// fallBack gives the message to the first sink that takes it.
func (p *Producer) fallBack(ctx context.Context, m Message, r *Receipt) {
	errs := []error{r.Err}
	for _, sink := range p.cfg.Fallback {
		err := p.put(ctx, sink, m, r.Err)
		if err == nil {
			p.cfg.Logger.Warn("message went to the fallback", "message", m.ID, "sink", sink.Name(), "error", r.Err)
			r.Place, r.Sink = PlaceFallback, sink.Name()
			return
		}
		errs = append(errs, fmt.Errorf("fallback %q: %w", sink.Name(), err))
	}
	r.Err = errors.Join(errs...)
}

func (p *Producer) put(ctx context.Context, sink Sink, m Message, cause error) error {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Timeout)
	defer cancel()
	return sink.Put(ctx, m, cause)
}

// enter counts a call in, unless the Producer is closed.
func (p *Producer) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.calls.Add(1)
	return true
}

// Close refuses further messages, waits until the calls of Publish in progress
// have returned, and closes the channel and the fallback sinks. The Conn stays
// open. A second Close does nothing.
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
