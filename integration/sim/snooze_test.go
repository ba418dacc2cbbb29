package sim

import (
	"context"
	"slices"
	"time"

	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/integration/account"
)

// mostSnoozes is how often handlers put a message off.
const mostSnoozes = 3

// longestSnooze is how long handlers put a message off at most.
const longestSnooze = 2 * time.Minute

// snooze is a run of a handler that has put its message off.
type snooze struct {
	attempt   int
	at, until time.Time
}

// putOff notes what a handler has returned for a message.
func (w *trial) putOff(ctx context.Context, d *consumer.Delivery, err error) {
	o := consumer.OutcomeOf(err)
	if o.Action != consumer.ActionSnooze || ctx.Err() != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	w.snoozes[d.ID] = append(w.snoozes[d.ID], snooze{d.Attempt, now, now.Add(o.After)})
}

// judgeSnoozes checks that a message that was put off came back later, in the same attempt.
// Where there was trouble, the message itself may have come back beside its copy.
func (w *trial) judgeSnoozes(s account.Story) {
	if len(s.Ends) != 1 || s.Calls > 1 || w.inTrouble(w.published[s.ID], s.Ends[0].At, aftermath) {
		return
	}
	for _, off := range w.snoozes[s.ID] {
		own := slices.IndexFunc(s.Runs, func(r account.Run) bool { return r.Attempt == off.attempt && r.Ended.Equal(off.at) })
		next := slices.IndexFunc(s.Runs[own+1:], func(r account.Run) bool { return !r.Began.Before(off.at) }) // by other clocks it may be back at once
		if next >= 0 {
			next += own + 1
		}
		switch {
		case next < 0:
			w.violate("message %s was put off at attempt %d, and was not handled again: %s", s.ID, off.attempt, s)
		case s.Runs[next].Began.Before(off.until.Add(-w.apart())):
			w.violate("message %s was put off at attempt %d, and came back %v too soon: %s", s.ID, off.attempt, off.until.Sub(s.Runs[next].Began), s)
		case s.Runs[next].Attempt != off.attempt:
			w.violate("message %s was put off at attempt %d, and came back as attempt %d: %s", s.ID, off.attempt, s.Runs[next].Attempt, s)
		}
	}
}
