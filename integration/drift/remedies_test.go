package drift

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/integration/nodes"
	"github.com/rehop/rehop/integration/poll"
	"github.com/rehop/rehop/topology"
)

// remedy is a difference, and the steps that its remedy prints.
type remedy struct {
	code topology.DriftCode
	says string // a part of the remedy
	want []topology.Spec

	// before makes the difference, and begins what publishes and consumes meanwhile.
	before func(r *repair)

	// steps does what the remedy says, and leaves consumers for all that is on its way.
	steps func(r *repair)

	dlqs []string // of dead letters, orders.dlq by default
	from string   // the first version that has such a difference, "" for any
	left bool     // the steps leave another difference, which steps looks at
	full bool     // each message that fails for good is attempted as often as its schedule says, and no more
}

// repair is the work on one difference.
type repair struct {
	*traffic
	remedy
	is3   bool
	rehop string // the command
	found topology.Difference
	files string          // where the command writes
	ran   map[string]bool // kinds of commands
}

var (
	briefly = delay.Schedule{300 * time.Millisecond, 400 * time.Millisecond}
	orders  = topology.WorkQueue{Name: "orders", Waits: briefly, Bindings: []topology.Binding{{Exchange: "shop", RoutingKey: "order.#"}}}
	alone   = []topology.Spec{shop, orders}

	ofHeaders = of(orders, func(w *topology.WorkQueue) {
		w.Bindings = append(slices.Clip(w.Bindings), topology.Binding{Exchange: "by", Headers: amqp.Table{"x-match": "all", "a": "1"}})
	})
	republishing = of(orders, func(w *topology.WorkQueue) { w.Engine = topology.EngineRepublish })
)

// longer has one more wait.
func longer(w topology.WorkQueue) topology.WorkQueue {
	w.Waits = append(slices.Clip(w.Waits), 200*time.Millisecond)
	return w
}

// carrying has the engine carry, and more waits.
func carrying(more ...time.Duration) topology.WorkQueue {
	return of(orders, func(w *topology.WorkQueue) {
		w.Engine, w.Waits = topology.EngineCarry, append(slices.Clip(w.Waits), more...)
	})
}

func of(w topology.WorkQueue, change func(*topology.WorkQueue)) topology.WorkQueue {
	change(&w)
	return w
}

// remedies has one entry for each remedy of a difference whose steps touch what messages are in, or on their way through.
//
// Others are run elsewhere: what Declare adds, by TestPartDeleted and TestSeveralExchangesDeleted; the command for permissions, by
// TestPermissionsOfTheUser; the policies of queues from before 4.0 and 4.3, and of a queue of others without another policy, by
// TestOldFormPolicy, TestAQueueFromBefore43WithASingleActiveConsumer and TestDeadLettersByPolicy; the command for leaders,
// by TestLeadersOfShards. An upgrade is not run.
var remedies = map[string]remedy{
	"a work queue of another type":       replaced(of(orders, func(w *topology.WorkQueue) { w.Type = topology.Classic }), "queue-type", `to have type quorum, stop what publishes to "orders" and to the exchanges that it is bound to, let its consumers empty it and its waits`),
	"a work queue with another argument": replaced(of(orders, func(w *topology.WorkQueue) { w.SingleActiveConsumer = true }), "queue-arguments", `stop what publishes to "orders" and to the exchanges that it is bound to, let its consumers empty it and its waits`),
	"the other type is meant": {code: "queue-type", says: `set WorkQueue.Type to "classic"`, want: alone,
		before: func(r *repair) {
			classic := of(orders, func(w *topology.WorkQueue) { w.Type = topology.Classic })
			r.declare(shop, classic)
			r.consume(classic)
			r.publish("shop", "order.1")
		},
		steps: func(r *repair) {
			r.want = []topology.Spec{shop, of(orders, func(w *topology.WorkQueue) { w.Type = topology.Classic })}
			r.declare(r.want...)
		}},
	"a work queue that others declared": {code: "queue-arguments", says: "set WorkQueue.Existing", want: alone,
		before: func(r *repair) {
			r.declare(shop)
			r.put("queues", "orders", queue{Durable: true, Arguments: map[string]any{"x-queue-type": "quorum", "x-dead-letter-exchange": "theirs"}})
			r.must(http.MethodPost, binding{Source: "shop", Destination: "orders", DestinationType: "queue"}.path(r.vhost), map[string]any{"routing_key": "order.#"})
			r.publish("shop", "order.1")
		},
		steps: func(r *repair) {
			theirs := topology.WorkQueue{Name: "orders", Existing: true, Waits: briefly}
			r.want = []topology.Spec{shop, theirs}
			r.declare(r.want...)
			r.consume(theirs)
		}},
	"a work queue that does not last": {code: "queue-lifetime", says: "stop what publishes to it and to the exchanges that it is bound to, let its consumers empty it, and its waits if it has some, stop them, delete it", want: alone,
		before: func(r *repair) {
			r.declare(alone...)
			r.must(http.MethodDelete, "queues/"+r.path()+"/orders", nil)
			r.put("queues", "orders", queue{Arguments: map[string]any{"x-queue-type": "classic"}})
			r.must(http.MethodPost, binding{Source: "shop", Destination: "orders", DestinationType: "queue"}.path(r.vhost), map[string]any{"routing_key": "order.#"})
			r.publish("shop", "order.1")
		},
		steps: func(r *repair) {
			r.stopPublishing()
			r.take("orders") // by a consumer that can read it
			r.delete()
			r.declare(alone...)
			r.consume(orders)
			r.publish("shop", "order.2")
		}},
	"letters of another age": {code: "queue-arguments", says: "stop the consumers whose dead letters come here",
		want: []topology.Spec{shop, orders, topology.DeadLetterQueue{Name: "orders.dlq", MaxAge: 2 * time.Hour}},
		before: func(r *repair) {
			r.declare(shop, orders, topology.DeadLetterQueue{Name: "orders.dlq", MaxAge: time.Hour})
			r.consume(orders)
			r.publish("shop", "order.1")
		},
		steps: func(r *repair) {
			poll.Until(r, time.Minute, "there are letters", func() bool { return r.count("orders.dlq") > 0 })
			r.stopConsuming() // which publishes to it; what publishes to the work queue goes on
			r.run("rehop dlq drop")
			r.empty("orders.dlq")
			r.delete()
			r.declare(r.want...)
			r.run("rehop dlq import")
			r.consume(orders)
		}},
	"a wait that does not fit the others": {code: "queue-arguments", says: "it does not fit the other waits", want: alone,
		before: func(r *repair) {
			former := topology.EngineCarry
			if r.is3 {
				former = topology.EngineRepublish
			}
			r.declare(shop, of(orders, func(w *topology.WorkQueue) { w.Engine = former }))
			r.must(http.MethodDelete, "queues/"+r.path()+"/orders.wait.1", nil)
			r.publish("shop", "order.1")
		},
		steps: func(r *repair) {
			r.empty("orders.wait.2")
			r.delete()
			r.declare(alone...)
			r.consume(orders)
		}},
	"a wait that does not fit the others, with messages": {code: "queue-arguments", says: "it does not fit the other waits", want: alone,
		before: func(r *repair) {
			former := carrying()
			if r.is3 { // where messages come back from a wait by themselves, too late for this row
				former.Engine, former.Waits = topology.EngineRepublish, delay.Schedule{briefly[0], 10 * time.Minute}
			}
			r.declare(shop, former)
			r.consume(former)
			r.publish("shop", "order.1")
			poll.Until(r, time.Minute, "messages wait", func() bool { return r.all("orders.wait.2") > 0 })
			r.stopConsuming()
			r.takeAll("orders.wait.1")
			r.must(http.MethodDelete, "queues/"+r.path()+"/orders.wait.1", nil)
		},
		steps: func(r *repair) {
			r.collect("orders.wait.2")
			out, err := r.shell(r.rehop + " dlq move --yes --all --vhost=" + "'" + r.name + "'" + " --store=messages.db --to orders.rehop.return/orders@2")
			if err != nil {
				r.Fatalf("%v\n%s", err, out)
			}
			r.delete()
			r.declare(alone...)
			r.consume(orders)
		}},
	"a wait that nothing plans, in no form of ours": {code: "queue-extra", says: "if nobody else uses it, bring its messages back", want: []topology.Spec{shop, republishing},
		before: func(r *repair) {
			r.declare(r.want...)
			r.put("queues", "orders.wait.3", queue{Durable: true, Arguments: map[string]any{"x-queue-type": "quorum"}})
			r.consume(republishing) // by carry they would read every queue with such a name
			r.publish("", "orders.wait.3")
		},
		steps: func(r *repair) {
			r.stopPublishing() // which uses it
			r.publish("shop", "order.1")
			r.run("rehop dlq move")
			r.empty("orders.wait.3")
			r.delete()
		}},
	"a wait of the plan, in no form of ours": {code: "queue-arguments", says: "start the consumers again, which then use that other queue", want: []topology.Spec{shop, republishing}, full: true,
		before: func(r *repair) {
			r.declare(shop, republishing)
			r.consume(republishing)
			r.publish("shop", "order.1")
			r.stopPublishing()
			r.emptied("orders.dlq")
			r.must(http.MethodDelete, "queues/"+r.path()+"/orders.wait.2", nil)
			r.put("queues", "orders.wait.2", queue{Durable: true, Arguments: map[string]any{"x-queue-type": "classic"}})
			r.publish("shop", "order.2")
			poll.Until(r, time.Minute, "messages are in it", func() bool { return r.count("orders.wait.2") > 0 })
		},
		steps: func(r *repair) {
			r.declare(r.want...)
			r.stopConsuming()
			r.consume(republishing)
			r.run("rehop dlq move")
			r.empty("orders.wait.2")
			r.delete()
			r.declare(r.want...)
		}},
	"a wait of no form, by carry": {code: "queue-arguments", says: `stop the consumers of "orders"; bring its messages back`, want: []topology.Spec{shop, carrying()}, full: true,
		before: func(r *repair) {
			r.declare(shop, carrying())
			r.must(http.MethodDelete, "queues/"+r.path()+"/orders.wait.2", nil)
			r.put("queues", "orders.wait.2", queue{Durable: true, Arguments: map[string]any{"x-queue-type": "quorum"}})
			r.publish("", "orders.wait.2")
			r.stopPublishing()
			r.publish("shop", "order.1")
		},
		steps: func(r *repair) {
			r.run("rehop dlq move")
			r.empty("orders.wait.2")
			r.delete()
			r.declare(r.want...)
			r.consume(carrying())
		}},
	"waits of an earlier schedule": {code: "queue-extra", says: "nothing has to stop: when every consumer has been started since this schedule was declared", want: alone,
		before: func(r *repair) {
			r.declare(shop, longer(orders))
			r.consume(longer(orders))
			r.publish("shop", "order.1")
		},
		steps: func(r *repair) {
			r.rollOut(orders)
			r.run("rabbitmqctl list_queues")
			poll.Until(r, time.Minute, "the wait is empty", func() bool { return r.all("orders.wait.3") == 0 })
			r.delete()
		}},
	"carried waits of an earlier schedule": {code: "queue-extra", says: `delete "orders.wait.4" first`, want: []topology.Spec{shop, carrying()},
		before: func(r *repair) {
			former := carrying(200*time.Millisecond, 300*time.Millisecond)
			r.declare(shop, former)
			r.consume(former)
			r.publish("shop", "order.1")
		},
		steps: func(r *repair) {
			r.rollOut(carrying())
			for _, name := range []string{"orders.wait.4", "orders.wait.3"} {
				poll.Until(r, time.Minute, name+" is empty", func() bool { return r.all(name) == 0 })
				r.found = r.difference("queue-extra", name)
				r.delete()
			}
		}},
	"a carried wait of another time": {code: "queue-extra", says: `leave it: consumers find "orders.wait.1.2"`, want: []topology.Spec{shop, carrying()},
		before: func(r *repair) {
			former := carrying()
			former.Waits = delay.Schedule{500 * time.Millisecond, 400 * time.Millisecond}
			r.declare(shop, former)
			r.declare(shop, carrying())
			r.consume(former)
			r.publish("shop", "order.1")
		},
		steps: func(r *repair) {
			r.rollOut(carrying())
			r.stopPublishing()
			r.emptied("orders.dlq")
			r.stopConsuming()
			r.delete()
			r.declare(r.want...)
			r.consume(carrying())
			r.publish("shop", "order.2")
		}},
	"waits of an earlier schedule, by DeleteWaits": {code: "queue-extra", says: "or let topology.DeleteWaits do it", want: alone,
		before: func(r *repair) {
			r.declare(shop, longer(orders))
			r.consume(longer(orders))
			r.publish("shop", "order.1")
		},
		steps: func(r *repair) {
			r.declare(alone...)
			r.stopConsuming()
			r.consume(orders)
			poll.Until(r, time.Minute, "the wait is empty", func() bool { return r.all("orders.wait.3") == 0 })
			if r.is3 {
				r.stopConsuming() // by carry they consume the waits
			}
			if err := topology.DeleteWaits(r.Context(), r.conn, longer(orders), orders); err != nil {
				r.Error(err)
			}
			if r.is3 {
				r.consume(orders)
			}
		}},
	"an exchange of the wiring that does not last": exchangeOf("orders.rehop.return"),
	"an exchange of the user that does not last":   exchangeOf("shop"),
	"other lanes": {code: "exchange-arguments", says: "let the lanes and their waits run empty, delete it (curl", dlqs: []string{"sms.vip.dlq", "sms.bulk.dlq", "sms.dlq"}, left: true,
		want: []topology.Spec{shop, manyLanes(true)},
		before: func(r *repair) {
			r.declare(shop, manyLanes(false))
			r.consume(manyLanes(false))
			r.publish("shop", "sms.1")
		},
		steps: func(r *repair) {
			poll.Until(r, time.Minute, "there are letters", func() bool { return r.count("sms.vip.dlq")+r.count("sms.bulk.dlq") > 0 })
			r.stopPublishing()
			r.run("curl -u USER -X DELETE")
			r.declare(r.want...)
			r.publish("shop", "sms.2")
			r.stopConsuming()
			r.consume(manyLanes(true))
			// The queue of dead letters of each lane is left, and has a remedy of its own.
			for _, d := range r.verify(r.conn, r.want...).Differences {
				if d.Code != "queue-extra" || !strings.HasSuffix(d.Name, ".dlq") || !strings.Contains(d.Remedy, "rehop dlq send --all") {
					if d.Class != topology.DriftExtra {
						r.Errorf("after the steps: %+v", d)
					}
					continue
				}
				r.found = d
				if r.count(d.Name) > 0 {
					r.run("rehop dlq send")
				}
				r.empty(d.Name)
				r.delete()
			}
			r.dlqs = []string{"sms.dlq"}
		}},
	"a binding too many": {code: "binding-extra", says: "unbind it", want: alone,
		before: func(r *repair) {
			r.declare(alone...)
			r.must(http.MethodPost, binding{Source: "shop", Destination: "orders", DestinationType: "queue"}.path(r.vhost), map[string]any{"routing_key": "bill.#"})
			r.consume(orders)
			r.publish("shop", "order.1", "bill.1")
		},
		steps: func(r *repair) {
			r.run("curl -u USER -X DELETE")
		}},
	"a binding too many, with arguments": {code: "binding-extra", says: "shows its properties_key", want: []topology.Spec{shop, topology.Exchange{Name: "by", Kind: "headers"}, ofHeaders},
		before: func(r *repair) {
			r.declare(r.want...)
			r.must(http.MethodPost, binding{Source: "by", Destination: "orders", DestinationType: "queue"}.path(r.vhost), map[string]any{"arguments": map[string]any{"x-match": "all", "b": "2"}})
			r.consume(ofHeaders)
			r.publish("shop", "order.1")
		},
		steps: func(r *repair) {
			var list []struct {
				binding
				Key string `json:"properties_key"`
			}
			if err := json.Unmarshal([]byte(r.run("curl -u USER -X GET")), &list); err != nil {
				r.Fatal(err)
			}
			for _, b := range list {
				if b.Arguments["b"] != nil {
					r.run("curl -u USER -X DELETE", "PROPERTIES_KEY", strings.ReplaceAll(b.Key, "%", "%25"))
				}
			}
		}},
	"shards of a larger Count": {code: "queue-extra", says: "consume the larger Count until the shards from number 2 on and their waits are empty", want: []topology.Spec{shards(2)},
		dlqs: []string{"orders.00.dlq", "orders.01.dlq", "orders.02.dlq", "orders.0.dlq", "orders.1.dlq", "orders.2.dlq", "orders.dlq"}, left: true,
		before: func(r *repair) {
			r.declare(shards(3))
			r.consume(shards(3))
			r.publish("", shards(3).WorkQueues()[0].Name, shards(3).WorkQueues()[1].Name, shards(3).WorkQueues()[2].Name)
		},
		steps: func(r *repair) {
			r.stopPublishing()
			last := shards(3).WorkQueues()[2]
			r.emptied(last.DeadLetterQueue().Name) // that of all shards
			r.stopConsuming()
			r.publish("", shards(3).WorkQueues()[0].Name, shards(3).WorkQueues()[1].Name)
			for _, d := range r.verify(r.conn, r.want...).Differences {
				if d.Kind == "queue" && strings.HasPrefix(d.Name, last.Name) && d.Class == topology.DriftExtra {
					if strings.HasSuffix(d.Name, ".dlq") {
						r.take(d.Name)
					}
					r.found = d
					r.delete()
				}
			}
			r.consume(shards(2))
			r.dlqs = nil
			for _, w := range shards(2).WorkQueues() {
				r.dlqs = append(r.dlqs, w.DeadLetterQueue().Name)
			}
		}},
	"a shard that nobody reads": {code: "shard-unread", says: "declare and consume the larger Count until they are done", want: []topology.Spec{shards(2)}, left: true,
		before: func(r *repair) {
			r.declare(shards(3))
			r.publish("", shards(3).WorkQueues()[2].Name)
		},
		steps: func(r *repair) {
			r.stopPublishing()
			last := shards(3).WorkQueues()[2]
			r.declare(shards(3))
			r.consume(shards(3))
			r.emptied(last.DeadLetterQueue().Name)
			r.stopConsuming()
			r.declare(shards(2))
			r.consume(shards(2))
			r.dlqs = nil
			for _, w := range shards(3).WorkQueues() {
				r.dlqs = append(r.dlqs, w.DeadLetterQueue().Name)
			}
		}},
	"a policy that sets nothing else":                policed("policy", "", "^orders|x", 0, "a pattern that leaves out", map[string]any{"max-length": 100000}, ""),
	"a policy that sets another entry too":           policed("policy", "theirs for orders without max-length", "^orders|x", 0, "with the other entries of policy", map[string]any{"max-length": 100000, "queue-leader-locator": "client-local"}, "theirs for orders without max-length 2"),
	"an operator policy of all queues":               policed("operator-policy", "", "", -1, "a pattern that leaves out", map[string]any{"max-length": 100000}, ""),
	"an operator policy that sets another entry too": policed("operator-policy", "", "", -1, "with the other entries of operator policy", map[string]any{"max-length": 100000, "max-in-memory-length": 100000}, "theirs for orders without max-length"),
	"no dead letters beside another policy": {code: "policy-missing", says: "give this queue alone one with the entries of policy", want: []topology.Spec{shop, topology.WorkQueue{Name: "legacy", Existing: true, Waits: briefly}},
		dlqs: []string{"legacy.dlq"},
		before: func(r *repair) {
			entries := map[string]any{"max-length": 100000}
			if r.is3 { // where no queue has a limit by itself
				entries["delivery-limit"] = 20
			}
			r.policy("policies", "theirs", 0, `^legacy(\.of\.others)?$`, entries)
			for _, name := range []string{"legacy", "legacy.of.others"} {
				r.put("queues", name, queue{Durable: true, Arguments: map[string]any{"x-queue-type": "quorum"}})
				poll.Until(r, time.Minute, "the policy applies to "+name, func() bool { return r.policyOf(name, "policy") == "theirs" })
			}
			r.declare(r.want...)
			r.consume(topology.WorkQueue{Name: "legacy", Existing: true, Waits: briefly})
			r.publish("", "legacy")
		},
		steps: func(r *repair) {
			r.run("rabbitmqctl set_policy")
			poll.Until(r, time.Minute, "its own policy applies", func() bool { return r.policyOf("legacy", "policy") == "rehop legacy" })
			if got := r.policyOf("legacy.of.others", "policy"); got != "theirs" {
				r.Errorf("the queue of others has policy %q", got)
			}
			if q := string(r.must(http.MethodGet, "queues/"+r.path()+"/legacy", nil)); !strings.Contains(q, `"max-length":100000`) {
				r.Errorf("the entries of the other policy are gone: %s", q)
			}
		}},
	"too few queues allowed": {code: "queue-limit", says: "raise the limit max-queues", want: []topology.Spec{shop, orders, topology.WorkQueue{Name: "bills", Waits: briefly}},
		before: func(r *repair) {
			r.declare(alone...)
			r.must(http.MethodPut, "vhost-limits/"+r.path()+"/max-queues", map[string]any{"value": 5})
			r.consume(orders)
			r.publish("shop", "order.1")
		},
		steps: func(r *repair) {
			r.run("curl -u USER -X PUT")
			r.declare(r.want...)
		}},
	"a policy that keeps a queue for a consumer that is gone": {code: "consumer-held", says: "set consumer-disconnected-timeout to 5000 in this policy", from: "4.3",
		want: []topology.Spec{shop, of(orders, func(w *topology.WorkQueue) { w.SingleActiveConsumer = true })},
		before: func(r *repair) {
			r.put("queues", "orders", queue{Durable: true, Arguments: map[string]any{"x-queue-type": "quorum", "x-dead-letter-exchange": "orders.rehop.dlx", "x-dead-letter-strategy": "at-least-once",
				"x-overflow": "reject-publish", "x-delivery-limit": 20, "x-single-active-consumer": true}}) // as one from before 4.3
			r.policy("policies", "theirs", 0, "^orders$", map[string]any{"consumer-disconnected-timeout": 70000})
			poll.Until(r, time.Minute, "the policy applies", func() bool { return r.policyOf("orders", "policy") == "theirs" })
			r.declare(r.want...)
			r.consume(of(orders, func(w *topology.WorkQueue) { w.SingleActiveConsumer = true }))
			r.publish("shop", "order.1")
		},
		steps: func(r *repair) {
			r.policy("policies", "theirs", 0, "^orders$", map[string]any{"consumer-disconnected-timeout": 5000})
		}},
}

// replaced is the remedy for a work queue that is declared anew.
func replaced(former topology.WorkQueue, code topology.DriftCode, says string) remedy {
	return remedy{code: code, says: says, want: alone,
		before: func(r *repair) {
			r.declare(shop, former)
			r.consume(former)
			r.publish("shop", "order.1")
		},
		steps: func(r *repair) {
			r.stopPublishing()
			r.emptied("orders.dlq")
			r.stopConsuming()
			r.delete()
			for round := 0; ; round++ {
				err := topology.Declare(r.Context(), r.conn, alone...)
				var next *topology.ConflictError
				if !errors.As(err, &next) { // nil, or the declaration below tells it
					break
				}
				if round == 5 {
					r.Fatal(err)
				}
				r.take(next.Name) // of 3.x, the classic dead-letter queue too
				r.found.Remedy = next.Advice
				r.delete()
			}
			r.declare(alone...)
			r.consume(orders)
			r.publish("shop", "order.2")
		}}
}

// exchangeOf is the remedy for an exchange that is not durable.
func exchangeOf(name string) remedy {
	return remedy{code: "exchange-lifetime", says: "declare again", want: alone,
		before: func(r *repair) {
			r.declare(alone...)
			whole := r.definitions()
			for _, x := range whole.Exchanges {
				if x.Name == name {
					r.must(http.MethodDelete, "exchanges/"+r.path()+"/"+name, nil)
					x.Durable = false
					r.put("exchanges", name, x)
				}
			}
			for _, b := range whole.Bindings {
				if b.Source == name {
					r.must(http.MethodPost, b.path(r.vhost), map[string]any{"routing_key": b.RoutingKey, "arguments": b.Arguments})
				}
			}
			r.consume(orders)
			r.publish("shop", "order.1")
		},
		steps: func(r *repair) {
			wiring := name != "shop" // what waits would become a dead letter meanwhile
			if wiring {
				r.stopPublishing()
				r.emptied("orders.dlq")
				r.stopConsuming()
			}
			r.run("curl -u USER -X DELETE")
			r.declare(alone...)
			if wiring {
				r.consume(orders)
				r.publish("shop", "order.2")
			}
		}}
}

// policed is the remedy for a policy, or an operator policy, that limits the length of all queues, one of others among them. Then another
// one applies to ours, "" for none. The virtual host has another policy already, of a name that is taken.
func policed(code topology.DriftCode, taken, pattern string, priority int, says string, entries map[string]any, then string) remedy {
	const theirs = "orders-of-others"
	kind, column, verb, of := "policies", "policy", "rabbitmqctl set_policy", "name"
	if code == "operator-policy" {
		kind, column, verb, of = "operator-policies", "operator_policy", "rabbitmqctl set_operator_policy", "name_op"
	}
	return remedy{code: code, says: says, want: alone,
		before: func(r *repair) {
			r.declare(alone...)
			r.put("queues", theirs, queue{Durable: true, Arguments: map[string]any{"x-queue-type": "quorum"}})
			if taken != "" {
				r.policy(kind, taken, 0, "^nothing$", entries)
			}
			r.policy(kind, "theirs", priority, pattern, entries)
			for _, name := range []string{"orders", "orders.dlq", theirs} {
				poll.Until(r, time.Minute, "the policy applies to "+name, func() bool { return r.policyOf(name, column) == "theirs" })
			}
			r.consume(orders)
			r.publish("shop", "order.1")
		},
		steps: func(r *repair) {
			r.run(verb)
			for _, name := range []string{"orders", "orders.dlq"} {
				poll.Until(r, time.Minute, "the policy does not apply to "+name, func() bool { return r.policyOf(name, column) != "theirs" })
				if got := r.policyOf(name, column); got != then {
					r.Errorf("queue %q has policy %q, want %q", name, got, then)
				}
			}
			out, err := r.node.Exec(r.Context(), "rabbitmqctl", "eval", // at once, and not late; list_queues of 3.10 knows no operator policies
				fmt.Sprintf(`{ok, Q} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"%s">>, queue, <<"%s">>)), rabbit_policy:%s(Q).`, r.name, theirs, of))
			if err != nil || strings.TrimSpace(out) != `<<"theirs">>` {
				r.Errorf("the policy of the queue of others is %s, %v; want its own", out, err)
			}
		}}
}

func manyLanes(one bool) topology.Lanes {
	return topology.Lanes{Name: "sms", Lanes: []topology.Lane{{Name: "vip"}, {Name: "bulk"}}, Waits: briefly, OneDeadLetterQueue: one,
		Bindings: []topology.Binding{{Exchange: "shop", RoutingKey: "sms.#"}}}
}

func shards(n int) topology.Shards { return topology.Shards{Name: "orders", Count: n, Waits: briefly} }

// TestRemedies does what each remedy says while messages are published, handled and wait. None is lost, and the difference is gone.
// Each command that a remedy prints is run as it is printed, by one of the rows at least.
func TestRemedies(t *testing.T) {
	rehop := filepath.Join(t.TempDir(), "rehop")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", rehop, "../../desk/cmd/rehop").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	eachOwn(t, "remedies", func(t *testing.T, n *nodes.Node) {
		rows, remediesDone, messages, early := 0, 0, 0, 0
		printed, ran := map[string]string{}, map[string]bool{} // kinds of commands; the rows that have them
		for _, name := range slices.Sorted(maps.Keys(remedies)) {
			t.Run(name, func(t *testing.T) {
				rows++
				v := newVhost(t, n, "remedy "+name)
				server := v.conn.Server().Version
				r := &repair{traffic: newTraffic(v), remedy: remedies[name], is3: !server.AtLeast(4, 0), rehop: rehop, files: t.TempDir(), ran: ran}
				if r.from == "4.3" && !server.AtLeast(4, 3) {
					return
				}
				r.before(r)
				poll.Until(t, time.Minute, fmt.Sprintf("Verify finds %s with %q", r.code, r.says), func() bool {
					drift := v.verify(v.conn, r.want...)
					at := slices.IndexFunc(drift.Differences, func(d topology.Difference) bool { return d.Code == r.code && strings.Contains(d.Remedy, r.says) })
					if at >= 0 {
						r.found = drift.Differences[at]
					}
					return at >= 0
				})
				for _, line := range commandsOf(r.found.Remedy) {
					printed[kindOf(line)] = name
				}
				r.steps(r)
				if len(r.publishing) > 0 {
					r.more()
				}
				if r.dlqs == nil {
					r.dlqs = []string{"orders.dlq"}
				}
				all, tooEarly := r.finish(r.dlqs...)
				for id, n := range r.badTries() {
					if want := len(briefly) + 1; r.full && n != want {
						t.Errorf("message %q was attempted %d times, want %d", id, n, want)
					}
				}
				remediesDone, messages, early = remediesDone+1, messages+all, early+tooEarly
				if tooEarly > 0 {
					t.Logf("%d of %d messages with attempts left are letters", tooEarly, all)
				}
				var drift topology.Drift
				t.Cleanup(func() {
					if t.Failed() {
						t.Log(drift)
					}
				})
				poll.Until(t, time.Minute, "the difference is gone", func() bool {
					drift = v.verify(v.conn, r.want...)
					return !slices.ContainsFunc(drift.Differences, func(d topology.Difference) bool {
						return d.Code == r.code && d.Name == r.found.Name || !r.left && d.Class != topology.DriftExtra && d.Class != topology.DriftWeak
					})
				})
			})
		}
		for kind, row := range printed {
			if !ran[kind] && rows == len(remedies) { // and not some of them only
				t.Errorf("no row runs %s, which is printed for %s", kind, row)
			}
		}
		fmt.Printf("broker %s: %d remedies were done with %d messages in flight, %d of which became letters early\n", n.Version(), remediesDone, messages, early)
	})
}

func (r *repair) declare(specs ...topology.Spec) {
	r.Helper()
	if err := topology.Declare(r.Context(), r.conn, specs...); err != nil {
		r.Fatal(err)
	}
}

func (r *repair) put(kind, name string, body any) {
	r.Helper()
	r.must(http.MethodPut, kind+"/"+r.path()+"/"+url.PathEscape(name), body)
}

// begins says where a command begins in a text.
var begins = regexp.MustCompile(`(?:^|[ (])((?:rabbitmqctl|rabbitmq-queues|curl|rehop dlq) )`)

// ends are what follows a command in a text.
var ends = []string{")", ";", ", ", ": ", " and ", " or ", " shows ", " deletes ", " brings ", " lets "}

// commandsOf returns the commands that a remedy prints.
func commandsOf(remedy string) (all []string) {
	for {
		at := begins.FindStringSubmatchIndex(remedy)
		if at == nil {
			return all
		}
		remedy = remedy[at[2]:]
		end, quoted := 0, false
	words:
		for ; end < len(remedy); end++ {
			switch {
			case remedy[end] == '\'' && (end == 0 || quoted || remedy[end-1] != '\\'):
				quoted = !quoted
			case !quoted && slices.ContainsFunc(ends, func(e string) bool { return strings.HasPrefix(remedy[end:], e) }):
				break words
			}
		}
		all = append(all, remedy[:end])
		remedy = remedy[end:]
	}
}

// kindOf returns what a command does, without to what.
func kindOf(command string) string {
	words := strings.Fields(command)
	switch words[0] {
	case "curl":
		_, path, _ := strings.Cut(command, "/api/")
		path, _, _ = strings.Cut(path, "/")
		return "curl " + words[4] + " " + path
	case "rehop":
		return strings.Join(words[:3], " ")
	}
	return strings.Join(words[:2], " ")
}

// delete runs the commands that delete queues.
func (r *repair) delete() {
	r.Helper()
	r.run("rabbitmqctl delete_queue")
}

// run runs the commands of the remedy that was found which begin so, as somebody who pastes them: each is as it is printed, but for what
// the person fills in. It returns what the last one says.
func (r *repair) run(begin string, fill ...string) (out string) {
	r.Helper()
	u, err := url.Parse(r.node.ManagementURL())
	if err != nil {
		r.Fatal(err)
	}
	n := 0
	for _, line := range commandsOf(r.found.Remedy) {
		if !strings.HasPrefix(line, begin) {
			continue
		}
		n++
		r.ran[kindOf(line)] = true
		switch {
		case strings.HasPrefix(line, "curl "):
			line = strings.NewReplacer(append(fill, "curl -u USER", "curl -sSf -u "+u.User.String(), "HOST:15672", u.Host)...).Replace(line)
			out, err = r.shell(line)
		case strings.HasPrefix(line, "rehop "):
			out, err = r.shell(strings.Replace(line, "rehop ", r.rehop+" --yes ", 1))
		default:
			out, err = r.node.Exec(r.Context(), "sh", "-c", line)
		}
		if err != nil {
			r.Fatalf("%s: %v\n%s", line, err, out)
		}
	}
	if n == 0 {
		r.Fatalf("no command begins with %s: %s", begin, r.found.Remedy)
	}
	return out
}

// shell runs a command on this machine.
func (r *repair) shell(line string) (string, error) {
	out, err := r.command(r.Context(), line).CombinedOutput()
	return string(out), err
}

func (r *repair) command(ctx context.Context, line string) *exec.Cmd {
	c := exec.CommandContext(ctx, "sh", "-c", line)
	c.Dir = r.files
	broker, _, _ := strings.Cut(strings.TrimPrefix(r.node.AMQPURL(), "amqp://"), "/") // the virtual host is that of the command
	c.Env = append(os.Environ(), "AMQP_URL=amqp://"+broker, "AMQP_MANAGEMENT_URL="+r.node.ManagementURL(), "REHOP_JOURNAL="+r.files+"/journal")
	return c
}

// collect collects the messages of a queue into the store messages.db. The broker counts those in hand too.
func (r *repair) collect(queue string) {
	r.Helper()
	ctx, stop := context.WithCancel(r.Context())
	c := r.command(ctx, "exec "+r.rehop+" --yes dlq collect --vhost='"+r.name+"' --store=messages.db "+queue)
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	if err := c.Start(); err != nil {
		r.Fatal(err)
	}
	poll.Until(r, time.Minute, "the broker counts none of "+queue, func() bool { return r.all(queue) == 0 })
	stop()
	if exit := (*exec.ExitError)(nil); errors.As(c.Wait(), &exit) {
		r.Errorf("%v\n%s", exit, &out)
	}
}

// takeAll takes the messages of a wait that nobody consumes, as takes does, and no look may. Some may expire meanwhile, so it takes no
// number of them. The broker counts those in hand too.
func (r *repair) takeAll(queue string) {
	r.Helper()
	session, err := r.conn.Session(r.Context(), connection.Consume)
	if err != nil {
		r.Fatal(err)
	}
	var in <-chan amqp.Delivery
	if err := session.Do(r.Context(), func(ch *amqp.Channel) (err error) {
		in, err = ch.Consume(queue, "", false, false, false, false, nil)
		return err
	}); err != nil {
		r.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		for m := range in {
			r.mu.Lock()
			r.letters[m.MessageId]++
			r.mu.Unlock()
			if err := m.Ack(false); err != nil {
				ended <- err
				return
			}
		}
		ended <- nil
	}()
	poll.Until(r, time.Minute, "the broker counts none of "+queue, func() bool { return r.all(queue) == 0 })
	session.Close()
	if err := <-ended; err != nil {
		r.Fatal(err)
	}
}

// difference returns what Verify finds of a part.
func (r *repair) difference(code topology.DriftCode, name string) topology.Difference {
	r.Helper()
	drift := r.verify(r.conn, r.want...)
	at := slices.IndexFunc(drift.Differences, func(d topology.Difference) bool { return d.Code == code && d.Name == name })
	if at < 0 {
		r.Fatalf("Verify does not find %s of %s:\n%s", code, name, drift)
	}
	return drift.Differences[at]
}

// rollOut replaces the first consumer by one of another version, while messages are published.
func (r *repair) rollOut(w topology.WorkQueue) {
	r.Helper()
	r.declare(r.want...)
	r.consume(w)
	r.consuming[0]()
	r.consuming = r.consuming[1:]
	r.more()
}

// empty waits until queues are empty.
func (r *repair) empty(names ...string) {
	r.Helper()
	for _, name := range names {
		poll.Until(r, 3*time.Minute, name+" is empty", func() bool { return r.count(name) == 0 })
	}
}

// all returns how many messages a queue has, those in hand included. The broker may count 5 s late.
func (r *repair) all(queue string) (n int) {
	r.Helper()
	out, err := r.node.Exec(r.Context(), "rabbitmqctl", "list_queues", "-q", "--no-table-headers", "-p", r.name, "name", "messages")
	if err != nil {
		r.Fatal(err)
	}
	for line := range strings.Lines(out) {
		if fields := strings.Fields(line); len(fields) == 2 && fields[0] == queue {
			if n, err = strconv.Atoi(fields[1]); err != nil {
				r.Fatal(err)
			}
		}
	}
	return n
}

func (r *repair) policy(kind, name string, priority int, pattern string, definition map[string]any) {
	r.Helper()
	r.put(kind, name, map[string]any{"pattern": pattern, "apply-to": "queues", "priority": priority, "definition": definition})
}

// policyOf returns the name in a column of a queue, policy or operator_policy.
func (r *repair) policyOf(queue, column string) string {
	r.Helper()
	answer := r.must(http.MethodGet, "queues/"+r.path()+"/"+url.PathEscape(queue)+"?columns="+column, nil)
	var has map[string]string                                                      // null for none
	if err := json.Unmarshal(answer, &has); err != nil && string(answer) != "[]" { // nothing is reported yet
		r.Fatal(err)
	}
	return has[column]
}
