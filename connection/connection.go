// Package connection keeps a program connected to RabbitMQ and hands out
// sessions.
//
//	       +-- socket "publish" ----- session, a channel --- a producer
//	Conn --+
//	       +-- socket "consume" --+-- session -------------- a consumer
//	                              +-- session -------------- topology.Declare
//
// Most programs open one Conn, and give it to the other packages:
//
//	conn, err := connection.Open(ctx, connection.Config{URLs: []string{"amqp://guest:guest@localhost"}})
//	defer conn.Close()
//
// [FromEnv] reads the Config from the environment, [Conn.Health] serves a readiness probe,
// and Config.OnConnect declares queues again after a reconnect. The page [Services] has more
// examples.
//
// Publishing and consuming have a socket each. A broker that is short of memory or disk
// stops reading from publishers. On a shared socket, acknowledgements and declarations
// would wait too. A broker that cannot hand over a message ends the socket for consuming.
// So package consumer gives each queue a socket of its own for a while, when that happens
// twice within a minute: see consumer.Consumer.Health.
//
// # Sessions
//
// A [Session] is one new channel, used until it is lost. Then its user calls
// [Conn.Session] for a new one. Conn.Session connects again if necessary. Nothing is
// carried over from one session to the next. On a new channel, a delivery tag of the
// old one belongs to another message, and a confirm of the old one means nothing.
//
// A Conn owns its attempts to connect. Callers of Session join the attempt in progress
// and leave it when their own ctx ends. The attempt goes on without them, and the Conn
// keeps the connection if the attempt succeeds. So a short ctx does not affect other
// callers.
//
// [Services]: https://github.com/rehop/rehop/blob/main/docs/services.md
package connection

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/internal/management"
	"github.com/rehop/rehop/internal/pause"
)

// ErrClosed is returned after [Conn.Close].
var ErrClosed = rehop.WithClass(errors.New("connection: the Conn is closed: the program has called Conn.Close, which must come after the end of everything that uses the Conn"), rehop.ClassBug)

// closeTimeout bounds Conn.Close and Session.Close: the goodbye of a live broker takes
// milliseconds, a dead one never answers. A consumer's stop by default and this stay under
// 30 s, the time that a container has to stop. The page kubernetes.md of the documentation adds up
// what else a service stops.
const closeTimeout = 5 * time.Second

// closeGrace bounds the goodbye to a connection that nobody has used.
const closeGrace = time.Second

// Role is the purpose of a session, and so decides on which socket it lives. The name
// of the socket's connection in the management UI ends with it. The zero value is invalid.
type Role string

// The roles.
const (
	// Publish is for publishing, its confirms and returns.
	Publish Role = "publish"
	// Consume is for everything else: consuming, settling, declaring topology.
	Consume Role = "consume"
)

// roles has each role. A Conn keeps its connectors and states in this order.
var roles = [...]Role{Publish, Consume}

// index returns the index of r in roles.
func (r Role) index() int {
	if r == Consume {
		return 1
	}
	return 0
}

var (
	errNoContext = rehop.WithClass(errors.New("connection: ctx is nil"), rehop.ClassBug)
	errOuterConn = rehop.WithClass(errors.New("connection: no session: OnConnect has used another Conn than the one it was given: use its parameter conn, because the other one waits for OnConnect to return"), rehop.ClassBug)
)

// Conn is a program's connection to one RabbitMQ cluster: up to two sockets,
// each opened when first needed and again after a loss, and at times one more for
// each queue that is consumed. It is safe for concurrent use.
//
// A Conn runs one goroutine for each attempt to connect, for each live socket
// and each session, one more for a socket whose credentials expire or whose peer
// does not read, and one for each call in progress. amqp091-go runs further ones.
// All of them end with [Conn.Close].
type Conn struct {
	cfg        Config
	life       context.Context // ends with Close
	end        context.CancelCauseFunc
	connectors [2]*connector // publish, consume
	states     *states
	server     *atomic.Pointer[Server]
	closed     sync.Once
	kept       sync.Map        // values of other packages, see connInside
	management *management.API // nil without Config.ManagementURL
	aparts     aparts          // the Conns with a socket apart from those of this one

	// pinned is set in the Conn that Config.OnConnect gets: its sessions live there.
	// whole is the Conn that it is part of, or apart from.
	pinned *link
	whole  *Conn
}

// Open validates cfg, connects and returns once the broker has accepted user
// and virtual host and Config.OnConnect has run, so that a wrong configuration shows
// at startup. It waits for the socket for [Consume]. The socket for [Publish] is
// dialled at the same time; if its one round of tries fails, the first Publish
// session dials again.
//
// Open tries every URL again and again until ctx or Config.OpenTimeout ends. It returns
// sooner, after a round in which no URL worked, when waiting would not help: the broker
// refuses the user, its password, the virtual host or the permission, every host has an
// invalid TLS certificate, or Config.OnConnect returns an error that is not
// [rehop.ClassTransient]. A broker that closes the socket at login without an answer may have
// refused the password, so Open also returns after the third such close in a row. ctx
// bounds the opening only; ending it later closes nothing.
//
// The error names each URL, without its password, with the last error there.
// It wraps those errors, and the error and cause of ctx. [rehop.ClassOf] says
// whether trying again could help.
func Open(ctx context.Context, cfg Config) (*Conn, error) {
	if ctx == nil {
		return nil, errNoContext
	}
	cfg = cfg.withDefaults()
	endpoints, err := cfg.validate()
	if err != nil {
		return nil, err
	}
	if err := late(ctx); err != nil && !cfg.Lazy {
		return nil, fmt.Errorf("connection: not opened: %w", err)
	}
	c := &Conn{cfg: cfg, states: newStates(cfg.trace.State), server: new(atomic.Pointer[Server]), management: cfg.managementAPI(endpoints)}
	c.life, c.end = context.WithCancelCause(context.Background())
	c.newConnectors(endpoints)
	if cfg.Lazy {
		return c, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, cfg.OpenTimeout, errOpenTimeout)
	defer cancel()
	c.connector(Publish).start()
	consume := c.connector(Consume)
	if _, err := consume.reach(ctx, true); err != nil {
		tried := consume.tried()
		c.Close()
		if ctx.Err() != nil {
			err = tried.failure(ctx, c.life) // with the error of the last try
		}
		return nil, err
	}
	return c, nil
}

// Session opens a new channel on the socket for role; the caller closes it.
//
// While there is no connection it waits for the attempt in progress, or begins one,
// with the pauses of Config.Backoff between the rounds. When ctx ends, Session returns
// and the attempt goes on: the attempt finishes its round, and the Conn keeps the
// connection if that round succeeds. No further round begins until a caller waits
// again. A session for [Publish] also waits while the broker blocks publishers (see
// [Blocked]).
//
// Session fails when ctx ends, when Config.Backoff gives up, when the Conn is closed
// (with [ErrClosed]), or when the broker has no channel left to give. When ctx has
// ended, the error wraps the error and cause of ctx, and the errors of the tries so far.
// If ctx had ended before the call, the error says so, and Session tries nothing.
//
// Session fails at once if ctx is nil, if role is no role, and if ctx comes from an
// OnConnect of this Conn, which must use its own parameter conn. The sessions of that
// conn also fail when its connection is lost.
func (c *Conn) Session(ctx context.Context, role Role) (*Session, error) {
	switch {
	case ctx == nil:
		return nil, errNoContext
	case role != Publish && role != Consume:
		return nil, rehop.WithClass(fmt.Errorf("connection: the Role is %q, want Publish or Consume", string(role)), rehop.ClassBug)
	case ctx.Value(inOnConnect{}) == c: // it would wait for what OnConnect is part of
		return nil, errOuterConn
	}
	if err := late(ctx); err != nil {
		return nil, fmt.Errorf("connection: no session: %w", err)
	}
	ctx, stop := c.bound(ctx)
	defer stop()
	if c.pinned != nil {
		return c.pinned.open(ctx)
	}
	pauses := defaultPauses()
	for {
		l, err := c.reach(ctx, role)
		if err != nil {
			return nil, err
		}
		s, err := l.open(ctx)
		if err == nil {
			return s, nil
		}
		if ctx.Err() != nil {
			if !errors.Is(err, context.Cause(ctx)) { // the socket was lost at the same time
				err = fmt.Errorf("%w: %w", pause.Ended(ctx), err)
			}
			return nil, fmt.Errorf("connection: no session: %w", err)
		}
		if errors.Is(err, errChannelLimit) {
			return nil, err
		}
		// The socket died under the new channel. A broker that accepts
		// connections but loses each at once must not be dialled in a hot loop.
		c.cfg.Logger.Debug("connection: lost while opening a session", "role", role, "error", err)
		wait, _ := pauses.next(false)
		if err := sleep(ctx, wait); err != nil {
			return nil, fmt.Errorf("connection: no session: %w: %w", err, l.lost(nil))
		}
	}
}

// reach returns the link for role. OnConnect must have declared the topology before
// anything is published, so a new Publish link waits for the Consume link. reach dials
// both at once. After a failed round it dials Consume only when Publish has found a
// broker.
func (c *Conn) reach(ctx context.Context, role Role) (*link, error) {
	consume := c.connector(Consume)
	if role == Consume || c.cfg.OnConnect == nil {
		return c.connector(role).reach(ctx, false)
	}
	publish := c.connector(Publish)
	if l := publish.current(); (l == nil || !l.declared.Load()) && !consume.failing() {
		consume.start()
	}
	l, err := publish.reach(ctx, false)
	if err != nil || l.declared.Load() {
		return l, err
	}
	if _, err := consume.reach(ctx, false); err != nil {
		return nil, err
	}
	l.declared.Store(true)
	return l, nil
}

// Server describes the broker node to which either socket has connected last. It changes
// when OnConnect has succeeded, and is zero before the first connection. During a rolling
// upgrade the nodes differ: code that depends on the version asks [Session.Server].
func (c *Conn) Server() Server {
	if s := c.server.Load(); s != nil {
		return *s
	}
	return Server{}
}

// Close closes all sockets, and with them every session, within 5 s. Callers that wait
// in [Conn.Session] return with [ErrClosed]. Messages that were not confirmed or
// acknowledged stay so: close producers and stop consumers first. Only the first call
// can return an error. If the broker did not answer the close, everything is closed all the
// same. If Dial or OnConnect has not returned although its ctx has ended, its socket is
// closed when it returns.
func (c *Conn) Close() error {
	var errs [2]error
	if c.pinned != nil {
		return nil // it belongs to its socket
	}
	c.closed.Do(func() {
		c.end(pause.Own(ErrClosed)) // of this Conn alone: a caller's ctx may have the end of another one as its cause
		if c.management != nil && c.whole == nil {
			c.management.Close()
		}
		var wg sync.WaitGroup
		for i, connector := range c.own() {
			wg.Go(func() { errs[i] = connector.close(time.Now().Add(closeTimeout)) })
		}
		wg.Go(c.aparts.close)
		wg.Wait()
		if c.whole != nil {
			c.whole.aparts.remove(c)
		}
	})
	return errors.Join(errs[:]...)
}

func (c *Conn) connector(role Role) *connector { return c.connectors[role.index()] }

func (c *Conn) newConnectors(endpoints []endpoint) {
	hosts := newHosts(len(endpoints))
	for i, role := range roles {
		c.connectors[i] = &connector{
			role: role, endpoints: endpoints, cfg: c.cfg, log: c.cfg.Logger.With("role", string(role)), life: c.life,
			hosts: hosts, states: c.states, server: c.server,
			other: func() *connector { return c.connectors[1-i] },
			wake:  make(chan struct{}, 1),
		}
	}
	if c.cfg.OnConnect != nil {
		c.connector(Consume).onConnect = func(ctx context.Context, l *link) error {
			return c.cfg.OnConnect(context.WithValue(ctx, inOnConnect{}, c), c.pin(l))
		}
	}
}

// inOnConnect is the key of the Conn whose OnConnect a ctx belongs to.
type inOnConnect struct{}

// pin returns a Conn whose sessions, of either role, live on l.
func (c *Conn) pin(l *link) *Conn {
	server := new(atomic.Pointer[Server])
	server.Store(&l.server)
	return &Conn{cfg: c.cfg, life: c.life, end: c.end, connectors: c.connectors, states: c.states, server: server, management: c.management, pinned: l, whole: c}
}

// bound returns a ctx that also ends with Close, with ErrClosed as its cause.
func (c *Conn) bound(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(c.life, func() { cancel(context.Cause(c.life)) })
	return ctx, func() { stop(); cancel(nil) }
}

// late returns an error if ctx has ended before a call with it began. Nothing was tried then, and
// the error must not look like an outage.
func late(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return fmt.Errorf("the ctx of the call had already ended: %w", pause.Ended(ctx))
}
