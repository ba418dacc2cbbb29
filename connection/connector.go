package connection

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rehop/rehop"
)

// steady is the shortest life of a connection after which the next dial begins without a
// pause. A broker that accepts connections and loses each at once must not be dialled in a
// hot loop.
const steady = time.Second

// connector keeps the socket for one role: it dials when somebody needs a
// session, and holds the link that came of it. One goroutine, run, makes
// connections; the callers wait for its result.
type connector struct {
	role      Role
	endpoints []endpoint
	cfg       Config
	log       *slog.Logger
	life      context.Context // ends with Conn.Close

	// Shared by both connectors.
	hosts  *hosts
	states *states
	server *atomic.Pointer[Server] // of the latest link

	onConnect func(context.Context, *link) error // Config.OnConnect; nil for none
	other     func() *connector                  // for the other role
	wake      chan struct{}                      // one element: ends a pause

	mu      sync.Mutex
	dialing *dial         // in progress, and not abandoned; nil if none
	last    chan struct{} // closed at the end of the latest run; nil before the first
	live    *link         // the latest that came up; nil before the first
	latest  *attempts     // of the latest dial of this outage; nil if there is none
	since   time.Time     // of the first dial of this outage
	closed  bool

	// Used by run alone: each begins when the one before has ended.
	generation uint64
	pauses     *pauses   // of this outage, of all its dials; nil before its first pause
	next       time.Time // when the pause ends
	short      int       // lives in a row that were not steady
	judged     *link     // the latest of them
	failed     int       // tries since the latest link, of all dials
	logged     logState
}

// dial is one run: rounds of tries, until one gives a link.
type dial struct {
	tried   *attempts
	opening bool // Open waits: a final refusal ends it
	waiting int  // callers; under connector.mu

	before chan struct{} // closed at the end of the run before; nil for none
	done   chan struct{} // closed when link or err is set
	link   *link
	err    error
}

// logState is the latest change that is in the log. Each change is logged once.
type logState uint8

const (
	none logState = iota
	down
	refused
)

// current returns the link if sessions can be opened on it, or nil.
func (c *connector) current() *link {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.alive()
}

// alive needs c.mu held.
func (c *connector) alive() *link {
	if c.live != nil && c.live.alive() {
		return c.live
	}
	return nil
}

// start begins a dial that nobody waits for, unless there is a link or a dial:
// one round of tries.
func (c *connector) start() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.alive() == nil {
		c.join()
	}
}

// join returns the dial in progress, begun if need be; nil if the connector is
// closed. It needs c.mu held.
func (c *connector) join() *dial {
	if c.dialing == nil && !c.closed {
		tried := newAttempts(len(c.endpoints))
		if c.latest != nil {
			tried = c.latest.resumed()
		} else {
			c.since = time.Now()
		}
		c.latest = tried
		c.dialing = &dial{tried: tried, before: c.last, done: make(chan struct{})}
		c.last = c.dialing.done
		go c.run(c.dialing)
	}
	return c.dialing
}

// failing reports whether a dial has failed since the last link.
func (c *connector) failing() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.latest != nil && c.latest.any()
}

// outage returns since when dials have failed; zero if there is a link, and if
// nobody dials.
func (c *connector) outage() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dialing == nil || c.alive() != nil {
		return time.Time{}
	}
	return c.since
}

// reach returns the present link, or the one that the dial in progress gives. A
// caller whose ctx ends leaves, and the dial goes on.
func (c *connector) reach(ctx context.Context, opening bool) (*link, error) {
	if ctx.Err() != nil {
		return nil, c.tried().failure(ctx, c.life)
	}
	c.mu.Lock()
	if l := c.alive(); l != nil {
		c.mu.Unlock()
		return l, nil
	}
	d := c.join()
	if d == nil {
		c.mu.Unlock()
		return nil, ErrClosed
	}
	d.opening = d.opening || opening
	d.waiting++
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		d.waiting--
		c.mu.Unlock()
	}()
	select {
	case <-d.done:
		return d.link, d.err
	case <-ctx.Done():
		return nil, d.tried.failure(ctx, c.life)
	}
}

// tried returns the tries of the dial in progress.
func (c *connector) tried() *attempts {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dialing != nil {
		return c.dialing.tried
	}
	return newAttempts(len(c.endpoints))
}

// run dials until there is a link. It gives up at the end of a pause if no caller waits
// then.
func (c *connector) run(d *dial) {
	if d.before != nil {
		<-d.before // an abandoned dial reports its end
	}
	c.mu.Lock()
	old := c.live
	c.mu.Unlock()
	if old != nil {
		<-old.done // the end of the old link is reported before the next begins
	}
	l, err := c.rounds(d, old)
	if err != nil && c.life.Err() == nil {
		c.states.set(State{Role: c.role, Status: Down, generation: c.generation, Err: err})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if l != nil {
		c.live = l
	}
	if l != nil || c.pauses == nil { // or it gives up: the next caller begins anew
		c.latest = nil
	}
	d.link, d.err = l, err
	if c.dialing == d {
		c.dialing = nil
	}
	close(d.done)
}

// rounds tries every endpoint, round after round, until there is a link, nobody
// waits, or trying on makes no sense.
func (c *connector) rounds(d *dial, old *link) (*link, error) {
	if c.pauses == nil {
		if err := c.beginOutage(old); err != nil {
			return nil, err
		}
	}
	if time.Now().Before(c.next) {
		c.states.set(State{Role: c.role, Status: Down, generation: c.generation, Err: c.reason(d, old), NextTry: c.next})
		c.pause(c.next)
	}
	for {
		c.states.set(State{Role: c.role, Status: Connecting, generation: c.generation})
		for _, i := range c.hosts.order(time.Now()) {
			l, err := c.try(i)
			if err == nil {
				c.logged = none
				l.log.Info("connection: connected", "product", l.server.Product,
					"version", l.server.Version.String(), "cluster", l.server.Cluster, "failed_tries", c.failed)
				c.failed, c.pauses = 0, nil
				return l, nil
			}
			if c.life.Err() != nil {
				d.tried.cut(i, err)
				return nil, ErrClosed
			}
			d.tried.add(i, err)
			c.failed++
			c.log.Debug("connection: try failed", "error", err)
		}
		err := d.tried.verdict()
		if d.tried.final() && c.isOpening(d) {
			return nil, err
		}
		c.report(d, err)
		wait, more := c.pauses.next(d.tried.cheap())
		if !more {
			c.pauses = nil
			return nil, err
		}
		c.next = time.Now().Add(wait)
		c.states.set(State{Role: c.role, Status: Down, generation: c.generation, Err: err, NextTry: c.next})
		c.pause(c.next)
		if c.life.Err() != nil {
			return nil, ErrClosed
		}
		if c.abandoned(d) {
			return nil, err
		}
	}
}

// beginOutage starts the pauses of an outage. The first round needs none, unless
// the link before it was not steady.
func (c *connector) beginOutage(old *link) error {
	select {
	case <-c.wake: // of long ago
	default:
	}
	pauses := newPauses(c.cfg)
	c.next = time.Time{}
	if old == nil || old == c.judged || time.Since(old.began) >= steady {
		c.short = 0
		c.pauses = &pauses
		return nil
	}
	c.judged = old
	c.short++
	for range c.short - 1 {
		pauses.next(false) // the pauses after the short lives before this one
	}
	wait, more := pauses.next(false)
	if !more {
		return context.Cause(old.life)
	}
	c.next = time.Now().Add(wait)
	c.pauses = &pauses
	return nil
}

// reason is why there is no link: the errors of the tries of this outage, or the
// end of the link before it.
func (c *connector) reason(d *dial, old *link) error {
	if d.tried.any() {
		return d.tried.verdict()
	}
	return context.Cause(old.life) // run has waited for the end of old
}

func (c *connector) isOpening(d *dial) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return d.opening
}

func (c *connector) isWanted(d *dial) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return d.waiting > 0
}

// abandoned reports whether nobody waits for d any more. The next caller then
// begins another dial.
func (c *connector) abandoned(d *dial) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d.waiting > 0 {
		return false
	}
	c.dialing = nil
	return true
}

// pause waits until a time, until the other connector has found a broker, or
// for Close.
func (c *connector) pause(until time.Time) {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.wake:
	case <-c.life.Done():
	}
}

// try makes a link to one endpoint, and runs OnConnect on it.
func (c *connector) try(i int) (*link, error) {
	began := time.Now()
	l, err := c.connect(c.endpoints[i], c.hosts.known(i))
	if err == nil {
		err = c.bringUp(i, l)
	}
	if c.life.Err() == nil { // or it says nothing about the host
		c.hosts.note(i, err == nil, time.Now())
	}
	c.cfg.trace.attempted(DialAttempt{Role: c.role, URL: c.endpoints[i].String(), Took: time.Since(began), Err: err})
	if err != nil {
		return nil, err
	}
	return l, nil
}

// report logs a round without success, once for each kind of failure.
func (c *connector) report(d *dial, err error) {
	final, goesOn := d.tried.final(), c.isWanted(d)
	switch {
	case final && c.logged != refused:
		c.logged = refused
		if goesOn {
			c.log.Error("connection: refused, trying on until it is put right", "error", err)
		} else {
			c.log.Error("connection: refused", "error", err)
		}
	case !final && c.logged == none:
		c.logged = down
		if goesOn {
			c.log.Warn("connection: no connection, trying on", "error", err)
		} else {
			c.log.Warn("connection: no connection", "error", err)
		}
	}
}

// close ends the connector for good. The life of the Conn has ended before.
func (c *connector) close(deadline time.Time) error {
	c.mu.Lock()
	c.closed = true
	last := c.last
	c.mu.Unlock()
	defer func() { c.states.set(State{Role: c.role, Status: Closed, generation: c.generation}) }()
	if last != nil {
		limit := time.NewTimer(time.Until(deadline))
		defer limit.Stop()
		select {
		case <-last:
		case <-limit.C:
			return rehop.WithClass(errors.New("connection: Dial or OnConnect has not returned since its ctx ended; its socket closes when it does"), rehop.ClassBug)
		}
	}
	c.mu.Lock()
	l := c.live
	c.mu.Unlock()
	if l == nil {
		return nil
	}
	return l.close(deadline)
}
