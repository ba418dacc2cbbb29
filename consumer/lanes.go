package consumer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/topology"
)

// LaneLimits bounds what this consumer does of one lane of topology.Lanes. What a
// lane may not have goes to the others.
type LaneLimits struct {
	// Concurrency is how many of its messages are in hand at a time: those in
	// handlers, those that are held, and those whose copies are not confirmed. Up to
	// Config.Concurrency, which is the default.
	Concurrency int

	// Rate is how many messages a second are handled, at equal distances. Up to
	// 1,000,000; 0: no limit.
	Rate float64
}

const maxRate = 1_000_000

// validateLanes returns what is wrong with the limits for the lanes of a route.
func (c Config) validateLanes(r topology.Route) error {
	lanes, ok := r.Lanes()
	if !ok {
		if len(c.Lanes) > 0 {
			return fmt.Errorf("consumer: Config.Lanes has limits for %s, want none: the source is not topology.Lanes", plural(len(c.Lanes), "lane"))
		}
		return nil
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(c.Lanes)) {
		l := c.Lanes[name]
		if !slices.ContainsFunc(lanes.Lanes, func(lane topology.Lane) bool { return lane.Name == name }) {
			errs = append(errs, fmt.Errorf("consumer: Config.Lanes has limits for %q, which is no lane of Lanes %q", name, lanes.Name))
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
	source  topology.Source
	cfg     Config // with the Concurrency of this part
	pace    pace   // that a session begins with
	traffic traffic
	health  health
}

// partsOf returns what there is to read for a source, and how.
func partsOf(cfg Config, source topology.Source) (parts []*part, strict bool) {
	lanes, ok := source.Route().Lanes()
	if !ok {
		return []*part{newPart(cfg, source, newPace(cfg, source))}, false
	}
	for i, w := range lanes.WorkQueues() {
		lane, c := lanes.Lanes[i], cfg
		limits := cfg.Lanes[lane.Name]
		if limits.Concurrency > 0 {
			c.Concurrency = limits.Concurrency
		}
		p := newPart(c, w, lanePace(c))
		p.traffic.share = lane.Share
		if limits.Rate > 0 {
			p.traffic.every = time.Duration(float64(time.Second) / limits.Rate)
		}
		parts = append(parts, p)
	}
	return parts, lanes.Strict()
}

func newPart(cfg Config, source topology.Source, pace pace) *part {
	p := &part{source: source, cfg: cfg, pace: pace}
	p.health.queue = source.Route().Queue
	p.health.fail(errNotRunning)
	return p
}

// newPace returns the pace that a configuration asks for.
func newPace(cfg Config, source topology.Source) pace {
	if cfg.Prefetch > 0 {
		return pace{base: cfg.Prefetch, fixed: true}
	}
	return pace{base: cfg.Concurrency, fixed: !follows(source)}
}

// lanePace returns the pace of a lane. One message at least is at hand beyond those
// in the handlers: the one that shows that the lane is not empty, when a handler has
// become free.
func lanePace(cfg Config) pace {
	if cfg.Prefetch > 0 {
		return pace{base: cfg.Prefetch, fixed: true}
	}
	return pace{base: min(cfg.Concurrency+1, maxConcurrency)}
}

// run consumes every part until ctx ends or one of them cannot be consumed.
func (c *Consumer) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w := &workers{slots: c.cfg.Concurrency, turns: turns{strict: c.strict}}
	runs := make([]*run, len(c.parts))
	for i, p := range c.parts {
		runs[i] = newRun(c, p, w, ctx)
		p.health.starts(runs[i].troubles)
		defer p.health.fail(errNotRunning)
	}
	for _, r := range runs {
		r.workers.opens() // none goes ahead of a higher one at the start
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
	w.dismiss()
	if !slices.Contains(drained, false) {
		w.all.Wait()
	}
	return errors.Join(errs...)
}

// together returns what the health of several lanes means for the whole: degraded
// while one of them is consumed.
func together(lanes []*connection.HealthError) *connection.HealthError {
	var faults []*connection.HealthError
	works := false
	for _, h := range lanes {
		if h != nil {
			faults = append(faults, h)
		}
		works = works || h == nil || h.Degraded
	}
	switch {
	case len(faults) == 0:
		return nil
	case len(lanes) == 1:
		return faults[0]
	}
	all := &connection.HealthError{Degraded: works, Since: faults[0].Since}
	causes := make([]error, len(faults))
	for i, h := range faults {
		if h.Since.Before(all.Since) {
			all.Since = h.Since
		}
		causes[i] = h.Cause
	}
	all.Cause = laneErrors(causes)
	if !slices.ContainsFunc(causes, func(err error) bool { return err.Error() != causes[0].Error() }) {
		all.Cause = causes[0] // the same of all
	}
	return all
}

// laneErrors are the causes of several lanes, in one line.
type laneErrors []error

func (e laneErrors) Error() string {
	texts := make([]string, len(e))
	for i, err := range e {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

func (e laneErrors) Unwrap() []error { return e }

// warnOfPrefetch says where messages that were sent ahead keep those of a higher
// priority waiting.
func (c *Consumer) warnOfPrefetch() {
	for _, p := range c.parts {
		w, ok := p.source.(topology.WorkQueue)
		if ok && w.Priority != topology.PriorityNone && p.cfg.Prefetch > p.cfg.Concurrency {
			p.cfg.Logger.Warn("the prefetch defeats the priorities: messages that were sent ahead are handled before one of higher priority that comes later",
				"queue", w.Name, "prefetch", p.cfg.Prefetch, "concurrency", p.cfg.Concurrency)
		}
	}
}
