// Package confirm is the SDK's only confirmed publish. Messages are mandatory and
// share one pipelined channel, on which the number of unconfirmed messages and
// their bytes are bounded.
//
// A message ends as confirmed (nil), returned ([*ReturnedError]), nacked
// ([ErrNacked]), refused ([*RefusedError], [*TooLargeError]) or unconfirmed
// ([ErrUnconfirmed]: the answer is missing, the message may or may not be there).
// Any other error: it was not sent.
//
// A Publisher has one channel for all messages, and a further one for each target
// (exchange and key) that does not answer, see lanes.go.
package confirm

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/exchange"
)

// Limits bound what is unconfirmed at a time. A message that is larger than
// Bytes is sent when nothing else is unconfirmed.
type Limits struct {
	Messages int
	Bytes    int
}

// DefaultBytes is the default of Limits.Bytes.
const DefaultBytes = 64 << 20

// Publisher publishes on one channel at a time, and opens a new one when that is
// lost. It is safe for concurrent use.
type Publisher struct {
	conn      *connection.Conn
	limits    Limits
	exchanges *exchange.Known

	life    context.Context // ends with Close
	end     context.CancelCauseFunc
	running sync.WaitGroup // every goroutine of the Publisher

	main         atomic.Pointer[channel]
	aside        chan struct{} // one element for each message that is sent on a channel of its own
	waiting      atomic.Int64  // since when messages have to wait, in Unix nanoseconds; 0: they do not
	suspect      atomic.Int64  // since when the main channel does not answer, in Unix nanoseconds; 0: it does
	watching     atomic.Bool
	silentInARow atomic.Int32 // silent channels that were replaced since the last answer
	lanes        lanes
	waiters      sync.Pool

	mu       sync.Mutex
	closed   bool
	opening  *opening
	changing bool                  // a channel is being opened in place of one in use
	channels map[*channel]struct{} // every open one
}

// New returns a Publisher. It opens nothing before the first Send.
func New(conn *connection.Conn, limits Limits) *Publisher {
	if limits.Bytes <= 0 {
		limits.Bytes = DefaultBytes
	}
	p := &Publisher{
		conn:      conn,
		limits:    limits,
		exchanges: exchange.Of(conn),
		aside:     make(chan struct{}, maxAside),
		channels:  map[*channel]struct{}{},
		waiters:   sync.Pool{New: newWaiter},
	}
	p.life, p.end = context.WithCancelCause(context.Background())
	return p
}

// Send writes messages in their order, each as soon as the limits leave room for
// it, and returns when all are written or have failed. Messages that need not
// wait are sent together.
//
// Each message has exactly one outcome: a message with a Report is reported,
// perhaps before Send returns; for any other the caller calls [Message.Wait].
// ctx bounds the sending, and the waiting of reported messages for the answer.
func (p *Publisher) Send(ctx context.Context, messages ...*Message) {
	var corked *channel
	for _, m := range messages {
		m.begin(ctx, &p.waiters)
		for {
			c := p.admit(m)
			if c == nil {
				corked.uncork()
				corked = nil
				var err error
				if c, err = p.enter(ctx, m); err != nil {
					m.fail(err)
					break
				}
			}
			if c != corked && c.socket.Cork() {
				corked.uncork()
				corked = c
			}
			err := c.write(m)
			if err == nil {
				break
			}
			if !errors.Is(err, errUnsent) {
				m.fail(err)
				break
			}
		}
	}
	if corked != nil && len(messages) == 1 && corked.busy() {
		runtime.Gosched() // let others come along in the same packet
	}
	corked.uncork()
}

// Close gives up the channels: messages without an answer end as unconfirmed. It
// returns when every goroutine of the Publisher has ended. No Send may be in
// progress.
func (p *Publisher) Close() error {
	p.mu.Lock()
	again := p.closed
	p.closed = true
	channels := make([]*channel, 0, len(p.channels))
	for c := range p.channels {
		channels = append(channels, c)
	}
	p.mu.Unlock()
	p.end(connection.ErrClosed)
	var errs []error
	if !again {
		for _, c := range channels {
			c.mu.Lock()
			answered := c.count == 0
			c.cutAll(connection.ErrClosed)
			c.mu.Unlock()
			c.kick()
			errs = append(errs, p.closeChannel(c, answered))
		}
	}
	p.running.Wait()
	return errors.Join(errs...)
}

// closeLimit is how long the closing of a channel that owes answers is awaited.
const closeLimit = time.Second

// closeChannel closes a channel. The broker may hold up a channel with unanswered
// messages for as long as a queue does not answer. Such a channel is closed in
// the background after closeLimit: waiting longer would cost the socket.
func (p *Publisher) closeChannel(c *channel, answered bool) error {
	session := c.session
	if answered {
		return session.Close()
	}
	if session.Err() != nil || c.socket.Ready(ended) != nil {
		return nil // it ends with the socket
	}
	closing := make(chan struct{})
	go func() { // ends at the latest with the socket
		defer close(closing)
		_ = session.Channel().Close()
	}()
	timer := time.NewTimer(closeLimit)
	defer timer.Stop()
	select {
	case <-closing:
	case <-timer.C:
	}
	return nil
}

// ended is a ctx for a call that must not wait.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// admit takes the room for m on the channel for its target, unless anything has
// to be waited for.
func (p *Publisher) admit(m *Message) *channel {
	if m.ctx.Err() != nil || m.Patience > 0 && (p.suspect.Load() != 0 || p.lanes.any()) {
		return nil
	}
	c := p.channelFor(m)
	if c == nil || c.socket.Ready(ended) != nil || c.fit(m) != nil || !c.tryEnter(m) {
		return nil
	}
	p.sendable()
	return c
}

// sendable notes that messages do not have to wait any more.
func (p *Publisher) sendable() {
	if p.waiting.Load() != 0 {
		p.waiting.Store(0)
	}
	if !p.watching.Load() {
		p.startWatching()
	}
}

// channelFor returns the open channel for the target of m, or nil.
func (p *Publisher) channelFor(m *Message) *channel {
	c := p.lanes.of(m.Exchange, m.Key)
	if c == nil {
		c = p.main.Load()
	}
	if c == nil || c.session.Err() != nil {
		return nil
	}
	if c.keepsRefusing(m) {
		p.renew(c)
	}
	return c
}

// enter waits for everything that admit does not wait for: a channel, the answer
// whether the exchange exists, room, and a broker that reads.
func (p *Publisher) enter(ctx context.Context, m *Message) (*channel, error) {
	ctx, cancel := p.bounded(ctx, m)
	defer cancel()
	for {
		c, err := p.live(ctx, m)
		if err == nil {
			err = p.known(ctx, c, m.Exchange)
		}
		if err == nil {
			err = c.fit(m)
		}
		if err == nil && ctx.Err() != nil {
			err = p.unsentReason(c, m)
		}
		if err == nil {
			err = c.enter(ctx, m)
		}
		if err == nil {
			err = c.ready(ctx, m)
		}
		switch {
		case err == nil:
			p.sendable()
			return c, nil
		case errors.Is(err, errMoved):
			continue
		case ctx.Err() != nil:
			return nil, &UnsentError{Why: err, Cause: context.Cause(ctx)}
		default:
			return nil, err
		}
	}
}

// unsentReason says why a message whose time has run out was not sent.
func (p *Publisher) unsentReason(c *channel, m *Message) error {
	if lane := p.lanes.lane(m.Exchange, m.Key); lane != nil {
		return &SilentError{Exchange: m.Exchange, Key: m.Key, Since: lane.since}
	}
	if err := c.socket.Ready(ended); err != nil {
		return p.unreadable()
	}
	if p.suspect.Load() != 0 {
		return errSilent
	}
	return errNoTime
}

// bounded returns a ctx that also ends with the deadline of m, or when the trouble
// has lasted for the Patience of m.
func (p *Publisher) bounded(ctx context.Context, m *Message) (context.Context, context.CancelFunc) {
	since := time.Now()
	if !p.waiting.CompareAndSwap(0, since.UnixNano()) {
		since = time.Unix(0, p.waiting.Load())
	}
	limit, cause := m.deadline, ErrLate
	if m.Patience > 0 {
		if lane := p.lanes.lane(m.Exchange, m.Key); lane != nil {
			since = lane.since
		} else if suspect := p.suspect.Load(); suspect != 0 {
			since = time.Unix(0, suspect)
		}
		if end := since.Add(m.Patience); limit.IsZero() || end.Before(limit) {
			limit, cause = end, &impatientError{max(m.Patience, time.Since(since))}
		}
	}
	ctx, stop := stoppable(ctx)
	if limit.IsZero() {
		return ctx, stop
	}
	ctx, cancel := context.WithDeadlineCause(ctx, limit, cause)
	return ctx, func() { cancel(); stop() }
}

// known waits until the exchange is known to exist. The broker answers a message
// to a missing exchange by closing the channel, with everything in flight on it.
func (p *Publisher) known(ctx context.Context, c *channel, name string) error {
	for !c.knows(name) {
		if p.exchanges.Has(name, c.session.Generation()) {
			c.learn(name)
			return nil
		}
		q := p.exchanges.Ask(name)
		select {
		case <-q.Done:
		case <-c.session.Done():
			return errMoved
		case <-ctx.Done():
			return fmt.Errorf("the broker has not said whether exchange %q exists", name)
		}
		switch {
		case q.Missing != nil:
			return &RefusedError{Exchange: name, Cause: q.Missing}
		case errors.Is(q.Err, connection.ErrClosed):
			return q.Err
		case q.Err != nil:
			if err := pause(ctx); err != nil {
				return fmt.Errorf("the broker has not said whether exchange %q exists: %w", name, q.Err)
			}
		}
	}
	return nil
}

// shortPause is the pause before a failed step is tried again.
const shortPause = 50 * time.Millisecond

func pause(ctx context.Context) error {
	timer := time.NewTimer(shortPause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
