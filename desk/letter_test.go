package desk

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/xdeath"
)

func TestTheLifeOfALetterIsInTheOrderOfItsEvents(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	l := Letter{Queue: "orders", FirstFailed: at.Add(400 * time.Millisecond), Failed: at.Add(time.Minute), Cause: rehop.CauseExhausted, Attempts: 3,
		history: xdeath.History{Deaths: []xdeath.Death{ // times of the broker, in whole seconds
			{Queue: "orders", Reason: xdeath.ReasonRejected, Count: 2, Time: at},
			{Queue: "orders.wait.1s", Reason: xdeath.ReasonExpired, Count: 1, Time: at.Add(time.Second)},
		}}}
	l.Publishing.Timestamp = at
	var got []string
	for _, e := range l.Life() {
		got = append(got, e.What)
	}
	want := []string{"published", `first attempt failed in "orders"`, `left queue "orders": rejected, the first of 2 times`,
		`left queue "orders.wait.1s": expired`, "given up: exhausted after 3 attempts"}
	if !slices.Equal(got, want) {
		t.Errorf("the life is\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
