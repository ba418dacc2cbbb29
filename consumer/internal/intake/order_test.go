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
