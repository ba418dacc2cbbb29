package topology

import (
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
)

// DeadLetterQueue is a durable queue where dead letters stay until a person or a
// program takes them. Every [WorkQueue] has one of its own. Declare one yourself to
// set its MaxAge, under the name that the work queue uses ("orders.dlq"), or with
// an Exchange for a producer's fallback. It is a [Spec] to declare and a [Source]
// to consume.
type DeadLetterQueue struct {
	// Name of the queue, 1 to 255 bytes, not beginning with "amq.".
	Name string

	// Type of the queue. Defaults to Quorum.
	Type QueueType

	// Exchange, when set, is a durable fanout exchange that is declared and
	// bound to the queue.
	Exchange string

	// MaxAge after which the broker deletes a dead letter, in whole milliseconds up to
	// 10 years. If zero, dead letters are kept for ever. There is no length limit. A
	// full queue would either lose letters or stop the retries of every queue that
	// dead-letters into it.
	MaxAge time.Duration

	// implied says that it is part of a work queue and was not spelt out.
	implied bool
}

// maxTTL is the longest TTL a broker takes, 10 years of 365 days.
const maxTTL = 315_360_000_000 * time.Millisecond

func (q DeadLetterQueue) workQueues() []WorkQueue { return nil }

func (q DeadLetterQueue) whole() Spec { return q }

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

func (q DeadLetterQueue) planned(v connection.Version) plannedQueue {
	form := func(t QueueType, limited bool) amqp.Table {
		args := amqp.Table{"x-queue-type": string(t)}
		if q.MaxAge > 0 {
			args["x-message-ttl"] = q.MaxAge.Milliseconds()
		}
		if !limited {
			args["x-delivery-limit"] = int64(-1)
		}
		return args
	}
	p := plannedQueue{Name: q.Name, role: letterRole}
	t := q.Type.orDefault()
	if q.implied && atLeastOnce(v) {
		t = Quorum
	}
	switch {
	case t == Classic:
		p.Args = form(Classic, true)
	case atLeastOnce(v):
		// Without it, a dead letter that was looked at 20 times would be dropped.
		// A 3.x broker reads -1 as "at the first return".
		p.Args, p.Also = form(Quorum, false), []amqp.Table{form(Quorum, true)}
	default:
		p.Args, p.Also = form(Quorum, true), []amqp.Table{form(Quorum, false)}
	}
	if q.implied && q.Type.orDefault() == Classic && t == Quorum {
		p.Also = append(p.Also, form(Classic, true))
	}
	return p
}

func (q DeadLetterQueue) addTo(b *builder) {
	b.queue(q.planned(b.version))
	if q.Exchange != "" {
		b.exchange(plannedExchange{Name: q.Exchange, Kind: amqp.ExchangeFanout})
		b.bind(plannedBinding{Exchange: q.Exchange, Queue: q.Name})
	}
}
