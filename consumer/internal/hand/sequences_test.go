package hand

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// world is a Hand, and in place of goroutines, broker and clock one random choice after the
// other of what happens next.
type world struct {
	*testing.T
	random   *rand.Rand
	trail    []string // of what has happened
	hand     *Hand
	lanes    []*testLane
	now      time.Time
	wake     time.Time // when Due is called; zero: at no time
	out      Out
	idle     []*testWorker // wait for their Signal
	active   []*testWorker // are on their way to Next
	busy     []*testWorker // have a grant
	copying  []*Message    // have a copy under way
	over     []Told        // are to be told, see Settled
	limits   Limits
	prefetch int
}

type testLane struct {
	*Lane
	session  *testSession
	sessions []*testSession // that are not written to the end
	next     uint64
	paused   bool
}

type testSession struct {
	*Session
	stop, end context.CancelFunc // of Stop, and of Working and Copying
	sent      []*Message
	earlier   int             // of them, of consumers that were replaced
	written   map[uint64]bool // settled frames by tag
	ended     bool            // closed, and Take has said so
}

type testWorker struct {
	Worker
	grant *Grant
}

var errAsked = errors.New("the queue does not answer")

func newWorld(t *testing.T, seed uint64) *world {
	r := rand.New(rand.NewPCG(seed, 39))
	w := &world{T: t, random: r, now: time.Unix(1_000_000, 0), prefetch: 1 + r.IntN(12)}
	slots := 1 + r.IntN(4)
	w.hand = New(slots, r.IntN(2) == 0)
	w.limits = Limits{Slots: slots, Share: 1, PerKey: r.IntN(3), Ordered: r.IntN(2) == 0,
		Outage: Outage{Of: 4, From: r.IntN(3), MaxPause: 10 * time.Second}}
	if r.IntN(3) == 0 {
		w.limits.Batch = Batch{Size: 1 + r.IntN(4), Linger: time.Duration(r.IntN(2)) * time.Second, Bytes: 1 << 20}
	}
	for n := 1 + max(0, r.IntN(5)-2); n > 0; n-- {
		l := &testLane{Lane: w.hand.Lane(w.limits), next: 1}
		w.lanes = append(w.lanes, l)
	}
	for _, l := range w.lanes {
		w.open(l)
	}
	return w
}

// open begins a session.
func (w *world) open(l *testLane) {
	stop, cancel := context.WithCancelCause(context.Background())
	working, end := context.WithCancel(context.Background())
	s := &testSession{stop: func() { cancel(nil) }, end: end, written: map[uint64]bool{}}
	s.Session = l.Session(Contexts{Stop: stop, Cancel: cancel, Working: working, Copying: working})
	l.session, l.next = s, 1
	l.sessions = append(l.sessions, s)
	s.Opened(w.prefetch, 0, w.now, &w.out)
	w.do()
}

// do carries out an Out.
func (w *world) do() {
	if w.out.Start {
		w.active = append(w.active, &testWorker{Worker: Worker{Woken: NewSignal()}})
	}
	if !w.out.Wake.IsZero() && (w.wake.IsZero() || w.out.Wake.Before(w.wake)) {
		w.wake = w.out.Wake
	}
	w.over = append(w.over, w.out.Over...)
	w.copying = append(w.copying, w.out.Copy...)
	w.out.Clear()
	w.idle = slices.DeleteFunc(w.idle, func(i *testWorker) bool {
		select {
		case <-i.Woken:
			w.active = append(w.active, i)
			return true
		default:
			return false
		}
	})
}

// took has a worker with what it was given.
func (w *world) took(by *testWorker, g *Grant, ended bool) {
	w.out = by.Out
	by.Out = Out{}
	w.do()
	by.grant = g
	if g != nil && g.Why == First && g.Lane.isKept() {
		w.Fatalf("a message of lane %d is handled, and it is the turn of the suspects of another lane", g.Lane.Number)
	}
	switch {
	case g != nil:
		w.busy = append(w.busy, by)
	case !ended:
		w.idle = append(w.idle, by)
		w.do() // it may have been woken meanwhile
	}
}

func pick[T any](w *world, from []T) T { return from[w.random.IntN(len(from))] }

func take[T comparable](w *world, from *[]T) T {
	one := pick(w, *from)
	*from = slices.DeleteFunc(*from, func(t T) bool { return t == one })
	return one
}

// step has one thing happen.
func (w *world) step(steps []string) {
	what := pick(w, steps)
	w.trail = append(w.trail, what)
	l := pick(w, w.lanes)
	switch what {
	case "deliver":
		w.deliver(l)
	case "replace":
		s := l.session
		if s.Stop.Err() == nil {
			s.earlier = len(s.sent)
			l.Opening(w.now, &w.out)
			s.Opened(w.prefetch, 0, w.now, &w.out)
		}
	case "next":
		if len(w.active) > 0 {
			by := take(w, &w.active)
			g, ended := w.hand.Next(&by.Worker, w.now)
			w.took(by, g, ended)
		}
	case "handled":
		if len(w.busy) > 0 {
			w.handled(take(w, &w.busy))
		}
	case "confirm":
		if len(w.copying) > 0 {
			m := take(w, &w.copying)
			verb := Ack
			if w.random.IntN(6) == 0 {
				verb = Requeue
				m.In.BeginNoMore(ErrHeld, w.now, &w.out)
			}
			w.hand.CopyEnded(verb, w.now, &w.out, m)
		}
	case "write":
		w.write(pick(w, l.sessions))
	case "tell":
		if len(w.over) > 0 {
			t := w.over[0]
			w.over = w.over[1:]
			w.hand.Settled([]Told{t}, w.now, &w.out)
			w.hand.Hooked(t.Message)
		}
	case "time":
		w.now = w.now.Add(time.Duration(w.random.IntN(3000)) * time.Millisecond)
	case "due":
		if !w.wake.IsZero() {
			w.now = later(w.now, w.wake)
			w.wake = time.Time{}
			w.hand.Due(w.now, &w.out)
		}
	case "pause":
		l.paused = !l.paused
		l.SetPaused(l.paused, w.now, &w.out)
	case "take back":
		l.TakeBack(w.random.IntN(3)*w.random.IntN(3), w.random.IntN(2) == 0, w.now, &w.out)
	case "stall":
		if l.gate.stall == "" {
			l.session.BeginNoMore(Visiting, w.now, &w.out)
		} else {
			l.session.BeginAgain(Visiting, w.now, &w.out)
		}
	case "answer":
		if l.Asks() {
			err := error(nil)
			if w.random.IntN(4) == 0 {
				err = errAsked
			}
			l.Answered(w.random.IntN(2), time.Millisecond, err, w.now, &w.out)
		}
	case "stop":
		l.session.stop()
		l.session.Ending(w.now, &w.out)
	case "lose":
		w.lose(l)
		w.do()
		w.open(l)
	}
	w.do()
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func (w *world) deliver(l *testLane) {
	s := l.session
	if s.counts.Recent >= w.prefetch || s.Stop.Err() != nil {
		return // the broker sends no more than it may
	}
	m := &Message{Received: w.now, Key: []string{"", "a", "b"}[w.random.IntN(3)], Scarce: w.random.IntN(20) == 0,
		Raw: amqp.Delivery{DeliveryTag: l.next, Redelivered: w.random.IntN(4) == 0, Body: make([]byte, w.random.IntN(3))}}
	if w.random.IntN(20) == 0 {
		m.Deaths = 1 + w.random.IntN(3)
	}
	l.next++
	s.sent = append(s.sent, m)
	s.Delivered(m, &w.out)
}

// handled has a handler return.
func (w *world) handled(by *testWorker) {
	g := by.grant
	var open []*Message
	for _, m := range g.Of {
		if m.phase.isAtWork() && m.phase < Copying {
			open = append(open, m)
		}
	}
	batch := w.limits.Batch.Size > 1
	if g.Why == First && !batch && w.random.IntN(10) == 0 {
		next, ended := w.hand.Hold(&by.Worker, g, Hold{[]Kind{UntilDue, ToBegin}[w.random.IntN(2)], time.Second, w.now.Add(time.Minute), false}, w.now)
		w.took(by, next, ended)
		return
	}
	if g.Why != LetGo {
		w.hand.Runs(w.now, open...)
		if batch && w.random.IntN(2) == 0 {
			w.hand.Runs(w.now, open[:1+w.random.IntN(len(open))]...)
		}
		g.Lane.Note(g, w.random.IntN(3) == 0, w.now, &by.Out)
		if w.random.IntN(4) == 0 {
			kind := ForAnother
			if w.random.IntN(4) == 0 && !batch {
				kind = ForNextHere
			}
			next, ended := w.hand.Hold(&by.Worker, g, Hold{kind, time.Duration(w.random.IntN(5)) * time.Second, w.now.Add(time.Duration(1+w.random.IntN(60)) * time.Second), w.random.IntN(4) == 0}, w.now)
			w.took(by, next, ended)
			return
		}
	} else {
		g.Of[0].In.BeginNoMore(ErrHeld, w.now, &by.Out)
	}
	var told []Told
	for _, m := range open {
		v := []Verb{Ack, Ack, Nack, Requeue, Copy}[w.random.IntN(5)]
		told = append(told, Told{m, v})
		if v == Copy {
			w.copying = append(w.copying, m)
		}
	}
	if w.random.IntN(8) == 0 { // the goroutine of the handler ends
		w.hand.Settle(w.now, &by.Out, told...)
		w.hand.Gone(g, w.now, &by.Out)
		w.out = by.Out
		return
	}
	next, ended := w.hand.Handled(&by.Worker, g, w.now, told...)
	w.took(by, next, ended)
}

// write has the writer of a session write one batch.
func (w *world) write(s *testSession) {
	batch, open, closed := s.Take(nil)
	if len(batch) == 0 {
		s.ended = closed
		return
	}
	for _, t := range batch {
		if s.written[t.Raw.DeliveryTag] {
			w.Fatalf("the broker is told twice of message %d", t.Raw.DeliveryTag)
		}
		s.written[t.Raw.DeliveryTag] = true
	}
	for _, m := range s.sent {
		if tag := m.Raw.DeliveryTag; tag < open && !s.written[tag] {
			w.Fatalf("message %d is below the lowest open one, %d, and the broker has not been told: a frame for several would take it along", tag, open)
		}
	}
	w.hand.Settled(batch, w.now, &w.out)
	for _, t := range batch {
		w.hand.Hooked(t.Message)
	}
}

// lose ends a session, as the loss of its channel does.
func (w *world) lose(l *testLane) {
	s := l.session
	s.stop()
	s.end()
	s.Ending(w.now, &w.out)
	l.Opening(w.now, &w.out)
	s.Close(&w.out)
	l.TakeBack(0, false, w.now, &w.out)
}

// check checks what always holds.
func (w *world) check() {
	h := w.hand
	h.mu.Lock()
	defer h.mu.Unlock()
	atWork := 0
	for _, l := range w.lanes {
		keys := map[string]int{}
		unsettled, working, slots := 0, 0, map[*Grant]bool{}
		for _, s := range l.sessions {
			ofSession, bytes, recent, suspects, uncleared, untried, retained := 0, 0, 0, 0, 0, 0, 0
			for i, m := range s.sent {
				if m.phase == Settled {
					continue
				}
				ofSession++
				bytes += len(m.Raw.Body)
				if i >= s.earlier {
					recent++
				}
				if m.IsSuspect() {
					suspects++
				}
				if m.phase.isUntried() && m.IsSuspect() {
					uncleared++
				}
				if m.phase.isUntried() && m.hasCome() {
					untried++
				}
				if i >= s.earlier && m.phase.isOpen() && !m.phase.isUntried() {
					retained++
				}
				inHand := m.phase.isAtWork() && m.grant != nil
				if inHand {
					slots[m.grant] = true
					keys[m.Key]++
				}
				if w.limits.PerKey > 0 && m.Key != "" && keys[m.Key] > w.limits.PerKey {
					w.Fatalf("%d messages of key %q are in hand, want %d at most", keys[m.Key], m.Key, w.limits.PerKey)
				}
			}
			if s.counts.Unsettled != ofSession || s.counts.Suspects != suspects || s.counts.Uncleared != uncleared || s.counts.Untried != untried || s.counts.Retained != retained {
				w.Fatalf("counts of a session %+v; want %d, %d, %d, %d, %d", s.counts, ofSession, suspects, uncleared, untried, retained)
			}
			unsettled += ofSession
			if s.counts.Bytes != bytes || s.counts.Recent != recent || recent > w.prefetch {
				w.Fatalf("%d bytes, and %d messages of the latest consumer; want %d and %d, of a prefetch of %d", s.counts.Bytes, s.counts.Recent, bytes, recent, w.prefetch)
			}
		}
		for _, by := range w.busy {
			if by.grant.Lane == l.Lane {
				working++
				slots[by.grant] = true
			}
		}
		ready := 0
		for _, g := range h.ready {
			if g.Lane == l.Lane {
				ready++
			}
		}
		if l.working != working+ready+len(l.holding) {
			w.Fatalf("%d grants are at work, want %d with workers, %d on their way and %d held", l.working, working, ready, len(l.holding))
		}
		if l.busy != len(slots) || l.busy > l.Slots {
			w.Fatalf("%d slots are taken, want %d, of %d", l.busy, len(slots), l.Slots)
		}
		atWork += l.working
	}
	if h.atWork != atWork || h.atWork > h.slots {
		w.Fatalf("%d grants at work, want %d, of %d", h.atWork, atWork, h.slots)
	}
	w.alive()
}

// alive checks that nothing that can be handled waits for nobody. It needs mu held.
func (w *world) alive() {
	h := w.hand
	if !h.wake.Equal(w.wake) {
		w.Fatalf("Due is to be called at %v, and is called at %v", h.wake, w.wake)
	}
	if h.called != (len(w.active) > 0) {
		w.Fatalf("a worker is on its way: %t, and there are %d", h.called, len(w.active))
	}
	for _, l := range w.lanes {
		if l.isBlocked() && l.keys.limit > 0 && !l.blocked.isNow() {
			w.Fatal("messages that wait for their keys keep others away, and nobody knows")
		}
	}
	if h.called || !w.wake.IsZero() && !w.wake.After(w.now) {
		return // somebody is about to look
	}
	var out Out
	if l := h.pick(w.now, &out); l != nil || len(h.ready) > 0 {
		w.Fatalf("messages can be handled, and no worker is on its way; %d are idle", len(w.idle))
	}
	if at := out.Wake; !at.IsZero() && h.pick(at, &out) != nil {
		w.Fatalf("nobody looks again at %v, when a message can be handled; it is %v", at, w.now)
	}
	h.wake = w.wake // the looks were those of the test
}

// end has everything end, and checks that each message has.
func (w *world) end() {
	for _, l := range w.lanes {
		if l.paused {
			l.paused = false
			l.SetPaused(false, w.now, &w.out)
		}
		w.lose(l)
		w.do()
	}
	for range 10_000 {
		left := len(w.active) + len(w.busy) + len(w.copying) + len(w.over)
		for _, l := range w.lanes {
			left += l.Unsettled()
		}
		if left == 0 {
			break
		}
		w.step([]string{"next", "handled", "confirm", "write", "tell", "due", "answer"})
		w.check()
	}
	for i := 0; !w.hand.turns.since.IsZero(); i++ {
		if w.wake.IsZero() || i > 100 {
			w.Fatalf("lanes are kept away for ever: %+v", w.hand.turns)
		}
		w.step([]string{"due"})
	}
	for _, l := range w.lanes {
		for i, s := range l.sessions {
			for _, m := range s.sent {
				if m.phase != Settled {
					w.Fatalf("message %d of session %d is %v at the end", m.Raw.DeliveryTag, i, m.phase)
				}
			}
		}
		if l.busy+l.granted+l.working+l.byHold+l.triable+l.wereHeld+l.copying.messages+l.copying.taken+l.unsettled+l.keys.waiting+len(l.keys.of)+len(l.holding) != 0 {
			w.Fatalf("counts of a lane at the end: %+v", l.Lane)
		}
		select {
		case <-l.None:
		default:
			if len(l.sessions[0].sent) > 0 {
				w.Fatal("nobody was told that no message is unsettled")
			}
		}
	}
}

// TestAnySequenceOfEvents: a message has one phase and one end; no frame takes an unsettled
// message along; no more of a key, a slot or a prefetch is in hand than may be; and what can be
// handled has a worker on its way.
func TestAnySequenceOfEvents(t *testing.T) {
	everything := []string{"deliver", "deliver", "deliver", "deliver", "next", "next", "handled", "handled", "handled", "confirm", "write", "write", "tell", "answer",
		"time", "due", "pause", "pause", "take back", "stall", "stall", "replace", "stop", "lose"}
	// Most of the time nothing goes wrong, so that messages meet one another.
	quiet := []string{"deliver", "deliver", "deliver", "next", "next", "handled", "handled", "confirm", "write", "write", "tell", "time", "due", "answer"}
	for seed := range uint64(3000) {
		w := newWorld(t, seed)
		func() {
			defer func() {
				if p := recover(); p != nil || t.Failed() {
					last := w.trail[max(0, len(w.trail)-30):]
					if p != nil {
						t.Fatalf("seed %d: %v, after %q", seed, p, last)
					}
					t.Logf("seed %d, after %q", seed, last)
				}
			}()
			for i := range 300 {
				steps := quiet
				if i%3 == 0 {
					steps = everything
				}
				w.step(steps)
				w.check()
			}
			w.end()
		}()
	}
}

// TestThePhasesAreATable: each phase but the last can be left, each can be reached, and the end
// is the end.
func TestThePhasesAreATable(t *testing.T) {
	reached := map[Phase]bool{Coming: true}
	for p := range phases {
		leaves := false
		for e := range events {
			if next := table[p][e]; next != Coming {
				leaves, reached[next] = true, true
				if next == p {
					t.Errorf("event %d leaves a message that is %v as it is", e, p)
				}
			}
		}
		if leaves == (p == Settled) {
			t.Errorf("%v can be left: %t", p, leaves)
		}
	}
	for p := range phases {
		if !reached[p] {
			t.Errorf("no event leads to %v", p)
		}
		if fmt.Sprint(p) == "" {
			t.Errorf("phase %d has no name", p)
		}
	}
}
