package sim

import (
	"slices"
	"testing"
	"time"

	"github.com/rehop/rehop/delay"
)

const (
	shrinkFor = 2 * time.Minute // by the clock of the wall
	tries     = 3               // of a plan that may show the violation
)

// shrink leaves out of a plan what its violation does not need.
func shrink(t *testing.T, p plan, r result) (plan, result) {
	end := time.Now().Add(shrinkFor)
	for less := true; less; {
		less = false
		for _, q := range smallerPlans(p) {
			if time.Now().After(end) {
				return p, r
			}
			for range tries {
				if got := runPlan(t, q); len(got.violations) > 0 {
					p, r, less = q, got, true
					break
				}
			}
			if less {
				break
			}
		}
	}
	return p, r
}

// smallerPlans are those that leave something out, the most first.
func smallerPlans(p plan) (all []plan) {
	add := func(change func(q *plan)) {
		q := p
		q.producers = slices.Clone(p.producers)
		q.consumers = slices.Clone(p.consumers)
		change(&q)
		if p.counts != (counts{}) && q.knowing() == 0 {
			return // messages would be in a shard that nobody consumes
		}
		all = append(all, q)
	}
	for _, faults := range parts(p.faults) {
		add(func(q *plan) { q.faults = faults })
	}
	if p.shards > 1 && !p.laned {
		add(func(q *plan) {
			q.shards = 1
			q.sameCounts()
		})
	}
	if p.counts != (counts{}) {
		add((*plan).sameCounts)
	}
	if p.crasher > 0 {
		add(func(q *plan) { q.crasher = 0 })
	}
	if p.stuck.n > 0 {
		add(func(q *plan) { q.stuck = stuckPlan{} })
	}
	if p.lanes.tickets > 0 {
		add(func(q *plan) { q.lanes = lanesPlan{} })
	}
	if p.apart() > 0 {
		add(func(q *plan) {
			for i, c := range q.consumers {
				q.consumers[i].lives = slices.Clone(c.lives)
				for j := range c.lives {
					q.consumers[i].lives[j].ahead = 0
				}
			}
		})
	}
	for i := range p.producers {
		if p.producers[i].also.key != "" {
			add(func(q *plan) { q.producers[i].also = alsoPlan{} })
		}
		if len(p.producers) > 1 {
			add(func(q *plan) { q.producers = slices.Delete(q.producers, i, i+1) })
		}
		if p.producers[i].shelf.room > 0 {
			add(func(q *plan) { q.producers[i].shelf = shelfPlan{} })
		}
		for _, messages := range parts(p.producers[i].messages) {
			if len(messages) > 0 {
				add(func(q *plan) { q.producers[i].messages = messages })
			}
		}
	}
	for i, c := range p.consumers {
		if len(p.consumers) > 1 {
			add(func(q *plan) { q.consumers = slices.Delete(q.consumers, i, i+1) })
		}
		if len(c.lives) > 1 {
			add(func(q *plan) { q.consumers[i].lives = []life{{schedule: c.lives[0].schedule}} })
			for j := range c.lives[:len(c.lives)-1] {
				add(func(q *plan) { q.consumers[i].lives = slices.Delete(slices.Clone(c.lives), j, j+1) })
			}
		}
	}
	if len(p.schedules) > 1 {
		add(func(q *plan) {
			q.schedules = []delay.Schedule{p.schedules[0]}
			for i, c := range q.consumers {
				q.consumers[i].lives = slices.Clone(c.lives)
				for j := range c.lives {
					q.consumers[i].lives[j].schedule = 0
				}
			}
		})
	}
	if p.latency > 0 {
		add(func(q *plan) { q.latency = 0 })
	}
	for _, of := range []func(*handlers) *int{
		func(h *handlers) *int { return &h.panics }, func(h *handlers) *int { return &h.later }, func(h *handlers) *int { return &h.permanent },
		func(h *handlers) *int { return &h.requeue }, func(h *handlers) *int { return &h.discard }, func(h *handlers) *int { return &h.slow },
		func(h *handlers) *int { return &h.deaf }, func(h *handlers) *int { return &h.snooze },
	} {
		if *of(&p.handlers) > 0 {
			add(func(q *plan) { *of(&q.handlers) = 0 })
		}
	}
	return all
}

// sameCounts has all processes know all shards.
func (p *plan) sameCounts() {
	p.counts = counts{}
	for i, c := range p.consumers {
		p.consumers[i].lives = slices.Clone(c.lives)
		for j := range c.lives {
			p.consumers[i].lives[j].count = 0
		}
	}
}

// parts are what is left of a list without one half, one quarter, or one of it.
func parts[T any](list []T) (all [][]T) {
	last := 0
	for size := (len(list) + 1) / 2; size > 0 && size != last; size /= 2 {
		last = size
		for i := 0; i < len(list); i += size {
			all = append(all, slices.Concat(list[:i], list[min(i+size, len(list)):]))
		}
		if size > 1 && size < 8 && len(list) > 16 {
			break // one by one would take too long
		}
	}
	return all
}
