package consumertimeout

import (
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/consumer/internal/durations"
	"github.com/rehop/rehop/consumer/internal/hand"
	"github.com/rehop/rehop/internal/header"
)

func TestConsumerTimeoutIsLearnt(t *testing.T) {
	said := func(text string) *amqp.Error { return &amqp.Error{Code: amqp.PreconditionFailed, Reason: text} }
	const text = "PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out. Timeout value used: 60000 ms. This timeout value can be configured, see consumers doc guide to learn more"
	var t3 ConsumerTimeout
	for _, other := range []*amqp.Error{
		said("PRECONDITION_FAILED - unknown delivery tag 1"),
		{Code: amqp.NotFound, Reason: text},
		said(strings.Replace(text, "60000", "0", 1)),
		said(strings.Replace(text, "60000", "99999999999999999999", 1)),
	} {
		if t3.Closed(other) || t3.Limit() != 0 {
			t.Errorf("%v is taken for the timeout", other)
		}
	}
	if !t3.Closed(said(text)) || t3.Limit() != time.Minute || t3.HandlerLimit() != 48*time.Second || t3.HoldLimit() != 30*time.Second {
		t.Errorf("%v, handlers %v, held %v; want 1m, 48s, 30s", t3.Limit(), t3.HandlerLimit(), t3.HoldLimit())
	}
	var orphaned ConsumerTimeout
	if !orphaned.Closed(said(strings.Replace(text, "60000", "-1", 1))) || orphaned.Limit() != 0 {
		t.Errorf("without a figure: %v", orphaned.Limit())
	}
	for _, tt := range []struct {
		rule string
		ages []time.Duration
		want time.Duration
	}{
		{"one cancel can have any reason", []time.Duration{time.Minute}, 0},
		{"two alike", []time.Duration{time.Minute, time.Minute + time.Second}, time.Minute},
		{"two that are not", []time.Duration{time.Minute, 2 * time.Minute}, 0},
		{"the third is like the second", []time.Duration{time.Minute, 2 * time.Minute, 2 * time.Minute}, 2 * time.Minute},
		{"too young", []time.Duration{time.Millisecond, time.Millisecond}, 0},
	} {
		var to ConsumerTimeout
		for _, age := range tt.ages {
			to.Cancelled(age)
		}
		if to.Limit() != tt.want || to.HandlerLimit() != 0 {
			t.Errorf("%s: %v, want %v, and none for handlers", tt.rule, to.Limit(), tt.want)
		}
		if tt.want > 0 && (!to.Cancelled(tt.want) || to.Cancelled(tt.want/2)) {
			t.Errorf("%s: once it is known, only a message that old was taken away", tt.rule)
		}
	}
	var to ConsumerTimeout
	if to.HoldLimit() != durations.LongestHold {
		t.Errorf("held %v where the timeout is not known", to.HoldLimit())
	}
}

func TestWhichMessageWasTakenAway(t *testing.T) {
	counted := func(acquired, failed int64, body string) amqp.Delivery {
		return amqp.Delivery{MessageId: "a", Body: []byte(body),
			Headers: amqp.Table{header.AcquiredCount: acquired, header.DeliveryCount: failed}}
	}
	for _, tt := range []struct {
		rule    string
		orphan  bool
		idle    bool
		known   time.Duration
		age     time.Duration
		comes   amqp.Delivery
		took    bool
		guessed bool
	}{
		{"acquired once more, not failed", false, false, 0, time.Minute, counted(3, 1, "x"), true, true},
		{"handed once more to the consumer that was cancelled, not failed", false, false, 0, time.Minute, counted(4, 1, "x"), true, true},
		{"the end of the session", false, false, 0, time.Minute, counted(3, 2, "x"), false, false},
		{"the end of the session, and a requeue by another", false, false, 0, time.Minute, counted(4, 2, "x"), false, false},
		{"an orphan", true, false, 0, time.Minute, counted(4, 2, "x"), true, true},
		{"queue declared again", false, false, 0, time.Minute, counted(0, 0, "x"), false, false},
		{"another message of this id", false, false, 0, time.Minute, counted(3, 1, "y"), false, false},
		{"it was held", false, true, 0, time.Minute, counted(3, 1, "x"), false, true},
		{"older than the figure", false, false, time.Minute, time.Minute, counted(3, 2, "x"), true, true},
		{"younger than the figure", false, false, time.Minute, time.Minute - 1, counted(3, 2, "x"), false, false},
	} {
		now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		to := ConsumerTimeout{known: tt.known}
		m := &hand.Message{Raw: counted(2, 1, "x"), Received: now.Add(-tt.age)}
		phase := hand.Running
		if tt.idle {
			phase = hand.Held
		}
		to.NoteTaken([]hand.Seen{{Message: m, Phase: phase}}, tt.orphan, now)
		if got := to.TookAway(tt.comes); got != tt.took {
			t.Errorf("%s: %t", tt.rule, got)
		}
		if to.TookAway(tt.comes) {
			t.Errorf("%s: twice", tt.rule)
		}
		if (to.guess > 0) != tt.guessed || to.guess > 0 && to.guess != tt.age {
			t.Errorf("%s: guess %v", tt.rule, to.guess)
		}
	}
}

// Two copies of one message have the same id and body.
func TestWhichOfTwoCopiesWasTakenAway(t *testing.T) {
	type counts struct{ acquired, failed int64 }
	raw := func(c counts) amqp.Delivery {
		return amqp.Delivery{MessageId: "a", Headers: amqp.Table{header.AcquiredCount: c.acquired, header.DeliveryCount: c.failed}}
	}
	for _, tt := range []struct {
		rule  string
		taken []counts
		comes []counts
		took  []bool
	}{
		{"both, in either order", []counts{{1, 0}, {3, 2}}, []counts{{4, 2}, {2, 0}}, []bool{true, true}},
		{"both, with the same counts", []counts{{0, 0}, {0, 0}}, []counts{{1, 0}, {1, 0}}, []bool{true, true}},
		{"the one that is ahead", []counts{{1, 0}, {0, 0}}, []counts{{2, 0}, {1, 1}}, []bool{true, false}},
		{"the one that is behind comes last", []counts{{1, 0}, {0, 0}}, []counts{{2, 1}, {1, 0}}, []bool{false, true}},
		{"the one that is behind", []counts{{3, 0}, {0, 0}}, []counts{{1, 0}, {4, 1}}, []bool{true, false}},
		{"neither, and each comes again once", []counts{{1, 0}, {0, 0}}, []counts{{2, 1}, {1, 1}, {3, 1}, {2, 1}}, []bool{false, false, false, false}},
	} {
		var to ConsumerTimeout
		var ms []hand.Seen
		now := time.Now()
		for _, c := range tt.taken {
			ms = append(ms, hand.Seen{Message: &hand.Message{Raw: raw(c), Received: now}, Phase: hand.Running})
		}
		to.NoteTaken(ms, false, now)
		for i, c := range tt.comes {
			if got := to.TookAway(raw(c)); got != tt.took[i] {
				t.Errorf("%s: %v was taken away: %t", tt.rule, c, got)
			}
		}
	}
}

// Others handle the messages that were taken away here, and all have the same id.
func TestNotesOfOneKeyAreBounded(t *testing.T) {
	var to ConsumerTimeout
	for range 3 * maxTaken / 100 {
		ms := make([]hand.Seen, 100)
		now := time.Now()
		for i := range ms {
			ms[i] = hand.Seen{Message: &hand.Message{Raw: amqp.Delivery{MessageId: "a"}, Received: now}}
		}
		to.NoteTaken(ms, false, now)
		if n := len(to.taken); n == 0 || n > maxTaken {
			t.Fatalf("%d notes, want %d at most", n, maxTaken)
		}
	}
}
