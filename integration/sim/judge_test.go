package sim

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/integration/account"
	"github.com/rehop/rehop/internal/route"
	"github.com/rehop/rehop/topology"
)

// judge compares what has happened with the model. All consumers have ended.
func (w *trial) judge() {
	if c := w.acct.Counts(); c.Unsettled != 0 {
		w.violate("%d deliveries were received and never said to be settled", c.Unsettled)
	}
	if err := w.acct.CheckAttemptsBut(w.due); err != nil {
		w.violate("%v", err)
	}
	if err := w.acct.CheckSaidBut(w.strays); err != nil {
		w.violate("%v", err)
	}
	for name, n := range w.networks {
		if n.storm {
			w.violate("%s has dialled %d times within %v", name, n.most, stormTime)
		}
	}
	w.judgeDiversions()
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
		w.judgeSnoozes(story)
	}
}

// strays reports whether a part of the topology was away when a delivery was said
// to wait, or while its nack may have been on the way. The message of a handler that was at
// work when a queue was deleted may be deleted with it.
func (w *trial) strays(at time.Time, _ consumer.Settlement) bool {
	return slices.ContainsFunc(w.away, func(a absence) bool {
		return a.around(at) || a.kind == deleteQueue && a.around(at.Add(-w.plan.handlers.longest()))
	})
}

// due returns before which time no attempt must follow a failed run. A nack names no wait:
// if its wait queue, or an exchange before it, is missing when the nack arrives, the broker brings the message to the
// first wait. The process that gets it from there knows only its own schedule, and makes up for the rest of that.
func (w *trial) due(r account.Run) time.Time {
	due := w.dueByOtherClocks(r)
	if !w.nacks() || r.Attempt < 2 || !w.wayWasAway(r.Attempt, r.Ended) {
		return due
	}
	if !w.isOfASchedule(r) {
		return due // a RetryAfter, which no nack can say
	}
	for _, s := range w.schedules {
		wait := w.shortestFirst()
		if len(s) >= r.Attempt { // else the process knows of no such wait, and thinks that it is over
			wait = s[r.Attempt-1]
		}
		if sooner := r.Ended.Add(wait); sooner.Before(due) {
			due = sooner
		}
	}
	return due
}

// dueByOtherClocks returns before which time no attempt must follow a failed run, where the
// clocks of processes are apart. A carrier ends a wait by its own clock. So does the
// process that gets a message whose RetryAfter was longer than all waits, after the longest
// of them.
func (w *trial) dueByOtherClocks(r account.Run) time.Time {
	least := r.Due.Sub(r.Ended)
	switch {
	case w.carries():
		least = 0
	case w.isOfASchedule(r):
		return r.Due
	default:
		for _, s := range w.schedules {
			if len(s) > 0 {
				least = min(least, slices.Max(s))
			}
		}
	}
	return r.Ended.Add(max(least, r.Due.Sub(r.Ended)-w.apart()))
}

// isOfASchedule reports whether a failed run is followed by a wait of a schedule, and not
// by a RetryAfter.
func (w *trial) isOfASchedule(r account.Run) bool {
	return slices.ContainsFunc(w.schedules, func(s delay.Schedule) bool { return len(s) >= r.Attempt && r.Due.Equal(r.Ended.Add(s[r.Attempt-1])) })
}

// carries reports whether processes bring messages back from their waits.
func (p plan) carries() bool {
	return p.engine == topology.EngineCarry || p.engine == topology.EngineAuto && p.version == "3.10"
}

// nacks reports whether failed messages are nacked.
func (p plan) nacks() bool {
	return p.engine == topology.EngineNack || p.engine == topology.EngineAuto && p.kind == topology.Quorum && p.version != "3.10"
}

// shortestFirst is the least that a message waits in the first wait of a schedule.
func (p plan) shortestFirst() time.Duration {
	shortest := time.Duration(math.MaxInt64)
	for _, s := range p.schedules {
		if len(s) > 0 {
			shortest = min(shortest, s[0])
		}
	}
	return shortest
}

// wayWasAway reports whether a wait, or an exchange that leads to it, may have been
// missing when a nack of this time arrived.
func (w *trial) wayWasAway(wait int, at time.Time) bool {
	return slices.ContainsFunc(w.away, func(a absence) bool {
		leads := a.kind == deleteQueue && a.target == fmt.Sprintf(".wait.%d", wait) ||
			a.kind == deleteX && (a.target == ".rehop.dlx" || a.target == ".rehop.delay")
		return leads && a.around(at)
	})
}

// onTheWay is how long a frame may be on the way on a connection that lives.
const onTheWay = 3 * time.Minute

// around reports whether a part was away when what was written at a time arrived.
func (a absence) around(at time.Time) bool {
	return !at.Before(a.from.Add(-onTheWay)) && !at.After(a.to)
}

// deleted reports whether a message was in a queue when it was deleted.
func (w *trial) deleted(id string) bool { return strings.Contains(w.broker.Story(id), "deleted with") }

func (w *trial) judgeLetters(s account.Story) {
	for _, e := range s.Ends {
		if e.Place != account.Letter {
			continue
		}
		ok := false
		switch e.Cause {
		case rehop.CauseExhausted:
			for _, schedule := range w.schedules {
				ok = ok || e.Attempt > len(schedule) // of the process in which it failed
			}
		case rehop.CausePermanent:
			ok = w.permanent[s.ID]
		case rehop.CauseCrashLoop:
			guilty := w.interruptions() >= route.DeliveryLimit/4 || w.isCrasher(s.ID) || w.wasStuck(s.ID)
			ok = guilty && strings.Count(w.broker.Story(s.ID), "given back") >= route.DeliveryLimit
		case rehop.CauseRejected: // a nack has found no wait
			ok = w.queuesDeleted()
		case rehop.CauseExpired: // what has waited has found no work queue
			ok = w.queuesDeleted()
		case "": // a carried copy likewise: an alternate exchange writes no reason
			ok = w.queuesDeleted()
		}
		if !ok {
			w.violate("message %s is a letter, %q after attempt %d: %s", s.ID, e.Cause, e.Attempt, s)
		}
	}
}

// interruptions is how often consumers may have lost their sessions, or stopped. Each
// may give a message back several times; a message that is held is not given
// back so often as to become a letter.
func (w *trial) interruptions() int {
	n := len(w.plan.faults)
	for _, c := range w.plan.consumers {
		n += len(c.lives) - 1
	}
	return n
}

func (w *trial) queuesDeleted() bool {
	return slices.ContainsFunc(w.plan.faults, func(f fault) bool { return f.kind == deleteQueue })
}

func (w *trial) judgeDoubles(s account.Story) {
	if len(s.Ends) < 2 || w.acct.Calls(s.ID) > 1 {
		return
	}
	if !w.inTrouble(w.published[s.ID], s.Ends[len(s.Ends)-1].At, aftermath) {
		w.violate("message %s is doubled, and there was no fault: %s", s.ID, s)
	}
}

// settledIn is how long after a fault all connections are as they were.
const settledIn = 5 * time.Minute

// judgeDiversions looks at what fallbacks were given. Where nothing takes time, only
// a fault is a reason for it. Places that let others go first take some milliseconds each.
func (w *trial) judgeDiversions() {
	for _, d := range w.diverted {
		quick := yieldsTakeTime && d.after > 0
		if w.latency == 0 && !quick && !w.inTrouble(d.at, d.at, settledIn) {
			w.violate("message %s went to the fallback at %v, and there was no fault: %v", d.id, d.at.Sub(w.began), d.cause)
		}
	}
}

// fromShop is the line of a story in which a message comes from a producer, not from a wait.
var fromShop = regexp.MustCompile(`published to the queue ` + work + `(\.\d\d)?$`)

// judgeReceipts counts how often the broker got a message from producers.
func (w *trial) judgeReceipts(s account.Story) {
	got := 0
	lines := strings.Split(w.broker.Story(s.ID), "\n")
	for i, line := range lines[:len(lines)-1] {
		from := fromShop.MatchString(line) || strings.Contains(line, "published to shop with the key ")
		if from && !strings.HasSuffix(lines[i+1], "no queue takes it") {
			got++
		}
	}
	if sent := s.Calls - w.denied[s.ID]; got > sent && !s.Twice {
		w.violate("message %s came %d times from %d calls of Publish, of which %d said that it was not sent: %s", s.ID, got, s.Calls, w.denied[s.ID], s)
	}
}
