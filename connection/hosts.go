package connection

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// badFor is how long a host that failed is tried after the others. A node that
// restarts is back within it; longer would leave it without clients.
const badFor = time.Minute

// hosts remembers which targets failed, for both sockets.
type hosts struct {
	mu     sync.Mutex
	failed []time.Time // by target; zero if its last try was good
}

func newHosts(n int) *hosts { return &hosts{failed: make([]time.Time, n)} }

// note keeps what became of a try, or of a connection that was lost.
func (h *hosts) note(i int, good bool, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failed[i] = time.Time{}
	if !good {
		h.failed[i] = now
	}
}

// order returns the targets in the order to try them: at random, so that the
// clients of a cluster spread, but those that failed lately last, and among
// them first the one whose failure is the longest ago.
func (h *hosts) order(now time.Time) []int {
	h.mu.Lock()
	defer h.mu.Unlock()
	order := rand.Perm(len(h.failed))
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(h.badness(a, now), h.badness(b, now))
	})
	return order
}

// badness is 0 for a good host, and for a bad one the more the later it failed.
func (h *hosts) badness(i int, now time.Time) time.Duration {
	if h.failed[i].IsZero() {
		return 0
	}
	return max(badFor-now.Sub(h.failed[i]), 0)
}
