package consumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rehop/rehop/consumer/internal/flight"
	"github.com/rehop/rehop/consumer/internal/intake"
	"github.com/rehop/rehop/consumer/internal/schedule"
	"github.com/rehop/rehop/internal/route"
)

// LaneLimits bounds how much of this consumer one lane of topology.Lanes takes. The
// rest is for the other lanes.
type LaneLimits struct {
	// Concurrency is how many of its messages, or batches, are in hand at a time: in
	// handlers, held, or waiting for the confirm of a copy. Up to Config.Concurrency,
	// which is the default.
	Concurrency int

	// Rate is how many messages a second are handled, at equal intervals. After a batch
	// the lane pauses for the intervals of all its messages. Up to 1,000,000; 0: no
	// limit.
	Rate float64
}

const maxRate = 1_000_000

// validateLanes returns what is wrong with the limits for the lanes of a route.
func (c Config) validateLanes(source route.Source) error {
	if source.Lanes == "" {
		if len(c.Lanes) > 0 {
			return fmt.Errorf("consumer: Config.Lanes has limits for %s, want none: the source is not topology.Lanes", flight.Plural(len(c.Lanes), "lane"))
		}
		return nil
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(c.Lanes)) {
		l := c.Lanes[name]
		if !slices.ContainsFunc(source.Routes, func(r route.Route) bool { return r.Lane == name }) {
			errs = append(errs, fmt.Errorf("consumer: Config.Lanes has limits for %q, which is no lane of Lanes %q", name, source.Lanes))
		}
		if l.Concurrency < 0 || l.Concurrency > c.Concurrency {
			errs = append(errs, fmt.Errorf("consumer: Config.Lanes[%q].Concurrency is %d, want 1 to Config.Concurrency, which is %d, or 0 for that", name, l.Concurrency, c.Concurrency))
		}
		if !(l.Rate >= 0 && l.Rate <= maxRate) { // nor NaN
			errs = append(errs, fmt.Errorf("consumer: Config.Lanes[%q].Rate is %v, want more than 0, up to %d a second, or 0 for no limit", name, l.Rate, maxRate))
		}
	}
	return errors.Join(errs...)
}

// part is one queue that a Consumer reads.
type part struct {
	source   route.Route
	cfg      Config          // with the Concurrency of this part
	prefetch intake.Prefetch // that a session begins with
	limits   schedule.Limits
	health   health
}

// partsOf returns what there is to read for a source.
func partsOf(cfg Config, source route.Source) (parts []*part) {
	if source.Lanes == "" {
		return []*part{newPart(cfg, source.Routes[0], prefetchOf(cfg, source.Routes[0]))}
	}
	for _, r := range source.Routes {
		c := cfg
		limits := cfg.Lanes[r.Lane]
		if limits.Concurrency > 0 {
			c.Concurrency = limits.Concurrency
		}
		p := newPart(c, r, prefetchOfLane(c, r))
		p.limits.Share = r.Share
		if limits.Rate > 0 {
			p.limits.Every = time.Duration(float64(time.Second) / limits.Rate)
		}
		parts = append(parts, p)
	}
	return parts
}

func newPart(cfg Config, source route.Route, prefetch intake.Prefetch) *part {
	p := &part{source: source, cfg: cfg, prefetch: prefetch, limits: schedule.Limits{Slots: cfg.Concurrency}}
	p.health.queue = source.Queue
	p.health.fail(errNotRunning)
	return p
}

// prefetchOf returns the prefetch that a configuration asks for.
func prefetchOf(cfg Config, source route.Route) intake.Prefetch {
	if cfg.Batch.Size > 0 && cfg.Prefetch == 0 {
		ahead := 1
		if source.ByPriority {
			ahead = 0 // what is sent ahead is handled before any of a higher priority
		}
		return intake.Prefetch{Base: prefetchOfBatches(cfg, ahead), Fixed: true}
	}
	if cfg.Prefetch > 0 || cfg.KeyLimit > 0 {
		return intake.Prefetch{Base: cmp.Or(cfg.Prefetch, prefetchOfKeys(cfg)), Fixed: true}
	}
	return intake.Prefetch{Base: cfg.Concurrency, Fixed: !follows(source)}
}

// follows reports whether the prefetch may follow the handlers. Not where messages
// have priorities, and not on a queue that others declared: on one with a single
// active consumer another would take over while the prefetch changes.
func follows(source route.Route) bool {
	return source.Kind == route.Letters || source.Kind == route.Work && !source.ByPriority && !source.Existing && !source.Single
}

// prefetchOfLane returns the prefetch of a lane. One message at least is at hand
// beyond those in the handlers: the one that shows that the lane is not empty, when a
// handler has become free.
func prefetchOfLane(cfg Config, source route.Route) intake.Prefetch {
	if cfg.Batch.Size > 0 && cfg.Prefetch == 0 {
		return intake.Prefetch{Base: prefetchOfBatches(cfg, 1), Fixed: true}
	}
	if cfg.Prefetch > 0 || cfg.KeyLimit > 0 {
		return intake.Prefetch{Base: cmp.Or(cfg.Prefetch, prefetchOfKeys(cfg)), Fixed: true}
	}
	return intake.Prefetch{Base: min(cfg.Concurrency+1, maxConcurrency), Fixed: source.Single}
}

// run consumes every part until ctx ends or one of them cannot be consumed.
func (c *Consumer) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stopped, end := endsAfter(ctx, c.cfg.DrainTimeout+stopGrace)
	defer end()
	workers := schedule.New(c.cfg.Concurrency, c.strict)
	runs := make([]*run, len(c.parts))
	for i, p := range c.parts {
		runs[i] = newRun(c, p, workers, ctx, stopped)
		p.health.starts(runs[i])
		defer p.health.fail(errNotRunning)
	}
	c.setRuns(runs)
	defer c.setRuns(nil)
	for _, r := range runs {
		r.lane.Opening() // none goes ahead of a higher one at the start
	}
	drained, errs := make([]bool, len(runs)), make([]error, len(runs))
	var all sync.WaitGroup
	for i, r := range runs {
		all.Go(func() {
			err := r.consume()
			cancel() // it ends before ctx only if it cannot go on
			drained[i], errs[i] = r.end(err)
		})
	}
	all.Wait()
	workers.Close()
	if !slices.Contains(drained, false) {
		workers.Wait()
	}
	return errors.Join(errs...)
}

// endsAfter returns a ctx that ends so long after another, with the values of that.
func endsAfter(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	later, cancel := context.WithCancel(context.WithoutCancel(ctx))
	timer := time.AfterFunc(d, cancel)
	timer.Stop()
	unwatch := context.AfterFunc(ctx, func() { timer.Reset(d) })
	return later, func() {
		unwatch()
		timer.Stop()
		cancel()
	}
}

// warnOfPrefetch says where messages that were sent ahead keep those of a higher
// priority waiting.
func (c *Consumer) warnOfPrefetch() {
	for _, p := range c.parts {
		if p.source.ByPriority && p.cfg.Prefetch > p.cfg.Concurrency*p.cfg.Batch.size() {
			p.cfg.Logger.Warn("the prefetch defeats the priorities: messages that were sent ahead are handled before one of higher priority that comes later",
				"queue", p.source.Queue, "prefetch", p.cfg.Prefetch, "concurrency", p.cfg.Concurrency, "batch", p.cfg.Batch.size())
		}
	}
}
