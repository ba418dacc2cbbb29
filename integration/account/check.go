package account

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/consumer"
)

// Check returns what is wrong with the attempts of all messages, and with what
// was said of them. Call it when all consumers have ended.
func (a *Account) Check() error { return errors.Join(a.CheckAttempts(), a.CheckSaid()) }

// Verdict returns Check's error together with the messages that are lost.
func (a *Account) Verdict() error {
	var lost error
	if ids := a.Lost(); len(ids) > 0 {
		lost = fmt.Errorf("%d messages are lost: %s", len(ids), a.Tell(ids))
	}
	return errors.Join(lost, a.Check())
}

// CheckAttempts is the part of Check about attempts, and about messages that
// are none of ours.
func (a *Account) CheckAttempts() error {
	return a.CheckAttemptsBut(func(r Run) time.Time { return r.Due })
}

// CheckAttemptsBut is CheckAttempts for a test that takes waits away. A message that
// was nacked to a wait which is missing waits as long as the next process thinks right. due
// says, of a run that has failed, before which time the next attempt must not begin.
func (a *Account) CheckAttemptsBut(due func(r Run) time.Time) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	var faults []error
	for _, s := range a.strange {
		faults = append(faults, errors.New(s))
	}
	return a.check(faults, func(h *history) []string { return h.attempts(a, due) })
}

// CheckSaid is the part of Check about what was said of deliveries.
func (a *Account) CheckSaid() error {
	return a.CheckSaidBut(func(time.Time, consumer.Settlement) bool { return false })
}

// CheckSaidBut is CheckSaid for a test that takes parts of the wiring away. A nack
// has no confirm, so nobody is told that it has led to the dead-letter queue. strays
// says whether this may have become of what was said at a time to wait: the letter
// that the broker has made of it is then as good as the wait.
func (a *Account) CheckSaidBut(strays func(at time.Time, s consumer.Settlement) bool) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	var faults []error
	if n := a.counts.Unsettled; n != 0 {
		faults = append(faults, fmt.Errorf("%d deliveries were received and never said to be settled", n))
	}
	return a.check(faults, func(h *history) []string { return h.untrue(a.nacks, strays) })
}

// check needs a.mu held.
func (a *Account) check(faults []error, of func(*history) []string) error {
	for n := range a.messages {
		h := a.messages[n].history
		if h == nil {
			continue // nothing, or all of it as it should be
		}
		for _, fault := range of(h) {
			faults = append(faults, fmt.Errorf("message %s: %s\n\t%s", a.id(n), fault, h))
		}
	}
	if n := len(faults); n > 5 {
		faults = append(faults[:5], fmt.Errorf("and %d faults more", n-5))
	}
	return errors.Join(faults...)
}

// brokerTick is what the clock of a real broker counts in, which ends waits.
const brokerTick = time.Millisecond

// attempts returns what is wrong with them:
//   - they are within the schedule, and none is left out;
//   - none begins a tick or more before the wait after the one before it has ended;
//   - they never decrease, but for late deliveries, whose counts end with them. A message and its duplicate
//     each have a count of their own, so there it holds only that nothing begins
//     before what comes before it;
//   - a message that waits has headers that count the attempts it has had, or one
//     less where the last one was put off.
//
// In place they may begin anew when the message comes again, and its headers then count
// only those of the latest time.
func (h *history) attempts(a *Account, dueOf func(r Run) time.Time) (faults []string) {
	waits, inPlace := len(a.waits), a.inPlace
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	began := map[int]time.Time{} // when an attempt first began
	due := map[int]time.Time{}   // when the one after it was first due
	latest, highest := 0, 0
	for _, r := range h.runs {
		if r.Attempt < 1 || r.Attempt > waits+1 {
			fault("attempt %d, want 1 to %d", r.Attempt, waits+1)
		}
		if inPlace && r.Redelivered {
			latest = r.Attempt
		}
		if !h.late(r, a) {
			if r.Attempt < latest && len(h.ends) == 1 && h.calls < 2 && !h.twice {
				fault("attempt %d after attempt %d, and there is only one of it", r.Attempt, latest)
			}
			latest = max(latest, r.Attempt)
		}
		highest = max(highest, r.Attempt)
		if at, ok := began[r.Attempt]; !ok || r.Began.Before(at) {
			began[r.Attempt] = r.Began
		}
		if !r.Failed || r.Due.IsZero() {
			continue
		}
		if at, ok := due[r.Attempt]; !ok || dueOf(r).Before(at) {
			due[r.Attempt] = dueOf(r)
		}
	}
	for attempt := 2; attempt <= highest; attempt++ {
		at, ok := began[attempt]
		if !ok {
			continue // the one after it is reported
		}
		switch until, failed := due[attempt-1]; {
		case !failed:
			fault("attempt %d without a failed attempt %d", attempt, attempt-1)
		case until.Sub(at) >= a.tick:
			fault("attempt %d came %v before its wait had ended", attempt, until.Sub(at))
		}
	}
	for _, e := range h.ends {
		least := highest
		if h.snoozed(highest) > 0 { // it waits to run the same attempt
			least--
		}
		if e.Place == Queue && (e.Attempt > highest || e.Waits && e.Attempt < least && len(h.ends) == 1 && !inPlace) {
			fault("it lies in %s after %d attempts, and has had %d", e.Queue, e.Attempt, highest)
		}
	}
	return faults
}

// late reports whether a run is of a delivery whose connection was lost before the run began, which the
// process did not know. Two events show it. Another consumer had begun with the same message, delivered again, or had put
// it off: with the attempt of this run or, in place, with one from which the process went on counting in memory, one by one. And
// afterwards the delivery was said to have gone back, in place perhaps after further attempts. If it is nacked before
// its connection is known to be lost, it is said to wait, and the nack reaches nobody.
func (h *history) late(r Run, a *Account) bool {
	first := r.Attempt
	if a.inPlace {
		first = h.countsFrom(r)
	}
	again := func(other Run) bool {
		return first <= other.Attempt && other.Attempt <= r.Attempt && other.Redelivered && other.By != r.By && other.Began.Before(r.Began)
	}
	givenBack := func(c claim) bool {
		own := c.attempt == r.Attempt || a.inPlace && c.attempt > r.Attempt
		nacked := a.nacks && c.Disposition == consumer.DispositionWait
		return own && (nacked || c.Disposition == consumer.DispositionRequeued) && !c.at.Before(r.Began)
	}
	return (slices.ContainsFunc(h.runs, again) || slices.ContainsFunc(h.again, again)) && slices.ContainsFunc(h.claims, givenBack)
}

// countsFrom returns the first of the attempts that the same process has counted one by one up
// to a run, in deliveries that look the same.
func (h *history) countsFrom(r Run) int {
	first := r.Attempt
	for _, before := range slices.Backward(h.runs) {
		if before.By != r.By || !before.Began.Before(r.Began) {
			continue
		}
		if before.Attempt != first-1 || before.Redelivered != r.Redelivered {
			break
		}
		first--
	}
	return first
}

// untrue returns what was said of deliveries and is not so. A message that has
// ended nowhere is lost, and is reported as that.
func (h *history) untrue(nacks bool, strays func(at time.Time, s consumer.Settlement) bool) (faults []string) {
	if len(h.ends) == 0 {
		return nil
	}
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	said := map[int]int{} // how often an attempt was said to be done
	for _, c := range h.claims {
		switch c.Disposition {
		case consumer.DispositionDone:
			said[c.attempt]++
			if n := h.handled(c.attempt); said[c.attempt] > n {
				fault("said to be done in attempt %d %d times, which succeeded %d times", c.attempt, said[c.attempt], n)
			}
		case consumer.DispositionWait:
			if !h.seenAfterWait(c, nacks) && (!h.strayed(c) || !strays(c.at, c.Settlement)) {
				fault("said to be in a wait after attempt %d, and neither came back as the next nor is in a wait", c.attempt)
			}
		case consumer.DispositionDeadLetter:
			if !slices.ContainsFunc(h.ends, func(e End) bool {
				return e.Place == Letter && (c.Cause == "" || e.Cause == c.Cause && e.Attempt == c.attempt)
			}) {
				fault("said to be a letter, %s, after attempt %d, and none was found", c.Cause, c.attempt)
			}
		case consumer.DispositionRequeued:
		default:
			fault("said to be at place %q", c.Disposition)
		}
	}
	return faults
}

// strayed reports whether a message that was said to wait after this attempt ended
// where one may while parts of the topology are away: a nack has led to the
// dead-letter queue, or was not confirmed when the queue was deleted.
func (h *history) strayed(c claim) bool {
	return slices.ContainsFunc(h.ends, func(e End) bool {
		return e.Place == Letter && e.Cause == rehop.CauseRejected && e.Attempt == c.attempt ||
			e.Place == Queue && e.Attempt == c.attempt-1
	})
}

// snoozed returns how often a message was said to be put off in an attempt.
func (h *history) snoozed(attempt int) (n int) {
	for _, c := range h.claims {
		n += count(c.attempt == attempt && c.Snoozed)
	}
	return n
}

// ran returns how many runs of an attempt there were.
func (h *history) ran(attempt int) (n int) {
	for _, r := range h.runs {
		n += count(r.Attempt == attempt)
	}
	return n
}

// handled returns how many runs of an attempt have succeeded.
func (h *history) handled(attempt int) (n int) {
	for _, r := range h.runs {
		if r.Attempt == attempt && !r.Failed && !r.Ended.IsZero() {
			n++
		}
	}
	return n
}

// mayWait reports whether more runs of an attempt began than were said to be done or
// a letter. If not, what was said to wait then had not run: it was not due yet, goes
// to an earlier wait than a failure, and may have come back before that was said.
func (h *history) mayWait(attempt int) bool {
	left := h.ran(attempt)
	for _, c := range h.claims {
		left -= count(c.attempt == attempt && (c.Disposition == consumer.DispositionDone || c.Disposition == consumer.DispositionDeadLetter))
	}
	return left > 0
}

// mayBeOf reports whether a claim may be of the delivery of a run. Who said it is known of a delivery that had come again.
func (h *history) mayBeOf(c claim, r Run) bool {
	by := func(o Run) bool { return o.Attempt == c.attempt && o.Began.Equal(c.at) }
	at := slices.IndexFunc(h.again, by)
	return at < 0 || slices.ContainsFunc(h.again, func(o Run) bool { return by(o) && o.By == r.By })
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}

// seenAfterWait reports whether a message that was said to wait was seen after
// its wait, or in it. Where the claim spent no attempt, because the message was
// not due yet when it came back, it comes back as the same attempt. Which claim is
// of which copy cannot be told of a doubled message: there a later claim about the
// same attempt is enough. A message that was put off comes back as the same attempt too,
// perhaps after several waits. A nack is lost with its session, and what is delivered again
// for that may begin before the nack is written.
func (h *history) seenAfterWait(c claim, nacks bool) bool {
	if n := h.snoozed(c.attempt); n > 0 && h.ran(c.attempt) > n {
		return true
	}
	next := c.attempt
	ran := func(r Run) bool { return r.Attempt == c.attempt && !r.Began.After(c.at) && h.mayBeOf(c, r) }
	if !c.Snoozed && (c.WaitNumber >= c.attempt || h.mayWait(c.attempt)) && slices.ContainsFunc(h.runs, ran) {
		next++
	}
	later := func(o claim) bool { return o.attempt == c.attempt && o.at.After(c.at) }
	again := func(r Run) bool {
		return r.Attempt == c.attempt && r.Redelivered && (r.Began.After(c.at) || nacks && h.ran(c.attempt) > 1)
	}
	return slices.ContainsFunc(h.runs, func(r Run) bool { return r.Attempt == next }) ||
		slices.ContainsFunc(h.runs, again) ||
		len(h.ends) > 1 && slices.ContainsFunc(h.claims, later) ||
		slices.ContainsFunc(h.ends, func(e End) bool {
			// The broker makes a letter of what has waited and finds no work queue, and of what is
			// back and loses its consumers too often.
			return e.Place == Queue && e.Attempt == next-1 || e.Place == Letter && (e.Cause == rehop.CauseExpired || e.Cause == rehop.CauseCrashLoop)
		})
}
