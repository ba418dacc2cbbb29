package desk

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// A target that takes nothing is asked ten times, and one that begins to refuse is asked no more
// once ten have failed in a row: the error has the number that have.
func TestTheFailuresInARowAreThoseThatHappened(t *testing.T) {
	onEach(t, func(w *fixture) {
		w.dead(orders(60)...)
		live := w.live()
		p, err := live.Execute(w.Context(), Redrive{Action: Send, All: true, To: address("missing")}, nil)
		if !errors.Is(err, ErrTarget) || p.Failed != failuresInARow || !strings.Contains(err.Error(), "10 letters in a row") {
			w.Errorf("%v: %+v, want 10 failures", err, p)
		}
		once(w, "a missing queue", err.Error(), p.Error)
		w.has("orders.dlq", 60)

		_, err = w.channel().QueueDeclare("missing", true, false, false, false, amqp.Table{"x-queue-type": "classic", "x-max-length": int64(15), "x-overflow": "reject-publish"})
		must(w.T, err)
		p, err = live.Resume(w.Context(), p.Redrive.ID, By{}, nil)
		if !errors.Is(err, ErrTarget) || p.Done != 15 || p.Failed < failuresInARow || !strings.Contains(err.Error(), fmt.Sprintf("%d letters in a row", p.Failed)) {
			w.Errorf("a queue that is full at last: %v: %+v, want the number that have failed", err, p)
		}
		once(w, "a full queue", err.Error(), p.Error)
		w.has("orders.dlq", 45)
	})
}

// once checks that no line, and no part of one, stands in a text twice.
func once(w *fixture, rule string, texts ...string) {
	w.Helper()
	for _, text := range texts {
		lines := strings.Split(text, "\n")
		for i, line := range lines {
			for j, other := range lines {
				if i != j && strings.Contains(other, line) {
					w.Errorf("%s: %q is told twice: %q", rule, line, text)
				}
			}
		}
	}
}

// Letters that were sent, and whose acks were lost with the connection more than once, make no
// room for others, and leave the queue when a person says that they were sent.
func TestAcksThatAreLostAgainAndAgain(t *testing.T) {
	onEach(t, func(w *fixture) {
		w.dead(orders(20)...)
		live := w.live()
		live.gap = func(moment string) {
			if moment == "matched" {
				w.broker.Cut("")
				time.Sleep(time.Second)
			}
		}
		p, err := live.Execute(w.Context(), Redrive{Action: Send, All: true}, nil)
		if err != nil || p.Done != 20 || p.Skipped != 0 || p.MaybeDuplicate != 0 || p.MaybeSent == 0 {
			w.Errorf("%v: %+v, want each of 20 sent once", err, p)
		}
		w.has("orders.dlq", p.MaybeSent)
		live.gap = nil
		p, err = live.Resume(w.Context(), p.Redrive.ID, By{Who: "ada", MaybeSent: Delete}, nil)
		if err != nil || p.Done != 20 || p.MaybeDuplicate != 0 || p.MaybeSent != 0 {
			w.Errorf("%v: %+v, want the letters that were sent deleted", err, p)
		}
		w.has("orders.dlq", 0)
		w.has("orders", 20)
	})
}

func TestAnErrorThatAnotherOneHasIsToldOnce(t *testing.T) {
	lost := errors.New("the connection was lost")
	refused := fmt.Errorf("the channel: %w", lost)
	err := together(nil, refused, lost, refused, ErrTarget, nil)
	if want := "the channel: the connection was lost\n" + ErrTarget.Error(); err.Error() != want || !errors.Is(err, lost) || !errors.Is(err, ErrTarget) {
		t.Errorf("%q, want %q", err, want)
	}
	if err := together(nil, nil); err != nil {
		t.Errorf("of none: %v", err)
	}
}

// Failures that an earlier turn has counted do not keep a redrive from trying.
func TestARedriveAsksAgainAfterTenFailures(t *testing.T) {
	for _, tt := range []struct {
		rule                     string
		serves                   bool
		failures, flying, expect int
	}{
		{"at first", false, 0, 0, 10},
		{"some are under way", false, 0, 7, 3},
		{"some have failed", false, 4, 5, 1},
		{"as many as end it are under way", false, 4, 6, 0},
		{"all have failed, in an earlier turn", false, 10, 0, 1},
		{"the target has taken one", true, 0, 100, 28},
	} {
		o := outcomes{serves: tt.serves, row: tt.failures}
		if got := o.capacity(inFlight, tt.flying); got != tt.expect {
			t.Errorf("%s: %d more may be sent, want %d", tt.rule, got, tt.expect)
		}
	}
}
