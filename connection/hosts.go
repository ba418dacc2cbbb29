package connection

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// badFor is how long a host that failed is tried after all other hosts. A node that
// restarts is back by then, and should get its share of clients again.
const badFor = time.Minute

// hosts remembers which endpoints failed, for both sockets.
type hosts struct {
	mu     sync.Mutex
	failed []time.Time // by endpoint; zero if its last try was good
	good   []bool      // by endpoint: a try was good before
}

func newHosts(n int) *hosts { return &hosts{failed: make([]time.Time, n), good: make([]bool, n)} }

// known reports whether a login at endpoint i has succeeded before.
func (h *hosts) known(i int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.good[i]
}

// note records the result of a try, or the loss of a connection.
func (h *hosts) note(i int, good bool, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if good {
		h.failed[i], h.good[i] = time.Time{}, true
	} else {
		h.failed[i] = now
	}
}

// order returns the endpoints in the order to try them: at random, so that the
// clients of a cluster spread. Those that failed within badFor come last, the
// earliest failure first.
func (h *hosts) order(now time.Time) []int {
	h.mu.Lock()
	defer h.mu.Unlock()
	order := rand.Perm(len(h.failed))
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(h.badness(a, now), h.badness(b, now))
	})
	return order
}

// badness is 0 for a host without a recent failure. The later a host failed, the larger it
// is.
func (h *hosts) badness(i int, now time.Time) time.Duration {
	if h.failed[i].IsZero() {
		return 0
	}
	return max(badFor-now.Sub(h.failed[i]), 0)
}
