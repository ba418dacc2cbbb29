package consumer

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer/internal/durations"
	"github.com/rehop/rehop/consumer/internal/hand"
	"github.com/rehop/rehop/consumer/internal/work"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/internal/header"
	"github.com/rehop/rehop/internal/route"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/topology"
)

// verdict is the part of a decision that a test looks at.
type verdict struct {
	move       hand.Verb
	waitNumber int
	to         route.Target // where no waitNumber says it
	cause      rehop.Cause
	notBefore  time.Time
	due        time.Time
	unspent    bool
	keep       time.Duration
	skew       time.Duration
}

func verdictOf(d decision) verdict {
	v := verdict{move: d.Move, waitNumber: d.settlement.WaitNumber, cause: d.settlement.Cause, notBefore: d.Retry.NotBefore.UTC(), due: d.Retry.Due.UTC(), unspent: d.isUnspent(), keep: d.Keep, skew: d.skew}
	if d.Retry.NotBefore.IsZero() {
		v.notBefore = time.Time{}
	}
	if d.Retry.Due.IsZero() {
		v.due = time.Time{}
	}
	if d.Move == hand.Copy && v.waitNumber == 0 && v.cause == "" {
		v.to = d.To
	}
	return v
}

func termsOf(r route.Facts) *terms { return &terms{route: r} }

// routeOf returns the route of a source of one queue as it is known without a broker.
func routeOf(source topology.Source) route.Facts {
	s, err := route.Of(source)
	if err != nil {
		panic(err)
	}
	return s.Routes[0]
}

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// republished is a delivery that came back from a wait after `ended` attempts.
func republished(ended int, more amqp.Table) amqp.Delivery {
	headers := amqp.Table{header.Queue: "orders", header.Attempts: int64(ended)}
	for k, v := range more {
		headers[k] = v
	}
	return amqp.Delivery{Exchange: "orders.rehop.return", RoutingKey: "orders@1", Headers: headers}
}

// nacked is a delivery that came back from a wait after so many nacks.
func nacked(times, waitNumber int) amqp.Delivery {
	return amqp.Delivery{Exchange: "orders.rehop.return", RoutingKey: fmt.Sprintf("orders@%d", waitNumber), Headers: amqp.Table{"x-death": []any{
		amqp.Table{"queue": "orders", "reason": "rejected", "count": int64(times), "exchange": "shop", "routing-keys": []any{"order.paid"}},
	}}}
}

// from returns a delivery as it comes back from a wait.
func from(waitNumber int, raw amqp.Delivery) amqp.Delivery {
	raw.RoutingKey = fmt.Sprintf("orders@%d", waitNumber)
	return raw
}

func fresh() amqp.Delivery { return amqp.Delivery{Exchange: "shop", RoutingKey: "order.paid"} }

func TestDecideUnderRepublish(t *testing.T) {
	orders := routeOf(topology.WorkQueue{Name: "orders", Waits: delay.Schedule{time.Second, 3 * time.Second, 2 * time.Second}})
	dlq := routeOf(topology.DeadLetterQueue{Name: "orders.dlq"})
	foreign := routeOf(topology.Route{Queue: "theirs"})
	foreignWithPlace := routeOf(topology.Route{Queue: "theirs", DeadLetter: topology.Address{RoutingKey: "theirs.dead"}})
	failed := Outcome{Action: ActionRetry}
	after := func(d time.Duration) Outcome { return Outcome{Action: ActionRetryAfter, After: d} }
	for _, tt := range []struct {
		rule        string
		route       route.Facts
		raw         amqp.Delivery
		outcome     Outcome
		interrupted bool
		want        verdict
	}{
		{"done", orders, fresh(), Outcome{Action: ActionDone}, false, verdict{move: hand.Ack}},
		{"done although told to stop", orders, fresh(), Outcome{Action: ActionDone}, true, verdict{move: hand.Ack}},
		{"discard", orders, fresh(), Outcome{Action: ActionDiscard}, false, verdict{move: hand.Ack}},
		{"first failure", orders, fresh(), failed, false, verdict{move: hand.Copy, waitNumber: 1}},
		{"third failure", orders, republished(2, nil), failed, false, verdict{move: hand.Copy, waitNumber: 3}},
		{"no attempt left", orders, republished(3, nil), failed, false, verdict{move: hand.Copy, cause: rehop.CauseExhausted}},
		{"more attempts than waits, after the schedule became shorter", orders, republished(9, nil), failed, false, verdict{move: hand.Copy, cause: rehop.CauseExhausted}},
		{"failure of an interrupted handler spends nothing", orders, republished(3, nil), failed, true, verdict{move: hand.Requeue}},
		{"permanent", orders, fresh(), Outcome{Action: ActionDeadLetter}, false, verdict{move: hand.Copy, cause: rehop.CausePermanent}},
		{"requeue", orders, fresh(), Outcome{Action: ActionHold}, false, verdict{move: work.Hold}},
		{"retry after: the shortest wait that is not shorter", orders, fresh(), after(1500 * time.Millisecond), false, verdict{move: hand.Copy, waitNumber: 3}},
		{"retry after a time that has passed: the wait of the schedule", orders, republished(1, nil), after(0), false, verdict{move: hand.Copy, waitNumber: 2}},
		{"retry after: longer than all", orders, fresh(), after(time.Minute), false, verdict{move: hand.Copy, waitNumber: 2, notBefore: now.Add(time.Minute)}},
		{"retry after without an attempt left", orders, republished(3, nil), after(time.Second), false, verdict{move: hand.Copy, cause: rehop.CauseExhausted}},
		{"dead-letter queue: a failure is held", dlq, fresh(), failed, false, verdict{move: work.Hold}},
		{"dead-letter queue: a dead letter of a dead letter is held", dlq, fresh(), Outcome{Action: ActionDeadLetter}, false, verdict{move: work.Hold}},
		{"their queue: held, for want of a place", foreign, fresh(), failed, false, verdict{move: work.Hold}},
		{"their queue with a place for dead letters", foreignWithPlace, fresh(), failed, false, verdict{move: hand.Copy, cause: rehop.CauseExhausted}},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			on := termsOf(tt.route)
			var d Delivery
			if err := d.read(&on.route, tt.raw); err != nil {
				t.Fatal(err)
			}
			got := on.decide(tt.raw, &d, result{err: errors.New("failed"), outcome: tt.outcome}, tt.interrupted, now)
			if verdictOf(got) != tt.want {
				t.Errorf("decide = %+v, want %+v", verdictOf(got), tt.want)
			}
		})
	}
}

// A service has named a time: the message is held for it if it can be, and else leaves the
// hand where it need keep no place.
func TestDecideHoldFor(t *testing.T) {
	orders := routeOf(topology.WorkQueue{Name: "orders", Waits: delay.Schedule{time.Minute, 5 * time.Minute}})
	dlq := routeOf(topology.DeadLetterQueue{Name: "orders.dlq"})
	const limit = 15 * time.Minute
	held := func(d time.Duration) verdict { return verdict{move: work.Hold, keep: d} }
	put := func(waitNumber int, notBefore time.Time) verdict {
		return verdict{move: hand.Copy, waitNumber: waitNumber, unspent: true, notBefore: notBefore}
	}
	for _, tt := range []struct {
		rule        string
		route       route.Facts
		raw         amqp.Delivery
		after       time.Duration
		holds       time.Duration
		ordered     bool
		inPlace     bool
		gone        bool
		interrupted bool
		want        verdict
		snoozed     bool
	}{
		{rule: "held for the time", route: orders, raw: fresh(), after: 7 * time.Second, holds: limit, want: held(7 * time.Second)},
		{rule: "on the last attempt too", route: orders, raw: republished(2, nil), after: 7 * time.Second, holds: limit, want: held(7 * time.Second)},
		{rule: "in order too", route: orders, raw: fresh(), after: 7 * time.Second, holds: limit, ordered: true, want: held(7 * time.Second)},
		{rule: "in place it is no next attempt", route: orders, raw: fresh(), after: 7 * time.Second, holds: limit, inPlace: true, want: held(7 * time.Second)},
		{rule: "a time gone by: the pauses of Hold", route: orders, raw: fresh(), after: 0, holds: limit, want: held(0)},
		{rule: "longer than it can be held: put off", route: orders, raw: fresh(), after: 4 * time.Minute, holds: 4 * time.Minute, want: put(2, time.Time{}), snoozed: true},
		{rule: "longer than all waits", route: orders, raw: fresh(), after: time.Hour, holds: limit, want: put(2, now.Add(time.Hour)), snoozed: true},
		{rule: "longer, on the last attempt", route: orders, raw: republished(2, nil), after: time.Hour, holds: limit, want: put(2, now.Add(time.Hour)), snoozed: true},
		{rule: "longer, in place", route: orders, raw: fresh(), after: time.Hour, holds: limit, inPlace: true, want: put(2, now.Add(time.Hour)), snoozed: true},
		{rule: "longer, in order: it keeps its place", route: orders, raw: fresh(), after: time.Hour, holds: limit, ordered: true, want: held(time.Hour)},
		{rule: "past the hold limit, in order", route: orders, raw: fresh(), after: time.Second, holds: -time.Minute, ordered: true, want: held(time.Second)},
		{rule: "of a handler that has ended its goroutine: put off", route: orders, raw: fresh(), after: 7 * time.Second, holds: limit, gone: true, want: put(1, time.Time{}), snoozed: true},
		{rule: "told to stop: back to its queue", route: orders, raw: fresh(), after: time.Hour, holds: limit, interrupted: true, want: verdict{move: hand.Requeue}},
		{rule: "a letter is held", route: dlq, raw: fresh(), after: 7 * time.Second, holds: limit, want: held(7 * time.Second)},
		{rule: "without anything to wait in it goes round in its queue", route: dlq, raw: fresh(), after: time.Hour, holds: limit, want: verdict{move: hand.Copy, to: dlq.End(1), notBefore: now.Add(time.Hour), unspent: true, keep: durations.TurnOver}, snoozed: true},
		{rule: "a Settler holds nothing", route: orders, raw: fresh(), after: 7 * time.Second, want: put(1, time.Time{}), snoozed: true},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			on := termsOf(tt.route)
			on.holds, on.ordered, on.inPlace = tt.holds, tt.ordered, tt.inPlace
			var d Delivery
			if err := d.read(&on.route, tt.raw); err != nil {
				t.Fatal(err)
			}
			res := result{err: errors.New("busy"), outcome: Outcome{Action: ActionHoldFor, After: tt.after}, gone: tt.gone}
			got := on.decide(tt.raw, &d, res, tt.interrupted, now)
			if verdictOf(got) != tt.want || got.settlement.Snoozed != tt.snoozed {
				t.Errorf("decide = %+v, snoozed %v; want %+v, %v", verdictOf(got), got.settlement.Snoozed, tt.want, tt.snoozed)
			}
			if ended := d.Attempt - 1; got.Move == hand.Copy && got.Retry.Attempts != ended {
				t.Errorf("the copy says that %d attempts have ended, want %d", got.Retry.Attempts, ended)
			}
		})
	}
}

func TestADeliveryThatIsTooEarlyGoesRoundAgain(t *testing.T) {
	orders := routeOf(topology.WorkQueue{Name: "orders", Waits: delay.Schedule{time.Second, 10 * time.Second}})
	orders.Waits[0].Nack, orders.Waits[1].Nack = true, true
	until := func(d time.Duration) amqp.Table {
		return amqp.Table{header.NotBefore: now.Add(d).UnixMilli()}
	}
	due := func(d time.Duration) amqp.Table { return amqp.Table{header.Due: now.Add(d).UnixMilli()} }
	cutShort := republished(1, due(7*time.Second))
	cutShort.Exchange = ""
	shovelled := republished(1, until(time.Minute))
	shovelled.Exchange = ""
	for _, tt := range []struct {
		rule  string
		raw   amqp.Delivery
		want  verdict
		early bool
	}{
		{"a long time left: the longest wait", republished(1, until(time.Minute)), verdict{move: hand.Copy, waitNumber: 2, notBefore: now.Add(time.Minute), unspent: true}, true},
		{"a short time left: a wait that covers it", republished(1, until(900*time.Millisecond)), verdict{move: hand.Copy, waitNumber: 1, notBefore: now.Add(900 * time.Millisecond), unspent: true}, true},
		{"due", republished(1, until(0)), verdict{}, false},
		{"no date", republished(1, nil), verdict{}, false},
		{"another life's date", shovelled, verdict{}, false},
		{"its wait was cut short: as long as is left", from(2, republished(1, due(7*time.Second))), verdict{move: hand.Copy, waitNumber: 2, due: now.Add(7 * time.Second), unspent: true, skew: 7 * time.Second}, true},
		{"a wait that is much longer than what is left: a shorter one", from(2, republished(1, due(4*time.Second))), verdict{move: hand.Copy, waitNumber: 1, due: now.Add(4 * time.Second), unspent: true, skew: 4 * time.Second}, true},
		{"a clock that is ahead by seconds: no longer than the whole wait", from(1, republished(1, due(7*time.Second))),
			verdict{move: hand.Copy, waitNumber: 1, due: now.Add(time.Second), unspent: true, skew: 7 * time.Second}, true},
		{"a clock that is ahead by days: no longer than the whole wait", from(2, republished(1, due(72*time.Hour))),
			verdict{move: hand.Copy, waitNumber: 2, due: now.Add(10 * time.Second), unspent: true, skew: 72 * time.Hour}, true},
		{"its wait is over", republished(1, due(-time.Millisecond)), verdict{}, false},
		{"a clock that is behind", republished(1, due(time.Second)), verdict{}, false},
		{"another life's due time", cutShort, verdict{}, false},
		{"a date after its wait", republished(1, amqp.Table{header.Due: now.UnixMilli(), header.NotBefore: now.Add(5 * time.Second).UnixMilli()}),
			verdict{move: hand.Copy, waitNumber: 2, notBefore: now.Add(5 * time.Second), unspent: true}, true},
		{"a date of a clock that is ahead by days: what there is after its wait", from(2, republished(1, amqp.Table{header.Due: now.Add(72 * time.Hour).UnixMilli(), header.NotBefore: now.Add(72*time.Hour + 5*time.Second).UnixMilli()})),
			verdict{move: hand.Copy, waitNumber: 2, notBefore: now.Add(72*time.Hour + 5*time.Second), unspent: true, skew: 72 * time.Hour}, true},
		{"a date of a clock that is ahead by days, and no later than its wait", from(2, republished(1, amqp.Table{header.Due: now.Add(72 * time.Hour).UnixMilli(), header.NotBefore: now.Add(72 * time.Hour).UnixMilli()})), verdict{}, false},
		{"a clock that is ahead by days, and a wait that the schedule has no more: no longer than since the first failure", from(3, republished(1, amqp.Table{header.Due: now.Add(72 * time.Hour).UnixMilli(), header.FirstFailedAt: now.Add(72*time.Hour - 8*time.Second)})),
			verdict{move: hand.Copy, waitNumber: 2, due: now.Add(8 * time.Second), unspent: true, skew: 72 * time.Hour}, true},
		{"a wait that the schedule has no more, before a message is put off again: no longer than since it was first put off", from(3, republished(0, amqp.Table{header.Due: now.Add(72 * time.Hour).UnixMilli(), header.Snoozes: int64(1), header.FirstSnoozedAt: now.Add(72*time.Hour - 8*time.Second)})),
			verdict{move: hand.Copy, waitNumber: 2, due: now.Add(8 * time.Second), unspent: true, skew: 72 * time.Hour}, true},
		{"a wait that the schedule has no more was cut short: as long as is left", from(3, republished(1, amqp.Table{header.Due: now.Add(7 * time.Second).UnixMilli(), header.FirstFailedAt: now.Add(-time.Hour)})),
			verdict{move: hand.Copy, waitNumber: 2, due: now.Add(7 * time.Second), unspent: true, skew: 7 * time.Second}, true},
		{"a date of a clock that is ahead by days, and a wait that the schedule has no more: that wait, and what there is after it", from(3, republished(1, amqp.Table{header.FirstFailedAt: now.Add(72*time.Hour - 8*time.Second), header.Due: now.Add(72 * time.Hour).UnixMilli(), header.NotBefore: now.Add(72*time.Hour + 5*time.Second).UnixMilli()})),
			verdict{move: hand.Copy, waitNumber: 2, notBefore: now.Add(72*time.Hour + 5*time.Second), unspent: true, skew: 72*time.Hour - 8*time.Second}, true},
		{"a date after a wait that the schedule has no more", from(3, republished(1, amqp.Table{header.Due: now.UnixMilli(), header.NotBefore: now.Add(5 * time.Second).UnixMilli()})),
			verdict{move: hand.Copy, waitNumber: 2, notBefore: now.Add(5 * time.Second), unspent: true}, true},
		{"nacked while its wait queue was missing", nacked(2, 1), verdict{move: hand.Copy, waitNumber: 2, due: now.Add(9 * time.Second), unspent: true}, true},
		{"nacked, and back from its wait", nacked(2, 2), verdict{}, false},
		{"nacked by another schedule, which had one more wait", nacked(3, 1), verdict{}, false},
		{"a copy that has waited in a lower wait", republished(2, nil), verdict{}, false},
		{"a due time beyond all reason", republished(1, due(9000*time.Hour)), verdict{}, false},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			on := termsOf(orders)
			var d Delivery
			if err := d.read(&on.route, tt.raw); err != nil {
				t.Fatal(err)
			}
			got, early := on.decideEarly(tt.raw, &d, now)
			if verdictOf(got) != tt.want || early != tt.early {
				t.Errorf("decideEarly = %+v, %t, want %+v, %t", verdictOf(got), early, tt.want, tt.early)
			}
		})
	}
}

// The broker brings a message whose wait queue is missing to the first wait that nacks
// lead to. Where that is another schedule's, nobody here knows how long it was.
func TestAMessageThatWasInAWaitOfAnotherScheduleWaitsForAllOfItsOwn(t *testing.T) {
	orders := routeOf(topology.WorkQueue{Name: "orders", Waits: delay.Schedule{10 * time.Second, 11 * time.Second}})
	orders.Waits[1].Nack = true
	on := termsOf(orders)
	raw := nacked(2, 1)
	var d Delivery
	if err := d.read(&on.route, raw); err != nil {
		t.Fatal(err)
	}
	got, early := on.decideEarly(raw, &d, now)
	want := verdict{move: hand.Copy, waitNumber: 2, due: now.Add(11 * time.Second), unspent: true}
	if verdictOf(got) != want || !early {
		t.Errorf("decideEarly = %+v, %t, want %+v", verdictOf(got), early, want)
	}
}

// Another consumer of the queue, with waits, may have put a message off.
func TestADeliveryThatIsTooEarlyAndHasNoWaitGoesToTheEndOfItsQueue(t *testing.T) {
	end := route.Target{Exchange: "orders.rehop.return", RoutingKey: "orders@1"}
	orders := routeOf(topology.WorkQueue{Name: "orders"})
	theirs := routeOf(topology.Route{Queue: "orders"})
	until := func(d time.Duration) amqp.Table {
		return amqp.Table{header.NotBefore: now.Add(d).UnixMilli()}
	}
	for _, tt := range []struct {
		rule  string
		route route.Facts
		raw   amqp.Delivery
		want  verdict
		early bool
	}{
		{"held so long that others take their turn", orders, republished(1, until(time.Minute)),
			verdict{move: hand.Copy, to: end, keep: durations.TurnOver, notBefore: now.Add(time.Minute), unspent: true}, true},
		{"held until it is due", orders, republished(1, until(time.Second)),
			verdict{move: hand.Copy, to: end, keep: time.Second, notBefore: now.Add(time.Second), unspent: true}, true},
		{"its wait was cut short", orders, republished(1, amqp.Table{header.Due: now.Add(time.Minute).UnixMilli()}),
			verdict{move: hand.Copy, to: end, keep: durations.TurnOver, due: now.Add(time.Minute), unspent: true, skew: time.Minute}, true},
		{"a queue that others declared", theirs, republished(1, until(time.Minute)),
			verdict{move: hand.Copy, to: route.Target{RoutingKey: "orders"}, keep: durations.TurnOver, notBefore: now.Add(time.Minute), unspent: true}, true},
		{"a later attempt, for the wait that a nack leads to", orders, republished(3, until(time.Minute)),
			verdict{move: hand.Copy, to: route.Target{Exchange: "orders.rehop.return", RoutingKey: "orders@3"}, keep: durations.TurnOver, notBefore: now.Add(time.Minute), unspent: true}, true},
		{"due", orders, republished(1, until(0)), verdict{}, false},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			on := termsOf(tt.route)
			var d Delivery
			if err := d.read(&on.route, tt.raw); err != nil {
				t.Fatal(err)
			}
			got, early := on.decideEarly(tt.raw, &d, now)
			if verdictOf(got) != tt.want || early != tt.early {
				t.Errorf("decideEarly = %+v, %t, want %+v, %t", verdictOf(got), early, tt.want, tt.early)
			}
		})
	}
}

// What no worker has had goes to the end of its queue as well, or where it has to wait on. It is still early when it
// comes again.
func TestAMessageThatNoWorkerHasHadWaitsOn(t *testing.T) {
	waits := routeOf(topology.WorkQueue{Name: "orders", Waits: delay.Schedule{time.Minute, time.Hour}, Engine: topology.EngineRepublish})
	none := routeOf(topology.WorkQueue{Name: "orders"})
	end := route.Target{Exchange: "orders.rehop.return", RoutingKey: "orders@1"}
	until := func(d time.Duration) amqp.Table { return amqp.Table{header.NotBefore: now.Add(d).UnixMilli()} }
	for _, tt := range []struct {
		rule  string
		route route.Facts
		raw   amqp.Delivery
		to    route.Target
		early time.Duration // that the copy is early by when it comes again at once
	}{
		{"due", waits, republished(1, until(0)), end, 0},
		{"after a RetryAfter", waits, republished(1, until(30*time.Minute)), waits.Waits[1].At, 30 * time.Minute},
		{"its wait was cut short, and each wait is too long", waits, republished(1, amqp.Table{header.Due: now.Add(5 * time.Second).UnixMilli()}), end, 5 * time.Second},
		{"without waits", none, republished(1, until(time.Minute)), end, time.Minute},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			on := termsOf(tt.route)
			var d Delivery
			if err := d.read(&on.route, tt.raw); err != nil {
				t.Fatal(err)
			}
			i := on.unbegun(tt.raw, &d, now)
			if i.Move != hand.Copy || i.To != tt.to {
				t.Errorf("%+v, want a copy to %v", i, tt.to)
			}
			if tt.to != end {
				if !i.Retry.NotBefore.Equal(now.Add(tt.early)) {
					t.Errorf("%+v, want it not before %v", i, now.Add(tt.early))
				}
				return
			}
			p, _ := i.Publishing(tt.raw, now)
			again := amqp.Delivery{Exchange: end.Exchange, RoutingKey: end.RoutingKey, Headers: p.Headers}
			if err := d.read(&on.route, again); err != nil {
				t.Fatal(err)
			}
			_, early := on.decideEarly(again, &d, now)
			_, over := on.decideEarly(again, &d, now.Add(tt.early))
			if d.Attempt != 2 || early != (tt.early > 0) || over {
				t.Errorf("attempt %d comes again: early %t, and after %v %t", d.Attempt, early, tt.early, over)
			}
		})
	}
}

// The dates on a letter are for its dead-letter queue if a consumer of that has put it off.
// Those that a letter of the broker has were for its work queue.
func TestALetterIsTooEarlyWhereItWasPutOff(t *testing.T) {
	dlq, theirs := routeOf(topology.DeadLetterQueue{Name: "orders.dlq"}), routeOf(topology.Route{Queue: "orders"})
	dates := amqp.Table{header.NotBefore: now.Add(time.Minute).UnixMilli(), header.Due: now.UnixMilli()}
	with := func(headers, more amqp.Table) amqp.Delivery {
		raw := amqp.Delivery{Headers: amqp.Table{}}
		maps.Copy(raw.Headers, headers)
		maps.Copy(raw.Headers, more)
		return raw
	}
	final := amqp.Table{header.Queue: "orders", header.FinalAttempts: int64(3), header.Cause: "exhausted"}
	crashed := amqp.Table{"x-death": []any{amqp.Table{"queue": "orders", "reason": "delivery_limit", "count": int64(1), "exchange": "shop", "routing-keys": []any{"order.paid"}}}}
	for _, tt := range []struct {
		rule  string
		route route.Facts
		raw   amqp.Delivery
		early bool
	}{
		{"put off", dlq, with(final, dates), true},
		{"its wait was cut short", dlq, with(final, amqp.Table{header.Due: now.Add(time.Minute).UnixMilli()}), true},
		{"sent by hand, and put off", dlq, with(amqp.Table{header.Exchange: "", header.RoutingKey: "orders.dlq"}, dates), true},
		{"due", dlq, with(final, amqp.Table{header.NotBefore: now.UnixMilli()}), false},
		{"moved by the broker when it was not due", dlq, with(crashed, republished(2, dates).Headers), false},
		{"brought back when its work queue was gone", dlq, republished(2, dates), false},
		{"sent there with a delay", dlq, with(nil, amqp.Table{header.Exchange: "", header.RoutingKey: "orders.dlq", header.Due: now.Add(time.Minute).UnixMilli()}), false},
		{"put off, and moved back to its queue by hand", theirs, with(final, dates), false},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			on := termsOf(tt.route)
			var d Delivery
			if err := d.read(&on.route, tt.raw); err != nil {
				t.Fatal(err)
			}
			if got, early := on.decideEarly(tt.raw, &d, now); early != tt.early || early && got.To != (route.Target{RoutingKey: "orders.dlq"}) {
				t.Errorf("decideEarly = %+v, %t, want %t", verdictOf(got), early, tt.early)
			}
		})
	}
}

// Returns may count in a dead-letter queue that was declared on 3.x.
func TestALetterThatGoesToTheEndOfItsQueueStaysOne(t *testing.T) {
	on := termsOf(routeOf(topology.DeadLetterQueue{Name: "orders.dlq"}))
	raw := amqp.Delivery{Headers: amqp.Table{"x-death": []any{amqp.Table{"queue": "orders", "reason": "delivery_limit", "count": int64(1), "exchange": "shop", "routing-keys": []any{"order.paid"}}}}}
	var d Delivery
	if err := d.read(&on.route, raw); err != nil {
		t.Fatal(err)
	}
	p, _ := on.toTheEnd(raw, &d).Publishing(raw, now)
	var again Delivery
	if err := again.read(&on.route, amqp.Delivery{RoutingKey: "orders.dlq", Headers: p.Headers}); err != nil {
		t.Fatal(err)
	}
	if h := again.History; h.Failure != d.History.Failure || h.Failure.Cause != rehop.CauseCrashLoop || h.Queue != "orders" || again.Exchange != "shop" || again.RoutingKey != "order.paid" {
		t.Errorf("the copy is %+v", again)
	}
}

// A message that waits in exact delays, or goes to the end of its queue, has none of
// the waits that its copy could outlast.
func TestACopyWithoutAWaitNumberHasNoExpiration(t *testing.T) {
	on := termsOf(routeOf(topology.WorkQueue{Name: "orders"}))
	on.route.Unseen = true
	raw := republished(1, amqp.Table{header.NotBefore: now.Add(time.Minute).UnixMilli()})
	var d Delivery
	if err := d.read(&on.route, raw); err != nil {
		t.Fatal(err)
	}
	early, _ := on.decideEarly(raw, &d, now)
	for _, v := range []decision{early, on.waitAt(route.Exact{Takes: time.Minute}, on.copyOf(raw, &d, now))} {
		if p, _ := v.Publishing(raw, now); p.Expiration != "" {
			t.Errorf("%+v: the copy expires after %s ms", v, p.Expiration)
		}
	}
}

// A nack and a wait make the headers longer. It is for the frames of the session
// to leave room for that, and a copy is sent where they do not.
func TestANackLeavesRoomForWhatTheBrokerAdds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker, err := rehoptest.NewBroker(rehoptest.Config{Version: "4.3"})
		if err != nil {
			t.Fatal(err)
		}
		defer broker.Close()
		conn, err := connection.Open(t.Context(), connection.Config{URLs: []string{"amqp://guest:guest@broker"}, Dial: broker.Dial})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		orders := topology.WorkQueue{Name: "orders", Type: topology.Quorum, Waits: delay.Fixed(time.Second, 3)}
		if err := topology.Declare(t.Context(), conn, orders); err != nil {
			t.Fatal(err)
		}
		resolved, err := routeOf(orders).Broker.Resolve(t.Context(), conn)
		if err != nil {
			t.Fatal(err)
		}
		on := termsOf(resolved)
		for _, tt := range []struct {
			rule  string
			frame int
			bytes int
			want  hand.Verb
		}{
			{"no limit", 0, 4000, hand.Nack},
			{"large frames", 128 << 10, 4000, hand.Nack},
			{"large frames, half full", 128 << 10, 63 << 10, hand.Copy},
			{"small frames", 8 << 10, 4000, hand.Copy},
			{"small frames, few headers", 16 << 10, 3000, hand.Nack},
			{"small frames, half full", 16 << 10, 5000, hand.Copy},
		} {
			raw := amqp.Delivery{RoutingKey: "orders", Headers: amqp.Table{"large": strings.Repeat("x", tt.bytes)}}
			var d Delivery
			if err := d.read(&on.route, raw); err != nil {
				t.Fatal(err)
			}
			on.frame = tt.frame
			got := on.decide(raw, &d, result{err: errGoexit, outcome: Outcome{Action: ActionRetry}, gone: true}, false, now)
			if got.Move != tt.want || got.settlement.WaitNumber != 1 {
				t.Errorf("%s: %+v, want move %d", tt.rule, got, tt.want)
			}
		}
	})
}
