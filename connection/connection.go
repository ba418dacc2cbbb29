// Package connection keeps a program connected to RabbitMQ and hands out
// sessions.
//
// A [Session] is one fresh channel, used until it is lost; then the user asks
// [Conn.Session] for the next one, which connects again if need be. Nothing is
// carried over from one session to the next: a delivery tag or a confirm of an
// old channel means nothing on a new one, and pretending otherwise settles the
// wrong message.
//
// Publishing and consuming have a socket each, because a broker that is short
// of memory or disk stops reading from publishers: acknowledgements and
// declarations on the same socket would wait with them.
package connection

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// ErrClosed is returned after [Conn.Close].
var ErrClosed = errors.New("connection: closed")

// closeTimeout bounds Conn.Close: the goodbye of a live broker takes
// milliseconds, a dead one never answers.
const closeTimeout = 5 * time.Second

// Use says what a session is for, and so which socket it lives on. The zero
// value is invalid.
type Use uint8

const (
	// Publish is for publishing, its confirms and returns.
	Publish Use = iota + 1
	// Consume is for everything else: consuming, settling, declaring topology.
	Consume
)

// String returns the word that ends the connection name in the management UI.
func (u Use) String() string {
	switch u {
	case Publish:
		return "publish"
	case Consume:
		return "consume"
	}
	return fmt.Sprintf("Use(%d)", uint8(u))
}

// Conn is a program's connection to one RabbitMQ cluster: up to two sockets,
// each opened when first needed and again after a loss. It is safe for
// concurrent use. It runs nothing while nobody waits for a session, except one
// goroutine per live socket and session, one more per socket whose credentials
// expire or whose peer does not read, and those that amqp091-go needs.
type Conn struct {
	cfg    Config
	life   context.Context // ends with Close
	end    context.CancelCauseFunc
	lines  [2]*line // publish, consume
	states *states
	server *atomic.Pointer[Server]
	closed sync.Once

	// pinned is set in the Conn that Config.OnUp gets: it is all that one has.
	pinned *link
}

// Open validates cfg, connects and returns once the broker has accepted user
// and virtual host, so that a wrong configuration shows at startup. The socket
// it opens is the one for [Consume]; the other one opens with the first
// [Publish] session.
//
// It tries every URL again and again until ctx or Config.OpenTimeout ends. It
// returns sooner, after a round in which no URL worked, when waiting would not
// help: the broker refuses the user, its password, the virtual host or the
// permission, every host has an invalid TLS certificate, or Config.OnUp says
// so. A broker that closes the socket at login without a word may refuse the
// password as well; that counts only the third time. ctx bounds the opening
// only; ending it later closes nothing.
//
// The error names each URL, without its password, with what happened there
// last; it wraps those causes, and the error and cause of ctx. [ClassOf] says
// whether trying again could help.
func Open(ctx context.Context, cfg Config) (*Conn, error) {
	cfg = cfg.withDefaults()
	targets, err := cfg.validate()
	if err != nil {
		return nil, err
	}
	c := &Conn{cfg: cfg, states: newStates(cfg.Trace.State), server: new(atomic.Pointer[Server])}
	c.life, c.end = context.WithCancelCause(context.Background())
	c.connectLines(targets)
	if cfg.Lazy {
		return c, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, cfg.OpenTimeout, errOpenTimeout)
	defer cancel()
	if _, err := c.line(Consume).reach(ctx, opening); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Session opens a fresh channel on the socket for use; the caller closes it.
//
// While there is no connection it dials, with the pauses of Config.Backoff
// between the rounds. Concurrent callers share one dial; each returns when its
// own ctx ends. A session for [Publish] also waits while the broker blocks
// publishers (see [Conn.Blocked]).
//
// It fails only when ctx ends, with its error and cause and what went wrong
// meanwhile, when Config.Backoff has no more pauses, with [ErrClosed], or when
// the broker has no channel left to give.
func (c *Conn) Session(ctx context.Context, use Use) (*Session, error) {
	if use != Publish && use != Consume {
		return nil, fmt.Errorf("connection: Use is %d, want Publish or Consume", uint8(use))
	}
	if ctx.Value(inOnUp{}) == c { // it would wait for what OnUp is part of
		return nil, WithClass(errors.New("connection: no session: OnUp has used another Conn than the one it was given"), Bug)
	}
	ctx, stop := c.bound(ctx)
	defer stop()
	if c.pinned != nil {
		return c.pinned.open(ctx)
	}
	pause := newPauses(nil)
	for {
		l, err := c.line(use).reach(ctx, staying)
		if err != nil {
			return nil, err
		}
		s, err := l.open(ctx)
		if err == nil {
			return s, nil
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("connection: no session: %w: %w", ended(ctx), err)
		}
		if errors.Is(err, errChannelLimit) {
			return nil, err
		}
		// The socket died under the new channel. A broker that accepts
		// connections but loses each at once must not be dialled in a hot loop.
		c.cfg.Logger.Debug("connection: lost while opening a session", "use", use, "error", err)
		wait, _ := pause.next()
		if err := sleep(ctx, wait); err != nil {
			return nil, fmt.Errorf("connection: no session: %w: %w", err, l.lost(nil))
		}
	}
}

// Logger returns Config.Logger, or one that is silent: for what package topology
// does with this connection. Consumers and producers have a Logger of their own.
func (c *Conn) Logger() *slog.Logger { return c.cfg.Logger }

// Server describes the broker node of the latest successful handshake of
// either socket; it is zero before the first. During a rolling upgrade the nodes differ: what depends on
// the version asks [Session.Server].
func (c *Conn) Server() Server {
	if s := c.server.Load(); s != nil {
		return *s
	}
	return Server{}
}

// Blocked reports whether the broker blocks publishers now, why (as the broker
// words it, such as "low on memory") and since when. Brokers say so only to a
// socket that has published since the alarm began.
func (c *Conn) Blocked() (reason string, since time.Time, blocked bool) {
	l := c.line(Publish).live.Load()
	if l == nil || !l.alive() {
		return "", time.Time{}, false
	}
	return l.gate.state()
}

// Close closes both sockets, and with them every session, within about five
// seconds. Callers waiting in [Conn.Session] return with [ErrClosed]. Messages
// that were not confirmed or acknowledged stay so: close what uses the Conn
// first. Only the first call can return an error, when the broker did not
// answer the goodbye; everything is closed all the same.
func (c *Conn) Close() error {
	var errs [2]error
	if c.pinned != nil {
		return nil // it belongs to its socket
	}
	c.closed.Do(func() {
		c.end(ErrClosed)
		var wg sync.WaitGroup
		for i, l := range c.lines {
			wg.Go(func() { errs[i] = l.close(time.Now().Add(closeTimeout)) })
		}
		wg.Wait()
	})
	return errors.Join(errs[:]...)
}

func (c *Conn) line(use Use) *line { return c.lines[use-Publish] }

// connectLines makes the lines and ties them to each other and to OnUp.
func (c *Conn) connectLines(targets []target) {
	hosts := newHosts(len(targets))
	for i, use := range []Use{Publish, Consume} {
		l := &line{
			use: use, targets: targets, cfg: c.cfg, log: c.cfg.Logger.With("use", use.String()),
			hosts: hosts, states: c.states, server: c.server,
			before: func(context.Context) error { return nil },
			up:     func(context.Context, *link) error { return nil },
			found:  func() { c.lines[1-i].nudge() },
			nudged: make(chan struct{}, 1),
			turn:   make(chan struct{}, 1),
		}
		l.tried.Store(newAttempts(len(targets)))
		c.lines[i] = l
	}
	if c.cfg.OnUp == nil {
		return
	}
	c.line(Consume).up = func(ctx context.Context, l *link) error {
		return c.onUp(context.WithValue(ctx, inOnUp{}, c), c.pin(l))
	}
	// What OnUp declares must be there before anything is published again.
	c.line(Publish).before = func(ctx context.Context) error {
		_, err := c.line(Consume).reach(ctx, staying)
		return err
	}
}

// onUp runs OnUp, whose panic is an error: it runs on the goroutine of whoever
// needs a session.
func (c *Conn) onUp(ctx context.Context, pinned *Conn) (err error) {
	defer func() {
		if p := recover(); p != nil {
			c.cfg.Logger.Error("connection: OnUp panicked", "panic", p, "stack", string(debug.Stack()))
			err = WithClass(fmt.Errorf("panic: %v", p), Bug)
		}
	}()
	return c.cfg.OnUp(ctx, pinned)
}

// inOnUp is the key of the Conn whose OnUp a ctx belongs to.
type inOnUp struct{}

// pin returns a Conn whose sessions, of either use, live on l.
func (c *Conn) pin(l *link) *Conn {
	server := new(atomic.Pointer[Server])
	server.Store(&l.server)
	return &Conn{cfg: c.cfg, life: c.life, end: c.end, lines: c.lines, states: c.states, server: server, pinned: l}
}

// bound returns a ctx that also ends, with ErrClosed as its cause, with Close.
func (c *Conn) bound(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(c.life, func() { cancel(ErrClosed) })
	return ctx, func() { stop(); cancel(nil) }
}

// ended says why ctx has ended: its error, which callers test for, and its
// cause, which may be another one.
func ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	switch {
	case errors.Is(cause, ErrClosed): // by Close, not by the caller
		return ErrClosed
	case errors.Is(cause, err):
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}
