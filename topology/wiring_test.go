package topology

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/internal/route"
)

var v4 = connection.Version{Major: 4, Minor: 3}

func workQueue(waits int) WorkQueue {
	return WorkQueue{Name: "q", Waits: delay.Fixed(time.Second, waits)}
}

func planOf(t *testing.T, w WorkQueue, v connection.Version, have found) Plan {
	t.Helper()
	p, err := newPlan(v, have, []Spec{w})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestWhereEachDeathLeads(t *testing.T) {
	for _, tt := range []struct {
		rule, exchange, key, reason string
		nacks, others               string
	}{
		{"first failure", "q.rehop.dlx", "order.paid", "rejected", "q.wait.1", "q.dlq"},
		{"second failure", "q.rehop.dlx", "q@1", "rejected", "q.wait.2", "q.dlq"},
		{"fourth failure", "q.rehop.dlx", "q@3", "rejected", "q.wait.4", "q.dlq"},
		{"a failure that has no wait starts again at the first", "q.rehop.dlx", "q@4", "rejected", "q.wait.1", "q.dlq"},
		{"crash loop", "q.rehop.dlx", "order.paid", "delivery_limit", "q.dlq", "q.dlq"},
		{"crash loop after a wait", "q.rehop.dlx", "q@1", "delivery_limit", "q.dlq", "q.dlq"},
		{"expired in the work queue", "q.rehop.dlx", "order.paid", "expired", "q.dlq", "q.dlq"},
		{"end of a wait", "q.rehop.return", "q@2", "expired", "q", "q"},
		{"carried back", "q.rehop.return", "q@2", "", "q", "q"},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			classic, asked, carry := workQueue(4), workQueue(4), workQueue(4)
			classic.Type, asked.Engine, carry.Engine = Classic, EngineRepublish, EngineCarry
			for _, with := range []struct {
				engine string
				w      WorkQueue
				want   string
			}{
				{"nack", workQueue(4), tt.nacks},
				{"republish asked for: a nack leads to its wait all the same", asked, tt.nacks},
				{"republish on a classic queue", classic, tt.others},
				{"carry", carry, tt.others},
			} {
				n := newNetwork()
				n.declare(t, planOf(t, with.w, v4, found{}))
				if got := n.leads(tt.exchange, tt.key, tt.reason); len(got) != 1 || got[0] != with.want {
					t.Errorf("%s: %v, want [%s]", with.engine, got, with.want)
				}
			}
		})
	}
}

// Whatever versions of a work queue are declared, in whatever order, and
// whichever declaration dies after whichever step: a failure leads to exactly one
// queue, the end of a wait to the work queue, and what a version relied on when
// it was declared stays as it was.
func TestNoDeclarationTakesAnythingAwayFromAnother(t *testing.T) {
	schedules := map[string]WorkQueue{
		"no waits": workQueue(0), "one wait": workQueue(1), "3 waits": workQueue(3), "5 waits": workQueue(5), "16 waits": workQueue(16),
	}
	changed := workQueue(3)
	changed.Waits = delay.Schedule{2 * time.Second, time.Second, 3 * time.Second}
	asked := workQueue(3)
	asked.Engine = EngineRepublish
	schedules["other waits"], schedules["republish asked for"] = changed, asked
	plan := func(have *found, w WorkQueue, exists map[string]time.Duration) Plan {
		for {
			p := planOf(t, w, v4, *have)
			again := false
			for _, q := range p.queues {
				ttl, timed := q.Args["x-message-ttl"].(int64)
				if wait, taken := exists[q.Name]; timed && taken && wait.Milliseconds() != ttl {
					args := maps.Clone(q.Args)
					args["x-message-ttl"] = wait.Milliseconds()
					if err := have.learn(&w, q, args, &amqp.Error{}); err != nil {
						t.Fatal(err)
					}
					again = true
				}
			}
			if !again {
				return p
			}
		}
	}
	for firstName, first := range schedules {
		for secondName, second := range schedules {
			name := firstName + ", then " + secondName
			exists := map[string]time.Duration{} // main wait queues, by whoever declared them first
			n := newNetwork()
			one := plan(&found{}, first, exists)
			n.declare(t, one)
			for i, d := range first.Waits {
				exists[route.WaitQueue(first.Name, i+1)] = d
			}
			check := func(when string, w WorkQueue, p Plan) {
				t.Helper()
				for waitNumber := range delay.MaxWaits + 2 {
					key := w.waitKey(waitNumber) // waitNumber 0: a producer's own key
					if got := n.leads(w.dlxExchange(), key, "rejected"); len(got) != 1 {
						t.Errorf("%s, %s: rejected with %s leads to %v", name, when, key, got)
					}
					if got := n.leads(w.returnExchange(), key, "expired"); len(got) != 1 || got[0] != w.Name {
						t.Errorf("%s, %s: the end of a wait with %s leads to %v", name, when, key, got)
					}
				}
				r := w.onBroker(p.Engines[0])
				for i := range w.Waits {
					key := w.waitKey(i)
					lands := r.NackLandsOn(key)
					if lands == 0 {
						continue
					}
					got := n.leads(w.dlxExchange(), key, "rejected")
					if lands != i+1 || got[0] != r.Waits[i].At.RoutingKey || exists[got[0]] != w.Waits[i] {
						t.Errorf("%s, %s: a nack with %s leads to %v (%v), said to be wait %d (%v)", name, when, key, got, exists[got[0]], lands, w.Waits[i])
					}
				}
			}
			check("at first", first, one)
			two := plan(&found{}, second, exists)
			for _, s := range two.steps() {
				if err := n.do(s); err != nil {
					t.Fatal(err)
				}
				check("after "+s.what, first, one)
			}
			for i, d := range second.Waits {
				if q := route.WaitQueue(second.Name, i+1); exists[q] == 0 {
					exists[q] = d
				}
			}
			check("in the end", first, one)
			check("in the end", second, two)
		}
	}
}

func TestTheOldFormIsNeverNacked(t *testing.T) {
	w := workQueue(2)
	w.Name = "shop.orders"
	have := found{}
	fresh := planOf(t, w, v4, have)
	if err := have.learn(&w, fresh.queues[0], w.arguments(version3), nil); err != nil {
		t.Fatal(err)
	}
	plan := planOf(t, w, v4, have)
	if e := plan.Engines[0]; e.Engine != EngineRepublish || !strings.Contains(e.Why, `"shop.orders" has the arguments of a 3.x broker`) {
		t.Errorf("engine %+v, want republish because of the work queue", e)
	}
	if len(plan.Notes) != 1 || !strings.Contains(plan.Notes[0], `'^shop\.orders(\.wait\.[0-9]+|\.dlq)?$'`) {
		t.Errorf("notes %q, want the policy", plan.Notes)
	}
	for _, b := range plan.bindings {
		if b.Exchange == w.dlxExchange() {
			t.Errorf("%s: what the old form dead-letters is unconfirmed", b.describe())
		}
	}
	w.Engine = EngineNack
	if _, err := newPlan(v4, have, []Spec{w}); err == nil || !strings.Contains(err.Error(), "3.x broker") {
		t.Errorf("nack on the old form: %v, want a refusal", err)
	}
}

// What exists decides about the engine before what is asked for.
func TestEngineFollowsTheWaitQueuesThatExist(t *testing.T) {
	v3 := connection.Version{Major: 3, Minor: 10}
	for _, tt := range []struct {
		rule    string
		engine  Engine
		version connection.Version
		have    existing
		want    Engine
		note    string
		refused string
	}{
		{"waits of republish on 3.x go on", EngineCarry, v3, existing{form: timed}, EngineRepublish, "exist with a TTL and go on", ""},
		{"waits of carry after an upgrade go on", EngineAuto, v4, existing{form: carried, old: true}, EngineCarry, "exist without a TTL and go on", ""},
		{"waits of carry where republish is asked for", EngineRepublish, v4, existing{form: carried}, EngineCarry, "exist without a TTL", ""},
		{"waits of carry where nack is asked for", EngineNack, v4, existing{form: carried}, "", "", "in the form of the engine carry"},
		{"waits of nack where carry is asked for", EngineCarry, v4, existing{form: timed}, EngineRepublish, "exist with a TTL", ""},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			w := workQueue(2)
			w.Engine = tt.engine
			plan, err := newPlan(tt.version, found{queues: map[string]existing{"q": tt.have}}, []Spec{w})
			if tt.refused != "" {
				if err == nil || !strings.Contains(err.Error(), tt.refused) {
					t.Fatalf("newPlan: %v, want a refusal with %q", err, tt.refused)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := plan.Engines[0].Engine; got != tt.want {
				t.Errorf("engine %s, want %s", got, tt.want)
			}
			if notes := fmt.Sprint(plan.Notes); !strings.Contains(notes, tt.note) || !strings.Contains(notes, `delete_queue q.wait.1`) {
				t.Errorf("notes %s, want %q and what to do", notes, tt.note)
			}
		})
	}
}

func TestBriefly(t *testing.T) {
	for d, want := range map[time.Duration]string{
		3 * time.Minute: "3m", time.Hour: "1h", 90 * time.Second: "1m30s", 150 * time.Millisecond: "150ms",
		10 * time.Second: "10s", 20 * time.Minute: "20m", 100 * time.Hour: "100h", time.Hour + 10*time.Minute: "1h10m",
		delay.Schedule{87600 * time.Hour}[0]: "87600h",
	} {
		if got := briefly(d); got != want {
			t.Errorf("briefly(%v) = %q, want %q", d, got, want)
		}
	}
}

func TestRefusalsSayWhatToGrant(t *testing.T) {
	because := func(reason string) *amqp.Error {
		return &amqp.Error{Code: amqp.AccessRefused, Reason: "ACCESS_REFUSED - " + reason, Server: true, Recover: true}
	}
	refused := &amqp.Error{Code: amqp.AccessRefused, Reason: "ACCESS_REFUSED", Server: true, Recover: true}
	for _, tt := range []struct {
		err  error
		want string
	}{
		{refusal("queue", "q", refused), `declare queue "q": give the user configure and read on it, and write on the exchange that it leads to`},
		{refusal("queue", "q", because("access to queue 'q' in vhost '/' refused for user 'u'")), `give the user configure and read on queue "q";`},
		{refusal("queue", "q", because("access to exchange 'q.rehop.dlx' in vhost '/' refused for user 'u'")), `give the user write on exchange "q.rehop.dlx";`},
		{refusal("exchange", "x", because("read access to exchange 'x' in vhost '/' refused for user 'u'")), `give the user read on exchange "x";`},
		{bindingRefusal(plannedBinding{Exchange: "shop", Queue: "q"}, refused), `give the user read on exchange "shop" and write on queue "q"`},
		{bindingRefusal(plannedBinding{Exchange: "q.rehop.dlx", ToExchange: "q.rehop.delay"}, refused), `read on exchange "q.rehop.dlx" and write on exchange "q.rehop.delay"`},
		{missing("exchange", "shop", "", refused), `give the user read on exchange "shop"`},
		{missing("exchange", "shop", "", &amqp.Error{Code: amqp.AccessRefused, Reason: "ACCESS_REFUSED - configure access to exchange 'shop' in vhost '/' refused for user 'u'"}), `give the user read on exchange "shop" (read is enough`},
		{deleteRefusal("queue", "q", refused), `give the user configure on it`},
	} {
		if !errors.Is(tt.err, errNoPermission) || !strings.Contains(tt.err.Error(), tt.want) {
			t.Errorf("%v; want %q", tt.err, tt.want)
		}
	}
}

func TestAnUnknownKindOfExchangeIsNamed(t *testing.T) {
	err := refusal("exchange", "shop", &amqp.Error{Code: amqp.PreconditionFailed, Reason: "PRECONDITION_FAILED - invalid exchange type 'topics'", Server: true, Recover: true})
	for _, want := range []string{`exchange "shop"`, "Exchange.Kind", `"topic"`, "plugin", "'topics'"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q in it", err, want)
		}
	}
	if rehop.ClassOf(err) != rehop.ClassConfiguration {
		t.Errorf("its class is %v", rehop.ClassOf(err))
	}
}
