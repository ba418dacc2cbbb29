// Package route is what a consumer has to know about the queue that it reads: what
// belongs to the queue, where a failed attempt waits, where a dead letter goes, and
// what has come back from a wait.
//
// [Facts] are a value, and all that they say is a pure function of it. Package topology
// makes routes and asks the broker for the rest: see [Of] and [Broker].
package route

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/rehop/rehop/internal/levels"
)

// MaxWaits is the largest number of waits of a work queue.
const MaxWaits = 16

// DeliveryLimit is the x-delivery-limit of a quorum work queue: how often a message
// may come back unsettled, because its consumer died, before the broker moves it to
// the dead-letter queue. It is the default of broker 4.x, set on every version.
const DeliveryLimit = 20

// Target is a topology.Address.
type Target struct{ Exchange, RoutingKey string }

// IsZero reports whether no address is given.
func (a Target) IsZero() bool { return a == Target{} }

func (a Target) String() string {
	if a.Exchange == "" {
		return fmt.Sprintf("queue %q", a.RoutingKey)
	}
	return fmt.Sprintf("exchange %q, key %q", a.Exchange, a.RoutingKey)
}

// The engines. Republish is right in every wiring where waits have a TTL, so a
// consumer that knows no better uses it.
const (
	Auto      = ""
	Nack      = "nack"
	Republish = "republish"
	Carry     = "carry"
)

// Kind is what declares the queue of a route.
type Kind uint8

const (
	Foreign Kind = iota // others: a topology.Route that was written by hand
	Work                // a topology.WorkQueue
	Letters             // a topology.DeadLetterQueue
)

// Facts is what is known of one queue. The zero values of its fields say that
// nothing is known.
type Facts struct {
	Queue string
	Kind  Kind

	// Existing says of a Work queue that others declare the queue itself.
	Existing bool
	// ByPriority says that the queue hands out messages by their priority.
	ByPriority bool
	// Single says that the broker delivers the queue to one consumer at a time.
	Single bool

	// Engine is how failed attempts reach their wait, never Auto, and Why is the
	// reason, "" if that is not known.
	Engine string
	Why    string

	// Waits between attempts, the first first.
	Waits []Wait
	// Return is the exchange through which messages come back from the waits of a
	// Work queue.
	Return string
	// Carried are the wait queues without a TTL. Whoever consumes Queue brings back
	// what is due in them, those of a schedule longer than its own included.
	Carried []CarriedWait
	// Delays are the exact delays that lead to Queue and whose every hop the broker
	// confirms, the finest grain first.
	Delays []levels.Delays

	// DeadLetter is where the consumer sends what failed for good; zero: no such
	// place is known.
	DeadLetter Target

	// DeliveryLimit is how often the broker hands out a message of this queue that
	// comes back unsettled, or 0 if that is unlimited or unknown.
	DeliveryLimit int

	// ConsumerTimeout is after how long the broker takes a message away, 0 if that is not
	// known. AsksForTimeout says that a consumer has to ask for it.
	ConsumerTimeout time.Duration
	AsksForTimeout  bool

	// Unseen says that the consumer may not look at the arguments of its waits. They
	// may be without a TTL, and nobody may carry them.
	Unseen bool
	// Denied is why the engine is not Nack as planned: the permission that is missing.
	Denied error

	// Lane is the name of the lane that the queue is, "" if it is none, and Share is
	// that of the lane.
	Lane  string
	Share int

	// Broker asks the broker about the queue.
	Broker Broker
}

// Wait is one wait of a route.
type Wait struct {
	For time.Duration

	// At is where a copy of a message is published to that is to wait this long.
	At Target

	// Nack says that a message which is due this wait lands there when it is nacked
	// without requeue.
	Nack bool
}

// CarriedWait is a wait queue without a TTL, and the number of its wait, from 1.
type CarriedWait struct {
	Queue  string
	Number int
	For    time.Duration // the wait of every message in it; 0: not known
}

// CarriedLength and the milliseconds of a wait are the x-max-length of the queue of a
// carried wait. It is never reached, but makes the broker refuse a declaration for another
// wait.
const CarriedLength = 1_000_000_000_000

// WaitQueue returns the name of the queue for a wait of a work queue.
func WaitQueue(queue string, waitNumber int) string {
	return queue + ".wait." + strconv.Itoa(waitNumber)
}

// CarriedQueue returns the name of the nth queue without a TTL for the wait of a
// number, counted from 1. Each of them is for another duration. They are declared in
// order, so that a consumer which knows none of the durations finds all the queues.
func CarriedQueue(queue string, waitNumber, nth int) string {
	if nth == 1 {
		return WaitQueue(queue, waitNumber)
	}
	return WaitQueue(queue, waitNumber) + "." + strconv.Itoa(nth)
}

// MembersQueues returns what the names of the queues begin with that count the processes which
// consume Shards. The number of shards follows.
func MembersQueues(shards string) string { return shards + ".members." }

// SeatQueues returns what the names of the queues begin with of which each of those processes has
// one. The number of shards and that of the seat follow.
func SeatQueues(shards string) string { return shards + ".seat." }

// waitName is the name of a wait queue: by WaitQueue or CarriedQueue, or with its wait
// behind that.
var waitName = regexp.MustCompile(`(?s)^(.+)\.wait\.([1-9][0-9]?)(?:\.[0-9][0-9hms.]*)?$`)

// WaitOf returns the work queue and the number of the wait that a queue has by its name,
// and false for a queue that is no wait.
func WaitOf(name string) (queue string, waitNumber int, ok bool) {
	m := waitName.FindStringSubmatch(name)
	if m == nil {
		return "", 0, false
	}
	n, err := strconv.Atoi(m[2])
	return m[1], n, err == nil && n <= MaxWaits
}

// Key is the routing key with which a message of queue leaves a wait, whatever
// brings it back.
func Key(queue string, waitNumber int) string { return queue + "@" + strconv.Itoa(waitNumber) }

// Returned reports whether a delivery that came through exchange was in one of
// the waits, or in the levels of exact delays, where a message that was not handled
// yet counts no attempt. It is false for every queue but a Work queue, because the
// waits of the others are not known.
func (r Facts) Returned(exchange string) bool {
	return r.Kind == Work && (exchange == r.Return || levels.Is(exchange))
}

// Back returns where a message is published to whose time in a wait is over.
func (r Facts) Back(waitNumber int) Target {
	return Target{r.Return, Key(r.Queue, waitNumber)}
}

// End returns where a message is published to that goes to the end of the queue
// before this attempt, as one that has come back from a wait.
func (r Facts) End(attempt int) Target {
	if r.Kind != Work {
		return Target{RoutingKey: r.Queue}
	}
	return r.Back(max(attempt-1, 1))
}

// AtLeast returns the number of the shortest wait that is not shorter than d, and of
// equal waits the lowest. It returns false if there is none.
func (r Facts) AtLeast(d time.Duration) (waitNumber int, ok bool) {
	for i, w := range r.Waits {
		if w.For >= d && (waitNumber == 0 || w.For < r.Waits[waitNumber-1].For) {
			waitNumber = i + 1
		}
	}
	return waitNumber, waitNumber > 0
}

// AtMost returns the longest wait that is not longer than d. It returns false if all
// are longer.
func (r Facts) AtMost(d time.Duration) (waitNumber int, ok bool) {
	for i, w := range r.Waits {
		if w.For <= d && (waitNumber == 0 || w.For > r.Waits[waitNumber-1].For) {
			waitNumber = i + 1
		}
	}
	return waitNumber, waitNumber > 0
}

// Exact is a way through exact delays to the queue of a route.
type Exact struct {
	To    Target
	Takes time.Duration
}

// Exactly returns a way that takes d, or little more. It returns false if there is
// none.
func (r Facts) Exactly(d time.Duration, priority uint8) (Exact, bool) {
	for _, delays := range r.Delays {
		after := max(d, delays.Levels.Grain)
		exchange, key, takes, err := delays.Way(levels.Target{RoutingKey: r.Queue}, after, priority)
		if err == nil {
			return Exact{Target{exchange, key}, takes}, true
		}
	}
	return Exact{}, false
}

// Furthest returns the longest of the exact delays, or 0.
func (r Facts) Furthest() (longest time.Duration) {
	for _, delays := range r.Delays {
		longest = max(longest, delays.Levels.Max)
	}
	return longest
}

// NackLandsOn returns the number of the wait in which a message with these routing
// keys (its own and those of CC) lands when it is nacked without requeue. It returns
// 0 if that is not a wait of this schedule, is not known, or is several queues.
func (r Facts) NackLandsOn(keys ...string) int {
	lands := 0
	for i, key := range keys {
		waitNumber := r.WaitNumber(key) + 1 // the next, and wait 1 at the first failure
		if i > 0 && waitNumber != lands || waitNumber > len(r.Waits) || !r.Waits[waitNumber-1].Nack {
			return 0
		}
		lands = waitNumber
	}
	return lands
}

// WaitNumber returns the number of the wait that a message with this routing key has
// left, and 0 for a key that is not of such a message.
func (r Facts) WaitNumber(key string) int {
	queue, waitNumber := keyOf(key)
	if queue != r.Queue {
		return 0
	}
	return waitNumber
}

// IsWaitKey reports whether a routing key is one with which messages of some queue leave
// a wait. No client may send a message with such a key in CC or BCC: the wiring of that
// queue would take it for one that has waited.
func IsWaitKey(key string) bool {
	_, waitNumber := keyOf(key)
	return waitNumber > 0
}

// keyOf returns the queue and the wait that a routing key is of, see Key, and no wait
// for any other key.
func keyOf(key string) (queue string, waitNumber int) {
	at := strings.LastIndexByte(key, '@')
	if at < 0 {
		return "", 0
	}
	n, err := strconv.Atoi(key[at+1:])
	if err != nil || n < 1 || n > MaxWaits || key != Key(key[:at], n) {
		return "", 0
	}
	return key[:at], n
}
