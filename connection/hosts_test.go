package connection

import (
	"slices"
	"testing"
	"time"
)

func TestHostsThatFailedLatelyComeLast(t *testing.T) {
	now := time.Now()
	h := newHosts(4)
	h.note(2, false, now.Add(-badFor/2))
	h.note(0, false, now)
	first := map[int]bool{}
	for range 100 {
		got := h.order(now)
		if !slices.Equal(got[2:], []int{2, 0}) {
			t.Fatalf("order = %v, want 2 and then 0 at the end", got)
		}
		first[got[0]] = true
	}
	if !first[1] || !first[3] {
		t.Errorf("of 100 orders none began with each good host: %v", first)
	}
	h.note(0, true, now)
	if got := h.order(now); got[3] != 2 {
		t.Errorf("order = %v, want host 0 forgiven after a good try", got)
	}
	if got := h.badness(2, now.Add(badFor/2)); got != 0 {
		t.Errorf("badness = %v, want a fault forgotten after %v", got, badFor)
	}
}
