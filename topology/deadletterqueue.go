package topology

import (
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
)

// DeadLetterQueue is a durable queue where dead letters stay until somebody
// looks after them. Every [WorkQueue] brings its own; declare one yourself to
// change its MaxAge (give it the name of the work queue's, "orders.dlq") or
// for a producer's fallback (give it an Exchange). It is a [Spec] to declare
// and a [Source] to consume.
type DeadLetterQueue struct {
	// Name of the queue, 1 to 255 bytes, not beginning with "amq.".
	Name string

	// Type of the queue. Defaults to Quorum.
	Type QueueType

	// Exchange, when set, is a durable fanout exchange that is declared and
	// bound to the queue.
	Exchange string

	// MaxAge after which the broker deletes a dead letter, in whole
	// milliseconds up to 10 years. Zero: never. It is the only bound: a
	// length limit would either lose letters or, full, stop the retries of
	// every queue that dead-letters into this one.
	MaxAge time.Duration
}

// maxTTL is the longest TTL a broker takes, 10 years of 365 days.
const maxTTL = 315_360_000_000 * time.Millisecond

// Plan returns the plan of this queue alone for a broker of version v. It
// does no I/O.
func (q DeadLetterQueue) Plan(v connection.Version) (Plan, error) { return NewPlan(v, q) }

func (q DeadLetterQueue) validate() error {
	owner := fmt.Sprintf("DeadLetterQueue %q: ", shorten(q.Name))
	errs := []error{
		validateName("DeadLetterQueue.Name", q.Name, maxName, ""),
		q.Type.validate(owner + "Type"),
	}
	if q.Exchange != "" {
		errs = append(errs, validateName(owner+"Exchange", q.Exchange, maxName, ""))
	}
	if q.MaxAge < 0 || q.MaxAge > maxTTL || q.MaxAge%time.Millisecond != 0 {
		errs = append(errs, fmt.Errorf("topology: %sMaxAge is %v, want 0 (for ever) or whole milliseconds up to %v", owner, q.MaxAge, maxTTL))
	}
	return errors.Join(errs...)
}

func (q DeadLetterQueue) planned(v connection.Version) PlannedQueue {
	base := amqp.Table{"x-queue-type": string(q.Type.orDefault())}
	if q.MaxAge > 0 {
		base["x-message-ttl"] = q.MaxAge.Milliseconds()
	}
	if !atLeastOnce(q.Type, v) {
		return PlannedQueue{Name: q.Name, Args: base}
	}
	// Without it, a dead letter that was looked at 20 times would be dropped.
	// A 3.x broker reads -1 as "at the first return".
	today := cloneTable(base)
	today["x-delivery-limit"] = int64(-1)
	return PlannedQueue{Name: q.Name, Args: today, OldArgs: base}
}

func (q DeadLetterQueue) addTo(b *builder) {
	if b.oldForm[q.Name] {
		b.note(q.Name, "declared on a 3.x broker: a delivery limit of 20 applies; a policy with delivery-limit -1 lifts it")
	}
	b.queue(q.planned(b.version))
	if q.Exchange != "" {
		b.exchange(PlannedExchange{Name: q.Exchange, Kind: amqp.ExchangeFanout})
		b.bind(PlannedBinding{Exchange: q.Exchange, Queue: q.Name})
	}
}
