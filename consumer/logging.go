package consumer

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strconv"
	"strings"

	"github.com/rehop/rehop/consumer/internal/hand"
	"github.com/rehop/rehop/consumer/internal/plural"
	"github.com/rehop/rehop/internal/route"
)

// logSettled says where a message went that is not simply done.
func (r *run) logSettled(a *attempt, s Settlement) {
	if s.Disposition == DispositionDone && a.err == nil || !r.log.Enabled(context.Background(), slog.LevelError) {
		return // most messages, and all of a silent logger
	}
	about := []any{"queue", a.Queue, "message", a.ID, "attempt", a.Attempt}
	if s.Snoozed {
		if a.outcome.Action == ActionHoldFor {
			r.log.Info("message snoozed, it cannot be held for so long", append(about, "for", a.outcome.After, "hold_limit", r.timeout.HoldLimit(), "error", a.text, "times", a.History.Snoozes+1)...)
			return
		}
		r.log.Info("message snoozed", append(about, "for", max(a.outcome.After, s.Wait), "reason", a.outcome.Reason, "times", a.History.Snoozes+1)...)
		return
	}
	if a.err != nil {
		about = append(about, "error", a.text)
	}
	if stack := a.stack(); stack != "" {
		about = append(about, "stack", stack)
	}
	switch s.Disposition {
	case DispositionDone:
		r.log.InfoContext(a.ctx, "message discarded", "queue", a.Queue, "message", a.ID, "attempt", a.Attempt, "reason", a.outcome.Reason)
	case DispositionWait:
		if s.Wait > 0 {
			about = append(about, "wait", s.Wait)
		}
		switch {
		case a.isUnspent():
			r.log.InfoContext(a.ctx, "message not due yet, it waits again", about...)
		case a.Attempt == len(a.in.terms.route.Waits):
			r.log.WarnContext(a.ctx, "attempt failed, one attempt is left", about...)
		default:
			r.log.InfoContext(a.ctx, "attempt failed, the message waits", about...)
		}
	case DispositionDeadLetter:
		r.log.ErrorContext(a.ctx, "message dead-lettered", append(about, "cause", string(s.Cause))...)
	case DispositionRequeued:
		r.log.InfoContext(a.ctx, "message requeued", about...)
	}
}

// logInPlace says that an attempt has failed, and that the next one is in place.
func (r *run) logInPlace(a *attempt) {
	about := []any{"queue", a.Queue, "message", a.ID, "attempt", a.Attempt, "error", a.text, "again_in", a.Keep}
	if a.Attempt == len(a.in.terms.route.Waits) {
		r.log.WarnContext(a.ctx, "attempt failed, one attempt is left, in place", about...)
		return
	}
	r.log.InfoContext(a.ctx, "attempt failed, the next one is in place", about...)
}

// mostNamed bounds the messages that an error names.
const mostNamed = 5

// named returns the ids of messages for an error or the log, the oldest first, and the number of
// those beyond the first few.
func named(ms []*hand.Message) string {
	ms = slices.SortedFunc(slices.Values(ms), func(a, b *hand.Message) int {
		return cmp.Or(a.Received.Compare(b.Received), cmp.Compare(a.Raw.DeliveryTag, b.Raw.DeliveryTag))
	})
	var ids []string
	for _, m := range ms[:min(len(ms), mostNamed)] {
		ids = append(ids, strconv.Quote(m.Raw.MessageId))
	}
	text := strings.Join(ids, ", ")
	if rest := len(ms) - len(ids); rest > 0 {
		text += " and " + plural.Of(rest, "other")
	}
	return text
}

// inBrackets names messages, none as "".
func inBrackets(ms []*hand.Message) string {
	if len(ms) == 0 {
		return ""
	}
	return " (" + named(ms) + ")"
}

// logStart says what a session does, and why.
func (r *run) logStart(s *session) {
	if denied := s.terms.route.Denied; denied != nil {
		r.faultLog.Warn("failed attempts are copied to their waits and not nacked, because the user may not look at them", denied, "queue", r.queue)
	}
	if !r.log.Enabled(r.stop, slog.LevelInfo) {
		return
	}
	about := []any{"queue", r.queue, "broker", s.channel.Server().Version.String()}
	if found := &s.terms.route; found.Kind == route.Work {
		about = append(about, "engine", found.Engine, "why", found.Why)
	}
	r.log.Info("consuming", about...)
}
