package hand

import (
	"fmt"
	"testing"
	"time"
)

// dependency is something that all handlers need.
type dependency struct {
	away         bool
	runs         int // of handlers
	atOnce, most int
	done         int // messages
}

// seen returns how often it was used since set, and by how many at a time.
func (d *dependency) seen() (runs, most int) { return d.runs, d.most }

func (d *dependency) set(away bool) { d.away, d.runs, d.most = away, 0, 0 }

// need has each handler use it for 10 ms. If it is away, the handler says Hold, and the messages
// are held for so long; with 0 they are acked all the same.
func (d *dependency) need(s *stage, hold time.Duration) {
	s.handle = func(g *Grant) (time.Duration, func() *Hold) {
		d.runs++
		d.atOnce++
		d.most = max(d.most, d.atOnce)
		return 10 * time.Millisecond, func() *Hold {
			d.atOnce--
			s.lane.Note(g, d.away, s.now, &s.out)
			if d.away && hold > 0 {
				return &Hold{Kind: ForAnother, For: hold, Until: s.now.Add(time.Hour)}
			}
			d.done++
			return nil
		}
	}
}

// TestInAnOutageHeldMessagesFindOutOneAtATime: and all go on at once when it is over.
func TestInAnOutageHeldMessagesFindOutOneAtATime(t *testing.T) {
	for _, tt := range []struct {
		slots int
		hold  time.Duration // which counts for nothing in an outage
	}{{1, time.Second}, {16, time.Second}, {1, 30 * time.Minute}, {16, 30 * time.Minute}} {
		t.Run(fmt.Sprintf("%d slots, held for %v", tt.slots, tt.hold), func(t *testing.T) {
			slots := tt.slots
			s := newStage(t, Limits{Slots: slots, Outage: Outage{Of: 10, From: min(slots, 5), MaxPause: 10 * time.Second}})
			d := &dependency{away: true}
			d.need(s, tt.hold)
			s.deliver(100)
			s.pass(6 * time.Second)
			if s.lane.State(s.now).Outage.IsZero() {
				t.Fatal("no outage")
			}
			if s.in.Room(50).Wants != 0 {
				t.Errorf("the lane wants %d messages, want none while it holds messages", s.in.Room(50).Wants)
			}
			if taken := s.takeBack(0); len(taken) != 100-slots {
				t.Errorf("%d messages are left for others, want %d", len(taken), 100-slots)
			}
			d.set(true)
			s.pass(time.Minute)
			if runs, most := d.seen(); most != 1 || runs < 6 || runs > 40 {
				t.Errorf("%d runs in a minute of outage, %d at once; want one at a time, after growing pauses", runs, most)
			}
			d.set(false)
			s.pass(10*time.Second + 30*time.Millisecond)
			if d.done != slots || len(s.letGo) > 0 {
				t.Errorf("%d of %d held messages are done one pause after the outage, %d are held no longer", d.done, slots, len(s.letGo))
			}
			if _, most := d.seen(); most != max(1, slots-1) {
				t.Errorf("%d handlers run at once after the outage, want all but the one that has found out", most)
			}
			if now := s.lane.State(s.now); !now.Paused.IsZero() || !now.Outage.IsZero() || s.in.Room(50).Wants != 50 {
				t.Error("the outage is not over")
			}
		})
	}
}

// TestInAnOutageWithoutHeldMessagesOneIsTaken: such as after they have gone back.
func TestInAnOutageWithoutHeldMessagesOneIsTaken(t *testing.T) {
	s := newStage(t, Limits{Slots: 16, Outage: Outage{Of: 10, From: 5, MaxPause: time.Second}})
	d := &dependency{away: true}
	d.need(s, 0)
	s.deliver(16)
	s.pass(20 * time.Millisecond)
	if s.lane.State(s.now).Outage.IsZero() || s.in.Room(50).Wants != 1 {
		t.Fatalf("no outage, or the lane wants %d messages and not 1", s.in.Room(50).Wants)
	}
	d.set(true)
	s.deliver(5)
	s.pass(10 * time.Second)
	if runs, most := d.seen(); most != 1 || runs != 5 {
		t.Errorf("%d of 5 messages were handled, %d at once, want all one by one", runs, most)
	}
	d.set(false)
	s.deliver(32)
	s.pass(2 * time.Second)
	if runs, most := d.seen(); most != 16 || runs != 32 {
		t.Errorf("%d of 32 messages were handled, %d at once, want all, 16 at once", runs, most)
	}
}

// TestAnOutageWithoutAMessageToTry: nobody knows whether it lasts, until the next message
// has told.
func TestAnOutageWithoutAMessageToTry(t *testing.T) {
	s := newStage(t, Limits{Slots: 16, Outage: Outage{Of: 10, From: 5, MaxPause: 10 * time.Second}})
	d := &dependency{away: true}
	d.need(s, 0)
	began := s.now
	s.deliver(16)
	is := func(what string, want bool) {
		t.Helper()
		now := s.lane.State(s.now)
		outage, untried := now.Outage, now.Untried
		if outage.IsZero() || outage.Sub(began) > time.Second || untried != want || s.in.Room(50).Wants != 1 {
			t.Errorf("%s: an outage since %v, no message to try: %v, want %v; wants %d messages, want one", what, outage.Sub(began), untried, want, s.in.Room(50).Wants)
		}
	}
	s.pass(9 * time.Second)
	is("before the longest pause", false)
	s.pass(5 * time.Second)
	is("after it", true)
	s.in.Opened(1, 0, s.now, &s.out)
	is("when a session begins", false)
	s.pass(10 * time.Second)
	is("when it has brought nothing", true)
	s.setPaused(true)
	s.pass(time.Hour)
	if now := s.lane.State(s.now); now.Paused.IsZero() || now.Untried {
		t.Error("nothing is tried in a pause, and for its sake")
	}
	s.setPaused(false)
	is("after a pause", false)
	s.pass(time.Hour)
	is("after an hour", true)
	s.deliver(1)
	s.pass(time.Millisecond)
	is("while a message is tried", false)
	s.pass(time.Second)
	is("after it has failed", false)
	d.set(false)
	s.pass(time.Hour)
	is("after another hour", true)
	s.deliver(1)
	s.pass(time.Second)
	if now := s.lane.State(s.now); !now.Outage.IsZero() || now.Untried || s.in.Room(50).Wants != 50 {
		t.Error("the outage is not over after a message that works")
	}
}

func TestPauseAndResume(t *testing.T) {
	s := newStage(t, Limits{Slots: 2})
	d := &dependency{}
	d.need(s, 0)
	s.setPaused(true)
	s.deliver(1)
	s.pass(time.Hour)
	if runs, _ := d.seen(); runs != 0 || s.in.Room(50).Wants != 0 {
		t.Error("a message is handled while the lane is paused")
	}
	if !isSet(s.lane.Changed) {
		t.Error("the intake was not told")
	}
	s.setPaused(false)
	s.setPaused(false)
	if runs, _ := d.seen(); runs != 1 || s.in.Room(50).Wants != 50 {
		t.Error("the message is not handled after Resume")
	}
	if !isSet(s.lane.Changed) {
		t.Error("the intake was not told of Resume")
	}
}

func TestAHeldMessageLeavesWithItsSession(t *testing.T) {
	const hour, minute, second = time.Hour, time.Minute, time.Second
	for _, tt := range []struct {
		rule      string
		kind      Kind
		d, until  time.Duration
		change    func(s *stage, stop, work func()) // after a second
		want      time.Duration                     // until a worker has it again
		handledIt bool                              // by then the handler has run again, and it was not let go
	}{
		{"the session ends in order", ForAnother, hour, 2 * hour, func(_ *stage, stop, _ func()) { stop() }, second, false},
		{"the session has ended", ForAnother, hour, 2 * hour, func(_ *stage, _, work func()) { work() }, second, false},
		{"it would have to be held for longer than it may be", ForAnother, hour, minute, nil, 0, false},
		{"while paused it is held for no longer than it may be", ForAnother, 2 * second, minute, func(s *stage, _, _ func()) { s.setPaused(true) }, minute, false},
		{"after its pause it is handled again", ForAnother, 2 * second, minute, nil, 2 * second, true},
		{"it waits for no longer than its pause where the lane is paused before", ForAnother, 2 * second, minute, func(s *stage, _, _ func()) { s.setPaused(true); s.setPaused(false) }, 2 * second, true},
		{"no other message begins, and it does not wait in place", ForAnother, 2 * second, minute, func(s *stage, _, _ func()) { s.in.BeginNoMore(ErrHeld, s.now, &s.out) }, second, false},
		{"no other message begins, and it waits in place", ForNextHere, 2 * second, minute, func(s *stage, _, _ func()) { s.in.BeginNoMore(ErrHeld, s.now, &s.out) }, 2 * second, true},
		{"it waits in place, and the session ends in order", ForNextHere, 2 * second, minute, func(_ *stage, stop, _ func()) { stop() }, second, false},
		{"it is kept until it is due", UntilDue, 2 * second, minute, nil, 2 * second, true},
		{"it lacks a little, and its handler runs then", ToBegin, 2 * second, minute, nil, 2 * second, true},
		{"it lacks a little, and its handler does not run in a pause", ToBegin, 2 * second, minute, func(s *stage, _, _ func()) { s.setPaused(true) }, minute, false},
		{"it lacks a little, and no other message begins", ToBegin, 2 * second, minute, func(s *stage, _, _ func()) { s.in.BeginNoMore(ErrHeld, s.now, &s.out) }, second, false},
		{"it lacks a little, and its handler finds out whether an outage is over", ToBegin, 2 * second, minute, func(s *stage, _, _ func()) { s.lane.gate.begin(s.now) }, 2 * second, true},
		{"it lacks a little, and its handler runs after a pause", ToBegin, 2 * second, minute, func(s *stage, _, _ func()) {
			s.setPaused(true)
			s.pass(10 * second)
			s.setPaused(false)
		}, 11 * second, true},
		{"it is due, in a pause too: no handler is to have it", UntilDue, 2 * second, minute, func(s *stage, _, _ func()) { s.setPaused(true) }, 2 * second, true},
		{"it is not due, and the session ends in order", UntilDue, 2 * second, minute, func(_ *stage, stop, _ func()) { stop() }, second, false},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			s := newStage(t, Limits{Slots: 1, Ordered: true})
			ctx, stop, work := ending(t)
			defer stop()
			defer work()
			s.in = s.lane.Session(ctx)
			began := s.now
			s.early = tt.kind.IsEarly()
			var again time.Time
			s.handle = func(g *Grant) (time.Duration, func() *Hold) {
				if g.Why == First {
					return 0, func() *Hold { return &Hold{Kind: tt.kind, For: tt.d, Until: began.Add(tt.until)} }
				}
				again = s.now
				return 0, nil
			}
			s.deliver(1)
			s.pass(0)
			if tt.want > 0 {
				if len(s.lane.holding) == 0 || s.lane.Busy() != 1 || !again.IsZero() || len(s.letGo) > 0 {
					t.Fatal("the message is not held, or has no slot")
				}
				s.pass(second)
				if tt.change != nil {
					tt.change(s, stop, work)
					s.in.Ending(s.now, &s.out)
				}
				s.pass(3 * hour)
			}
			got := append(s.letGo, again)[0]
			if (len(s.letGo) == 0) != tt.handledIt || again.IsZero() == tt.handledIt || got.Sub(began) != tt.want {
				t.Errorf("a worker has it again after %v, handled: %v; want after %v, %v", got.Sub(began), !again.IsZero(), tt.want, tt.handledIt)
			}
			if l := s.lane; len(l.holding) != 0 || l.wereHeld != 0 || l.Busy() != 0 {
				t.Errorf("%d messages are held at rest, %d slots are taken", len(l.holding), l.Busy())
			}
		})
	}
}

// The latest run of a batch said Hold, and the messages that are left of it are held for a time of
// their own.
func TestMessagesThatAreHeldForATimeOfTheirOwnFindOutAboutNoOutageBeforeIt(t *testing.T) {
	for _, own := range []bool{true, false} {
		t.Run(fmt.Sprintf("own: %v", own), func(t *testing.T) {
			s := newStage(t, Limits{Slots: 2, Outage: Outage{Of: 10, From: 2, MaxPause: 10 * time.Second}})
			runs := map[uint64]int{}
			s.handle = func(g *Grant) (time.Duration, func() *Hold) {
				tag := g.Of[0].Raw.DeliveryTag
				runs[tag]++
				return 10 * time.Millisecond, func() *Hold {
					s.lane.Note(g, true, s.now, &s.out)
					hold := Hold{Kind: ForAnother, For: time.Second, Until: s.now.Add(time.Hour)}
					if tag == 2 {
						hold.For, hold.Own = 20*time.Minute, own
					}
					return &hold
				}
			}
			s.deliver(2)
			s.pass(19 * time.Minute)
			if s.lane.State(s.now).Outage.IsZero() {
				t.Fatal("no outage")
			}
			if runs[1] < 10 || (runs[2] == 1) != own {
				t.Errorf("%d runs of the message that finds out, %d of the other", runs[1], runs[2])
			}
			s.pass(2 * time.Minute)
			if runs[2] == 1 {
				t.Error("after its time it does not find out either")
			}
		})
	}
}
