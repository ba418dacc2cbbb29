package connection

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"
)

// line is the socket for one use, present and future: at most one link at a
// time.
type line struct {
	use     Use
	targets []target
	cfg     Config
	log     *slog.Logger

	// Shared by both lines.
	hosts  *hosts
	states *states
	server *atomic.Pointer[Server] // the latest handshake

	// before runs before a dial, up after a handshake, whose link is given up
	// if up fails, and found once it has not.
	before func(context.Context) error
	up     func(context.Context, *link) error
	found  func()
	nudged chan struct{} // one element: the other line has found a broker

	// turn is held by whoever replaces the link. It is a channel, so that
	// waiting for it ends with ctx: the callers share the holder's dial, and
	// when the holder's ctx ends, the next one goes on.
	turn       chan struct{}
	live       atomic.Pointer[link]     // written by the holder of turn
	tried      atomic.Pointer[attempts] // of the present dial or the latest; never nil
	outage     *outage                  // under turn; nil while there is a link
	generation uint64                   // under turn
	closed     atomic.Bool
	health     health // under turn
}

// outage is the time without a link, as long as somebody waits for one: its
// pauses grow on, whoever it is that dials.
type outage struct {
	tried *attempts
	pause pauses
	wait  time.Duration // the latest pause, 0 before the first
	next  time.Time     // the next round
}

// missed is how late a round is that nobody has waited for.
const missed = time.Second

// health is what the log knows: it hears of changes only.
type health uint8

const (
	up health = iota
	down
	refused
)

// mode says when dialling gives up.
type mode uint8

const (
	opening mode = iota // when ctx ends, or configuration makes it hopeless
	staying             // when ctx ends: a password may yet be put right
)

// reach returns the live link, after dialling if there is none.
func (l *line) reach(ctx context.Context, m mode) (*link, error) {
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return nil, l.tried.Load().failure(ctx)
	}
	if l.closed.Load() {
		return nil, ErrClosed
	}
	if live := l.live.Load(); live != nil {
		if live.alive() {
			return live, nil
		}
		select { // its end is told before the next beginning
		case <-live.done:
		case <-ctx.Done():
			return nil, l.tried.Load().failure(ctx)
		}
	}
	if ctx.Err() != nil {
		return nil, l.tried.Load().failure(ctx)
	}
	if err := l.before(ctx); err != nil {
		return nil, err
	}
	fresh, err := l.dial(ctx, m)
	if err != nil {
		return nil, err
	}
	l.live.Store(fresh)
	return fresh, nil
}

// dial tries every target, round after round.
func (l *line) dial(ctx context.Context, m mode) (*link, error) {
	if l.outage == nil || time.Since(l.outage.next) > missed {
		l.outage = &outage{tried: newAttempts(len(l.targets)), pause: newPauses(l.cfg.Backoff), next: time.Now()}
		l.tried.Store(l.outage.tried)
		select {
		case <-l.nudged: // of long ago
		default:
		}
	}
	tried := l.outage.tried
	for {
		if l.rest(ctx, l.outage.next) != nil {
			return nil, l.giveUp(tried.failure(ctx))
		}
		l.states.set(State{Use: l.use, Status: Connecting, Generation: l.generation})
		for _, i := range l.hosts.order(time.Now()) {
			fresh, err := l.try(ctx, i)
			if err == nil {
				l.health, l.outage = up, nil
				l.tried.Store(newAttempts(len(l.targets)))
				fresh.log.Info("connection: connected", "product", fresh.server.Product,
					"version", fresh.server.Version.String(), "cluster", fresh.server.Cluster, "failed_tries", tried.failed())
				return fresh, nil
			}
			tried.add(i, err, ctx.Err() != nil)
			if ctx.Err() != nil {
				l.outage.next = time.Now().Add(l.outage.wait)
				return nil, l.giveUp(tried.failure(ctx))
			}
			l.log.Debug("connection: try failed", "error", err)
		}
		hopeless := tried.hopeless()
		if hopeless && m == opening {
			return nil, l.giveUp(tried.verdict())
		}
		l.report(hopeless, tried.verdict())
		wait, more := l.outage.pause.next()
		if !more {
			l.outage = nil
			return nil, l.giveUp(tried.verdict())
		}
		l.outage.wait, l.outage.next = wait, time.Now().Add(wait)
		l.states.set(State{Use: l.use, Status: Down, Generation: l.generation, Err: tried.verdict(), NextTry: l.outage.next})
	}
}

// rest waits until a time, or until the other line has found a broker.
func (l *line) rest(ctx context.Context, until time.Time) error {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.nudged:
	case <-ctx.Done():
	}
	if ctx.Err() != nil { // select picks at random among what is ready
		return ended(ctx)
	}
	return nil
}

// nudge ends the rest of a line that waits for its next try.
func (l *line) nudge() {
	select {
	case l.nudged <- struct{}{}:
	default:
	}
}

// giveUp tells that nothing is tried any more, and returns err. The State has
// what happened, not what one caller made of it.
func (l *line) giveUp(err error) error {
	state := State{Use: l.use, Status: Down, Generation: l.generation, Err: err}
	if tried := l.tried.Load(); tried.failed() > 0 {
		state.Err = tried.verdict()
	}
	l.states.set(state)
	return err
}

// try makes a link to one target and has it introduced.
func (l *line) try(ctx context.Context, i int) (*link, error) {
	began := time.Now()
	fresh, err := l.connect(ctx, l.targets[i])
	if err == nil {
		err = l.introduce(ctx, i, fresh)
	}
	if ctx.Err() == nil { // or it says nothing about the host
		l.hosts.note(i, err == nil, time.Now())
	}
	l.cfg.Trace.try(Try{Use: l.use, URL: l.targets[i].String(), Took: time.Since(began), Err: err})
	return fresh, err
}

// introduce lets the link tell its state, and runs up on it.
func (l *line) introduce(ctx context.Context, i int, fresh *link) error {
	l.generation++
	fresh.generation = l.generation
	present := func() State {
		s := State{Use: l.use, Status: Up, Generation: fresh.generation, URL: fresh.target.String(), Server: fresh.server}
		if reason, _, shut := fresh.gate.state(); shut {
			s.Status, s.Reason = Blocked, reason
		}
		return s
	}
	introduced := make(chan bool, 1)
	life, end := context.WithCancel(context.Background())
	fresh.watch(func(reason string) {
		if reason == "" {
			fresh.log.Info("connection: the broker accepts publishers again")
		} else {
			fresh.log.Warn("connection: the broker blocks publishers", "reason", reason)
		}
		l.states.set(present())
	}, func(cause error) {
		end()
		switch {
		case !<-introduced: // whoever tried tells
		case errors.Is(cause, ErrClosed):
			fresh.log.Info("connection: closed")
		default:
			fresh.log.Warn("connection: lost", "error", cause)
			l.hosts.note(i, false, time.Now())
			l.states.set(State{Use: l.use, Status: Down, Generation: fresh.generation, Err: cause})
		}
	})
	if !fresh.expires.IsZero() {
		go fresh.renew(life, l.cfg.Credentials)
	}
	good := false
	defer func() { // also when OnUp ends its goroutine
		introduced <- good
		if !good {
			_ = fresh.close(time.Now().Add(cancelGrace)) // another error says more
		}
	}()
	err := l.up(ctx, fresh)
	if l.closed.Load() {
		err = ErrClosed
	}
	if err != nil {
		return &refusal{text: fmt.Sprintf("%s: OnUp: %v", fresh.target, err), cause: err, broker: true, sure: true, class: ClassOf(err)}
	}
	l.server.Store(&fresh.server)
	l.states.set(present())
	l.found()
	good = true
	return nil
}

// report logs that dialling goes on, once per kind of failure.
func (l *line) report(hopeless bool, err error) {
	switch {
	case hopeless && l.health != refused:
		l.health = refused
		l.log.Error("connection: refused, trying on until it is put right", "error", err)
	case !hopeless && l.health == up:
		l.health = down
		l.log.Warn("connection: no connection, trying on", "error", err)
	}
}

// close ends the line for good. Its callers have ended the ctx of whoever is
// dialling, so that the turn is free in no time, unless OnUp does not heed it.
func (l *line) close(deadline time.Time) error {
	l.closed.Store(true)
	patience := time.NewTimer(time.Until(deadline))
	defer patience.Stop()
	select {
	case l.turn <- struct{}{}:
	case <-patience.C:
		return errors.New("connection: OnUp has not returned since its ctx ended; its socket closes when it does")
	}
	defer func() { <-l.turn }()
	defer func() { l.states.set(State{Use: l.use, Status: Closed, Generation: l.generation}) }()
	live := l.live.Load()
	if live == nil {
		return nil
	}
	return live.close(deadline)
}
