package intake

import (
	"testing"
	"time"
)

func TestALookThatIsLateIsNoLook(t *testing.T) {
	began := time.Now()
	a := awake{limit: 5 * time.Second}
	a.last.Store(&began)
	for _, tt := range []struct {
		rule     string
		at       time.Duration
		look     bool
		doubtful bool
	}{
		{"at once", 0, false, false},
		{"within the limit", 5 * time.Second, false, false},
		{"later", 5*time.Second + 1, false, true},
		{"a look within the limit", 4 * time.Second, true, false},
		{"which counts anew", 9 * time.Second, true, false},
		{"a late look", 15 * time.Second, true, true},
		{"after which looks in time change nothing", 17 * time.Second, true, true},
	} {
		now := began.Add(tt.at)
		if tt.look {
			a.look(now)
		}
		if got := a.isDoubtful(now); got != tt.doubtful {
			t.Errorf("%s: doubtful %t, want %t", tt.rule, got, tt.doubtful)
		}
	}
}
