package consumer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/xdeath"
)

// Rule gives errors of a handler their meaning. An error matches if every field
// that is set matches; a Rule with none set matches all errors.
type Rule struct {
	// Is matches an error by errors.Is.
	Is error

	// Match matches an error by a function, such as one that looks for a type or a
	// code. Name stands for it where the Rule is printed.
	Match func(error) bool
	Name  string

	// OlderThan matches messages that were published longer ago, by their timestamp and
	// this machine's clock, to the second. A message whose timestamp is missing, or lies
	// in the future, counts from when its first attempt failed, or when it was first put
	// off by [Snooze]. If neither has happened, as while [Hold] or [HoldFor] keeps it, it
	// never matches.
	OlderThan time.Duration

	// Snoozed matches messages that were snoozed at least this many times, see
	// [Snooze]. 0 matches all.
	Snoozed int

	// Then is the outcome for errors that match. Its Action is required; ActionDone is
	// not allowed, since ActionDiscard says the same and is logged. Its Cause, of an
	// ActionDeadLetter, defaults to rehop.CausePermanent.
	Then Outcome
}

// String returns the rule as one line, such as
//
//	"no such customer", older than 1h0m0s: dead-letter
func (r Rule) String() string {
	var when []string
	if r.Is != nil {
		when = append(when, fmt.Sprintf("%q", r.Is.Error()))
	}
	if r.Match != nil {
		name := r.Name
		if name == "" {
			name = "a Match without a Name"
		}
		when = append(when, name)
	}
	if len(when) == 0 {
		when = []string{"any error"}
	}
	return strings.Join(append(when, r.limits()...), ", ") + ": " + r.Then.String()
}

// limits says which messages the rule gives up, whatever their error.
func (r Rule) limits() (all []string) {
	if r.Snoozed > 0 {
		all = append(all, fmt.Sprintf("snoozed %d times", r.Snoozed))
	}
	if r.OlderThan > 0 {
		all = append(all, fmt.Sprintf("older than %v", r.OlderThan))
	}
	return all
}

// Classify returns a wrapper that gives errors their meaning by the first rule that
// matches. It is the one place for errors that a handler does not own, such as a
// driver's.
//
//	classify, err := consumer.Classify(
//		consumer.Rule{Is: sql.ErrNoRows, Then: consumer.Outcome{Action: consumer.ActionDeadLetter}},
//		consumer.Rule{Is: driver.ErrBadConn, Then: consumer.Outcome{Action: consumer.ActionHold}},
//		consumer.Rule{OlderThan: 24 * time.Hour, Then: consumer.Outcome{Action: consumer.ActionDeadLetter, Cause: rehop.CauseExpired}},
//	)
//	handler = consumer.Wrap(handler, classify)
//
// An error to which [RetryAfter], [Hold] or the like has given a meaning keeps
// it, with one exception: a rule with OlderThan or Snoozed also decides about a
// message that would come back. Where such a rule decides, the text of the error, also in the
// letter, ends with its limit. The rules decide about the error that [Delivery.Fail] has
// given the message, if there is one, and not about the one that the handler returns. No
// rule sees a panic of the handler: the consumer, and not a wrapper, turns it into a
// *[PanicError]. All faults of the rules are returned at once.
func Classify(rules ...Rule) (func(Handler) Handler, error) {
	classify, err := newClassifier("Classify", rules)
	if err != nil {
		return nil, err
	}
	return func(next Handler) Handler {
		return func(ctx context.Context, d *Delivery) error {
			err := func() error {
				defer classify.own(d)
				return next(ctx, d)
			}()
			if err == nil || d.Err() != nil {
				return err
			}
			if meant := classify(d, err, time.Now()); meant != nil {
				return meant
			}
			return err
		}
	}, nil
}

// classifier gives an error of a message its meaning by rules. It returns nil if none applies.
type classifier func(d *Delivery, err error, now time.Time) error

// own gives the messages' own errors their meaning. It is deferred: they decide also where the
// handler panics or ends its goroutine.
func (c classifier) own(ds ...*Delivery) {
	now := time.Now()
	for _, d := range ds {
		if own := d.Err(); own != nil {
			if meant := c(d, own, now); meant != nil {
				d.Fail(meant)
			}
		}
	}
}

// newClassifier returns the classifier of rules. of names who takes them.
func newClassifier(of string, rules []Rule) (classifier, error) {
	rules = slices.Clone(rules)
	var errs []error
	for i, r := range rules {
		for _, fault := range r.faults() {
			errs = append(errs, fmt.Errorf("consumer: %s: rule %d: %s", of, i, fault))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, rehop.WithClass(err, rehop.ClassBug)
	}
	return func(d *Delivery, err error, now time.Time) error {
		if r, ok := firstMatch(rules, d, err, now); ok {
			if limits := r.limits(); len(limits) > 0 { // the error alone does not say why
				err = fmt.Errorf("%w (%s)", err, strings.Join(limits, ", "))
			}
			return withOutcome(r.Then, err, "")
		}
		return nil
	}, nil
}

// faults returns what is wrong with a rule.
func (r Rule) faults() (all []string) {
	add := func(format string, about ...any) { all = append(all, fmt.Sprintf(format, about...)) }
	o := r.Then
	switch o.Action {
	case ActionRetry, ActionRetryAfter, ActionDeadLetter, ActionHold, ActionHoldFor, ActionDiscard, ActionSnooze:
	case ActionDone:
		add("Then.Action is done, want another: discard acks too, and is logged")
	default:
		add("Then.Action is %q, want retry, retry-after, dead-letter, hold, hold-for, discard or snooze", o.Action)
	}
	if r.OlderThan < 0 {
		add("OlderThan is %v, want 0 or more", r.OlderThan)
	}
	if r.Snoozed < 0 {
		add("Snoozed is %d, want 0 or more", r.Snoozed)
	}
	switch {
	case o.After < 0:
		add("Then.After is %v, want 0 or more", o.After)
	case o.After > 0 && !slices.Contains([]Action{ActionRetryAfter, ActionHoldFor, ActionSnooze}, o.Action):
		add("Then.After is %v, want 0: it is for retry-after, hold-for and snooze", o.After)
	}
	if o.Cause != "" && o.Action != ActionDeadLetter {
		add("Then.Cause is %q, want none: it is for dead-letter", o.Cause)
	}
	return all
}

// firstMatch returns the first rule that gives the error of a handler its meaning.
func firstMatch(rules []Rule, d *Delivery, err error, now time.Time) (Rule, bool) {
	plain := !hasOutcome(err)
	comesBack := !slices.Contains([]Action{ActionDeadLetter, ActionDiscard}, OutcomeOf(err).Action)
	for _, r := range rules {
		switch {
		case !plain && (r.OlderThan == 0 && r.Snoozed == 0 || !comesBack):
		case r.Is != nil && !errors.Is(err, r.Is):
		case r.Match != nil && !r.Match(err):
		case d.History.Snoozes < r.Snoozed:
		case r.OlderThan > 0 && !isOlder(d, r.OlderThan, now):
		default:
			return r, true
		}
	}
	return Rule{}, false
}

// isOlder reports whether a message is known to be older than limit. A timestamp in the
// future is none: clients that write milliseconds are in the year 55000. The message was
// published before anything else happened to it.
func isOlder(d *Delivery, limit time.Duration, now time.Time) bool {
	before := func(at time.Time) bool { return !at.IsZero() && at.Before(now.Add(-limit)) }
	if !d.Timestamp.IsZero() && !d.Timestamp.After(now) {
		return before(d.Timestamp)
	}
	return before(d.History.FirstFailed) || before(d.History.FirstSnoozed) ||
		slices.ContainsFunc(d.History.Deaths, func(death xdeath.Death) bool { return before(death.Time) })
}
