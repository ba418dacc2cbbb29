package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/rehop/rehop/consumer"
)

// Every order that became a letter is sent when it comes back, and one line says so.
func TestWorkerSendsWhatComesBack(t *testing.T) {
	letters := 0
	for _, o := range embeddedOrders(t) {
		if !strings.HasPrefix(expected(o, 5).how, byLetter("")) {
			continue
		}
		letters++
		body, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		d := &consumer.Delivery{Attempt: 1, Body: body}
		d.History.Redrives = 1
		var out strings.Builder
		w := worker{out: &out}
		if err := w.sendSMS(t.Context(), d); err != nil {
			t.Errorf("sendSMS of %s = %v, want nil", o.ID, err)
		}
		if line := out.String(); !strings.Contains(line, o.ID+", sent back: 1") || strings.Count(line, "\n") != 1 {
			t.Errorf("%s prints %q, want one line with its id and how often it was sent back", o.ID, line)
		}
	}
	if letters == 0 {
		t.Error("no order becomes a letter")
	}
}

// A number that a person has edited in the desk wins over the corrected one, and one
// that is wrong still is a letter again.
func TestWorkerTakesTheNumberOfTheMessage(t *testing.T) {
	var out strings.Builder
	w := worker{out: &out}
	edited := []byte(`{"id":"T-0023","passenger":"Fatma Doğan","phone":"+49 171 3920042"}`)
	if err := w.sendSMS(t.Context(), &consumer.Delivery{Body: edited}); err != nil || !strings.Contains(out.String(), "+49 171 3920042") {
		t.Errorf("sendSMS = %v, prints %q; want the number of the message", err, &out)
	}
	for _, body := range []string{`{"id":"T-9999","passenger":"Anna Vogel","phone":"?"}`, "{"} {
		err := w.sendSMS(t.Context(), &consumer.Delivery{Body: []byte(body)})
		if got := consumer.OutcomeOf(err).Action; got != consumer.ActionDeadLetter {
			t.Errorf("sendSMS of %s = %v, which is %v, want dead-letter", body, err, got)
		}
	}
}
