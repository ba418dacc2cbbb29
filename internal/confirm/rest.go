package confirm

import (
	"reflect"
	"time"
)

// maxCallers bounds the ctxs that a rest listens to. With more of them the looks go on.
const maxCallers = 64

// rest waits for as long as a look at the channels would find nothing: the broker does
// not read, and so tells nothing by its silence. It returns when that is over, when
// something has come from the broker, and when the waiting of a message ends by its ctx or
// its patience; the collector keeps the limits. An outage of hours costs a look for each
// heartbeat.
// It reports whether to look at once: what comes from the broker or from a sender waits for
// the next look, because it may come without a pause.
func (p *Publisher) rest(looks *time.Ticker) (atOnce bool) {
	c := p.main.Load()
	if all := p.all(); len(all) != 1 || all[0] != c || c.session.Err() != nil {
		return false // what is set apart has rules of its own
	}
	over, since := c.socket.Unready()
	if over == nil {
		return false
	}
	p.resting.Store(true) // before the messages are read: a later one says that it has come
	defer p.resting.Store(false)
	events := []<-chan struct{}{c.socket.Heard(), p.entered, over, c.session.Done(), p.life.Done()}
	callers, until := c.awaited(since)
	if len(callers) > maxCallers {
		return false
	}
	for caller := range callers {
		events = append(events, caller)
	}
	looks.Stop()
	first := awaitAny(events, until)
	looks.Reset(lookEvery)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.progress.same, c.progress.since = 0, time.Now() // nobody has looked meanwhile
	return first > 1
}

// awaited returns the ends of the waiting of messages in flight while the broker does not
// read: the ctxs of reported messages, and when the first patience is over; zero: never.
// since is when the broker was last known to read.
func (c *channel) awaited(since time.Time) (callers map[<-chan struct{}]struct{}, until time.Time) {
	callers = map[<-chan struct{}]struct{}{}
	c.mu.Lock()
	defer c.mu.Unlock()
	for m := c.first; m != nil; m = m.next {
		if m.left || m.unsent || m.cut != nil {
			continue
		}
		if m.AnswerPatience > 0 {
			until = earlier(until, since.Add(m.AnswerPatience))
		}
		if m.Report == nil {
			continue
		}
		if caller := m.ctx.Done(); caller != nil {
			callers[caller] = struct{}{}
		}
	}
	return callers, until
}

// awaitAny waits for the first of the events, or for a time; a zero one never comes. It
// returns the number of the event, or that of events for the time.
func awaitAny(events []<-chan struct{}, until time.Time) (first int) {
	cases := make([]reflect.SelectCase, 0, len(events)+1)
	for _, event := range events {
		cases = append(cases, reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(event)})
	}
	if !until.IsZero() {
		timer := time.NewTimer(time.Until(until))
		defer timer.Stop()
		cases = append(cases, reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(timer.C)})
	}
	first, _, _ = reflect.Select(cases)
	return first
}
