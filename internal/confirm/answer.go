package confirm

import (
	"time"

	"github.com/rehop/rehop/internal/yield"
)

// answer ends a message that the broker has answered, or whose channel is lost.
func (c *channel) answer(m *Message) error {
	// The channel is marked closed before its confirms are released, so a
	// confirm that is released by an open channel is the broker's own.
	lost := c.session.Channel().IsClosed()
	yield.Here()
	c.mu.Lock()
	c.drainReturns()
	c.settle(m, lost)
	c.grant()
	c.mu.Unlock()
	return c.outcome(m, lost)
}

// settle removes an answered message, and notes what the answer says about the
// channel; c.mu must be held.
func (c *channel) settle(m *Message, lost bool) {
	if !lost {
		c.progress.answered = true
		before := c.first.tag.Load()
		c.progress.passed = before != 0 && before < m.tag.Load()
		c.noteAnswer(m)
		c.noteRefusal(m)
	}
	c.remove(m)
}

// Bounds of the targets that a channel remembers.
const (
	maxRefusals = 64
	maxAnswers  = 1024
)

// noteAnswer needs c.mu held.
func (c *channel) noteAnswer(m *Message) {
	t := target{m.Exchange, m.RoutingKey}
	if t == c.answerer && c.answers != nil || len(c.answers) >= maxAnswers {
		return
	}
	if c.answers == nil {
		c.answers = map[target]struct{}{}
	}
	c.answers[t] = struct{}{}
	c.answerer = t
}

// noteRefusal needs c.mu held.
func (c *channel) noteRefusal(m *Message) {
	t := target{m.Exchange, m.RoutingKey}
	switch {
	case !m.confirm.Acked():
		if len(c.refusals) < maxRefusals {
			if c.refusals == nil {
				c.refusals = map[target]struct{}{}
			}
			c.refusals[t] = struct{}{}
			c.refused.Store(true)
		}
	case len(c.refusals) > 0:
		delete(c.refusals, t)
	}
}

// refusingAge is the age at which a channel whose target refuses is replaced.
const refusingAge = 5 * time.Second

// keepsRefusing reports whether the target of m has refused on this channel for long
// enough to try another one. Quorum queues of 3.10 go on refusing on the same
// channel when the reason is gone.
func (c *channel) keepsRefusing(m *Message) bool {
	if !c.refused.Load() || time.Since(c.opened) < refusingAge {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_, refused := c.refusals[target{m.Exchange, m.RoutingKey}]
	return refused && !c.retired
}
