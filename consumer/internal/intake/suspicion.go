package intake

import (
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer/internal/durations"
	"github.com/rehop/rehop/consumer/internal/hand"
	"github.com/rehop/rehop/xdeath"
)

// A message of which consumers may have died is suspect. A session of a queue with a
// delivery limit starts with one message at a time, until it has met a message of which few
// consumers may have died, or none: a crash then counts against the guilty message alone and not
// against those that were fetched with it. A message that is not suspect yet says nothing of those behind
// it, which may have been in the hands of another process that died. A session in order starts with its full prefetch.
// When it meets a suspect it ends, and the next sessions have one message at a time.

// suspicion is what a session has seen of suspects.
type suspicion struct {
	half int       // of the delivery limit; 0: nothing is suspect
	wary bool      // a quarter of the delivery limit of the latest message is used up
	over bool      // a message has come of which that is not so
	last time.Time // when a message came last of which that is so
}

// first returns the prefetch that a session starts with.
func (s *suspicion) first(prefetch int) int {
	if s.half > 0 {
		return 1
	}
	return prefetch
}

// judge returns how often consumers have died while they had a message, if half of its delivery limit, or
// more, is used up: it is suspect. Else it returns 0. Of its returns, so many were no deaths.
//
// No broker tells a crash from a lost connection, so both count. A message that is held
// through many reconnects is suspect too, until its handler has returned.
func (s *suspicion) judge(queue string, raw amqp.Delivery, v connection.Version, returns int, now time.Time) (deaths int) {
	if s.wary = false; s.half == 0 {
		return 0
	}
	if len(raw.Headers) > 0 { // few messages, and none that comes for the first time
		history, _ := xdeath.Parse(raw.Headers) // malformed headers are logged when the message is handled
		crashes := history.DeliveryCount - returns
		if !v.AtLeast(4, 3) {
			crashes -= history.Count(queue, xdeath.ReasonRejected) // counted too, on 4.0 to 4.2
		}
		if s.wary = crashes >= s.half || raw.Redelivered && crashes >= max(1, s.half/2); s.wary { // else a publisher may have written it
			s.last = now
		}
		if crashes >= s.half {
			return crashes
		}
	}
	s.over = s.over || !s.wary
	return 0
}

// oneAtATime reports whether consumers may have died of each message that the session has met. Then it has one untried message
// in hand at a time, so that a crash counts against no other.
func (s *suspicion) oneAtATime() bool { return s.half > 0 && !s.over }

// another reports whether one more message may come to such a session. The broker counts for each consumer of a channel anew, so
// that message gets a consumer of its own. A message that is settled makes no room for it: its ack may be on its way, and
// brings the next one by itself. It brings a second one where it is written while the consumer is replaced.
func (s *suspicion) another(in hand.Counts, now time.Time) bool {
	if in.Untried > 0 {
		return in.Recent > 0 && now.Sub(s.last) >= durations.Uncleared // its handler has been at work for long
	}
	return in.Recent > 0 && in.Recent == in.Retained
}
