package copies

import (
	"cmp"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/internal/header"
	"github.com/rehop/rehop/xdeath"
)

// snoozes returns how often handlers of the queue have put the message off, and when the
// first did. On a letter of the broker, which has attempts, they were handlers of its work
// queue.
func snoozes(d amqp.Delivery, h xdeath.History, r RetryCopy) (n int64, first time.Time) {
	if r.Letter && !header.IsCopy(d.Headers) || !r.Letter && r.Returned && h.Queue == r.Queue {
		n, first = int64(h.Snoozes), h.FirstSnoozed
	}
	if !r.Snoozed.IsZero() {
		n++
	}
	return min(n, header.MaxCount), cmp.Or(first, r.Snoozed)
}
