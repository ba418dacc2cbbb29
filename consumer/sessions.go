package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer/internal/carry"
	"github.com/rehop/rehop/consumer/internal/consumertimeout"
	"github.com/rehop/rehop/consumer/internal/durations"
	"github.com/rehop/rehop/consumer/internal/hand"
	"github.com/rehop/rehop/consumer/internal/intake"
	"github.com/rehop/rehop/consumer/internal/plural"
	"github.com/rehop/rehop/consumer/internal/work"
	"github.com/rehop/rehop/internal/confirm"
	"github.com/rehop/rehop/internal/pause"
	"github.com/rehop/rehop/internal/repeats"
	"github.com/rehop/rehop/internal/route"
)

// run is one call of Run, for one part of a Consumer. It owns what outlives a session: the
// copies, the carriers, and what is known of the broker.
type run struct {
	*part
	stop    context.Context // ends when Run is to stop
	going   context.Context // ends then too, and when the Conn is closed
	stopped context.Context // ends when DrainTimeout and durations.StopGrace have passed after stop
	bound   intake.Bound    // the bound of the prefetch of each session

	log       *slog.Logger
	faultLog  *repeats.Log
	hand      *hand.Hand
	pool      *work.Pool
	lane      *hand.Lane
	copies    *work.Copies
	carriers  *carry.Carriers
	timeout   *consumertimeout.ConsumerTimeout
	timedOut  error // the cause of a ctx that ends at Config.HandlerTimeout
	keyAdvice keyAdvice
	handled   atomic.Int64   // messages whose handlers have returned; each run counts again
	watches   sync.WaitGroup // see watch.go

	latestHold atomic.Pointer[string] // the text of the latest error of Hold

	assigned *assigned // nil: the queue is always consumed here

	sharing *sharing // with the other runs of the Conn
	place   place    // of the next session, or the one in progress

	known           *route.Facts // the route that the latest session has found; nil before the first
	others          int          // consumers of the queue that stayed when the latest session in order began
	releaseChannels func()       // releases the channels of the run on the socket; nil before the first session
}

// newRun returns the run for a part. All parts share the workers.
func newRun(p *part, all *hand.Hand, workers *work.Pool, stop, going, stopped context.Context) *run {
	r := &run{
		part: p, stop: stop, going: going, stopped: stopped,
		log: p.cfg.Logger, faultLog: repeats.New(p.cfg.Logger),
		hand: all, pool: workers,
		timeout:  &consumertimeout.ConsumerTimeout{},
		sharing:  sharingOf(p.conn),
		timedOut: timedOut(p.cfg.HandlerTimeout),
	}
	r.place.partings = r.sharing.partings() // those before it are no news of its queue
	r.lane = all.Lane(p.limits)
	workers.Add(r)
	r.copies = work.NewCopies(work.CopiesConfig{
		Hand: all, Pool: workers, Hold: r.timeout,
		Publisher: confirm.New(p.conn, confirm.Limits{Messages: p.cfg.Concurrency * p.cfg.Batch.size()}),
		Timeout:   p.cfg.CopyTimeout,
		Hooks:     r.trace.Copied != nil,
	})
	r.carriers = carry.New(carry.Config{
		Conn: p.conn, Source: p.source, Host: p.host, CopyTimeout: p.cfg.CopyTimeout, Log: r.faultLog,
		Hooks: carry.Hooks{Due: carriedHook(r.trace.Due), Carried: carriedHook(r.trace.Carried)},
	})
	return r
}

func carriedHook(hook func(Carried)) func(carry.Message) {
	if hook == nil {
		return func(carry.Message) {}
	}
	return func(m carry.Message) { hook(Carried(m)) }
}

// consume consumes in one session after the other.
func (r *run) consume() error {
	pauses := pause.Grow(durations.FirstPause, durations.LongestPause)
	for ever := false; r.stop.Err() == nil; {
		ever = r.awaitShard() || ever // a shard that cannot be consumed must not end what has run for long
		if !r.awaitSuspects() {
			continue
		}
		began := time.Now()
		e := r.session()
		consumes, err := e.reach == consumed, e.err
		ever = ever || consumes
		switch {
		case r.stop.Err() != nil:
			return nil
		case errors.Is(err, connection.ErrClosed):
			return fmt.Errorf("consumer: queue %q is not consumed any more: %w", r.queue, connection.ErrClosed)
		case err == nil, !ever && rehop.ClassOf(err) != rehop.ClassTransient:
			return err
		}
		told := r.noteEnd(e)
		if moves(err) {
			pauses.Reset()
			continue
		}
		if hand.Renews(err) {
			r.log.Info("consuming begins anew, and messages are back in their places", "queue", r.queue, "reason", err.Error())
			r.awaitTurn()
			pauses.Reset()
			continue
		}
		if no := (*work.NoConfirmsError)(nil); errors.As(err, &no) {
			r.log.Warn("consuming nothing until the broker confirms copies", "queue", r.queue, "error", no.Cause)
			r.copies.AwaitAnswer(r.going)
			pauses.Reset()
			continue
		}
		since := r.health.consumesNothing(passing, err, time.Now())
		if !told {
			r.faultLog.Warn("consuming was interrupted", err, "queue", r.queue, "since", since)
		}
		if consumes && time.Since(began) >= durations.LongestPause {
			pauses.Reset()
		}
		wait := pauses.Next()
		if consumes {
			wait = min(wait, durations.LongestPauseConsumed)
		}
		pause.For(r.going, r.place.pause(wait, r.known))
	}
	return nil
}

// awaitTurn waits until a worker could handle a new message, or going has ended.
func (r *run) awaitTurn() {
	var starved time.Time
	until(r.going, r.lane.Changed, func() bool {
		var turn hand.Turn
		r.pool.Event(func(now time.Time, out *hand.Out) { turn = r.lane.Turn(now, out) })
		switch {
		case !turn.Paused.IsZero():
			r.health.consumesNothing(chosen, errPaused, turn.Paused)
		case turn.Starved:
			if starved.IsZero() {
				starved = time.Now()
			}
			r.health.consumesNothing(chosen, errStarved, starved)
		default:
			return true
		}
		return false
	})
}

// calling returns the ctx of a call to the broker while messages are in hand. It lasts as
// long as a stop may. A call that is still under way then costs the socket.
func (r *run) calling() (context.Context, context.CancelFunc) {
	return context.WithTimeout(r.stopped, r.cfg.DrainTimeout+durations.StopGrace)
}

// end waits for what is unsettled, and closes what outlives sessions.
func (r *run) end(err error) error {
	ctx, end := r.calling()
	defer end()
	r.wait(ctx)
	r.watches.Wait()
	r.carriers.Wait()
	if r.releaseChannels != nil {
		r.releaseChannels()
	}
	err = errors.Join(err, r.copies.Close())
	if r.lane.Unsettled() > 0 {
		return errors.Join(err, fmt.Errorf("consumer: queue %q: not settled in time, and delivered again by the broker: %s; handlers did not return although their ctx had ended%s, or a hook of Config.Traces or the Logger is slow",
			r.queue, plural.Of(r.lane.Unsettled(), "message"), inBrackets(r.running())))
	}
	return err
}

// running returns the messages that handlers have.
func (r *run) running() (ms []*hand.Message) {
	for _, one := range r.hand.Handlers(time.Now()) {
		if one.Lane == r.lane {
			ms = append(ms, one.Of...)
		}
	}
	return ms
}

// wait waits until no message is in hand, or ctx has ended.
func (r *run) wait(ctx context.Context) {
	until(ctx, r.lane.None, func() bool { return r.lane.Unsettled() == 0 })
}

// until returns when something is so, which a signal may tell, or ctx has ended.
func until(ctx context.Context, signal hand.Signal, is func() bool) {
	for !is() {
		select {
		case <-signal:
		case <-ctx.Done():
			return
		}
	}
}
