// Package route is what a consumer has to know about the queue it reads beside
// the exported fields of a topology.Route: which wait a nack leads to, what has
// come back from one, and which waits the consumers carry. Everything in it is a
// value or a pure function.
package route

import (
	"strconv"
	"strings"
	"time"

	"github.com/rehop/rehop/internal/levels"
)

// MaxRungs is the largest number of waits of a work queue.
const MaxRungs = 16

// Facts describes the route of one queue. Its zero value is that of a queue of
// which nothing is known.
type Facts struct {
	Queue string // the queue that is consumed

	// Ours says that the queue is a topology.WorkQueue, whose waits and exchanges
	// package topology has declared; Letters, that it is a DeadLetterQueue.
	Ours, Letters bool

	// Retry is the exchange through which messages come back from the waits of a
	// queue that is Ours.
	Retry string

	// Rungs are the waits, one for each of Route.Waits.
	Rungs []Rung

	// Unseen says that the consumer may not look at the arguments of its waits. They
	// may be without a TTL, and nobody may carry them.
	Unseen bool

	// Carry are the wait queues without a TTL. Whoever consumes Queue brings back
	// what is due in them, those of a schedule longer than its own included.
	Carry []Wait

	// DeliveryLimit is how often the broker hands out a message of this queue that
	// comes back unsettled, or 0 if that is unlimited or unknown.
	DeliveryLimit int
}

// Rung is one wait of a route.
type Rung struct {
	// Queue is the wait queue that holds messages for exactly this wait.
	Queue string

	// Nack says that a message which is due this wait lands in Queue when it is
	// nacked without requeue.
	Nack bool
}

// Wait is a wait queue and the rung it belongs to, counted from 1.
type Wait struct {
	Queue string
	Rung  int
	For   time.Duration // the wait of every message in it; 0: not known
}

// WaitQueue returns the name of the wait queue of a rung.
func WaitQueue(queue string, rung int) string { return queue + ".wait." + strconv.Itoa(rung) }

// CarriedQueue returns the name of the nth queue without a TTL for a rung,
// counted from 1. Each is for another wait. They are declared in order, so that
// who knows none of those waits finds all their queues.
func CarriedQueue(queue string, rung, nth int) string {
	if nth == 1 {
		return WaitQueue(queue, rung)
	}
	return WaitQueue(queue, rung) + "." + strconv.Itoa(nth)
}

// Of returns the facts of a topology.Route; package topology sets it.
var Of func(route any) Facts

// Key is the routing key with which a message of queue leaves the wait of a
// rung, whatever brings it back.
func Key(queue string, rung int) string { return queue + "@" + strconv.Itoa(rung) }

// Returned reports whether a delivery that came through exchange was in one of
// the waits, or in the levels of exact delays, where a message that was not
// handled yet counts no attempt. It is false for a queue that is not Ours, whose waits are not known.
func (f Facts) Returned(exchange string) bool {
	return f.Ours && (exchange == f.Retry || levels.Is(exchange))
}

// Back returns where a message is published to whose time in the wait of a rung
// is over.
func (f Facts) Back(rung int) (exchange, key string) { return f.Retry, Key(f.Queue, rung) }

// NackLandsOn returns the rung of the wait queue in which a message with these
// routing keys (its own and those of CC) lands when it is nacked without
// requeue. It returns 0 if that is not a wait of this schedule, is not known, or
// is several queues.
func (f Facts) NackLandsOn(keys ...string) int {
	lands := 0
	for i, key := range keys {
		rung := f.next(key)
		if i > 0 && rung != lands || rung > len(f.Rungs) || !f.Rungs[rung-1].Nack {
			return 0
		}
		lands = rung
	}
	return lands
}

// next returns the rung that follows the one a key names, and 1 for a key that
// is no rung's: the first failure of a message.
func (f Facts) next(key string) int { return f.Rung(key) + 1 }

// Rung returns the rung whose wait a message with this routing key has left, and 0
// for a key that is no rung's.
func (f Facts) Rung(key string) int {
	text, ok := strings.CutPrefix(key, f.Queue+"@")
	if !ok {
		return 0
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > MaxRungs || key != Key(f.Queue, n) {
		return 0
	}
	return n
}
