package confirm

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rehop/rehop/internal/yield"
)

// collector awaits the answers to the messages of a channel that have a Report.
// Its goroutine runs while there are such messages.
type collector struct {
	mu      sync.Mutex
	queue   []*Message // written since it last looked
	running bool
	cuts    uint64    // of the channel, when a message was last added
	due     time.Time // when the time of one of the messages is over, or earlier; zero: never

	kicked chan struct{} // one element: a message was cut
}

// collect adds m to the messages whose answers are awaited. It is called before
// the socket is uncorked, so that messages sent together are reported together.
func (c *channel) collect(m *Message) {
	c.collector.mu.Lock()
	defer c.collector.mu.Unlock()
	c.collector.queue = append(c.collector.queue, m)
	limit, _ := m.answerLimit()
	if due := earlier(c.collector.due, limit); due != c.collector.due {
		c.collector.due = due
		c.kick() // it may wait for a later time
	}
	if cuts := c.cuts.Load(); cuts != c.collector.cuts {
		c.collector.cuts = cuts
		c.kick() // m may have been cut while it was written, and that kick found nothing
	}
	if !c.collector.running {
		c.collector.running = true
		c.publisher.running.Go(c.collectAll)
	}
}

// kick makes the collector look for messages that were cut.
func (c *channel) kick() {
	select {
	case c.collector.kicked <- struct{}{}:
	default:
	}
}

// Bounds of how long the collector waits for the oldest answer before it looks at
// the later ones: one target may answer sooner than another. Once it has waited for the
// longer one in vain, it looks only after the broker has sent something.
const (
	firstTick = time.Millisecond
	lastTick  = 32 * time.Millisecond
)

// lookAhead is how many messages without an answer end a look, unless the
// oldest one has none.
const lookAhead = 64

func (c *channel) collectAll() {
	var pending, done []*Message
	tick, everything, cut := firstTick, false, false
	var heard <-chan struct{} // nil: it looks after the next tick, whatever was heard
	timer := time.NewTimer(tick)
	defer timer.Stop()
	for {
		before := len(pending)
		pending = c.collector.take(pending)
		if len(pending) == 0 {
			if c.collector.stop() {
				return
			}
			continue
		}
		cut = cut || c.anyCut(pending[before:]) // while they were written: nobody kicks once more
		yield.Here()
		pending, done = c.pick(pending, done[:0], everything || cut, cut)
		everything, cut = false, false
		if len(done) > 0 {
			yield.Here()
			c.report(done)
			clear(done)
			tick, heard = firstTick, nil
			continue
		}
		wait := tick
		if heard != nil {
			wait = never
		}
		timer.Reset(c.collector.untilDue(wait))
		select {
		case <-pending[0].confirm.Done():
		case <-heard:
			heard, everything = nil, true
		case <-timer.C:
			if tick == lastTick && heard == nil {
				heard = c.socket.Heard() // before the look, which finds all that was heard until now
			}
			everything, tick = true, min(2*tick, lastTick)
			c.cutDue(time.Now())
		case <-c.collector.kicked:
			cut = true
		}
	}
}

// never is longer than anything waits.
const never = 1 << 62 * time.Nanosecond

// anyCut reports whether the waiting of any of the messages has ended.
func (c *channel) anyCut(messages []*Message) bool {
	if len(messages) == 0 {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(messages, func(m *Message) bool { return m.cut != nil })
}

// untilDue returns how long nobody's time is over, at most most.
func (c *collector) untilDue(most time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.due.IsZero() {
		return most
	}
	return min(most, max(time.Until(c.due), 0))
}

// cutDue ends the waiting of messages whose time is over.
func (c *channel) cutDue(now time.Time) {
	if c.collector.untilDue(never) > 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.collector.mu.Lock()
	c.collector.due = time.Time{} // messages that come meanwhile set it
	c.collector.mu.Unlock()
	next := c.cutLate(now)
	c.collector.mu.Lock()
	defer c.collector.mu.Unlock()
	c.collector.due = earlier(c.collector.due, next)
}

// take appends what was written meanwhile.
func (c *collector) take(pending []*Message) []*Message {
	c.mu.Lock()
	defer c.mu.Unlock()
	pending = append(pending, c.queue...)
	clear(c.queue)
	c.queue = c.queue[:0]
	return pending
}

// stop reports whether there is nothing left to do.
func (c *collector) stop() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running = len(c.queue) > 0
	return !c.running
}

// pick moves messages that are answered, or cut, from pending to done.
func (c *channel) pick(pending, done []*Message, everything, cut bool) (rest, found []*Message) {
	if cut {
		c.mu.Lock()
		defer c.mu.Unlock()
	}
	kept, misses := 0, 0
	for i, m := range pending {
		answered := cut && m.cut != nil
		select {
		case <-m.confirm.Done():
			answered = true
		default:
		}
		if answered {
			done = append(done, m)
			misses = 0
			continue
		}
		pending[kept] = m
		kept++
		if misses++; misses >= lookAhead && !everything {
			kept += copy(pending[kept:], pending[i+1:])
			break
		}
	}
	clear(pending[kept:])
	return pending[:kept], done
}

// readAnswers takes the cut from messages that were answered after all, and then
// reports whether the channel is closed. Asked before, it would take a confirm that
// the end of the channel has released for a refusal; see answer.
func readAnswers(messages []*Message, closed func() bool) (lost bool) {
	for _, m := range messages {
		select {
		case <-m.confirm.Done():
			m.cut = nil
		default:
		}
	}
	return closed()
}

// report hands messages to their Reporters with their outcome.
func (c *channel) report(messages []*Message) {
	c.mu.Lock()
	lost := readAnswers(messages, c.session.Channel().IsClosed)
	c.drainReturns()
	for _, m := range messages {
		if m.cut == nil {
			c.settle(m, lost)
		} else {
			c.leavePlaceholder(m)
		}
	}
	c.grant()
	c.mu.Unlock()
	first := 0
	for i, m := range messages {
		if m.cut != nil {
			m.Err = ofMessage(m.ctx, fmt.Errorf("%w: %w", ErrUnconfirmed, m.cut))
		} else {
			m.Err = c.outcome(m, lost)
		}
		alone := channelException(m.Err)
		if alone || m.Report != messages[first].Report {
			if first < i {
				messages[first].Report.Answered(messages[first:i])
			}
			first = i
		}
		if alone {
			first = i + 1
			c.publisher.running.Go(func() {
				m.Err = ofMessage(m.ctx, c.publisher.repeatAlone(m.ctx, m))
				m.Report.Answered([]*Message{m})
			})
		}
	}
	if first < len(messages) {
		messages[first].Report.Answered(messages[first:])
	}
}
