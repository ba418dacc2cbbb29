package consumer

// Pause stops handing out messages until Resume. Handlers finish, and messages that no
// handler has begun go back to their queue. With Config.KeyLimit, and on a queue with
// a single active consumer, they stay with the consumer for up to 15 minutes, to keep
// their order. If the consumer timeout is less than 30 minutes, they stay for half of it.
// If it is more than an hour, they stay for a quarter of it, unless Config.RetryInPlace is
// set. Then they go back to their places, and the consumer consumes nothing until Resume.
// Health is degraded meanwhile. Pause returns at once, and may be called at any time: a
// Consumer that is paused before Run begins paused.
func (c *Consumer) Pause() { c.setPaused(true) }

// Resume ends a Pause, within a second.
func (c *Consumer) Resume() { c.setPaused(false) }

func (c *Consumer) setPaused(paused bool) {
	c.pausing.Lock()
	defer c.pausing.Unlock()
	c.paused = paused
	for _, r := range c.runs {
		if paused {
			r.lane.Pause()
		} else {
			r.lane.Resume()
		}
	}
}

// setRuns notes what is running, nil for nothing.
func (c *Consumer) setRuns(runs []*run) {
	c.pausing.Lock()
	defer c.pausing.Unlock()
	c.runs = runs
	for _, r := range runs {
		if c.paused {
			r.lane.Pause()
		}
	}
}
