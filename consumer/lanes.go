package consumer

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/rehop/rehop/consumer/internal/hand"
	"github.com/rehop/rehop/consumer/internal/intake"
	"github.com/rehop/rehop/consumer/internal/plural"
	"github.com/rehop/rehop/internal/route"
)

// LaneLimits bounds how much of this consumer one lane of topology.Lanes takes. The
// rest is for the other lanes.
type LaneLimits struct {
	// Concurrency is how many messages, or batches, of the lane are in hand at a
	// time: in handlers, held, or waiting for the confirm of a copy. Up to
	// Config.Concurrency, which is the default.
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
			return fmt.Errorf("consumer: Config.Lanes has limits for %s, want none: the source is not topology.Lanes", plural.Of(len(c.Lanes), "lane"))
		}
		return nil
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(c.Lanes)) {
		l := c.Lanes[name]
		if !slices.ContainsFunc(source.Routes, func(r route.Facts) bool { return r.Lane == name }) {
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

// nameOf returns the name of a source: that of its queue, of its lanes or of its shards.
func nameOf(source route.Source) string {
	return cmp.Or(source.Lanes, source.Shards, source.Routes[0].Queue)
}

// part is one queue that a Consumer reads.
type part struct {
	*Consumer
	source   route.Facts
	queue    string
	cfg      settings        // with the Concurrency of this part
	prefetch intake.Prefetch // that a session begins with
	limits   hand.Limits
	health   health
}

// newPart returns one of the queues of a source. It has limits of its own if it is a lane.
func newPart(c *Consumer, source route.Source, r route.Facts) *part {
	p := &part{Consumer: c, source: r, queue: r.Queue, cfg: c.cfg}
	limits := c.cfg.Lanes[r.Lane]
	p.cfg.Concurrency = cmp.Or(limits.Concurrency, c.cfg.Concurrency)
	p.prefetch = prefetchOf(p.cfg, r, source.Lanes != "")
	p.limits = hand.Limits{
		Slots: p.cfg.Concurrency, Share: r.Share, Shard: source.Shards != "", PerKey: p.cfg.KeyLimit, Ordered: p.ordered(),
		Batch:  hand.Batch{Size: p.cfg.Batch.Size, Linger: p.cfg.Batch.Linger, Bytes: p.cfg.Batch.MaxBytes},
		Outage: hand.Outage{Of: p.cfg.Outage.Runs, From: p.cfg.Outage.from(p.cfg.Concurrency), MaxPause: p.cfg.Outage.MaxPause},
	}
	if limits.Rate > 0 {
		p.limits.Every = time.Duration(float64(time.Second) / limits.Rate)
	}
	p.health.queue = r.Queue
	p.health.consumesNothing(lasts, errNotRunning, time.Now())
	return p
}
