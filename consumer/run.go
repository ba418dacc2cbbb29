package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/confirm"
	"github.com/rehop/rehop/internal/repeats"
	"github.com/rehop/rehop/internal/transport"
	"github.com/rehop/rehop/topology"
)

// stuckGrace is how long handlers have to return once their ctx has ended.
const stuckGrace = 5 * time.Second

const (
	// maxPause is the longest pause between two sessions. One that was lost sooner
	// after its start has not worked, and the pauses go on growing.
	maxPause = 10 * time.Second

	// maxPauseConsumed is the same after a session that has consumed: a message
	// that ends each one is to come to the end of its delivery limit.
	maxPauseConsumed = 2 * time.Second
)

// run is one call of Run, for one queue. It owns what outlives a session: the
// republisher and what is known of the broker.
type run struct {
	cfg     Config
	conn    *connection.Conn
	source  topology.Source
	queue   string
	host    string
	handler Handler
	health  *health
	stop    context.Context // ends when Run is to stop

	report      reporter
	workers     *lane
	republisher *republisher
	troubles    *troubles
	timeouts    *timeouts
	pace        pace           // that each session begins with
	handled     atomic.Int64   // runs of handlers that have ended
	unsettled   sync.WaitGroup // messages
	beside      sync.WaitGroup // carriers, and the watch for policies

	stopped bool // a session has waited for what is unsettled
	drained bool // nothing is unsettled any more
}

// newRun returns the run for a part. Its workers are those that all parts share.
func newRun(c *Consumer, p *part, workers *workers, stop context.Context) *run {
	r := &run{
		cfg: p.cfg, conn: c.conn, source: p.source, queue: p.health.queue, host: c.host, handler: c.handler, health: &p.health, stop: stop,
		report:   reporter{trace: p.cfg.Trace, log: p.cfg.Logger, again: repeats.New(p.cfg.Logger)},
		troubles: newTroubles(p.cfg.Concurrency),
		timeouts: &timeouts{},
		pace:     p.pace,
	}
	r.workers = workers.lane(p.cfg.Concurrency, r.handle)
	r.workers.traffic = p.traffic
	r.republisher = &republisher{
		publisher: confirm.New(c.conn, confirm.Limits{Messages: p.cfg.Concurrency}),
		host:      r.host,
		within:    p.cfg.CopyTimeout,
		report:    r.report,
		troubles:  r.troubles,
		release:   r.workers.release,
		limit:     r.timeouts.holdLimit,
		stop:      stop.Done(),
	}
	return r
}

// consume consumes in one session after the other.
func (r *run) consume() error {
	pause := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(100*time.Millisecond),
		backoff.WithMaxInterval(maxPause),
		backoff.WithMaxElapsedTime(0))
	for ever := false; ; {
		began := time.Now()
		consumed, err := r.session()
		ever = ever || consumed
		switch {
		case r.stop.Err() != nil:
			return nil
		case err == nil, errors.Is(err, connection.ErrClosed), !ever && connection.ClassOf(err) != connection.Transient:
			return err
		}
		since := r.health.interrupted(err, time.Now())
		r.report.again.Warn("consuming was interrupted", err, "queue", r.queue, "since", since)
		if consumed && time.Since(began) >= maxPause {
			pause.Reset()
		}
		wait := pause.NextBackOff()
		if consumed {
			wait = min(wait, maxPauseConsumed)
		}
		select {
		case <-time.After(wait):
		case <-r.stop.Done():
			return nil
		}
	}
}

// session consumes on one channel until that is lost or Run is to stop, and
// reports whether it has come so far as to consume.
func (r *run) session() (consumed bool, err error) {
	resolved, channel, err := r.prepare()
	if err != nil {
		return false, err
	}
	route := wayOf(resolved).withDelays(r.conn)
	wire := transport.Of(channel)
	from := &origin{route: route, user: channel.User(), frame: wire.FrameSize(),
		acks: newAcker(r.stop, channel.Channel(), wire, r.settled), cleared: make(chan struct{}, 1)}
	s := &session{
		conn: r.conn, channel: channel, queue: r.queue, host: r.host, careful: route.facts.DeliveryLimit / 2,
		workers: r.workers, health: r.health, troubles: r.troubles, timeouts: r.timeouts, handled: &r.handled,
		began: func() { r.unsettled.Add(1) }, drainFor: r.cfg.DrainTimeout, from: from, stop: r.stop,
		resolve: func(ctx context.Context) error {
			now, err := topology.Resolve(ctx, r.conn, r.source)
			if err == nil && (now.DeadLetter != resolved.DeadLetter || !slices.Equal(now.WaitAt, resolved.WaitAt)) {
				return errRewired
			}
			return err
		},
		rewired: make(chan struct{}, 1),
		// One for each consumer that a session has at a time.
		cancelled: channel.Channel().NotifyCancel(make(chan string, 2)),
		pace:      r.pace,
	}
	from.work, s.stopWork = context.WithCancelCause(context.WithoutCancel(r.stop))
	from.settling, s.stopSettling = context.WithCancelCause(context.WithoutCancel(r.stop))
	over := make(chan struct{})
	defer close(over)
	go s.watch(over)
	defer s.end()
	prefetch := s.pace.base
	if s.careful > 0 {
		prefetch = 1
	}
	if err := s.consume(r.stop, prefetch); err != nil {
		return false, err
	}
	r.logStart(route, channel.Server().Version)
	defer r.carry(route)()
	defer r.watchPolicies(resolved)()
	err = s.run(func(limit time.Duration) { r.stopped, r.drained = true, r.wait(limit) })
	return true, s.ended(err)
}

// prepare finds the route and opens a channel at the same time.
func (r *run) prepare() (topology.Route, *connection.Session, error) {
	ctx, cancel := context.WithCancel(r.stop)
	defer cancel()
	var channel *connection.Session
	var opening error
	var wg sync.WaitGroup
	wg.Go(func() { channel, opening = r.conn.Session(ctx, connection.Consume) })
	route, err := topology.Resolve(r.stop, r.conn, r.source)
	if err != nil {
		cancel() // the opening of a channel, which shares what it waits for
	}
	wg.Wait()
	if err == nil && opening == nil {
		return route, channel, nil
	}
	if channel != nil {
		_ = channel.Close() // nothing is in flight on it
	}
	if err == nil {
		err = opening
	}
	return topology.Route{}, nil, err
}

// logStart says what a session does, and why.
func (r *run) logStart(route way, version connection.Version) {
	if !r.cfg.Logger.Enabled(r.stop, slog.LevelInfo) {
		return
	}
	about := []any{"queue", r.queue, "broker", version.String()}
	if w, ok := r.source.(topology.WorkQueue); ok {
		about = append(about, "engine", route.Engine().String())
		if plan, err := w.Plan(version); err == nil && plan.Engines[0].Engine == route.Engine() {
			about = append(about, "why", plan.Engines[0].Why)
		} else if err == nil {
			about = append(about, "why", "its queues have the form of a 3.x broker, or the user may not look at them")
		}
	}
	r.cfg.Logger.Info("consuming", about...)
}

// follows reports whether the prefetch may follow the handlers. Not where messages
// have priorities, and not on a queue that others declared: on one with a single
// active consumer another would take over while the prefetch changes.
func follows(source topology.Source) bool {
	switch q := source.(type) {
	case topology.WorkQueue:
		return q.Priority == topology.PriorityNone && !q.Existing
	case topology.DeadLetterQueue:
		return true
	}
	return false
}

// end waits for what is unsettled, and closes what outlives sessions. It reports
// whether everything was settled in time.
func (r *run) end(err error) (drained bool, _ error) {
	drained = r.drained
	if !r.stopped {
		drained = r.wait(stuckGrace)
	}
	r.beside.Wait()
	closing := r.republisher.close()
	if !drained {
		return false, errors.Join(err, closing, fmt.Errorf("consumer: queue %q: not settled in time, and delivered again by the broker: %s; handlers did not return although their ctx had ended, or a hook of Config.Trace or the Logger is slow",
			r.queue, plural(r.workers.inHand(), "message")))
	}
	return true, errors.Join(err, closing)
}

// wait waits for the messages in hand, and reports whether all were settled in
// time.
func (r *run) wait(limit time.Duration) bool {
	done := make(chan struct{})
	go func() { // stays behind only with a handler that stays behind
		r.unsettled.Wait()
		close(done)
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}
