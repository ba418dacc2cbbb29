package copies

import (
	"github.com/rehop/rehop/internal/header"
	"github.com/rehop/rehop/xdeath"
)

// snoozes returns how often handlers of the queue have put the message off.
func snoozes(h xdeath.History, r RetryCopy) (n int64) {
	if r.Returned && h.Queue == r.Queue {
		n = int64(h.Snoozes)
	}
	if r.Snoozed {
		n++
	}
	return min(n, header.MaxCount)
}
