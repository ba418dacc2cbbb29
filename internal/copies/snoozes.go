package copies

import (
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/internal/header"
	"github.com/rehop/rehop/xdeath"
)

// snoozes returns how often handlers of the queue have put the message off. On a letter
// of the broker, which has attempts, they were handlers of its work queue.
func snoozes(d amqp.Delivery, h xdeath.History, r RetryCopy) (n int64) {
	_, retried := d.Headers[header.Attempts]
	if r.Letter && !retried || !r.Letter && r.Returned && h.Queue == r.Queue {
		n = int64(h.Snoozes)
	}
	if r.Snoozed {
		n++
	}
	return min(n, header.MaxCount)
}
