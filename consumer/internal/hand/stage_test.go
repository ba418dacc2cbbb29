package hand

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// stage has a Hand, its latest session, and a clock that the test moves. Its workers are no
// goroutines: stage does for them what package work does, one event after the other.
type stage struct {
	early bool // messages are not due when they come: the handler does not run

	*testing.T
	hand *Hand
	lane *Lane    // the first
	in   *Session // of that lane, in which messages come

	// handle is called when a worker gets a grant. It returns how long the handler runs,
	// and what is called at the end of that, which may say how the messages are held.
	// Otherwise they are acked. With nil no handler returns.
	handle func(g *Grant) (lasts time.Duration, end func() *Hold)

	now     time.Time
	wake    time.Time // when Due is to be called; zero: at no time
	out     Out
	idle    []*Worker
	runs    []*handlerRun // that have not ended, in the order of their beginning
	taken   []string      // the tags of the grants that workers got
	letGo   []time.Time   // when workers got messages that can be held no longer
	tag     uint64
	started int // workers
}

type handlerRun struct {
	worker *Worker
	grant  *Grant
	until  time.Time // zero: the test ends it
	end    func() *Hold
}

// newStage returns a stage with one lane.
func newStage(t *testing.T, limits Limits) *stage {
	s := &stage{T: t, hand: New(limits.Slots, false), now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	s.lane = s.hand.Lane(limits)
	s.in = s.session(s.lane)
	return s
}

// session returns a session of a lane that no ctx ends.
func (s *stage) session(l *Lane) *Session {
	ctx := s.Context()
	return l.Session(Contexts{Stop: ctx, Cancel: func(error) {}, Working: ctx, Copying: ctx})
}

// deliver has n messages come, of 10 bytes each.
func (s *stage) deliver(n int, change ...func(*Message)) {
	for range n {
		s.tag++
		m := &Message{Raw: amqp.Delivery{DeliveryTag: s.tag, Body: make([]byte, 10)}, Received: s.now}
		for _, c := range change {
			c(m)
		}
		s.in.Delivered(m, &s.out)
		s.do()
	}
}

// takeBack returns the tags of the messages that go back.
func (s *stage) takeBack(keep int) (tags []uint64) {
	for _, m := range s.lane.TakeBack(keep, false, s.now, &s.out) {
		tags = append(tags, m.Raw.DeliveryTag)
	}
	s.do()
	return tags
}

// setPaused closes the gate of the lane, or opens it again.
func (s *stage) setPaused(paused bool) {
	s.lane.SetPaused(paused, s.now, &s.out)
	s.do()
}

// pass lets time pass.
func (s *stage) pass(d time.Duration) {
	s.Helper()
	end := s.now.Add(d)
	for range 100_000 {
		s.do()
		at := s.wake
		var run *handlerRun
		for _, r := range s.runs {
			if !r.until.IsZero() && (at.IsZero() || !r.until.After(at)) && (run == nil || r.until.Before(run.until)) {
				at, run = r.until, r
			}
		}
		if at.IsZero() || at.After(end) {
			s.now = end
			return
		}
		if at.After(s.now) {
			s.now = at
		}
		if run != nil {
			s.ends(run)
			continue
		}
		s.wake = time.Time{}
		s.hand.Due(s.now, &s.out)
	}
	s.Fatal("the Hand is to be told again and again that the same time has come")
}

// do carries out what is to be done after events.
func (s *stage) do() {
	for {
		s.wake = earlier(s.wake, s.out.Wake)
		start := s.out.Start
		s.out.Clear()
		w := s.comes(start)
		if w == nil {
			return
		}
		g, ended := s.hand.Next(w, s.now)
		s.gets(w, g, ended)
	}
}

// comes returns a worker that was started or woken, nil for none.
func (s *stage) comes(start bool) *Worker {
	if start {
		s.started++
		return &Worker{Woken: NewSignal()}
	}
	for i, w := range s.idle {
		if isSet(w.Woken) {
			s.idle = slices.Delete(s.idle, i, i+1)
			return w
		}
	}
	return nil
}

// gets has a worker begin with a grant.
func (s *stage) gets(w *Worker, g *Grant, ended bool) {
	s.out.Start = s.out.Start || w.Out.Start
	s.out.Wake = earlier(s.out.Wake, w.Out.Wake)
	w.Out.Clear()
	switch {
	case g == nil && !ended:
		s.idle = append(s.idle, w)
	case g == nil:
		return
	case g.Why == LetGo:
		s.letGo = append(s.letGo, s.now)
		s.done(w, g, Requeue)
		return
	default:
		tags := make([]uint64, len(g.Of))
		for i, m := range g.Of {
			tags[i] = m.Raw.DeliveryTag
		}
		s.taken = append(s.taken, fmt.Sprint(tags))
		if !s.early || g.Why != First {
			for _, m := range g.Of {
				if m.phase == Taken || m.phase == Held {
					s.hand.Runs(s.now, m)
				}
			}
		}
		r := &handlerRun{worker: w, grant: g}
		if s.handle != nil {
			var lasts time.Duration
			lasts, r.end = s.handle(g)
			r.until = s.now.Add(lasts)
		}
		s.runs = append(s.runs, r)
	}
	if n := len(s.idle) + len(s.runs); n > s.hand.slots {
		s.Errorf("there are %d workers for %d slots", n, s.hand.slots)
	}
}

// ends ends the run of a handler.
func (s *stage) ends(r *handlerRun) {
	s.runs = slices.DeleteFunc(s.runs, func(other *handlerRun) bool { return other == r })
	if r.end != nil {
		if hold := r.end(); hold != nil {
			g, ended := s.hand.Hold(r.worker, r.grant, *hold, s.now)
			s.gets(r.worker, g, ended)
			return
		}
	}
	s.done(r.worker, r.grant, Ack)
}

// done has all messages of a grant settled that are not.
func (s *stage) done(w *Worker, g *Grant, v Verb) {
	var told []Told
	for _, m := range g.Of {
		if m.phase < Copying {
			told = append(told, Told{m, v})
		}
	}
	g, ended := s.hand.Handled(w, g, s.now, told...)
	s.gets(w, g, ended)
}

// endAll ends the runs that are under way.
func (s *stage) endAll() {
	for _, r := range slices.Clone(s.runs) {
		s.ends(r)
	}
	s.do()
}

// took checks which grants workers got since the last took.
func (s *stage) took(when string, want ...string) {
	s.Helper()
	if !slices.Equal(s.taken, want) {
		s.Errorf("%s: workers took %v, want %v", when, s.taken, want)
	}
	s.taken = nil
}

// isSet reports whether a signal is set, which it is not then any more.
func isSet(signal Signal) bool {
	select {
	case <-signal:
		return true
	default:
		return false
	}
}

// ending returns contexts of a session, of which the test can end two.
func ending(t *testing.T) (ctx Contexts, stop, work context.CancelFunc) {
	ctx = Contexts{Cancel: func(error) {}, Copying: t.Context()}
	ctx.Stop, stop = context.WithCancel(t.Context())
	ctx.Working, work = context.WithCancel(t.Context())
	return ctx, stop, work
}
