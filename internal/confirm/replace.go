package confirm

import "time"

// maxSilentInARow bounds how often the time doubles after which a channel counts as
// silent. It doubles with each silent channel in a row, because then the broker
// itself is probably silent.
const maxSilentInARow = 5

// renew replaces the main channel by a new one. Messages in flight stay on the
// old one until they are answered.
func (p *Publisher) renew(c *channel) {
	p.change(c, p.limits, func(next *channel) bool {
		if !p.main.CompareAndSwap(c, next) {
			return false
		}
		c.retire(false)
		return true
	})
}

// setApart leaves the main channel to a target that does not answer, and opens a
// new one for all others. Their messages in flight are sent again once it is known
// that the target holds them up.
func (p *Publisher) setApart(c *channel, t target) {
	since := p.unansweredSince(time.Now())
	p.change(c, p.limits, func(next *channel) bool {
		c.mu.Lock()
		answered := c.first == nil || !t.matches(c.head())
		c.mu.Unlock()
		if answered && c.session.Err() == nil || !p.main.CompareAndSwap(c, next) {
			return false
		}
		p.suspect.Store(0)
		if c.session.Err() != nil {
			return true
		}
		p.silentInARow.Store(min(p.silentInARow.Load()+1, maxSilentInARow))
		its := p.silent.set(t, c, since)
		c.retire(its == c)
		return true
	})
}

// renewSilent gives targets that have not answered for very long a new channel.
func (p *Publisher) renewSilent(c *channel, its []*silentTarget) {
	c.mu.Lock()
	due := c.progress.same >= staleLooks<<min(its[0].renewed, 4)
	c.mu.Unlock()
	if !due {
		return
	}
	p.change(c, p.limits.share(), func(next *channel) bool {
		next.retired, next.apart = true, true
		p.silent.move(c, next)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.apart = false
		c.cutAll(errHeldUp)
		c.moveOn()
		return true
	})
}

// change opens a channel that is to take c's place, unless one is being opened
// or there are too many. use runs under p.mu and reports whether it took it.
func (p *Publisher) change(c *channel, limits Limits, use func(next *channel) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.changing || len(p.channels) >= maxChannels {
		return
	}
	p.changing = true
	p.running.Go(func() {
		next, err := p.open(p.life, limits)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.changing = false
		if err != nil {
			return // of the Publisher or the Conn, which others meet too
		}
		if p.closed || !use(next) {
			p.running.Go(func() { _ = next.session.Close() })
			return
		}
		p.channels[next] = struct{}{}
	})
}

// share returns the limits of targets that are set apart.
func (l Limits) share() Limits {
	return Limits{Messages: max(1, l.Messages/apartShare), Bytes: max(1, l.Bytes/apartShare)}
}

// retire makes messages use another channel, except those of silent targets that
// have this one for themselves.
func (c *channel) retire(apart bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.retired, c.apart = true, apart
	c.progress.same = 0
	if apart {
		c.limits = c.limits.share()
	}
	c.moveOn()
}

// moveOn makes messages that wait for room look for their channel again; c.mu must
// be held.
func (c *channel) moveOn() {
	close(c.moved)
	c.moved = make(chan struct{})
	c.grant()
}

// drop forgets a channel that has ended.
func (p *Publisher) drop(c *channel) {
	p.silent.dissolve(c)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.channels, c)
}
