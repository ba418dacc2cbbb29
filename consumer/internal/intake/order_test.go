package intake

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/rehop/rehop/consumer/internal/hand"
)

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

// The broker has ended a session because it could not hand over a message. It counts that for all messages in hand.
func TestOneMessageAtATimeBesideOneThatCannotBeHandedOver(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, tt := range []struct {
		rule  string
		bound func(b *Bound)
		rises bool // lasts until handlers keep up
	}{
		{"in order until no message is left that has come before", func(b *Bound) { b.OneAtATime(100, now) }, false},
		{"else until handlers keep up", func(b *Bound) { b.Least(100, now) }, true},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			b := Bound{}
			tt.bound(&b)
			if got := b.of(70); got != 1 {
				t.Errorf("a prefetch of %d, want 1", got)
			}
			if b.Lift(); (b.of(70) == 70) != tt.rises {
				t.Errorf("a prefetch of %d where the bound is lifted", b.of(70))
			}
		})
	}
}
