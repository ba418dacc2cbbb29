package consumer

import (
	"time"

	"github.com/rehop/rehop/consumer/internal/hand"
)

// Pause stops handing out messages until Resume. Handlers finish, and messages that no
// handler has begun go back to their queue. With a Config.KeyLimit of 1, and on a queue with
// a single active consumer, the consumer keeps these messages for a time, to preserve their
// order: for 15 minutes; for half of the consumer timeout, if that timeout is less than 30
// minutes; or for a quarter of it, if it is more than an hour and Config.RetryInPlace is not
// set. After this time they go back to their places, and the consumer consumes nothing until
// Resume. Health is degraded meanwhile. Pause returns at once, and may be called at any time: a
// Consumer that is paused before Run begins paused.
func (c *Consumer) Pause() { c.setPaused(true) }

// Resume ends a Pause, within a second.
func (c *Consumer) Resume() { c.setPaused(false) }

func (c *Consumer) setPaused(paused bool) {
	c.pausing.Lock()
	defer c.pausing.Unlock()
	c.paused = paused
	for _, r := range c.runs {
		r.setPaused(paused)
	}
}

// setRuns notes what is running, nil for nothing.
func (c *Consumer) setRuns(runs []*run) {
	c.pausing.Lock()
	defer c.pausing.Unlock()
	c.runs = runs
	for _, r := range runs {
		r.setPaused(c.paused)
	}
}

func (r *run) setPaused(paused bool) {
	r.pool.Event(func(now time.Time, out *hand.Out) { r.lane.SetPaused(paused, now, out) })
}
