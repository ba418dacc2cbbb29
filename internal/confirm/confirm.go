// Package confirm is the one confirmed publish of the SDK: mandatory, on one
// pipelined channel with a bounded number of unconfirmed messages, and with
// five outcomes told apart.
//
// A publish ends as confirmed (nil), returned ([*ReturnedError]), nacked
// ([ErrNacked]), refused ([*RefusedError]) or unconfirmed ([ErrUnconfirmed]:
// the answer is missing, the message may or may not be there).
package confirm

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
)

// Message is a publishing and where it goes.
type Message struct {
	Exchange, Key string
	Publishing    amqp.Publishing

	// Deadline ends the waiting for the answer like that of a ctx, which for
	// each message would cost more than the rest of its publish. Zero: none.
	Deadline time.Time
}

// ErrLate is the cause of an end at a message's Deadline.
var ErrLate = errors.New("no answer in time")

// Bound returns a ctx that ends at the message's Deadline too.
func (m Message) Bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if m.Deadline.IsZero() {
		return ctx, func() {}
	}
	return context.WithDeadlineCause(ctx, m.Deadline, ErrLate)
}

// Publisher publishes on one channel at a time, and on a new one when that is
// lost. It is safe for concurrent use.
type Publisher struct {
	// FailWhenBlocked, set before the first publish, makes a message that is
	// not sent yet fail with a *connection.BlockedError while the broker blocks
	// publishers.
	FailWhenBlocked bool

	conn   *connection.Conn
	window int

	opening chan struct{} // held by the one caller that replaces the pipe
	aside   chan struct{} // one element for each channel opened beside the pipe
	mu      sync.Mutex
	pipe    *pipe
	closed  bool
	over    chan struct{}  // closed by Close
	rest    sync.WaitGroup // what goes on after a call: answers that nobody awaits, channels being closed
}

// New returns a Publisher that keeps at most window messages unconfirmed. It
// opens nothing before the first publish.
func New(conn *connection.Conn, window int) *Publisher {
	return &Publisher{conn: conn, window: window, opening: make(chan struct{}, 1), aside: make(chan struct{}, maxAside), over: make(chan struct{})}
}

// maxAside bounds the channels that are open beside the pipe at a time. A
// socket has 2047 by default, and other users.
const maxAside = 16

// Publish sends m and waits for its outcome.
func (p *Publisher) Publish(ctx context.Context, m Message) error {
	pending, err := p.Send(ctx, m)
	if err != nil {
		return err
	}
	return pending.Wait(ctx)
}

// Send writes m once the window has room, and returns without waiting for the
// broker's answer. Each Pending must be waited for, once. An error is
// [ErrUnconfirmed], or wraps it, if m may have reached the broker. Send returns
// when ctx ends, also while the broker does not read.
func (p *Publisher) Send(ctx context.Context, m Message) (*Pending, error) {
	pending, err := p.Write(ctx, m)
	if err == nil {
		pending.Flush()
	}
	return pending, err
}

// Write is Send without its end: the caller calls [Pending.Flush] as soon as it
// has noted the Pending where the answer will be looked for.
func (p *Publisher) Write(ctx context.Context, m Message) (*Pending, error) {
	for {
		pipe, err := p.admit(ctx, m)
		if err != nil {
			return nil, err
		}
		pending, err := pipe.send(p, m)
		if !errors.Is(err, errUnsent) {
			return pending, err
		}
	}
}

// SendAll is Send for the first of several messages and for those behind it
// that need not wait for room: they leave together, in their order. It returns
// a Pending for each message it has written; an error is about the next one.
func (p *Publisher) SendAll(ctx context.Context, messages []Message) ([]*Pending, error) {
	for {
		pipe, err := p.admit(ctx, messages[0])
		if err != nil {
			return nil, err
		}
		sent, err := pipe.sendAll(p, messages)
		if !errors.Is(err, errUnsent) {
			return sent, err
		}
		if len(sent) > 0 {
			return sent, nil
		}
	}
}

// admit takes a place in the window of the pipe in use, when the broker reads
// what is published and the exchange is there.
func (p *Publisher) admit(ctx context.Context, m Message) (*pipe, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if pipe, err := p.current(); err != nil || pipe != nil && pipe.admits(m.Exchange) {
		return pipe, err
	}
	ctx, cancel := m.Bound(ctx)
	defer cancel()
	var look <-chan time.Time
	if p.FailWhenBlocked {
		ticker := time.NewTicker(lookForAlarm)
		defer ticker.Stop()
		look = ticker.C
	}
	for {
		if err := p.alarm(); err != nil {
			return nil, err
		}
		pipe, err := p.live(ctx)
		if err != nil {
			return nil, err
		}
		select {
		case pipe.window <- struct{}{}:
		case <-pipe.session.Done():
			continue
		case <-look:
			continue
		case <-ctx.Done():
			return nil, fmt.Errorf("no room among %d unconfirmed messages: %w", p.window, context.Cause(ctx))
		}
		err = p.ready(ctx, pipe)
		if err == nil {
			err = p.look(ctx, pipe, m.Exchange)
		}
		if err != nil {
			<-pipe.window
			return nil, err
		}
		return pipe, nil
	}
}

// lookForAlarm is how often who waits and is to fail when blocked asks for it.
const lookForAlarm = 100 * time.Millisecond

// alarm returns a *connection.BlockedError if a message must fail for it.
func (p *Publisher) alarm() error {
	if !p.FailWhenBlocked {
		return nil
	}
	if reason, since, blocked := p.conn.Blocked(); blocked {
		return &connection.BlockedError{Reason: reason, Since: since}
	}
	return nil
}

// ready waits until the broker reads what is published.
func (p *Publisher) ready(ctx context.Context, pipe *pipe) error {
	if !p.FailWhenBlocked {
		return pipe.session.Ready(ctx)
	}
	for {
		if err := p.alarm(); err != nil {
			return err
		}
		brief, cancel := context.WithTimeout(ctx, lookForAlarm)
		err := pipe.session.Ready(brief)
		cancel()
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
}

// Close gives up the channel; outstanding messages end as unconfirmed. It
// returns when every goroutine of the Publisher has ended.
func (p *Publisher) Close() error {
	p.mu.Lock()
	again := p.closed
	p.closed = true
	pipe := p.pipe
	p.mu.Unlock()
	if !again {
		close(p.over)
	}
	var err error
	if pipe != nil {
		err = pipe.session.Close()
	}
	p.rest.Wait()
	return err
}

// live returns the pipe in use, opening a new one if there is none.
func (p *Publisher) live(ctx context.Context) (*pipe, error) {
	if pipe, err := p.current(); pipe != nil || err != nil {
		return pipe, err
	}
	select {
	case p.opening <- struct{}{}:
		defer func() { <-p.opening }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if pipe, err := p.current(); pipe != nil || err != nil {
		return pipe, err
	}
	pipe, err := p.open(ctx, p.window)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errors.Join(connection.ErrClosed, pipe.session.Close())
	}
	p.pipe = pipe
	return pipe, nil
}

func (p *Publisher) current() (*pipe, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, connection.ErrClosed
	}
	if p.pipe == nil {
		return nil, nil
	}
	select {
	case <-p.pipe.session.Done():
		p.pipe = nil
		return nil, nil
	default:
		return p.pipe, nil
	}
}
