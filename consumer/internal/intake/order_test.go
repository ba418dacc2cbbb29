package intake

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rehop/rehop/consumer/internal/hand"
)

func TestTheBoundAfterASessionInOrder(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	set := func(most int) Bound {
		b := Bound{}
		b.set(most, 50, now)
		return b
	}
	with := func(b Bound, suspects bool, renewals int) Bound {
		b.suspects, b.renewals = suspects, renewals
		return b
	}
	for _, tt := range []struct {
		rule   string
		before Bound
		ended  ending
		want   Bound
	}{
		{"suspects are in hand one at a time, and all messages in hand come back", Bound{}, ending{why: hand.ErrSuspects}, with(set(1), true, 1)},
		{"one suspect alone comes back, and the deaths of later ones count all the same", with(set(1), true, 0), ending{why: hand.ErrSuspects, alone: true}, with(set(1), true, 0)},
		{"no suspect is left: no bound", with(set(1), true, 1), ending{why: hand.ErrCleared, alone: true}, Bound{since: now, handled: 50, after: set(1).after, renewals: 2}},
		{"handlers keep up: twice as many", set(2), ending{why: hand.ErrKeptUp}, with(set(4), false, 1)},
		{"messages were held, one of them alone: no bound", set(1), ending{why: hand.ErrHeld, alone: true}, Bound{since: now, handled: 50, after: set(1).after, renewals: 1}},
		{"they were, and suspects are left: one at a time", with(set(1), true, 0), ending{why: hand.ErrHeld, alone: true}, with(set(1), true, 1)},
		{"messages have waited too long: the same prefetch once more", Bound{}, ending{why: hand.ErrWaited}, Bound{renewals: 1}},
		{"in vain before: one at a time", Bound{}, ending{why: hand.ErrWaited, vain: true}, with(set(1), false, 1)},
		{"a lost session changes nothing", set(8), ending{why: errors.New("the channel is closed"), vain: true}, set(8)},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			b := tt.before
			if b.ends(tt.ended, 70, 50, now); b != tt.want {
				t.Errorf("%+v, want %+v", b, tt.want)
			}
		})
	}
}

// The broker has ended a session because it could not hand over a message. It counts that for all messages in hand.
func TestOneMessageAtATimeBesideOneThatCannotBeHandedOver(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, tt := range []struct {
		rule    string
		ordered bool
		rises   bool // lasts until handlers keep up
	}{
		{"in order until no message is left that has come before", true, false},
		{"else until handlers keep up", false, true},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			b := Bound{}
			b.OneAtATime(tt.ordered, 100, now)
			if got := b.of(70); got != 1 {
				t.Errorf("a prefetch of %d, want 1", got)
			}
			if b.Lift(); (b.of(70) == 70) != tt.rises {
				t.Errorf("a prefetch of %d where the bound is lifted", b.of(70))
			}
		})
	}
}

func TestRenewalsThatAreNoDeaths(t *testing.T) {
	for _, tt := range []struct {
		rule string
		why  hand.Stall
		most int // the bound of the session
		want int
	}{
		{"all messages in hand come back", hand.ErrSuspects, 0, 1},
		{"one suspect alone comes back, and the deaths of later ones count all the same", hand.ErrSuspects, 1, 0},
		{"one message comes back that had waited", hand.ErrHeld, 1, 1},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			s := &Session{Config: Config{Bound: &Bound{most: tt.most}, Prefetch: Prefetch{Base: 8}, Handled: new(atomic.Int64)}}
			if s.bound(tt.why, time.Now()); s.Bound.renewals != tt.want {
				t.Errorf("%d renewals, want %d", s.Bound.renewals, tt.want)
			}
		})
	}
}
