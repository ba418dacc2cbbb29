package connection

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
)

// apart returns a Conn that has a socket of its own for [Consume], dialled by the first
// session and again after a loss, and shares everything else with c. The management UI shows
// its connection under the name of the Conn, then name, then the Role.
//
// The caller owns it: Close closes this socket alone, and Close of c closes it too. It has
// no part in State, States, Health and Trace.State of c. OnConnect does not run on it,
// because it has run on the socket that it is apart from. What is no error is in the log at
// level debug: a queue that is not handled has a socket for each session, and its consumer says
// so.
func (c *Conn) apart(name string) *Conn {
	if c.whole != nil {
		c = c.whole
	}
	cfg := c.cfg
	cfg.Name += " " + name
	cfg.OnConnect = nil
	a := &Conn{cfg: cfg, connectors: c.connectors, states: newStates(nil), server: new(atomic.Pointer[Server]), management: c.management, whole: c}
	a.life, a.end = context.WithCancelCause(c.life)
	shared := c.connector(Consume)
	a.connectors[Consume.index()] = &connector{
		role: Consume, endpoints: shared.endpoints, cfg: cfg, log: slog.New(quiet{shared.log.Handler()}).With("apart", name), life: a.life,
		hosts: shared.hosts, states: a.states, server: a.server,
		other: func() *connector { return shared },
		wake:  make(chan struct{}, 1),
	}
	c.aparts.add(a)
	return a
}

// quiet is a Handler to which all that is no error is for debugging.
type quiet struct{ slog.Handler }

func (q quiet) level(l slog.Level) slog.Level {
	if l < slog.LevelError {
		return min(l, slog.LevelDebug)
	}
	return l
}

func (q quiet) Enabled(ctx context.Context, l slog.Level) bool {
	return q.Handler.Enabled(ctx, q.level(l))
}

func (q quiet) Handle(ctx context.Context, r slog.Record) error {
	r.Level = q.level(r.Level)
	return q.Handler.Handle(ctx, r)
}

func (q quiet) WithAttrs(attrs []slog.Attr) slog.Handler { return quiet{q.Handler.WithAttrs(attrs)} }
func (q quiet) WithGroup(name string) slog.Handler       { return quiet{q.Handler.WithGroup(name)} }

// own returns the connectors that Close closes.
func (c *Conn) own() []*connector {
	if c.whole != nil {
		return c.connectors[Consume.index():]
	}
	return c.connectors[:]
}

// aparts are the Conns that have a socket apart from one Conn, until it is closed.
type aparts struct {
	mu  sync.Mutex
	all map[*Conn]struct{}
}

func (s *aparts) add(c *Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[*Conn]struct{}{}
	}
	s.all[c] = struct{}{}
}

func (s *aparts) remove(c *Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, c)
}

// close closes each Conn of s, and waits for each Close that is in progress.
func (s *aparts) close() {
	s.mu.Lock()
	var wg sync.WaitGroup
	for c := range s.all {
		wg.Go(func() { _ = c.Close() }) // its owner is told
	}
	s.mu.Unlock()
	wg.Wait()
}
