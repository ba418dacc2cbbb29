package main

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/consumer"
)

// perfect returns the summary of a run in which all went well.
func perfect(t *testing.T) summary {
	t.Helper()
	var s summary
	for _, o := range embeddedOrders(t) {
		s.records = append(s.records, record{order: o, place: done, endings: []ending{expected(o, 5)}})
	}
	return s
}

// vipsFrom gives VIPs the places from first on.
func vipsFrom(s *summary, first int) {
	for i := range s.records {
		if r := &s.records[i]; r.order.VIP {
			r.start = first
			first++
		}
	}
}

func TestCheck(t *testing.T) {
	for _, test := range []struct {
		name  string
		spoil func(*summary)
		want  string // "": no error
	}{
		{"all well", func(*summary) {}, ""},
		{"a wait that is late is no fault", func(s *summary) { s.lateness = []time.Duration{time.Minute} }, ""},
		{"a missing order is named, with its place", func(s *summary) {
			r := &s.records[1]
			r.endings, r.place, r.waitNumber = nil, waiting, 3
		}, "orders missing (1): T-0002 (in wait 3)"},
		{"a doubled order is named", func(s *summary) {
			r := &s.records[0]
			r.endings = append(r.endings, r.endings[0])
		}, "orders ended more than once, as at-least-once delivery may after a lost connection (1): T-0001"},
		{"an SMS and a letter is doubled too", func(s *summary) {
			r := &s.records[0]
			r.endings = append(r.endings, ending{byLetter("exhausted"), 5})
		}, "ended more than once"},
		{"another attempt than expected", func(s *summary) { s.records[0].endings[0].attempt++ }, "otherwise than they should (1): T-0001"},
		{"a wait cut short", func(s *summary) { s.lateness = []time.Duration{-2 * time.Millisecond} }, "waits cut short (1): 2ms"},
		{"VIPs among the first", func(s *summary) { vipsFrom(s, 11) }, ""},
		{"VIPs among the others", func(s *summary) { vipsFrom(s, 12) }, "VIPs not handled first, the median (1): place 21 of 200, want at most 20"},
		{"not hundreds of names", func(s *summary) {
			for i := range s.records {
				s.records[i].endings, s.records[i].place = nil, queued
			}
		}, "orders missing (200): T-0001 (in its queue), T-0002 (in its queue), T-0003 (in its queue), T-0004 (in its queue), " +
			"T-0005 (in its queue), T-0006 (in its queue), T-0007 (in its queue), T-0008 (in its queue), T-0009 (in its queue), " +
			"T-0010 (in its queue) and 190 more"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := perfect(t)
			test.spoil(&s)
			err := s.check(5)
			switch {
			case test.want == "" && err != nil:
				t.Errorf("check = %v, want nil", err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("check = %v, want an error with %q", err, test.want)
			}
		})
	}
}

// The ledger hears of one order as the consumer's hooks tell it.
func TestLedger(t *testing.T) {
	ended := 0
	l := newLedger([]Order{{ID: "T-1"}, {ID: "T-2"}}, scaled(150), func() { ended++ })
	l.published(l.run + "T-1")
	l.published(l.run + "T-2")

	first := &consumer.Delivery{ID: l.run + "T-1", Attempt: 1}
	l.received(t.Context(), first)
	l.handled(t.Context(), consumer.Handled{Delivery: first, Err: errNoNetwork, Took: 0})
	l.settled(t.Context(), consumer.Settled{Delivery: first, Settlement: consumer.Settlement{Disposition: consumer.DispositionWait, WaitNumber: 1}})
	if got, want := l.summary().stages(4), "published 2  in work  0  waiting 1/0/0/0      done   0  dead  0  letters  0"; got != want {
		t.Errorf("after a failure: %q, want %q", got, want)
	}
	second := &consumer.Delivery{ID: l.run + "T-1", Attempt: 2}
	l.received(t.Context(), second)
	l.handled(t.Context(), consumer.Handled{Delivery: second, Err: nil, Took: 0})
	l.settled(t.Context(), consumer.Settled{Delivery: second, Settlement: consumer.Settlement{Disposition: consumer.DispositionDone}})
	if ended != 0 {
		t.Errorf("allEnded was called while an order is open")
	}

	dead := &consumer.Delivery{ID: l.run + "T-2", Attempt: 1}
	l.received(t.Context(), dead)
	l.handled(t.Context(), consumer.Handled{Delivery: dead, Err: consumer.DeadLetter(errBadNumber), Took: 0})
	l.letterSent(letter{messageID: l.run + "T-2", reason: "permanent", attempts: 1})
	// The letter can be faster than the hook.
	l.settled(t.Context(), consumer.Settled{Delivery: dead, Settlement: consumer.Settlement{Disposition: consumer.DispositionDeadLetter, Cause: rehop.CausePermanent}})

	s := l.summary()
	if got, want := s.stages(4), "published 2  in work  0  waiting 0/0/0/0      done   1  dead  1  letters  1"; got != want {
		t.Errorf("at the end: %q, want %q", got, want)
	}
	if ended != 1 || s.ended() != 2 || s.causes[rehop.CausePermanent] != 1 {
		t.Errorf("allEnded called %d times, summary %+v", ended, s)
	}
	// It came back at once: far too early.
	if len(s.lateness) != 1 || s.lateness[0] > -300*time.Millisecond {
		t.Errorf("lateness is %v, want one of about -400ms", s.lateness)
	}
}

// A lost connection can double an attempt. The first copy's wait began at the
// first failure: measured from the second it would look cut short.
func TestLatenessOfDoubledAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedger([]Order{{ID: "T-1"}}, scaled(60), func() {}) // 1s, 5s, 10s, 20s
		fail := func(attempt int) {
			d := &consumer.Delivery{ID: l.run + "T-1", Attempt: attempt}
			l.received(t.Context(), d)
			l.handled(t.Context(), consumer.Handled{Delivery: d, Err: errNoNetwork, Took: 0})
		}
		fail(1)
		time.Sleep(300 * time.Millisecond)
		fail(1)
		time.Sleep(700 * time.Millisecond)
		fail(2)
		time.Sleep(310 * time.Millisecond)
		fail(2)
		want := []time.Duration{0, 10 * time.Millisecond}
		if got := l.summary().lateness; !slices.Equal(got, want) {
			t.Errorf("lateness is %v, want %v", got, want)
		}
	})
}

func TestOfThisRun(t *testing.T) {
	l := newLedger([]Order{{ID: "T-1"}}, nil, func() {})
	handled := 0
	handle := l.ofThisRun(func(context.Context, *consumer.Delivery) error {
		handled++
		return nil
	})
	if err := handle(t.Context(), &consumer.Delivery{ID: l.run + "T-1"}); err != nil || handled != 1 {
		t.Errorf("a message of this run: %v, handled %d times, want nil and once", err, handled)
	}
	former := &consumer.Delivery{ID: "former.T-1"}
	err := handle(t.Context(), former)
	if got := consumer.OutcomeOf(err).Action; got != consumer.ActionDiscard || handled != 1 {
		t.Errorf("a message of a former run: %v, handled %d times, want it discarded", got, handled)
	}
	l.received(t.Context(), former)
	l.handled(t.Context(), consumer.Handled{Delivery: former, Err: err, Took: 0})
	if s := l.summary(); s.ended() != 0 || s.foreign != 1 {
		t.Errorf("summary counts %d endings and %d of former runs, want 0 and 1", s.ended(), s.foreign)
	}
}

func TestWaitAfter(t *testing.T) {
	l := newLedger(nil, scaled(60), func() {}) // 1s, 5s, 10s, 20s
	for _, test := range []struct {
		name    string
		outcome consumer.Outcome
		attempt int
		want    time.Duration
	}{
		{"a failure waits as its attempt says", consumer.Outcome{Action: consumer.ActionRetry}, 2, 5 * time.Second},
		{"the last failure waits for nothing", consumer.Outcome{Action: consumer.ActionRetry}, 5, 0},
		{"retry-after takes the next longer wait", consumer.Outcome{Action: consumer.ActionRetryAfter, After: 3 * time.Second}, 1, 5 * time.Second},
		{"retry-after beyond all waits", consumer.Outcome{Action: consumer.ActionRetryAfter, After: time.Minute}, 1, time.Minute},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := l.waitAfter(test.outcome, test.attempt); got != test.want {
				t.Errorf("waitAfter(%+v, %d) = %v, want %v", test.outcome, test.attempt, got, test.want)
			}
		})
	}
}

func TestReport(t *testing.T) {
	s := perfect(t)
	s.letters = []letter{{order: Order{ID: "T-1", Passenger: "Anna Vogel"}, reason: "permanent", attempts: 1, err: "not a phone number"}}
	s.causes = map[rehop.Cause]int{rehop.CausePermanent: 1}
	s.lateness = []time.Duration{3 * time.Millisecond, time.Millisecond, 9 * time.Millisecond}
	var b strings.Builder
	if err := s.report(&b, 5); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"SMS sent at attempt 5         10\n",
		"discarded                      1\n",
		"dead-lettered, permanent       1\n",
		"late by 3ms (median), 9ms (at most)\n",
		"letter to Anna Vogel (T-1): permanent at attempt 1: not a phone number\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("report lacks %q:\n%s", want, b.String())
		}
	}
}

// With -keep an order that is given up has ended, because nobody takes its letter.
func TestAKeptLetterIsTheEndOfItsOrder(t *testing.T) {
	ended := 0
	l := newLedger([]Order{{ID: "T-1"}}, scaled(150), func() { ended++ })
	l.keep = true
	l.settled(t.Context(), consumer.Settled{Delivery: &consumer.Delivery{ID: l.run + "T-1", Attempt: 5}, Settlement: consumer.Settlement{Disposition: consumer.DispositionDeadLetter, Cause: rehop.CauseExhausted}})
	if s := l.summary(); ended != 1 || len(s.records[0].endings) != 1 || s.records[0].endings[0] != (ending{byLetter("exhausted"), 5}) {
		t.Errorf("ended %d times: %+v", ended, s.records[0])
	}
}
