package topology

import (
	"fmt"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/route"
)

// carryDeliveryLimit is the x-delivery-limit of the quorum wait queues of EngineCarry:
// never reached. With a limit, messages that are given back return to the head of the
// queue on every version. Without one they go to the tail up to 4.2, and 4.0 and later
// would drop them after 20 returns.
const carryDeliveryLimit = 1_000_000_000

// waitOf returns the wait of the messages in a carried wait queue with these
// arguments, or 0 if they do not tell.
func waitOf(args amqp.Table) time.Duration {
	n, _ := args["x-max-length"].(int64)
	if n <= route.CarriedLength || n > route.CarriedLength+maxTTL.Milliseconds() {
		return 0
	}
	return time.Duration(n-route.CarriedLength) * time.Millisecond
}

// longestSuffix bounds WorkQueue.Name: the longest name that derives from it
// must still be an AMQP short string.
const longestSuffix = ".wait.16.87599h59m59.999s"

// otherWaitQueue returns the name of the queue that is used beside the one of
// route.WaitQueue if that has another wait or form.
func (w WorkQueue) otherWaitQueue(waitNumber int) string {
	return route.WaitQueue(w.Name, waitNumber) + "." + briefly(w.Waits[waitNumber-1])
}

// briefly writes a wait without the zeros of its smaller units: 3m, not 3m0s.
func briefly(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// timedWait returns a queue with a TTL, for the wait of a number.
func (w WorkQueue) timedWait(name string, waitNumber int, v connection.Version) plannedQueue {
	form := func(v connection.Version) amqp.Table {
		args := amqp.Table{
			"x-queue-type":              string(w.partType(v)),
			"x-message-ttl":             w.Waits[waitNumber-1].Milliseconds(),
			"x-dead-letter-exchange":    w.returnExchange(),
			"x-dead-letter-routing-key": w.waitKey(waitNumber),
		}
		if atLeastOnce(v) {
			addStrategy(args)
		}
		return args
	}
	q := plannedQueue{Name: name, Args: form(v), Owner: w.Name, role: waitRole, waitNumber: waitNumber}
	if !atLeastOnce(v) || name != route.WaitQueue(w.Name, waitNumber) {
		// A broker of 3.x beside nodes of 4.0; or what was declared before an upgrade.
		q.Also = []amqp.Table{form(other(v))}
	}
	return q
}

// carriedWait returns a queue without a TTL, for the wait of a number. One process
// at a time consumes it, and holds the messages that are due first. Its dead
// letters go where its messages go: a policy that ends waits, by a TTL say, loses
// none, and the consumers see that they come early.
func (w WorkQueue) carriedWait(name string, waitNumber int, v connection.Version) plannedQueue {
	form := func(t QueueType) amqp.Table {
		args := amqp.Table{
			"x-queue-type":              string(t),
			"x-single-active-consumer":  true,
			"x-max-length":              route.CarriedLength + w.Waits[waitNumber-1].Milliseconds(),
			"x-dead-letter-exchange":    w.returnExchange(),
			"x-dead-letter-routing-key": w.waitKey(waitNumber),
		}
		if t == Quorum {
			args["x-delivery-limit"] = int64(carryDeliveryLimit)
		}
		return args
	}
	mine, others := Quorum, Classic
	if w.partType(v) == Classic || mixedPriorities(w, v) {
		mine, others = Classic, Quorum
	}
	return plannedQueue{Name: name, Args: form(mine), Also: []amqp.Table{form(others)}, Owner: w.Name, role: waitRole, waitNumber: waitNumber}
}

// planCarried returns the queue for the carried wait of a number: the first that is
// not known to be for another wait, and those that are.
func (w WorkQueue) planCarried(b *builder, waitNumber int) (q plannedQueue, others []route.CarriedWait) {
	for nth := 1; ; nth++ {
		name := route.CarriedQueue(w.Name, waitNumber, nth)
		wait, taken := b.have.carried[name]
		if !taken {
			if nth > 1 {
				b.note(w.Name, fmt.Sprintf("wait %d is %v, and queue %q is for another one: failed attempts go to %q. The consumers carry both",
					waitNumber, w.Waits[waitNumber-1], route.WaitQueue(w.Name, waitNumber), name))
			}
			return w.carriedWait(name, waitNumber, b.version), others
		}
		others = append(others, route.CarriedWait{Queue: name, Number: waitNumber, For: wait})
	}
}

// planWait returns the queue with a TTL for the wait of a number, and whether a
// nack leads there.
func (w WorkQueue) planWait(b *builder, waitNumber int, nacks bool) (q plannedQueue, nack bool) {
	name := route.WaitQueue(w.Name, waitNumber)
	differs, taken := b.have.taken[name]
	if !taken {
		return w.timedWait(name, waitNumber, b.version), nacks
	}
	instead := w.otherWaitQueue(waitNumber)
	b.note(w.Name, fmt.Sprintf("wait %d is %v, and queue %q exists with other arguments (%s): failed attempts go to %q as confirmed copies. "+
		"Once no process has the earlier schedule and %q is empty, %s lets the next declaration use that name again",
		waitNumber, w.Waits[waitNumber-1], name, differs, instead, name, deleteQueue(b.have.vhost, name)))
	return w.timedWait(instead, waitNumber, b.version), false
}
