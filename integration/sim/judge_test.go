package sim

import (
	"slices"
	"strings"
	"time"

	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/integration/account"
	"github.com/rehop/rehop/topology"
	"github.com/rehop/rehop/xdeath"
)

// judge compares what has happened with the model. All consumers have ended.
func (w *world) judge() {
	if c := w.acct.Counts(); c.Unsettled != 0 {
		w.violate("%d deliveries were received and never said to be settled", c.Unsettled)
	}
	if err := w.acct.CheckAttempts(); err != nil {
		w.violate("%v", err)
	}
	if err := w.acct.CheckSaidBut(w.strays); err != nil {
		w.violate("%v", err)
	}
	for _, id := range w.acct.Lost() {
		if !w.deleted(id) {
			w.violate("message %s is lost: %s", id, w.acct.Of(id))
		}
	}
	w.mu.Lock()
	ids := make([]string, 0, len(w.published))
	for id := range w.published {
		ids = append(ids, id)
	}
	w.mu.Unlock()
	for _, id := range ids {
		story := w.acct.Of(id)
		w.judgeLetters(story)
		w.judgeDoubles(story)
		w.judgeReceipts(story)
	}
}

// strays reports whether a part of the topology was away when a delivery was said
// to wait, or while its nack may have been on the way.
func (w *world) strays(at time.Time, _ consumer.Settlement) bool {
	return slices.ContainsFunc(w.away, func(a trouble) bool { return !at.Before(a.from.Add(-onTheWay)) && !at.After(a.to) })
}

// onTheWay is how long a frame may be on the way on a connection that lives.
const onTheWay = 3 * time.Minute

// deleted reports whether a message was in a queue when it was deleted.
func (w *world) deleted(id string) bool { return strings.Contains(w.broker.Story(id), "deleted with") }

func (w *world) judgeLetters(s account.Story) {
	for _, e := range s.Ends {
		if e.Place != account.Letter {
			continue
		}
		ok := false
		switch e.Cause {
		case xdeath.CauseExhausted:
			for _, schedule := range w.schedules {
				ok = ok || e.Attempt > len(schedule) // of the process in which it failed
			}
		case xdeath.CausePermanent:
			ok = w.permanent[s.ID]
		case xdeath.CauseCrashLoop:
			ok = strings.Count(w.broker.Story(s.ID), "given back") >= topology.DeliveryLimit
		case xdeath.CauseExpired, xdeath.CauseRejected:
			ok = w.partsDeleted()
		case "": // a carried copy that found no work queue: an alternate exchange writes no reason
			ok = w.partsDeleted()
		}
		if !ok {
			w.violate("message %s is a letter, %q after attempt %d: %s", s.ID, e.Cause, e.Attempt, s)
		}
	}
}

func (w *world) partsDeleted() bool {
	for _, f := range w.plan.faults {
		if f.kind == deleteQueue || f.kind == deleteX {
			return true
		}
	}
	return false
}

func (w *world) judgeDoubles(s account.Story) {
	if len(s.Ends) < 2 || w.acct.Calls(s.ID) > 1 {
		return
	}
	if !w.inTrouble(w.published[s.ID], s.Ends[len(s.Ends)-1].At) {
		w.violate("message %s is doubled, and there was no fault: %s", s.ID, s)
	}
}

// judgeReceipts counts how often the broker got a message from producers.
func (w *world) judgeReceipts(s account.Story) {
	got := 0
	lines := strings.Split(w.broker.Story(s.ID), "\n")
	for i, line := range lines[:len(lines)-1] {
		from := strings.HasSuffix(line, "published to the queue "+work) || strings.Contains(line, "published to shop with the key ")
		if from && !strings.HasSuffix(lines[i+1], "no queue takes it") {
			got++
		}
	}
	if sent := s.Calls - w.denied[s.ID]; got > sent && !s.Twice {
		w.violate("message %s came %d times from %d calls of Publish, of which %d said that it was not sent: %s", s.ID, got, s.Calls, w.denied[s.ID], s)
	}
}
