package connection

import (
	"context"
	"log/slog"
	"math/rand/v2"
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
	server  *atomic.Pointer[Server] // shared by both lines: the latest handshake

	// turn is held by whoever replaces the link. It is a channel, so that
	// waiting for it ends with ctx: the callers share the holder's dial, and
	// when the holder's ctx ends, the next one goes on.
	turn   chan struct{}
	live   atomic.Pointer[link]     // written by the holder of turn
	tried  atomic.Pointer[attempts] // of the present dial or the latest; never nil
	closed bool                     // under turn
	health health                   // under turn
}

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

func newLine(use Use, targets []target, cfg Config, server *atomic.Pointer[Server]) *line {
	l := &line{
		use: use, targets: targets, cfg: cfg, server: server,
		log:  cfg.Logger.With("use", use.String()),
		turn: make(chan struct{}, 1),
	}
	l.tried.Store(newAttempts(len(targets)))
	return l
}

// reach returns the live link, after dialling if there is none.
func (l *line) reach(ctx context.Context, m mode) (*link, error) {
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return nil, l.tried.Load().failure(ctx)
	}
	if l.closed {
		return nil, ErrClosed
	}
	if live := l.live.Load(); live != nil && live.alive() {
		return live, nil
	}
	fresh, err := l.dial(ctx, m)
	if err != nil {
		return nil, err
	}
	l.live.Store(fresh)
	l.server.Store(&fresh.server)
	return fresh, nil
}

// dial tries every target, in random order so that a cluster's clients spread,
// round after round.
func (l *line) dial(ctx context.Context, m mode) (*link, error) {
	tried, pause := newAttempts(len(l.targets)), newPauses()
	l.tried.Store(tried)
	for {
		for _, i := range rand.Perm(len(l.targets)) {
			fresh, err := l.try(ctx, l.targets[i])
			if err == nil {
				l.health = up
				fresh.log.Info("connection: connected", "product", fresh.server.Product,
					"version", fresh.server.Version.String(), "cluster", fresh.server.Cluster, "failed_tries", tried.count)
				return fresh, nil
			}
			tried.add(i, err, ctx.Err() != nil)
			if ctx.Err() != nil {
				return nil, tried.failure(ctx)
			}
			l.log.Debug("connection: try failed", "error", err)
		}
		hopeless := tried.hopeless()
		if hopeless && m == opening {
			return nil, tried.verdict()
		}
		l.report(hopeless, tried.verdict())
		if pause.next(ctx) != nil {
			return nil, tried.failure(ctx)
		}
	}
}

// report logs that dialling goes on, once per kind of failure.
func (l *line) report(hopeless bool, err error) {
	switch {
	case hopeless && l.health != refused:
		l.health = refused
		l.log.Error("connection: refused, trying on until it is put right", "error", err)
	case !hopeless && l.health == up:
		l.health = down
		l.log.Warn("connection: no broker answers, trying on", "error", err)
	}
}

// close ends the line for good. Its callers have ended the ctx of whoever is
// dialling, so that the turn is free in no time.
func (l *line) close(deadline time.Time) error {
	l.turn <- struct{}{}
	defer func() { <-l.turn }()
	l.closed = true
	live := l.live.Load()
	if live == nil {
		return nil
	}
	return live.close(deadline)
}
