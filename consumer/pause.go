package consumer

// Pause stops handing out messages until Resume. Handlers finish, and messages that no
// handler has begun go back to their queue. With Config.KeyLimit, and on a queue with
// a single active consumer, they stay with the consumer, to keep their order. Health
// is degraded meanwhile. Pause returns at once, and may be called at any time: a
// Consumer that is paused before Run begins paused.
func (c *Consumer) Pause() { c.setPaused(true) }

// Resume ends a Pause.
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
