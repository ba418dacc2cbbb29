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
// (exchange and key) that does not answer, see silent.go.
package confirm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/exchange"
	"github.com/rehop/rehop/internal/pause"
)

// Limits bound what is unconfirmed at a time. A message that is larger than
// Bytes is sent when nothing else is unconfirmed.
type Limits struct {
	Messages int
	Bytes    int
	Advice   string // for the error of a message that finds no room; "" is none
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
	suspect      atomic.Int64  // since when the main channel does not answer, in Unix nanoseconds; 0: it does
	watching     atomic.Bool
	resting      atomic.Bool   // the watch rests, or is about to
	entered      chan struct{} // one element: a message has come meanwhile
	silentInARow atomic.Int32  // silent channels that were replaced since the last answer
	silent       silentTargets
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
		entered:   make(chan struct{}, 1),
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
	if IsAlone(ctx) {
		p.sendAlone(ctx, messages)
		return
	}
	late := ctx.Err() != nil
	var corked *channel
	for _, m := range messages {
		m.begin(ctx, &p.waiters)
		if late { // nothing is tried, and its error must not look like an outage
			m.fail(Unsent(ctx, errNoTime))
			continue
		}
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

// GiveUp ends every message without its answer, as unconfirmed or as not sent, with
// the cause, and each that is sent from now on. A second call does nothing.
func (p *Publisher) GiveUp(cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.closed = true
	p.end(cause)
	for c := range p.channels {
		c.mu.Lock()
		c.owes = c.count > 0
		c.cutAll(cause)
		c.mu.Unlock()
		c.kick()
	}
}

// Done is closed when the Publisher has given up.
func (p *Publisher) Done() <-chan struct{} { return p.life.Done() }

// Close gives up the channels: messages without an answer end as unconfirmed. It
// returns when every goroutine of the Publisher has ended. No Send may be in
// progress.
func (p *Publisher) Close() error {
	p.GiveUp(ErrClosed)
	p.mu.Lock()
	channels := slices.Collect(maps.Keys(p.channels))
	clear(p.channels)
	p.mu.Unlock()
	errs := make([]error, len(channels))
	var closing sync.WaitGroup
	for i, c := range channels {
		closing.Go(func() { errs[i] = p.closeChannel(c, !c.owes) })
	}
	closing.Wait()
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
	if session.Err() != nil || !c.isReady() {
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

// admit takes the room for m on the channel for its target, unless anything has
// to be waited for.
func (p *Publisher) admit(m *Message) *channel {
	if m.ctx.Err() != nil || m.Patience > 0 && (p.suspect.Load() != 0 || p.silent.any()) {
		return nil
	}
	c := p.channelFor(m)
	if c == nil || !c.isReady() || c.fit(m) != nil || !c.tryEnter(m) {
		return nil
	}
	p.watched()
	return c
}

// watched sees to it that somebody looks at the channels.
func (p *Publisher) watched() {
	switch {
	case !p.watching.Load():
		p.startWatching()
	case p.resting.Load():
		select {
		case p.entered <- struct{}{}:
		default:
		}
	}
}

// channelFor returns the open channel for the target of m, or nil.
func (p *Publisher) channelFor(m *Message) *channel {
	c := p.silent.of(m.Exchange, m.RoutingKey)
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
// whether the exchange exists, room, and a broker that reads. Each of these has a
// clock of its own, which ends with it: so an outage that is over costs the next
// message nothing.
func (p *Publisher) enter(ctx context.Context, m *Message) (*channel, error) {
	ctx, stop := p.stoppable(ctx)
	defer stop()
	since := time.Now()
	for {
		c, err := p.tryToEnter(ctx, m, p.outageSince(m, since))
		switch {
		case err == nil:
			p.watched()
			return c, nil
		case !errors.Is(err, errMoved):
			return nil, err
		}
	}
}

// tryToEnter returns errMoved if m is to look for its channel again. since is when m
// began to wait, or the outage of its target.
func (p *Publisher) tryToEnter(ctx context.Context, m *Message, since time.Time) (*channel, error) {
	c, err := p.live(ctx, m, since)
	if err == nil {
		err = p.known(ctx, m, since, c)
	}
	if err == nil {
		err = c.fit(m)
	}
	if err == nil {
		err = p.inTime(ctx, m, since, c)
	}
	if err == nil {
		err = c.enter(ctx, m, since)
	}
	if err == nil {
		err = c.ready(ctx, m, since)
	}
	return c, err
}

// outageSince returns since when the target of m has not answered, or the main channel,
// if that is before since.
func (p *Publisher) outageSince(m *Message, since time.Time) time.Time {
	if apart := p.silent.find(m.Exchange, m.RoutingKey); apart != nil {
		return earlier(apart.since, since)
	}
	return p.unansweredSince(since)
}

// unansweredSince returns since when the main channel has not answered, if that is
// before since.
func (p *Publisher) unansweredSince(since time.Time) time.Time {
	if suspect := p.suspect.Load(); suspect != 0 {
		return earlier(time.Unix(0, suspect), since)
	}
	return since
}

// inTime returns an error if no time is left to write m.
func (p *Publisher) inTime(ctx context.Context, m *Message, since time.Time, c *channel) error {
	ctx, cancel := m.Patient(ctx, since)
	defer cancel()
	if ctx.Err() == nil {
		return nil
	}
	return Unsent(ctx, cmp.Or(p.outageFor(c, m), errNoTime))
}

// outageFor returns why m cannot be sent, or is not answered, or nil. c.mu may be held.
func (p *Publisher) outageFor(c *channel, m *Message) error {
	if apart := p.silent.find(m.Exchange, m.RoutingKey); apart != nil {
		return &SilentError{Exchange: m.Exchange, RoutingKey: m.RoutingKey, Since: apart.since}
	}
	if !c.isReady() {
		return p.unreadable()
	}
	if p.suspect.Load() != 0 {
		return errSilent
	}
	return nil
}

// known waits until the exchange is known to exist. The broker answers a message
// to a missing exchange by closing the channel, with everything in flight on it.
func (p *Publisher) known(ctx context.Context, m *Message, since time.Time, c *channel) error {
	for !c.knows(m.Exchange) {
		if p.exchanges.Has(m.Exchange, c.socket.Generation()) {
			c.learn(m.Exchange)
			return nil
		}
		if err := p.ask(ctx, m, since, c); err != nil {
			return err
		}
	}
	return nil
}

// ask waits for the answer to one question about the exchange of m.
func (p *Publisher) ask(ctx context.Context, m *Message, since time.Time, c *channel) error {
	q := p.exchanges.Ask(m.Exchange)
	ctx, cancel := m.Patient(ctx, earlier(since, q.Began))
	defer cancel()
	select {
	case <-q.Done:
	case <-c.session.Done():
		return errMoved
	case <-ctx.Done():
		return Unsent(ctx, fmt.Errorf("the broker has not said whether exchange %q exists", m.Exchange))
	}
	switch {
	case q.Missing != nil:
		return &RefusedError{Exchange: m.Exchange, Cause: q.Missing}
	case errors.Is(q.Err, connection.ErrClosed):
		return q.Err
	case q.Err != nil && !pause.For(ctx, shortPause):
		return Unsent(ctx, fmt.Errorf("the broker has not said whether exchange %q exists: %w", m.Exchange, q.Err))
	}
	return nil
}

// shortPause is the pause before a failed step is tried again.
const shortPause = 50 * time.Millisecond
