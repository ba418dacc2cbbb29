package topology

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/delay"
)

// network routes like the broker, over what a plan has bound: enough to follow
// one message from a queue it died in.
type network map[string]PlannedBinding

func (n network) apply(steps ...PlannedBinding) {
	for _, b := range steps {
		n[b.describe()] = b
	}
}

// queues returns where a message with this key and reason of death ends that
// is published to an exchange of work queue w.
func (n network) queues(w WorkQueue, exchange, routingKey, reason string) []string {
	var out []string
	for _, b := range n {
		if b.Remove || b.Exchange != exchange {
			continue
		}
		switch exchange {
		case w.ladderExchange():
			if b.Key != routingKey {
				continue
			}
		case w.deadExchange(), w.retryExchange():
			if want, given := b.Args["x-last-death-reason"]; given && want != reason {
				continue
			}
		}
		if b.ToExchange != "" {
			out = append(out, n.queues(w, b.ToExchange, routingKey, reason)...)
		} else {
			out = append(out, b.Queue)
		}
	}
	if len(out) == 0 {
		alternate := map[string]string{
			w.deadExchange(): w.restExchange(), w.retryExchange(): w.restExchange(), w.ladderExchange(): w.retryExchange(),
		}[exchange]
		if alternate == "" {
			return nil
		}
		return n.queues(w, alternate, routingKey, reason)
	}
	slices.Sort(out)
	return slices.Compact(out) // an exchange delivers once to a queue
}

func workQueue(waits int) WorkQueue {
	return WorkQueue{Name: "q", Waits: delay.Fixed(time.Second, waits)}
}

func TestWhereEachDeathLeads(t *testing.T) {
	w := workQueue(4)
	for _, tt := range []struct {
		rule, exchange, key, reason string
		ladder, republish           string
	}{
		{"first failure", "q.dead", "order.paid", "rejected", "q.wait.1", "q.dlq"},
		{"second failure", "q.dead", "q@1", "rejected", "q.wait.2", "q.dlq"},
		{"fourth failure", "q.dead", "q@3", "rejected", "q.wait.4", "q.dlq"},
		{"fifth failure", "q.dead", "q@4", "rejected", "q.dlq", "q.dlq"},
		{"crash loop", "q.dead", "order.paid", "delivery_limit", "q.dlq", "q.dlq"},
		{"expired in the work queue", "q.dead", "order.paid", "expired", "q.dlq", "q.dlq"},
		{"end of a wait", "q.retry", "q@2", "expired", "q", "q"},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			for engine, want := range map[Engine]string{Ladder: tt.ladder, Republish: tt.republish} {
				n := network{}
				n.apply(w.wiring(engine)...)
				if got := n.queues(w, tt.exchange, tt.key, tt.reason); len(got) != 1 || got[0] != want {
					t.Errorf("%s: %v, want [%s]", engine, got, want)
				}
			}
		})
	}
}

// Whatever form and length the bindings had, after each single step of the
// change a failure leads to exactly one queue, and the end of a wait to the work
// queue; in the end the bindings are those of a fresh declaration.
func TestChangingTheWiringLosesAndDoublesNothingAtAnyStep(t *testing.T) {
	type form struct {
		engine Engine
		waits  int
	}
	var forms []form
	for _, engine := range []Engine{Ladder, Republish} {
		for _, waits := range []int{0, 1, 2, 4, 16} {
			forms = append(forms, form{engine, waits})
		}
	}
	for _, from := range forms {
		for _, to := range forms {
			n := network{}
			n.apply(workQueue(from.waits).wiring(from.engine)...)
			w := workQueue(to.waits)
			check := func(step string) {
				for rung := range delay.MaxWaits + 1 {
					routingKey := w.rungKey(rung) // rung 0: a producer's own key
					if got := n.queues(w, w.deadExchange(), routingKey, "rejected"); len(got) != 1 {
						t.Errorf("%v -> %v, after %s: rejected with %s leads to %v", from, to, step, routingKey, got)
					}
					if got := n.queues(w, w.retryExchange(), routingKey, "expired"); len(got) != 1 || got[0] != w.Name {
						t.Errorf("%v -> %v, after %s: the end of a wait with %s leads to %v", from, to, step, routingKey, got)
					}
				}
			}
			for _, b := range w.wiring(to.engine) {
				n.apply(b)
				check(fmt.Sprintf("%s (remove=%t)", b.describe(), b.Remove))
			}
			fresh := network{}
			fresh.apply(w.wiring(to.engine)...)
			for name, b := range n {
				want, planned := fresh[name]
				if bound, wantBound := !b.Remove, planned && !want.Remove; bound != wantBound {
					t.Errorf("%v -> %v: %s is bound=%t, want %t", from, to, name, bound, wantBound)
				}
			}
		}
	}
}

func TestNackLandsOn(t *testing.T) {
	ladder := workQueue(2).Route()
	ladder.engine = Ladder
	for _, tt := range []struct {
		rule  string
		route Route
		keys  []string
		want  int
	}{
		{"a producer's key", ladder, []string{"order.paid"}, 1},
		{"out of wait 1", ladder, []string{"q@1"}, 2},
		{"out of the last wait: the dead-letter queue", ladder, []string{"q@2"}, 3},
		{"a rung of an earlier, longer schedule", ladder, []string{"q@3"}, 1},
		{"not a rung", ladder, []string{"q@01"}, 1},
		{"CC beside it", ladder, []string{"order.paid", "copy"}, 1},
		{"CC that climbs", ladder, []string{"order.paid", "q@1"}, 0},
		{"republish never nacks", workQueue(2).Route(), []string{"order.paid"}, 0},
		{"somebody else's queue", Route{Queue: "theirs"}, []string{"order.paid"}, 0},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			if got := tt.route.NackLandsOn(tt.keys...); got != tt.want {
				t.Errorf("NackLandsOn(%q) = %d, want %d", tt.keys, got, tt.want)
			}
		})
	}
}

func TestOldFormStaysOnRepublishWithAdvice(t *testing.T) {
	v := connection.Version{Major: 4, Minor: 3}
	w := workQueue(2)
	w.Name = "shop.orders"
	plan, err := newPlan(v, map[string]bool{"shop.orders.wait.2": true}, []Spec{w})
	if err != nil {
		t.Fatal(err)
	}
	if e := plan.Engines[0]; e.Engine != Republish || !strings.Contains(e.Why, `"shop.orders.wait.2" has the arguments of a 3.x broker`) {
		t.Errorf("engine %+v, want republish because of the wait queue", e)
	}
	if len(plan.Notes) != 1 || !strings.Contains(plan.Notes[0], `'^shop\.orders(\.wait\.[0-9]+|\.dlq)?$'`) {
		t.Errorf("notes %q, want the policy", plan.Notes)
	}
	w.Engine = Ladder
	if _, err := newPlan(v, map[string]bool{"shop.orders": true}, []Spec{w}); err == nil || !strings.Contains(err.Error(), "3.x broker") {
		t.Errorf("ladder on the old form: %v, want a refusal", err)
	}
}
