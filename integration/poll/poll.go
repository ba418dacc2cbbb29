// Package poll waits in tests for what becomes true by itself.
package poll

import (
	"testing"
	"time"
)

// every is how often a condition is looked at.
const every = 10 * time.Millisecond

// Until returns once the condition is true, and fails the test if it is not
// within the limit; what names the condition.
func Until(t testing.TB, limit time.Duration, what string, reached func() bool) {
	t.Helper()
	tick := time.NewTicker(every)
	defer tick.Stop()
	late := time.NewTimer(limit)
	defer late.Stop()
	for !reached() {
		select {
		case <-tick.C:
		case <-late.C:
			t.Fatalf("not within %v: %s", limit, what)
		}
	}
}
