package confirm

import (
	"fmt"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/pause"
)

// While any message is in flight, one goroutine of the Publisher looks at all
// channels every 250 ms. It rests while the broker does not read; see rest.go.
const (
	lookEvery     = 250 * time.Millisecond
	silentLooks   = 4   // looks that find the same oldest message: its target is silent
	answeredLooks = 4   // looks that find everything of the look before answered
	staleLooks    = 120 // looks that find the same oldest message where its target is set apart
	heldUpLooks   = 8   // looks that find the same oldest message, after which it holds up all behind it
	provedLooks   = 2   // the same where another channel was answered meanwhile

	silence = silentLooks * lookEvery // after which a target or a channel is known to be silent
)

// progress is what the looks at a channel have found.
type progress struct {
	oldest   uint64 // seq of the oldest message at the last look
	newest   uint64 // of the newest
	same     int    // looks that found the same oldest message
	calm     int
	passed   bool      // a message was answered before the oldest one
	answered bool      // any message was
	since    time.Time // when a look first found that oldest message
	lost     bool      // a look has found the channel lost
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
	for atOnce := false; p.life.Err() == nil; {
		if !atOnce {
			select {
			case <-ticker.C:
			case <-p.life.Done():
				return
			}
		}
		for _, c := range p.all() {
			p.lookAt(c, time.Now())
		}
		if p.busy() {
			atOnce = p.rest(ticker)
			continue
		}
		// A message that comes now starts the watching anew, or is found.
		p.watching.Store(false)
		if !p.busy() || !p.watching.CompareAndSwap(false, true) {
			return
		}
	}
}

// CutOff ends the waiting of the reported messages whose ctx has ended, which the next look
// would find.
func (p *Publisher) CutOff() {
	for _, c := range p.all() {
		c.mu.Lock()
		c.cutLate(time.Now())
		c.mu.Unlock()
	}
}

// busy reports whether anything is in flight, set apart or suspect.
func (p *Publisher) busy() bool {
	if p.silent.any() || p.suspect.Load() != 0 {
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

func (p *Publisher) lookAt(c *channel, now time.Time) {
	main := p.main.Load() == c
	if c.session.Err() != nil {
		c.mu.Lock()
		c.sweepLeft()
		over, known := c.count == 0, c.progress.lost
		c.progress.lost = true
		c.mu.Unlock()
		if main && known { // what was in flight has been sent again since the last look, or nobody waits
			p.suspect.Store(0)
		}
		if over && !main {
			p.drop(c)
		}
		return
	}
	over, unready := c.socket.Unready()
	its := p.silent.on(c)
	others := !main && p.answersOnMain()
	c.mu.Lock()
	c.sweepLeft()
	c.cutLate(now)
	silent := c.follow(now, over == nil)
	var oldest target
	if silent {
		head := c.head()
		oldest = target{head.Exchange, head.RoutingKey}
	}
	same, calm := c.progress.same, c.progress.calm
	if c.progress.answered && main {
		p.silentInARow.Store(0)
	}
	c.progress.answered = false
	silentSince := c.progress.since
	switch {
	case over != nil:
		c.cutImpatient(now, unready, p.unreadable(), nil)
	case c.retired && c.holdsUp(others):
		c.cutHeldUp(its)
	}
	for _, t := range its {
		c.cutImpatient(now, t.since.Add(silence), &SilentError{Exchange: t.target.exchange, RoutingKey: t.target.key, Since: t.since}, &t.target)
	}
	if main && silent {
		c.cutImpatient(now, silentSince.Add(silence), &SilentError{Exchange: oldest.exchange, RoutingKey: oldest.key, Since: silentSince}, nil)
	}
	c.mu.Unlock()
	switch {
	case main && silent:
		p.suspect.CompareAndSwap(0, silentSince.UnixNano())
		if same >= silentLooks<<p.silentInARow.Load() {
			p.setApart(c, oldest)
		}
	case main && (c.session.Err() != nil || c.session.Channel().IsClosed()): // a loss looks like an answer, see answer: the next looks find it
	case main:
		p.suspect.Store(0)
	case len(its) > 0 && calm >= answeredLooks:
		p.silent.dissolve(c)
		c.mu.Lock()
		c.apart = false
		c.moveOn()
		c.mu.Unlock()
	case len(its) > 0 && same >= staleLooks:
		p.renewSilent(c, its)
	}
}

// follow notes how far the channel has come, and reports whether its oldest
// message has had no answer for long; c.mu must be held.
func (c *channel) follow(now time.Time, ready bool) bool {
	g := &c.progress
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
	if oldest != g.oldest || oldest == 0 || !ready || c.headAnswered() {
		g.oldest, g.same, g.since = oldest, 0, now
		return false
	}
	g.same++
	return g.same >= silentLooks
}

// answersOnMain reports whether the main channel has had an answer.
func (p *Publisher) answersOnMain() bool {
	c := p.main.Load()
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.answers) > 0
}

// headAnswered reports whether the oldest message has its answer, which nobody has
// read yet; c.mu must be held.
func (c *channel) headAnswered() bool {
	head := c.head()
	if head == nil || head.tag.Load() == 0 {
		return false
	}
	select {
	case <-head.confirm.Done():
		return true
	default:
		return false
	}
}

// holdsUp reports whether the messages in flight wait for the first message to a target,
// and not only for a slow broker: others says that it answers on the main channel. A
// target that has answered on this channel keeps only its own messages waiting. c.mu
// must be held.
func (c *channel) holdsUp(others bool) bool {
	looks := heldUpLooks
	if others {
		looks = provedLooks
	}
	if c.progress.same < looks || c.progress.passed {
		return false
	}
	for m := c.first; m != nil; m = m.next {
		if _, answered := c.answers[target{m.Exchange, m.RoutingKey}]; !answered {
			return true
		}
	}
	return false
}

// cutLate ends the waiting of reported messages whose time is over, and returns when
// that of the next one is; c.mu must be held.
func (c *channel) cutLate(now time.Time) (next time.Time) {
	for m := c.first; m != nil; m = m.next {
		if m.Report == nil || m.cut != nil {
			continue
		}
		limit, cause := m.answerLimit()
		switch {
		case m.ctx.Err() != nil:
			c.cutOff(m, pause.Ended(m.ctx))
		case !limit.IsZero() && !now.Before(limit):
			c.cutOff(m, c.late(m, cause))
		default:
			next = earlier(next, limit)
		}
	}
	return next
}

// late returns why the waiting for the answer to m has ended at a limit, with the
// outage that is known by then.
func (c *channel) late(m *Message, limit error) error {
	if outage := c.publisher.outageFor(c, m); outage != nil {
		return fmt.Errorf("%w: %w", limit, outage)
	}
	return limit
}

// cutImpatient ends the waiting of messages, to one target or to all, whose
// AnswerPatience with an outage is over; c.mu must be held.
func (c *channel) cutImpatient(now, since time.Time, why error, only *target) {
	if since.IsZero() {
		return // it is over
	}
	for m := c.first; m != nil; m = m.next {
		if m.AnswerPatience > 0 && now.Sub(since) >= m.AnswerPatience && (only == nil || only.matches(m)) {
			c.cutOff(m, fmt.Errorf("%w: %w", &impatientError{now.Sub(since)}, why))
		}
	}
}

// cutHeldUp ends the waiting of messages that are not to a target set apart
// here: they are sent again elsewhere. c.mu must be held.
func (c *channel) cutHeldUp(apart []*silentTarget) {
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
			c.cuts.Add(1)
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
	if s := p.conn.State(connection.Publish); s.Status == connection.Blocked {
		return &connection.BlockedError{Reason: s.Reason, Since: s.Since}
	}
	return errUnread
}
