package confirm

import (
	"context"
	"fmt"
	"time"

	"github.com/rehop/rehop/connection"
)

// While any message is in flight, one goroutine of the Publisher looks at all
// channels every 250 ms.
const (
	lookEvery     = 250 * time.Millisecond
	silentLooks   = 4   // looks that find the same oldest message: its target is silent
	answeredLooks = 4   // looks that find everything of the look before answered
	staleLooks    = 120 // looks that find the same oldest message where its target is set apart
)

// progress is what the looks at a channel have found.
type progress struct {
	oldest   uint64 // seq of the oldest message at the last look
	newest   uint64 // of the newest
	same     int    // looks that found the same oldest message
	calm     int
	passed   bool      // a message was answered before the oldest one
	answered bool      // any message was
	unready  time.Time // since when the broker does not read
}

func (p *Publisher) startWatching() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed && p.watching.CompareAndSwap(false, true) {
		p.running.Go(p.watch)
	}
}

func (p *Publisher) watch() {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-p.life.Done():
			return
		}
		if p.look() {
			continue
		}
		// A message that comes now starts the watching anew, or is found.
		p.watching.Store(false)
		if !p.busy() || !p.watching.CompareAndSwap(false, true) {
			return
		}
	}
}

// busy reports whether anything is in flight, or set apart.
func (p *Publisher) busy() bool {
	if p.lanes.any() {
		return true
	}
	for _, c := range p.all() {
		c.mu.Lock()
		n := c.count
		c.mu.Unlock()
		if n > 0 {
			return true
		}
	}
	return false
}

func (p *Publisher) all() []*channel {
	p.mu.Lock()
	defer p.mu.Unlock()
	channels := make([]*channel, 0, len(p.channels))
	for c := range p.channels {
		channels = append(channels, c)
	}
	return channels
}

// look reports whether there is anything to look at again.
func (p *Publisher) look() bool {
	for _, c := range p.all() {
		p.lookAt(c, time.Now())
	}
	return p.busy()
}

func (p *Publisher) lookAt(c *channel, now time.Time) {
	main := p.main.Load() == c
	if c.session.Err() != nil {
		c.mu.Lock()
		c.sweepLeft()
		over := c.count == 0
		c.mu.Unlock()
		if main {
			p.suspect.Store(0)
		}
		if over && !main {
			p.drop(c)
		}
		return
	}
	readiness := c.socket.Ready(ended)
	lanes := p.lanes.on(c)
	c.mu.Lock()
	c.sweepLeft()
	c.cutLate(now)
	silent := c.follow(now, readiness == nil)
	var oldest target
	if silent {
		head := c.head()
		oldest = target{head.Exchange, head.Key}
	}
	passed, same, calm := c.progress.passed, c.progress.same, c.progress.calm
	if c.progress.answered && main {
		p.silentInARow.Store(0)
	}
	c.progress.answered = false
	if main && readiness != nil {
		p.waiting.CompareAndSwap(0, c.progress.unready.UnixNano())
	}
	switch {
	case readiness != nil:
		c.cutImpatient(now, c.progress.unready, p.unreadable(), nil)
	case c.retired && same >= silentLooks:
		c.cutHeldUp(lanes)
	}
	for _, lane := range lanes {
		c.cutImpatient(now, lane.since, &SilentError{Exchange: lane.target.exchange, Key: lane.target.key, Since: lane.since}, &lane.target)
	}
	if main && silent {
		if suspect := p.suspect.Load(); suspect != 0 {
			since := time.Unix(0, suspect)
			c.cutImpatient(now, since, &SilentError{Exchange: oldest.exchange, Key: oldest.key, Since: since}, nil)
		}
	}
	c.mu.Unlock()
	switch {
	case main && silent:
		p.suspect.CompareAndSwap(0, now.UnixNano())
		if same >= silentLooks<<p.silentInARow.Load() {
			p.setApart(c, oldest, !passed)
		}
	case main:
		p.suspect.Store(0)
	case len(lanes) > 0 && calm >= answeredLooks:
		p.lanes.dissolve(c)
		c.mu.Lock()
		c.lane = false
		c.moveOn()
		c.mu.Unlock()
	case len(lanes) > 0 && same >= staleLooks:
		p.renewLane(c, lanes)
	}
}

// follow notes how far the channel has come, and reports whether its oldest
// message has had no answer for long; c.mu must be held.
func (c *channel) follow(now time.Time, ready bool) bool {
	g := &c.progress
	if ready {
		g.unready = time.Time{}
	} else if g.unready.IsZero() {
		g.unready = now
	}
	var oldest uint64
	if c.first != nil {
		oldest = c.first.seq
	}
	if oldest == 0 || oldest > g.newest {
		g.calm++
	} else {
		g.calm = 0
	}
	g.newest = c.seq
	if oldest != g.oldest || oldest == 0 || !ready {
		g.oldest, g.same = oldest, 0
		return false
	}
	g.same++
	return g.same >= silentLooks
}

// cutLate ends the waiting of reported messages whose time is over; c.mu must be
// held.
func (c *channel) cutLate(now time.Time) {
	for m := c.first; m != nil; m = m.next {
		switch {
		case m.Report == nil:
		case m.ctx.Err() != nil:
			c.cutOff(m, context.Cause(m.ctx))
		case !m.deadline.IsZero() && now.After(m.deadline):
			c.cutOff(m, ErrLate)
		}
	}
}

// cutImpatient ends the waiting of messages, to one target or to all, whose
// AnswerPatience with a trouble is over; c.mu must be held.
func (c *channel) cutImpatient(now, since time.Time, why error, only *target) {
	for m := c.first; m != nil; m = m.next {
		if m.AnswerPatience > 0 && now.Sub(since) >= m.AnswerPatience && (only == nil || only.matches(m)) {
			c.cutOff(m, fmt.Errorf("%w: %w", &impatientError{now.Sub(since)}, why))
		}
	}
}

// cutHeldUp ends the waiting of messages that are not to a target set apart
// here: they are sent again elsewhere. c.mu must be held.
func (c *channel) cutHeldUp(apart []*lane) {
	for m := c.first; m != nil; m = m.next {
		if !matchesAny(apart, m) {
			c.cutOff(m, errHeldUp)
		}
	}
}

// cutAll ends the waiting of all messages; c.mu must be held.
func (c *channel) cutAll(cause error) {
	for m := c.first; m != nil; m = m.next {
		c.cutOff(m, cause)
	}
}

// cutOff ends the waiting for the answer of a message in flight, which is
// unconfirmed then; c.mu must be held.
func (c *channel) cutOff(m *Message, cause error) {
	if m.left || m.unsent {
		return
	}
	if m.Report != nil {
		if m.cut == nil {
			m.cut = cause
		}
		c.kick() // again too: it may not have been collected yet
		return
	}
	if m.cut == nil {
		m.cut = cause
		m.waiter.cut <- struct{}{}
	}
}

// unreadable says why the broker does not read.
func (p *Publisher) unreadable() error {
	if reason, since, blocked := p.conn.Blocked(); blocked {
		return &connection.BlockedError{Reason: reason, Since: since}
	}
	return errUnread
}
