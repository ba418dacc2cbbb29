package conformance

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/integration/matrix"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
)

// delays are those of all tests here. They are the broker's, and shared: no test
// deletes them.
var delays = topology.Delays{Grain: 10 * time.Millisecond, Max: time.Hour}

// declareDelays declares delays and what is delayed to; the latter is deleted at
// the end.
func (e *env) declareDelays(specs ...topology.Spec) {
	e.Helper()
	if err := topology.Declare(e.Context(), e.conn, append([]topology.Spec{delays}, specs...)...); err != nil {
		e.Fatal(err)
	}
	for _, s := range specs {
		plan, err := topology.NewPlan(e.conn.Server().Version, s)
		if err != nil {
			e.Fatal(err)
		}
		e.deleteLater(plan)
	}
}

func TestDelayed(t *testing.T) {
	everywhere(t, func(e *env) {
		x := topology.Exchange{Name: e.name("exchange")}
		w := e.workQueue("work", func(w *topology.WorkQueue) {
			w.Bindings = []topology.Binding{{Exchange: x.Name, RoutingKey: "order.#"}}
		})
		e.declareDelays(x, w)
		j := newJournal(func(context.Context, *consumer.Delivery) error { return nil })
		e.consume(w, j, consumer.Config{})
		sent := map[string]time.Time{}
		messages := []producer.Message{{ID: e.name("far"), RoutingKey: w.Name, Delay: 50 * time.Minute}}
		for i, d := range []time.Duration{1230, 10, 320, 70, 640} {
			messages = append(messages,
				producer.Message{ID: fmt.Sprintf("%s-q%d", e.prefix, i), RoutingKey: w.Name, Delay: d * time.Millisecond, Priority: 7, Headers: amqp.Table{"a": "b"}},
				producer.Message{ID: fmt.Sprintf("%s-x%d", e.prefix, i), Exchange: x.Name, RoutingKey: "order.paid", Delay: d * time.Millisecond})
		}
		for _, m := range messages {
			sent[m.ID] = time.Now()
			e.publish(m)
		}
		for _, m := range messages[1:] {
			e.until(m.ID+" came", func() bool { return j.reached(m.ID, consumer.DispositionDone) })
			runs := j.of(m.ID)
			e.checkWait(e.T, m.ID, 1, runs[0].began.Sub(sent[m.ID]), m.Delay)
			d := runs[0]
			if len(runs) != 1 || d.Attempt != 1 || d.Exchange != m.Exchange || d.RoutingKey != m.RoutingKey || d.Priority != m.Priority || d.Headers["a"] != m.Headers["a"] {
				e.Errorf("%q came %d times as attempt %d, by %q and %q, with priority %d and %v", m.ID, len(runs), d.Attempt, d.Exchange, d.RoutingKey, d.Priority, d.Headers)
			}
		}
		if len(j.of(messages[0].ID)) != 0 {
			e.Error("a delay of 50 minutes is over")
		}
	}, "delay: exact, to a queue and to an exchange")
}

func TestRetryAfterIsExact(t *testing.T) {
	everywhere(t, func(e *env) {
		const after = 230 * time.Millisecond // wait 2 has 300 ms
		w := e.workQueue("work")
		e.declareDelays(w)
		j := newJournal(func(_ context.Context, d *consumer.Delivery) error {
			switch d.Attempt {
			case 1, 3:
				return consumer.RetryAfter(after, errBroken)
			case 2:
				return errBroken
			}
			return nil
		})
		id := e.publish(producer.Message{RoutingKey: w.Name, Priority: 7, Headers: amqp.Table{"a": "b"}})
		e.consume(w, j, consumer.Config{})
		e.until("it is done", func() bool { return j.settledAs(id, 4, consumer.DispositionDone) })
		runs := j.of(id)
		if len(runs) != 4 {
			e.Fatalf("attempts are %v, want 1 to 4", j.attempts(id))
		}
		for i, want := range []time.Duration{after, scaled[1], after} {
			next := runs[i+1]
			e.checkWait(e.T, id, i+2, next.began.Sub(runs[i].ended), want)
			if next.Attempt != i+2 || next.Priority != 7 || next.Headers["a"] != "b" || next.RoutingKey != w.Name || next.Exchange != "" {
				e.Errorf("attempt %d is %d by %q and %q, priority %d, headers %v", i+2, next.Attempt, next.Exchange, next.RoutingKey, next.Priority, next.Headers)
			}
		}
		for i := range 2 {
			if got := j.settlements(id)[2*i]; got != (consumer.Settlement{Disposition: consumer.DispositionWait}) {
				e.Errorf("attempt %d is said to be in %+v, want an exact delay", 2*i+1, got)
			}
		}
		e.atRest(w, 0)
	}, "delay: RetryAfter is exact")
}

func TestDelayedToNobody(t *testing.T) {
	everywhere(t, func(e *env) {
		x := topology.Exchange{Name: e.name("exchange")}
		w := e.workQueue("work")
		gone := e.workQueue("gone")
		own := e.ownDelays(time.Minute)
		if err := topology.Declare(e.Context(), e.conn, own, x, w, gone); err != nil {
			e.Fatal(err)
		}
		for _, s := range []topology.Spec{own, x, w} {
			plan, err := topology.NewPlan(e.conn.Server().Version, s)
			if err != nil {
				e.Fatal(err)
			}
			e.deleteLater(plan)
		}
		// The test deletes the queue before it publishes, because a busy machine may take longer
		// than any delay. The broker looks for the queue only at the end of the delay.
		// Its own Conn would refuse the messages from then on.
		if err := topology.DeleteAll(e.Context(), e.connect(e.node.AMQPURL()), gone); err != nil {
			e.Fatal(err)
		}
		e.deleteQueue(gone.Name)
		const after = time.Second
		stranded := map[string]bool{}
		var batch []producer.Message // one after the other would take seconds on a busy machine
		for i := range 40 {          // more than the broker has in flight
			batch = append(batch,
				producer.Message{ID: fmt.Sprintf("%s-gone%d", e.prefix, i), RoutingKey: gone.Name, Delay: after},
				producer.Message{ID: fmt.Sprintf("%s-unbound%d", e.prefix, i), Exchange: x.Name, RoutingKey: "nobody", Delay: after})
		}
		for _, m := range batch {
			stranded[m.ID] = true
		}
		if _, err := e.producer.PublishAll(e.Context(), batch); err != nil {
			e.Fatal(err)
		}
		j := newJournal(func(context.Context, *consumer.Delivery) error { return nil })
		e.consume(w, j, consumer.Config{})
		id := e.publish(producer.Message{ID: e.name("there"), RoutingKey: w.Name, Delay: after})
		e.until("the message behind them came", func() bool { return j.reached(id, consumer.DispositionDone) })
		var found int
		dead := newJournal(func(_ context.Context, d *consumer.Delivery) error {
			if d.History.Failure.Cause != rehop.CauseUnroutable || strings.Contains(d.ID, "gone") && d.RoutingKey != gone.Name || strings.Contains(d.ID, "unbound") && (d.Exchange != x.Name || d.RoutingKey != "nobody") {
				e.Errorf("%q is stranded for %q, on its way to %q and %q", d.ID, d.History.Failure.Cause, d.Exchange, d.RoutingKey)
			}
			return nil
		})
		e.consume(own.Stranded(), dead, consumer.Config{Concurrency: 200})
		e.until("all are stranded", func() bool {
			found = 0
			for id := range stranded {
				if len(dead.of(id)) > 0 {
					found++
				}
			}
			return found == len(stranded)
		})
	}, "delay: what finds no target is stranded")
}

func TestDelayRefused(t *testing.T) {
	onNewest(t, func(e *env) {
		w := e.workQueue("work")
		e.declareDelays(w)
		for _, row := range []struct {
			rule string
			m    producer.Message
			want string
		}{
			{"no target", producer.Message{RoutingKey: e.name("other"), Delay: time.Second}, "declare topology.Delays"},
			{"beyond Max", producer.Message{RoutingKey: w.Name, Delay: 2 * time.Hour}, "want at most 1h"},
		} {
			if _, err := e.producer.Publish(e.Context(), row.m); err == nil || !strings.Contains(err.Error(), row.want) {
				e.Errorf("%s: the error is %v, want %q in it", row.rule, err, row.want)
			}
		}
	}, "delay: refused before the network")
}

func TestDelayToATargetWithALimit(t *testing.T) {
	everywhere(t, func(e *env) {
		full := e.name("full")
		ch, err := e.raw.Channel()
		if err != nil {
			e.Fatal(err)
		}
		defer ch.Close()
		if _, err := ch.QueueDeclare(full, true, false, false, false, amqp.Table{"x-queue-type": string(e.queue), "x-max-length": int64(5), "x-overflow": "reject-publish"}); err != nil {
			e.Fatal(err)
		}
		e.deleteAtEnd([]string{full}, nil)
		limited := delays
		limited.Queues = []string{full}
		if err := topology.Declare(e.Context(), e.conn, limited); err == nil || !strings.Contains(err.Error(), "x-max-length 5 and overflow reject-publish") {
			e.Errorf("a target with a limit: the error is %v", err)
		}
		limited.Queues = []string{e.name("missing")}
		if err := topology.Declare(e.Context(), e.conn, limited); err == nil || !strings.Contains(err.Error(), "does not exist") {
			e.Errorf("a target that is missing: the error is %v", err)
		}
	}, "delay: a target with a limit is refused")
}

// The broker compares the keys of delayed messages as a topic exchange does, whatever the
// kind of the exchange that they are for.
func TestDelayedByAnyKey(t *testing.T) {
	onEveryEngine(t, func(e *env) {
		w := e.workQueue("work")
		rows := []struct {
			kind, bound, key string
			refused          string
		}{
			{"topic", "order.#", "order.*", ""},
			{"topic", "order.*", "order.*", ""},
			{"topic", "#.paid", "#.paid", ""},
			{"topic", "#", "", ""},
			{"topic", "", "", ""},
			{"topic", "*.*", "order.", ""},
			{"fanout", "", "#", ""},
			{"fanout", "x", "order.*", ""},
			{"fanout", "", "", ""},
			{"direct", "order.paid", "order.paid", ""},
			{"direct", "order*.#1", "order*.#1", ""},
			{"direct", "", "", ""},
			{"direct", "..", "..", ""},
			{"direct", "n.+.-.=." + w.Name, "n.+.-.=." + w.Name, ""},
			{"direct", ">1.shop.#1", ">1.shop.#1", ""},
			{"direct", "order.*", "order.*", "kind direct"},
			{"direct", "#", "#", "kind direct"},
			{"headers", "", "order.*", "kind headers"},
		}
		specs := []topology.Spec{}
		for i, row := range rows {
			x := topology.Exchange{Name: e.name(fmt.Sprintf("x%d", i)), Kind: row.kind}
			b := topology.Binding{Exchange: x.Name, RoutingKey: row.bound}
			if row.kind == "headers" {
				b.Headers = amqp.Table{"x-match": "all"}
			}
			w.Bindings = append(w.Bindings, b)
			specs = append(specs, x)
		}
		e.declareDelays(append(specs, w)...)
		j := newJournal(func(context.Context, *consumer.Delivery) error { return nil })
		e.consume(w, j, consumer.Config{})
		for i, row := range rows {
			m := producer.Message{ID: fmt.Sprintf("%s-straight%d", e.prefix, i), Exchange: w.Bindings[i].Exchange, RoutingKey: row.key}
			ids := []string{e.publish(m)}
			m.ID, m.Delay = fmt.Sprintf("%s-delayed%d", e.prefix, i), 30*time.Millisecond
			_, err := e.producer.Publish(e.Context(), m)
			switch {
			case row.refused == "" && err != nil:
				e.Errorf("key %q to a %s exchange: %v", row.key, row.kind, err)
			case row.refused != "" && (err == nil || !strings.Contains(err.Error(), row.refused)):
				e.Errorf("key %q to a %s exchange: the error is %v, want %q in it", row.key, row.kind, err, row.refused)
			case err == nil:
				ids = append(ids, m.ID)
			}
			for _, id := range ids {
				e.until(id+" came", func() bool { return j.reached(id, consumer.DispositionDone) })
				if runs := j.of(id); len(runs) != 1 || runs[0].Exchange != m.Exchange || runs[0].RoutingKey != row.key {
					e.Errorf("%q came %d times, by %q and %q", id, len(runs), runs[0].Exchange, runs[0].RoutingKey)
				}
			}
		}
	}, "delay: by any key, or refused")
}

// exact4 is an Except for RetryAfter, which keeps to the waits of 3.x.
func exact4(version, queueType string) string {
	if matrix.Only4(version, queueType) != "" {
		return "3.x moves what ends a delay unconfirmed: RetryAfter keeps to the waits"
	}
	return ""
}
