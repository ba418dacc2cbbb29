package main

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/xdeath"
)

// idWith returns an order id that meets a mood.
func idWith(t *testing.T, want mood) string {
	t.Helper()
	for _, o := range embeddedOrders(t) {
		if moodFor(o.ID) == want && !cancelled[o.ID] {
			return o.ID
		}
	}
	t.Fatalf("no order meets the mood %+v", want)
	return ""
}

func TestMoodsAddUp(t *testing.T) {
	sum := 0
	for _, m := range moods {
		sum += m.percent
	}
	if sum != 100 {
		t.Errorf("moods are for %d of 100 orders, want 100", sum)
	}
}

func TestOperatorAnswer(t *testing.T) {
	const good = "+49 171 3920042"
	network := operator{minute: time.Second}
	for _, test := range []struct {
		name    string
		mood    mood
		phone   string
		attempt int
		want    error
	}{
		{"works at once", mood{}, good, 1, nil},
		{"fails while failures last", mood{failures: 2}, good, 2, errNoNetwork},
		{"works after the failures", mood{failures: 2}, good, 3, nil},
		{"fails for ever", mood{failures: forEver}, good, 5, errNoNetwork},
		{"busy once", mood{failures: 1, busy: true}, good, 1, &busyError{3 * time.Second}},
		{"works after being busy", mood{failures: 1, busy: true}, good, 2, nil},
		{"too short a number", mood{}, "+49 171", 1, errBadNumber},
		{"too few digits between the blanks", mood{}, "+33 6 39 98", 1, errBadNumber},
		{"no country", mood{}, "0171 3920042", 1, errBadNumber},
		{"letters", mood{}, "+90 5x2 000 18 48", 1, errBadNumber},
		{"a bad number is never busy", mood{failures: 1, busy: true}, "", 1, errBadNumber},
	} {
		t.Run(test.name, func(t *testing.T) {
			order := Order{ID: idWith(t, test.mood), Phone: test.phone}
			got := network.answer(order, test.attempt)
			var wantBusy, gotBusy *busyError
			if errors.As(test.want, &wantBusy) {
				if !errors.As(got, &gotBusy) || *gotBusy != *wantBusy {
					t.Errorf("answer = %v, want %v", got, test.want)
				}
				return
			}
			if !errors.Is(got, test.want) {
				t.Errorf("answer = %v, want %v", got, test.want)
			}
		})
	}
}

// A handler is a function of a delivery that a test builds by hand.
func TestSendSMS(t *testing.T) {
	ok := Order{ID: idWith(t, mood{}), Passenger: "Anna Vogel", Phone: "+49 171 3920042"}
	change := func(by func(*Order)) Order {
		o := ok
		by(&o)
		return o
	}
	for _, test := range []struct {
		name  string
		order Order
		want  consumer.Outcome
	}{
		{"sent", ok, consumer.Outcome{Action: consumer.ActionDone}},
		{"failed", change(func(o *Order) { o.ID = idWith(t, mood{failures: 1}) }), consumer.Outcome{Action: consumer.ActionRetry}},
		{"busy", change(func(o *Order) { o.ID = idWith(t, mood{failures: 1, busy: true}) }), consumer.Outcome{Action: consumer.ActionRetryAfter, After: 3 * time.Second}},
		{"bad number", change(func(o *Order) { o.Phone = "?" }), consumer.Outcome{Action: consumer.ActionDeadLetter}},
		{"cancelled", change(func(o *Order) { o.ID = "T-0148" }), consumer.Outcome{Action: consumer.ActionDiscard, Reason: "cancelled by the passenger"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			body, err := json.Marshal(test.order)
			if err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				office := office{operator: operator{minute: time.Second}}
				err := office.sendSMS(t.Context(), &consumer.Delivery{ID: test.order.ID, Attempt: 1, Body: body})
				if got := consumer.OutcomeOf(err); got != test.want {
					t.Errorf("sendSMS = %v, which is %+v, want %+v", err, got, test.want)
				}
			})
		})
	}
}

func TestSendSMSUnreadable(t *testing.T) {
	err := office{}.sendSMS(t.Context(), &consumer.Delivery{Body: []byte("{")})
	if got := consumer.OutcomeOf(err).Action; got != consumer.ActionDeadLetter {
		t.Errorf("sendSMS = %v, which is %v, want dead-letter", err, got)
	}
}

func TestSendLetter(t *testing.T) {
	var got letter
	office := office{post: func(l letter) { got = l }}
	d := &consumer.Delivery{ID: "T-1", Body: []byte("{")}
	d.History.FinalAttempts = 5
	d.History.Failure = xdeath.Failure{Cause: rehop.CauseExhausted, Error: "no network"}
	if err := office.sendLetter(t.Context(), d); err != nil {
		t.Fatalf("sendLetter = %v, want nil: what fails in a dead-letter queue is held for ever", err)
	}
	if got.messageID != "T-1" || got.reason != "exhausted" || got.attempts != 5 || !strings.HasPrefix(got.err, "no network; ") {
		t.Errorf("sendLetter sent %+v", got)
	}
}
