// Package account follows every message of a test by its id and says in the end
// what became of it.
//
// What must be true of each message, whatever was broken meanwhile:
//
//   - It is not lost. A message is safe when a call of Publish has returned nil;
//     from then on it must end somewhere: handled, as a letter in the dead-letter
//     queue, or found in a queue when the test looked there. See [Account.Lost].
//   - Its attempts are right: within the schedule, none left out, none before its
//     wait has ended. See [Account.Check].
//   - What was said of it is true: where [consumer.Trace] said that a delivery had
//     gone, the message was seen afterwards. See [Account.Check].
//
// A message that ends more than once is doubled, which is allowed; see
// [Account.Doubled] for where the further ends come from.
//
// All is at rest when no call of Publish and no handler is under way, every
// delivery was settled, no queue holds a message, and every safe message has
// ended. See [Account.Rest].
package account

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/delay"
)

// Account is that of the messages of one work queue. It is safe for concurrent
// use.
type Account struct {
	queue string
	waits delay.Schedule
	tick  time.Duration // by how much less a wait may be short

	inPlace bool // counts of attempts may begin anew
	nacks   bool // nobody confirms that a message waits

	mu       sync.Mutex
	start    time.Time
	messages []message // by number; the first is none
	counts   Counts
	strange  []string // what no message of ours can have done
	last     time.Time
}

// Counts are of messages, where they do not say otherwise.
type Counts struct {
	Numbered  int // have an id
	Safe      int
	Open      int // safe and not ended
	Handled   int // ended, for the first time, by a handler
	Letters   int // likewise in the dead-letter queue
	Found     int // likewise in another queue
	Unsettled int // deliveries that were received and not settled
	Runs      int // of the handler
	Running   int // handlers
	Failures  int // runs that have failed
	InFlight  int // calls of Publish
	Failed    int // calls of Publish that returned an error
	Unknown   int // those of them that ended unconfirmed
}

// New returns the account of a work queue. It has room for so many messages: an
// ordinary one needs no more memory later on.
func New(queue string, waits delay.Schedule, room int) *Account {
	now := time.Now()
	return &Account{queue: queue, waits: waits, tick: brokerTick, start: now, last: now, messages: make([]message, 1, room+1)}
}

// Exact returns the account of a broker with the clock of this process, which ends
// no wait early at all. It is called before anything else.
func (a *Account) Exact() *Account {
	a.tick = 1
	return a
}

// InPlace says that consumers retry in place: the count of attempts of a message begins
// anew when it comes again. It is called before anything else.
func (a *Account) InPlace() *Account {
	a.inPlace = true
	return a
}

// Nacks says that consumers nack failed messages. Nobody confirms that such a message waits: a
// consumer says so, too, that has lost its connection and does not know it yet. It is called before anything else.
func (a *Account) Nacks() *Account {
	a.nacks = true
	return a
}

// Next returns the id of a new message.
func (a *Account) Next() (id string) {
	a.write(func(time.Time) {
		a.messages = append(a.messages, message{})
		a.counts.Numbered++
		id = a.id(len(a.messages) - 1)
	})
	return id
}

// Number returns the number of a message, from 1 in the order of Next, and 0 for
// an id that is none of ours.
func (a *Account) Number(id string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.number(id)
}

// Numbered returns how many messages there are.
func (a *Account) Numbered() int { return a.Counts().Numbered }

// Calling notes that Publish is called, and returns which call it is for this
// message, from 1.
func (a *Account) Calling(id string) (call int) {
	a.change(id, "is published", func(_ time.Time, h *history) {
		a.counts.InFlight++
		h.calls++
		call = int(h.calls)
	})
	return call
}

// Called notes how a call of Publish has ended. It may have sent the message
// twice, or ended without an answer.
func (a *Account) Called(id string, twice, unknown bool, err error) {
	a.change(id, "is published", func(_ time.Time, h *history) {
		a.counts.InFlight--
		h.twice = h.twice || twice
		switch {
		case err == nil:
			if !h.safe {
				a.counts.Safe++
				if len(h.ends) == 0 {
					a.counts.Open++
				}
			}
			h.safe = true
		case unknown:
			a.counts.Unknown++
			fallthrough
		default:
			a.counts.Failed++
		}
	})
}

// Run is one run of the handler.
type Run struct {
	Attempt     int
	Redelivered bool
	Call        int       // of Publish that the message came from
	By          string    // who ran it, where there are several
	Began       time.Time // set by Begin
	Ended       time.Time // set by the end; zero while it runs
	Failed      bool
	Due         time.Time // of a failure: the next attempt must not begin before
}

// Begin notes that a handler begins, and returns what notes its end. A failure
// has the time before which the next attempt must not begin, zero if there is
// none.
func (a *Account) Begin(id string, r Run) (end func(failed bool, due time.Time)) {
	var i int
	a.change(id, "is handled", func(now time.Time, h *history) {
		a.counts.Runs++
		a.counts.Running++
		r.Began = now
		i = len(h.runs)
		h.runs = append(h.runs, r)
	})
	return func(failed bool, due time.Time) {
		a.change(id, "was handled", func(now time.Time, h *history) {
			a.counts.Running--
			if i >= len(h.runs) {
				return // of a message that is none of ours
			}
			run := &h.runs[i]
			run.Ended, run.Failed, run.Due = now, failed, due
			if failed {
				a.counts.Failures++
				return
			}
			a.end(h, End{Place: Handled, At: now, Attempt: run.Attempt, Call: run.Call, Redelivered: run.Redelivered})
		})
	}
}

// Received notes that a delivery has arrived that is still to be settled.
func (a *Account) Received(id string) {
	a.change(id, "is received", func(time.Time, *history) { a.counts.Unsettled++ })
}

// Said notes what was said of a delivery when it was settled.
func (a *Account) Said(id string, attempt int, s consumer.Settlement) {
	a.change(id, "is put off", func(now time.Time, h *history) {
		a.counts.Unsettled--
		h.claims = append(h.claims, claim{now, attempt, s})
	})
}

// Again notes that a delivery was put off that had come again. Its handler may not have had it, where it was not due.
func (a *Account) Again(id string, r Run) {
	a.change(id, "is put off", func(now time.Time, h *history) {
		r.Began = now
		h.again = append(h.again, r)
	})
}

// Letter notes a message that was found in the dead-letter queue.
func (a *Account) Letter(id string, cause rehop.Cause, attempts, call int, redelivered bool) {
	a.change(id, "is a letter", func(now time.Time, h *history) {
		a.end(h, End{Place: Letter, At: now, Cause: cause, Attempt: attempts, Call: call, Redelivered: redelivered})
	})
}

// Found notes a message that lay in a wait, or in the work queue, when it was taken from
// there, with the attempts that its headers count.
func (a *Account) Found(id, queue string, attempts, call int, redelivered bool) {
	a.change(id, "is found", func(now time.Time, h *history) {
		a.end(h, End{Place: Queue, At: now, Queue: queue, Waits: queue != a.queue, Attempt: attempts, Call: call, Redelivered: redelivered})
	})
}

// end needs a.mu held.
func (a *Account) end(h *history, e End) {
	h.ends = append(h.ends, e)
	if len(h.ends) > 1 {
		return
	}
	if h.safe {
		a.counts.Open--
	}
	switch e.Place {
	case Handled:
		a.counts.Handled++
	case Letter:
		a.counts.Letters++
	case Queue:
		a.counts.Found++
	}
}

// Counts returns the counts of now.
func (a *Account) Counts() Counts {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.counts
}

// Quiet returns for how long nothing has moved.
func (a *Account) Quiet() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return time.Since(a.last)
}

func (a *Account) write(what func(now time.Time)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last = time.Now()
	what(a.last)
}

// change changes what is known of one message.
func (a *Account) change(id, event string, what func(now time.Time, h *history)) {
	a.write(func(now time.Time) {
		n := a.number(id)
		if n == 0 {
			a.strange = append(a.strange, fmt.Sprintf("message %q %s, and is none of ours", id, event))
			what(now, &history{}) // the counts count it
			return
		}
		h := a.messages[n].unfold(a.start)
		what(now, h)
		a.messages[n].fold(h, a.start)
	})
}

func (a *Account) id(n int) string { return a.queue + "/" + strconv.Itoa(n) }

// number needs a.mu held.
func (a *Account) number(id string) int {
	digits, ok := strings.CutPrefix(id, a.queue+"/")
	n, err := strconv.Atoi(digits)
	if !ok || err != nil || n < 1 || n >= len(a.messages) || a.id(n) != id {
		return 0
	}
	return n
}
