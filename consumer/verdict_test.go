package consumer

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/topology"
	"github.com/rehop/rehop/xdeath"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// republished is a delivery that came back from a wait after `ended` attempts.
func republished(ended int, more amqp.Table) amqp.Delivery {
	headers := amqp.Table{xdeath.HeaderQueue: "orders", xdeath.HeaderAttempts: int64(ended)}
	for k, v := range more {
		headers[k] = v
	}
	return amqp.Delivery{Exchange: "orders.retry", RoutingKey: "orders@1", Headers: headers}
}

// nacked is a delivery that came back from the wait of a rung after so many nacks.
func nacked(times, rung int) amqp.Delivery {
	return amqp.Delivery{Exchange: "orders.retry", RoutingKey: fmt.Sprintf("orders@%d", rung), Headers: amqp.Table{"x-death": []any{
		amqp.Table{"queue": "orders", "reason": "rejected", "count": int64(times), "exchange": "shop", "routing-keys": []any{"order.paid"}},
	}}}
}

func fresh() amqp.Delivery { return amqp.Delivery{Exchange: "shop", RoutingKey: "order.paid"} }

func TestDecideUnderRepublish(t *testing.T) {
	orders := topology.WorkQueue{Name: "orders", Waits: delay.Schedule{time.Second, 3 * time.Second, 2 * time.Second}}.Route()
	dlq := topology.DeadLetterQueue{Name: "orders.dlq"}.Route()
	foreign := topology.Route{Queue: "theirs"}
	foreignWithPlace := topology.Route{Queue: "theirs", DeadLetter: topology.Address{Key: "theirs.dead"}}
	failed := Outcome{Action: ActionRetry}
	after := func(d time.Duration) Outcome { return Outcome{Action: ActionRetryAfter, After: d} }
	for _, tt := range []struct {
		rule        string
		route       topology.Route
		raw         amqp.Delivery
		outcome     Outcome
		interrupted bool
		want        verdict
	}{
		{"done", orders, fresh(), Outcome{Action: ActionDone}, false, verdict{move: moveAck}},
		{"done although told to stop", orders, fresh(), Outcome{Action: ActionDone}, true, verdict{move: moveAck}},
		{"discard", orders, fresh(), Outcome{Action: ActionDiscard}, false, verdict{move: moveAck}},
		{"first failure", orders, fresh(), failed, false, verdict{move: moveWait, rung: 1}},
		{"third failure", orders, republished(2, nil), failed, false, verdict{move: moveWait, rung: 3}},
		{"no attempt left", orders, republished(3, nil), failed, false, verdict{move: moveDeadLetter, cause: xdeath.CauseExhausted}},
		{"more attempts than waits, after the schedule became shorter", orders, republished(9, nil), failed, false, verdict{move: moveDeadLetter, cause: xdeath.CauseExhausted}},
		{"failure of an interrupted handler spends nothing", orders, republished(3, nil), failed, true, verdict{move: moveRequeue}},
		{"permanent", orders, fresh(), Outcome{Action: ActionDeadLetter}, false, verdict{move: moveDeadLetter, cause: xdeath.CausePermanent}},
		{"requeue", orders, fresh(), Outcome{Action: ActionRequeue}, false, verdict{move: moveHold}},
		{"retry after: the shortest wait that is not shorter", orders, fresh(), after(1500 * time.Millisecond), false, verdict{move: moveWait, rung: 3}},
		{"retry after a time that has passed: the wait of the schedule", orders, republished(1, nil), after(0), false, verdict{move: moveWait, rung: 2}},
		{"retry after: longer than all", orders, fresh(), after(time.Minute), false, verdict{move: moveWait, rung: 2, notBefore: now.Add(time.Minute)}},
		{"retry after without an attempt left", orders, republished(3, nil), after(time.Second), false, verdict{move: moveDeadLetter, cause: xdeath.CauseExhausted}},
		{"dead-letter queue: a failure is held", dlq, fresh(), failed, false, verdict{move: moveHold}},
		{"dead-letter queue: a dead letter of a dead letter is held", dlq, fresh(), Outcome{Action: ActionDeadLetter}, false, verdict{move: moveHold}},
		{"their queue: held, for want of a place", foreign, fresh(), failed, false, verdict{move: moveHold}},
		{"their queue with a place for dead letters", foreignWithPlace, fresh(), failed, false, verdict{move: moveDeadLetter, cause: xdeath.CauseExhausted}},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			d, err := newDelivery(wayOf(tt.route), tt.raw)
			if err != nil {
				t.Fatal(err)
			}
			if got := decide(wayOf(tt.route), 0, tt.raw, d, tt.outcome, tt.interrupted, now); got != tt.want {
				t.Errorf("decide = %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestADeliveryThatIsTooEarlyGoesRoundAgain(t *testing.T) {
	orders := topology.WorkQueue{Name: "orders", Waits: delay.Schedule{time.Second, 10 * time.Second}}.Route()
	until := func(d time.Duration) amqp.Table {
		return amqp.Table{xdeath.HeaderNotBefore: now.Add(d).UnixMilli()}
	}
	due := func(d time.Duration) amqp.Table { return amqp.Table{xdeath.HeaderDue: now.Add(d).UnixMilli()} }
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
		{"a long time left: the longest wait", republished(1, until(time.Minute)), verdict{move: moveWait, rung: 2, notBefore: now.Add(time.Minute), unspent: true}, true},
		{"a short time left: a wait that covers it", republished(1, until(900*time.Millisecond)), verdict{move: moveWait, rung: 1, notBefore: now.Add(900 * time.Millisecond), unspent: true}, true},
		{"due", republished(1, until(0)), verdict{}, false},
		{"no date", republished(1, nil), verdict{}, false},
		{"another life's date", shovelled, verdict{}, false},
		{"its wait was cut short: as long as is left", republished(1, due(7*time.Second)), verdict{move: moveWait, rung: 2, due: now.Add(7 * time.Second), unspent: true}, true},
		{"its wait is over", republished(1, due(-time.Millisecond)), verdict{}, false},
		{"a clock that is behind", republished(1, due(time.Second)), verdict{}, false},
		{"another life's due time", cutShort, verdict{}, false},
		{"a date after its wait", republished(1, amqp.Table{xdeath.HeaderDue: now.UnixMilli(), xdeath.HeaderNotBefore: now.Add(5 * time.Second).UnixMilli()}),
			verdict{move: moveWait, rung: 2, notBefore: now.Add(5 * time.Second), unspent: true}, true},
		{"nacked while its wait queue was missing", nacked(2, 1), verdict{move: moveWait, rung: 2, due: now.Add(9 * time.Second), unspent: true}, true},
		{"nacked, and back from its wait", nacked(2, 2), verdict{}, false},
		{"nacked by another schedule, which had one more wait", nacked(3, 1), verdict{}, false},
		{"a copy that has waited in a lower wait", republished(2, nil), verdict{}, false},
		{"a due time beyond all reason", republished(1, due(9000*time.Hour)), verdict{}, false},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			d, err := newDelivery(wayOf(orders), tt.raw)
			if err != nil {
				t.Fatal(err)
			}
			d.History.NotBefore, d.History.Due = d.History.NotBefore.UTC(), d.History.Due.UTC()
			got, early := tooEarly(wayOf(orders), tt.raw, d, now)
			if got != tt.want || early != tt.early {
				t.Errorf("tooEarly = %+v, %t, want %+v, %t", got, early, tt.want, tt.early)
			}
		})
	}
}

// Another consumer of the queue, with waits, may have put a message off.
func TestADeliveryThatIsTooEarlyAndHasNoWaitGoesToTheEndOfItsQueue(t *testing.T) {
	end := exact{to: topology.Address{Exchange: "orders.retry", Key: "orders@1"}}
	orders := topology.WorkQueue{Name: "orders"}.Route()
	theirs := topology.Route{Queue: "orders"}
	until := func(d time.Duration) amqp.Table {
		return amqp.Table{xdeath.HeaderNotBefore: now.Add(d).UnixMilli()}
	}
	for _, tt := range []struct {
		rule  string
		route topology.Route
		raw   amqp.Delivery
		want  verdict
		early bool
	}{
		{"held so long that others take their turn", orders, republished(1, until(time.Minute)),
			verdict{move: moveWait, exact: end, holdFor: turnOver, notBefore: now.Add(time.Minute), unspent: true}, true},
		{"held until it is due", orders, republished(1, until(time.Second)),
			verdict{move: moveWait, exact: end, holdFor: time.Second, notBefore: now.Add(time.Second), unspent: true}, true},
		{"its wait was cut short", orders, republished(1, amqp.Table{xdeath.HeaderDue: now.Add(time.Minute).UnixMilli()}),
			verdict{move: moveWait, exact: end, holdFor: turnOver, due: now.Add(time.Minute), unspent: true}, true},
		{"a queue that others declared", theirs, republished(1, until(time.Minute)),
			verdict{move: moveWait, exact: exact{to: topology.Address{Key: "orders"}}, holdFor: turnOver, notBefore: now.Add(time.Minute), unspent: true}, true},
		{"a later attempt, for the wait that a nack leads to", orders, republished(3, until(time.Minute)),
			verdict{move: moveWait, exact: exact{to: topology.Address{Exchange: "orders.retry", Key: "orders@3"}}, holdFor: turnOver, notBefore: now.Add(time.Minute), unspent: true}, true},
		{"due", orders, republished(1, until(0)), verdict{}, false},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			d, err := newDelivery(wayOf(tt.route), tt.raw)
			if err != nil {
				t.Fatal(err)
			}
			d.History.NotBefore, d.History.Due = d.History.NotBefore.UTC(), d.History.Due.UTC()
			got, early := tooEarly(wayOf(tt.route), tt.raw, d, now)
			if got != tt.want || early != tt.early {
				t.Errorf("tooEarly = %+v, %t, want %+v, %t", got, early, tt.want, tt.early)
			}
		})
	}
}

// What waits in exact delays, or goes to the end of its queue, has none of the waits
// that its copy could outlast.
func TestACopyWithoutARungHasNoExpiration(t *testing.T) {
	orders := wayOf(topology.WorkQueue{Name: "orders"}.Route())
	orders.facts.Unseen = true
	for _, v := range []verdict{
		{move: moveWait, exact: exact{takes: time.Minute}},
		{move: moveWait, exact: exact{to: orders.end(2)}, holdFor: time.Second, notBefore: now, unspent: true},
	} {
		m := &message{from: &origin{route: orders}, raw: republished(1, nil), ending: &ending{verdict: v}}
		m.delivery, _ = newDelivery(orders, m.raw)
		if p := retryCopy(m, now); p.Expiration != "" {
			t.Errorf("%+v: the copy expires after %s ms", v, p.Expiration)
		}
	}
}

func TestDeliveryShowsTheProducersExchangeAndKeyOnEveryAttempt(t *testing.T) {
	route := topology.WorkQueue{Name: "orders", Waits: delay.Fixed(time.Second, 3)}.Route()
	for _, tt := range []struct {
		rule    string
		raw     amqp.Delivery
		attempt int
		last    bool
	}{
		{"first", fresh(), 1, false},
		{"after a republish", republished(1, amqp.Table{xdeath.HeaderExchange: "shop", xdeath.HeaderRoutingKey: "order.paid"}), 2, false},
		{"after two nacks", amqp.Delivery{Exchange: "orders.retry", RoutingKey: "orders@2", Headers: amqp.Table{"x-death": []any{
			amqp.Table{"queue": "orders", "reason": "rejected", "count": int64(2), "exchange": "shop", "routing-keys": []any{"order.paid"}},
		}}}, 3, false},
		{"after a republish and a nack", republished(2, amqp.Table{
			xdeath.HeaderExchange: "shop", xdeath.HeaderRoutingKey: "order.paid",
			"x-death": []any{amqp.Table{"queue": "orders", "reason": "rejected", "count": int64(1), "exchange": "orders.retry", "routing-keys": []any{"orders@2"}}},
		}), 4, true},
		{"somebody else's history on a fresh message", amqp.Delivery{Exchange: "shop", RoutingKey: "order.paid",
			Headers: republished(7, amqp.Table{xdeath.HeaderExchange: "x", xdeath.HeaderRoutingKey: "y"}).Headers}, 1, false},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			d, err := newDelivery(wayOf(route), tt.raw)
			if err != nil {
				t.Fatal(err)
			}
			if d.Exchange != "shop" || d.Key != "order.paid" || d.Attempt != tt.attempt || d.LastAttempt != tt.last {
				t.Errorf("exchange %q, key %q, attempt %d, last %t; want shop, order.paid, %d, %t", d.Exchange, d.Key, d.Attempt, d.LastAttempt, tt.attempt, tt.last)
			}
		})
	}
}

func TestADeliveryGivesBackWhatItWasMadeOf(t *testing.T) {
	raw := amqp.Delivery{
		Exchange: "shop", RoutingKey: "order.paid", Redelivered: true, Headers: amqp.Table{"tenant": "x"},
		MessageId: "m", Type: "order", ContentType: "application/json", ContentEncoding: "gzip",
		DeliveryMode: amqp.Persistent, CorrelationId: "c", ReplyTo: "r", AppId: "a", UserId: "guest",
		Timestamp: time.Unix(1, 0), Priority: 7, Expiration: "60000", Body: []byte("body"),
	}
	v := reflect.ValueOf(raw)
	for i := range v.NumField() { // a property that the library gains is to be thought of
		switch name := v.Type().Field(i).Name; name {
		case "Acknowledger", "ConsumerTag", "MessageCount", "DeliveryTag":
		default:
			if v.Field(i).IsZero() {
				t.Errorf("the test leaves out %s", name)
			}
		}
	}
	d, err := newDelivery(wayOf(topology.WorkQueue{Name: "orders"}.Route()), raw)
	if err != nil {
		t.Fatal(err)
	}
	if got := d.AMQP(); !reflect.DeepEqual(got, raw) {
		t.Errorf("AMQP() = %+v\nwant %+v", got, raw)
	}
}

func TestWhyAMessageIsInADeadLetterQueue(t *testing.T) {
	permanent := amqp.Table{xdeath.HeaderReason: string(xdeath.CausePermanent)}
	for _, tt := range []struct {
		rule, queue string
		raw         amqp.Delivery
		cause       xdeath.Cause
		attempts    int
	}{
		{"carried back when its work queue was gone", "orders.dlq", republished(2, nil), xdeath.CauseExpired, 2},
		{"a letter that was retried for its work queue and carried back", "orders.dlq", republished(2, permanent), xdeath.CausePermanent, 0},
		{"a copy for another attempt at the dead-letter queue itself", "orders", republished(2, nil), "", 0},
		{"published there by hand", "orders.dlq", fresh(), "", 0},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			d, err := newDelivery(wayOf(topology.DeadLetterQueue{Name: tt.queue}.Route()), tt.raw)
			if err != nil {
				t.Fatal(err)
			}
			if h := d.History; h.Failure.Cause != tt.cause || h.FinalAttempts != tt.attempts {
				t.Errorf("cause %q after %d attempts, want %q after %d", h.Failure.Cause, h.FinalAttempts, tt.cause, tt.attempts)
			}
		})
	}
}
