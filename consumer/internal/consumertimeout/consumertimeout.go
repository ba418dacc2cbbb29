// Package consumertimeout finds out after how long the broker takes a delivery away from its
// consumer.
package consumertimeout

import (
	"cmp"
	"hash/maphash"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/consumer/internal/durations"
	"github.com/rehop/rehop/consumer/internal/hand"
	"github.com/rehop/rehop/internal/header"
)

// ConsumerTimeout is what is known of the broker's consumer timeout for one queue:
// after how long the broker takes a delivery away. AMQP does not tell. It is safe for
// concurrent use.
//
// Until 4.2 the broker closes the channel and says the figure. From 4.3 on it
// cancels the consumer of a quorum queue, which can mean other things too, but the
// counters of a message that comes back tell: what was taken away for its age has
// been acquired once more and has not failed once more.
//
// Only a figure of the broker ends the ctx of a handler. A guess is enough to give back
// a message that no handler has, because a return spends no attempt.
type ConsumerTimeout struct {
	mu    sync.Mutex
	known time.Duration // the broker's figure, or the one that was asked for; 0: not known
	guess time.Duration // from the ages of messages; 0: none
	seen  time.Duration // the age at the latest cancel
	taken []taken
}

// messageKey tells one message from another of the same id. Copies of one message, as after
// a confirm that did not come, have the same key.
type messageKey struct {
	id, exchange, key string
	body              uint64
}

var bodySeed = maphash.MakeSeed()

func keyOf(raw amqp.Delivery) messageKey {
	return messageKey{raw.MessageId, raw.Exchange, raw.RoutingKey, maphash.Bytes(bodySeed, raw.Body)}
}

// taken is a message that the broker has taken away, or may have.
type taken struct {
	messageKey
	handled  bool // a handler was at it
	certain  bool // it was taken away for its age
	orphan   bool // its consumer was replaced before
	acquired int64
	failed   int64
	age      time.Duration
}

// timedOut reports whether a message that comes again was taken away for its age. The
// broker then counts one more acquisition and no failure, or two, where it handed the
// message to the cancelled consumer once more; when a session ends, it counts one of each.
// An orphan has one more of each, because the broker hands it out once more before it
// closes the channel.
func (t taken) timedOut(raw amqp.Delivery) bool {
	acquired, failed := acquisitions(raw)
	acquired, failed = acquired-t.acquired, failed-t.failed
	return t.certain || acquired >= 1 && failed == 0 || t.orphan && acquired == 2 && failed == 1
}

// latestBefore finds the note of the delivery before raw, and returns its index, -1 for
// none. Only the counters tell copies of one message apart, and a broker before 4.3 has
// none.
func latestBefore(all []taken, raw amqp.Delivery) int {
	if len(all) == 0 {
		return -1 // nearly always
	}
	key := keyOf(raw)
	acquired, failed := acquisitions(raw)
	found := -1
	for i, t := range all {
		if t.messageKey != key {
			continue
		}
		isBefore := acquired == 0 || t.certain || t.acquired < acquired && t.failed <= failed
		if isBefore && (found < 0 || t.acquired > all[found].acquired) {
			found = i
		}
	}
	return found
}

// acquisitions returns how often a message was handed out before, and how often
// that is counted as a failure, as brokers from 4.3 on tell.
func acquisitions(raw amqp.Delivery) (acquired, failed int64) {
	acquired, _ = header.Count(raw.Headers[header.AcquiredCount])
	failed, _ = header.Count(raw.Headers[header.DeliveryCount])
	return acquired, failed
}

const maxTaken = 10_000

// Expect notes the figure that the queue is declared with, or that the consumer asks
// for, unless the broker has told another one. 0 is none.
func (t *ConsumerTimeout) Expect(timeout time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.known = cmp.Or(t.known, timeout)
}

// HandlerLimit returns how long after its arrival a message's handler should
// end, 0 for no limit: there must be time left to settle it.
func (t *ConsumerTimeout) HandlerLimit() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.known - t.known/5
}

// HoldLimit returns how long after its arrival a message is held at most. A handler that
// has it then still has time.
func (t *ConsumerTimeout) HoldLimit() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return HoldLimitOf(cmp.Or(t.known, t.guess))
}

// HoldLimitOf returns the HoldLimit under a consumer timeout, 0 if that is not known.
func HoldLimitOf(timeout time.Duration) time.Duration {
	if timeout > 0 {
		return min(timeout/2, durations.LongestHold)
	}
	return durations.LongestHold
}

// BeginLimit returns how long after its arrival a message is handled for the first time,
// at the latest. The waits are what it may spend in place before its last attempt.
func (t *ConsumerTimeout) BeginLimit(waits time.Duration) time.Duration {
	if waits == 0 {
		return t.assumed() / 4
	}
	limit := t.HoldLimit()
	return max((limit-waits)/2, limit/16)
}

// LeaveLimit returns how long after its arrival a message may stay that no handler has, so
// that handlers of others can end.
func (t *ConsumerTimeout) LeaveLimit() time.Duration { return t.assumed() * 4 / 5 }

// assumed returns the consumer timeout, or the broker's default if it is not known.
func (t *ConsumerTimeout) assumed() time.Duration {
	return cmp.Or(t.Limit(), durations.BrokerTimeout)
}

// TookAway reports, once, whether the broker has taken this message away from a
// handler here.
func (t *ConsumerTimeout) TookAway(raw amqp.Delivery) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := latestBefore(t.taken, raw)
	if i < 0 {
		return false
	}
	was := t.taken[i]
	t.taken = slices.Delete(t.taken, i, i+1)
	if !was.timedOut(raw) {
		return false
	}
	t.guess = was.age
	return was.handled
}

// Cancelled notes that the broker cancelled the consuming while the oldest
// message had been held for age. Two at nearly the same age are taken for the
// timeout, and it reports whether this was one.
func (t *ConsumerTimeout) Cancelled(age time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.guess > 0:
		return age >= t.guess-t.guess/10
	case age < durations.LeastTimeout:
		return false
	case t.seen > 0 && age-t.seen < t.seen/10 && t.seen-age < t.seen/10:
		t.guess = min(t.seen, age)
		return true
	}
	t.seen = age
	return false
}

// Closed notes why a channel was closed, and reports whether that was the
// timeout.
func (t *ConsumerTimeout) Closed(reason *amqp.Error) bool {
	m := timeoutReason.FindStringSubmatch(reason.Reason)
	if reason.Code != amqp.PreconditionFailed || m == nil {
		return false
	}
	if m[1] == noFigure {
		return true
	}
	ms, err := strconv.ParseInt(m[1], 10, 64)
	if err != nil || ms <= 0 || ms > int64(24*365*time.Hour/time.Millisecond) {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.known = time.Duration(ms) * time.Millisecond
	return true
}

// timeoutReason matches the broker's reason for closing a channel at the timeout. From 4.3
// on the broker closes it only for a message whose consumer was replaced, and without a
// figure.
var timeoutReason = regexp.MustCompile(`delivery acknowledgement on channel \d+ timed out.*: (-1|\d+) ms`)

const noFigure = "-1"

// NoteTaken notes messages that the broker has taken away with a session, which of them a handler
// was at, and which were taken away for their age, as far as it is known.
func (t *ConsumerTimeout) NoteTaken(ms []hand.Seen, orphans bool, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.taken)+len(ms) > maxTaken {
		t.taken = nil
	}
	for i, m := range ms {
		if m.Raw.MessageId == "" { // nobody could recognise it
			continue
		}
		was := taken{messageKey: keyOf(m.Raw), handled: m.IsHandled(), age: m.Age(now), orphan: orphans && i == 0}
		was.acquired, was.failed = acquisitions(m.Raw)
		was.certain = t.known > 0 && was.age >= t.known
		t.taken = append(t.taken, was)
	}
}

// GivenBack notes that messages go back to their queue that no worker had. Each is handed
// out once more then.
func (t *ConsumerTimeout) GivenBack(ms []*hand.Message) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, m := range ms {
		if i := latestBefore(t.taken, m.Raw); i >= 0 {
			t.taken[i].acquired++
		}
	}
}

// Limit returns the broker's figure, or the guess; 0 if there is none.
func (t *ConsumerTimeout) Limit() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return cmp.Or(t.known, t.guess)
}
