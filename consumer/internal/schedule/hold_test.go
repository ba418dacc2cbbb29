package schedule

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/consumer/internal/flight"
)

// dependency is something that all handlers need.
type dependency struct {
	mu           sync.Mutex
	away         bool
	runs         []time.Time // of handlers
	atOnce, most int
}

func (d *dependency) use() (unavailable bool) {
	d.mu.Lock()
	d.runs = append(d.runs, time.Now())
	d.atOnce++
	d.most = max(d.most, d.atOnce)
	d.mu.Unlock()
	time.Sleep(10 * time.Millisecond)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.atOnce--
	return d.away
}

// seen returns how often it was used since set, and by how many at a time.
func (d *dependency) seen() (runs, most int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.runs), d.most
}

func (d *dependency) set(away bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.away, d.runs, d.most = away, nil, 0
}

// TestInAnOutageHeldMessagesFindOutOneAtATime: and all go on at once when it is over.
func TestInAnOutageHeldMessagesFindOutOneAtATime(t *testing.T) {
	for _, slots := range []int{1, 16} {
		synctest.Test(t, func(t *testing.T) {
			d := &dependency{}
			d.set(true)
			s := New(slots, false)
			ctx := t.Context()
			done := 0
			var mu sync.Mutex
			var lane *Lane
			lane = s.Lane(Limits{Slots: slots, Outage: Outage{Of: 10, From: min(slots, 5), MaxPause: 10 * time.Second}}, func(g *Grant) int {
				for {
					away := d.use()
					lane.Note(g, away)
					if !away {
						mu.Lock()
						done++
						mu.Unlock()
						return 0
					}
					if !lane.Hold(g, time.Second, time.Now().Add(time.Hour), false, ctx, ctx) {
						t.Error("a message is held no longer")
						return 0
					}
				}
			})
			in := flight.NewLedger(flight.NewUnsettled())
			for tag := range uint64(100) {
				lane.Push(&flight.Message{In: in, Raw: amqp.Delivery{DeliveryTag: tag}})
			}
			time.Sleep(6 * time.Second) // with one slot an outage takes five runs to notice
			synctest.Wait()
			if _, outage, _ := lane.ClosedSince(time.Now()); outage.IsZero() {
				t.Fatal("no outage")
			}
			if lane.Wants(50) != 0 {
				t.Errorf("the lane wants %d messages, want none while it holds messages", lane.Wants(50))
			}
			if taken := lane.TakeBack(0); len(taken) != 100-slots {
				t.Errorf("%d messages are left for others, want %d", len(taken), 100-slots)
			}
			d.set(true)
			time.Sleep(time.Minute)
			synctest.Wait()
			if runs, most := d.seen(); most != 1 || runs < 6 || runs > 40 {
				t.Errorf("%d runs in a minute of outage, %d at once; want one at a time, after growing pauses", runs, most)
			}
			d.set(false)
			time.Sleep(10*time.Second + 30*time.Millisecond)
			synctest.Wait()
			if done != slots {
				t.Errorf("%d of %d held messages are done one pause after the outage", done, slots)
			}
			if paused, outage, _ := lane.ClosedSince(time.Now()); !paused.IsZero() || !outage.IsZero() || lane.Wants(50) != 50 {
				t.Error("the outage is not over")
			}
			s.Close()
			s.Wait()
		})
	}
}

// TestInAnOutageWithoutHeldMessagesOneIsTaken: such as after they have gone back.
func TestInAnOutageWithoutHeldMessagesOneIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &dependency{}
		d.set(true)
		s := New(16, false)
		var lane *Lane
		lane = s.Lane(Limits{Slots: 16, Outage: Outage{Of: 10, From: 5, MaxPause: time.Second}}, func(g *Grant) int {
			lane.Note(g, d.use())
			return 0
		})
		in := flight.NewLedger(flight.NewUnsettled())
		push := func(n int) {
			for range n {
				lane.Push(&flight.Message{In: in})
			}
		}
		push(16)
		time.Sleep(20 * time.Millisecond)
		synctest.Wait()
		if _, outage, _ := lane.ClosedSince(time.Now()); outage.IsZero() || lane.Wants(50) != 1 {
			t.Fatalf("no outage, or the lane wants %d messages and not 1", lane.Wants(50))
		}
		d.set(true)
		push(5)
		time.Sleep(10 * time.Second)
		if runs, most := d.seen(); most != 1 || runs != 5 {
			t.Errorf("%d of 5 messages were handled, %d at once, want all one by one", runs, most)
		}
		d.set(false)
		push(32)
		time.Sleep(2 * time.Second)
		if runs, most := d.seen(); most != 16 || runs != 32 {
			t.Errorf("%d of 32 messages were handled, %d at once, want all, 16 at once", runs, most)
		}
		s.Close()
		s.Wait()
	})
}

// TestAnOutageWithoutAMessageToTry: nobody knows whether it lasts, until the next message
// has told.
func TestAnOutageWithoutAMessageToTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &dependency{}
		d.set(true)
		s := New(16, false)
		var lane *Lane
		lane = s.Lane(Limits{Slots: 16, Outage: Outage{Of: 10, From: 5, MaxPause: 10 * time.Second}}, func(g *Grant) int {
			lane.Note(g, d.use())
			return 0
		})
		in := flight.NewLedger(flight.NewUnsettled())
		began := time.Now()
		for range 16 {
			lane.Push(&flight.Message{In: in})
		}
		is := func(what string, want bool) {
			t.Helper()
			synctest.Wait()
			_, outage, untried := lane.ClosedSince(time.Now())
			if outage.IsZero() || outage.Sub(began) > time.Second || untried != want || lane.Wants(50) != 1 {
				t.Errorf("%s: an outage since %v, no message to try: %v, want %v; wants %d messages, want one", what, outage.Sub(began), untried, want, lane.Wants(50))
			}
		}
		time.Sleep(9 * time.Second)
		is("before the longest pause", false)
		time.Sleep(5 * time.Second)
		is("after it", true)
		lane.Opened(in, 1, 0, nil)
		is("when a session begins", false)
		time.Sleep(10 * time.Second)
		is("when it has brought nothing", true)
		lane.Pause()
		time.Sleep(time.Hour)
		if paused, _, untried := lane.ClosedSince(time.Now()); paused.IsZero() || untried {
			t.Error("nothing is tried in a pause, and for its sake")
		}
		lane.Resume()
		is("after a pause", false)
		time.Sleep(time.Hour)
		is("after an hour", true)
		lane.Push(&flight.Message{In: in})
		time.Sleep(time.Millisecond)
		is("while a message is tried", false)
		time.Sleep(time.Second)
		is("after it has failed", false)
		d.set(false)
		time.Sleep(time.Hour)
		is("after another hour", true)
		lane.Push(&flight.Message{In: in})
		time.Sleep(time.Second)
		if _, outage, untried := lane.ClosedSince(time.Now()); !outage.IsZero() || untried || lane.Wants(50) != 50 {
			t.Error("the outage is not over after a message that works")
		}
		s.Close()
		s.Wait()
	})
}

func TestPauseAndResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &dependency{}
		s := New(2, false)
		lane := s.Lane(Limits{Slots: 2}, func(*Grant) int { d.use(); return 0 })
		lane.Pause()
		lane.Push(&flight.Message{In: flight.NewLedger(flight.NewUnsettled())})
		time.Sleep(time.Hour)
		if runs, _ := d.seen(); runs != 0 || lane.Wants(50) != 0 {
			t.Error("a message is handled while the lane is paused")
		}
		select {
		case <-lane.Changed():
		default:
			t.Error("the intake was not told")
		}
		lane.Resume()
		lane.Resume()
		synctest.Wait()
		if runs, _ := d.seen(); runs != 1 || lane.Wants(50) != 50 {
			t.Error("the message is not handled after Resume")
		}
		select {
		case <-lane.Changed():
		default:
			t.Error("the intake was not told of Resume")
		}
		time.Sleep(time.Second)
		s.Close()
		s.Wait()
	})
}

func TestAHeldMessageLeavesWithItsSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(1, false)
		lane := s.Lane(Limits{Slots: 1}, func(*Grant) int { return 0 })
		ctx, end := context.WithTimeout(t.Context(), time.Second)
		defer end()
		began := time.Now()
		if lane.Hold(&Grant{lane: lane}, time.Hour, time.Now().Add(2*time.Hour), false, ctx, t.Context()) || time.Since(began) != time.Second {
			t.Errorf("held for %v, want until the session has ended", time.Since(began))
		}
		began = time.Now()
		if lane.Hold(&Grant{lane: lane}, time.Hour, time.Now().Add(time.Minute), false, t.Context(), t.Context()) || time.Since(began) != 0 {
			t.Errorf("held for %v, want not at all: it may not be held for as long as it would have to", time.Since(began))
		}
		lane.Pause()
		began = time.Now()
		if lane.Hold(&Grant{lane: lane}, time.Second, time.Now().Add(time.Minute), false, t.Context(), t.Context()) || time.Since(began) != time.Minute {
			t.Errorf("held for %v while paused, want no longer than a message may be", time.Since(began))
		}
		lane.Resume()
		if !lane.Hold(&Grant{lane: lane}, time.Second, time.Now().Add(time.Minute), false, t.Context(), t.Context()) {
			t.Error("a message is not handled again after its pause")
		}
		if lane.held != 0 {
			t.Errorf("%d messages are held at rest", lane.held)
		}
	})
}
