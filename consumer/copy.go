package consumer

import (
	"fmt"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/internal/copies"
	"github.com/rehop/rehop/internal/transport"
	"github.com/rehop/rehop/topology"
	"github.com/rehop/rehop/xdeath"
)

// destination is where the copy goes that the verdict on m asks for.
func destination(m *message) topology.Address {
	if m.verdict.move == moveDeadLetter {
		return m.from.route.DeadLetter
	}
	if m.verdict.rung == 0 {
		return m.verdict.exact.to
	}
	return m.from.route.WaitAt[m.verdict.rung-1]
}

// makeCopy writes that copy, cut to what the frames of the session can carry.
func makeCopy(m *message, host string, now time.Time) amqp.Publishing {
	var p amqp.Publishing
	if m.verdict.move == moveDeadLetter {
		p = letter(m, host, now)
	} else {
		p = retryCopy(m, now)
	}
	copies.Cut(p, xdeath.HeaderLimit(m.from.frame))
	return p
}

// settledAt returns where a message is once its copy is confirmed.
func settledAt(v verdict) Settlement {
	switch {
	case v.move == moveDeadLetter:
		return Settlement{Place: PlaceDeadLetter, Cause: v.cause}
	case v.holdFor > 0:
		return Settlement{Place: PlaceQueue}
	}
	return Settlement{Place: PlaceWait, Rung: v.rung}
}

func retryCopy(m *message, now time.Time) amqp.Publishing {
	ended := m.delivery.Attempt
	if m.verdict.unspent {
		ended--
	}
	due := m.verdict.due
	switch {
	case !due.IsZero(), m.verdict.holdFor > 0: // the latter has waited
	case m.verdict.rung == 0:
		due = now.Add(m.verdict.exact.takes)
	case m.from.route.facts.Ours:
		due = now.Add(m.from.route.Waits[m.verdict.rung-1])
	}
	p := copies.Retry(m.raw, copies.RetryCopy{
		Queue:     m.from.route.Queue,
		Returned:  returned(m.from.route, m.raw),
		Attempts:  ended,
		At:        now,
		NotBefore: m.verdict.notBefore,
		Due:       due,
		User:      m.from.user,
	})
	if route := m.from.route; m.verdict.rung > 0 && route.facts.Unseen && route.Engine() != topology.Carry {
		p.Expiration = endOf(route.Waits[m.verdict.rung-1])
	}
	return p
}

// unseenGrace is how long after its wait a message comes back at the latest whose
// consumer may not look at the wait queue. A queue with a TTL, or somebody who
// carries, is earlier.
const unseenGrace = 10 * time.Second

// endOf returns an expiration for a message that may wait in a queue without a
// TTL which nobody carries: the broker then brings it back.
func endOf(wait time.Duration) string {
	const longest = 315_360_000_000 // milliseconds; the broker takes no more
	return strconv.FormatInt(min((wait+unseenGrace).Milliseconds(), longest), 10)
}

func letter(m *message, host string, now time.Time) amqp.Publishing {
	p := copies.DeadLetter(m.raw, copies.Letter{
		Queue:    m.from.route.Queue,
		Returned: returned(m.from.route, m.raw),
		Attempts: m.delivery.Attempt,
		User:     m.from.user,
		Failure: copies.Failure{
			Cause:     string(m.verdict.cause),
			Error:     m.result.text,
			ErrorType: errorType(m.result.err),
			Stack:     m.result.stack(),
			At:        now,
			Host:      host,
		},
	})
	delete(p.Headers, transport.HeaderUnreadable) // its text is the error: what is sent back can be handled
	return p
}

// returned reports whether what our headers say of the past belongs to this
// life of the message.
func returned(route way, raw amqp.Delivery) bool {
	return !route.facts.Ours || route.facts.Returned(raw.Exchange)
}

// errorType names the innermost type of the error that a handler steered with, or
// returned: what wraps it says less. Of joined errors it names the first.
func errorType(err error) string {
	if err == nil {
		return ""
	}
	for {
		var inner error
		switch e := err.(type) { //nolint:errorlint // this is the walk down the chain
		case interface{ Unwrap() error }:
			inner = e.Unwrap()
		case interface{ Unwrap() []error }:
			for _, branch := range e.Unwrap() {
				if branch != nil {
					inner = branch
					break
				}
			}
		}
		if inner == nil {
			return fmt.Sprintf("%T", err)
		}
		err = inner
	}
}
