package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/topology"
)

// A change says what is new, what stays behind and what becomes of messages, and whether anything stops.
func TestAChangeIsTold(t *testing.T) {
	s := open(t)
	wrote := 0
	write := func(specs ...topology.Spec) string {
		text, err := topology.MarshalSpecs(specs...)
		must(t, err)
		wrote++
		path := filepath.Join(s.TempDir(), string(rune('a'+wrote))+".json")
		must(t, os.WriteFile(path, text, 0o600))
		return path
	}
	minute := delay.Schedule{time.Minute}
	work := func(change func(*topology.WorkQueue)) topology.WorkQueue {
		w := topology.WorkQueue{Name: "orders", Waits: minute}
		change(&w)
		return w
	}
	as := func(engine topology.Engine) topology.WorkQueue {
		return work(func(w *topology.WorkQueue) { w.Engine = engine })
	}
	shards := func(n int) topology.Shards { return topology.Shards{Name: "bills", Count: n, Waits: minute} }
	plain := as("")
	shop := topology.Exchange{Name: "shop"}
	kind := func(name, kind string) topology.Exchange { return topology.Exchange{Name: name, Kind: kind} }
	bound := func(exchange, key string) []topology.Binding {
		return []topology.Binding{{Exchange: exchange, RoutingKey: key}}
	}
	orders := func(name string) topology.WorkQueue {
		return topology.WorkQueue{Name: name, Waits: minute, Bindings: bound("shop", "order.#")}
	}
	ids := kind("ids", "headers")
	tenant := func(name string, value any) topology.WorkQueue {
		return topology.WorkQueue{Name: name, Waits: minute, Bindings: []topology.Binding{{Exchange: "ids", Headers: amqp.Table{"x-match": "all", "tenant": value}}}}
	}
	queue := func(name string) topology.WorkQueue { return topology.WorkQueue{Name: name, Waits: minute} }
	plainMails := topology.WorkQueue{Name: "mails", Waits: minute}
	one := func(l topology.Lanes) topology.Lanes {
		l.OneDeadLetterQueue = true
		return l
	}
	named := func(name string, l topology.Lanes) topology.Lanes {
		l.Name = name
		return l
	}
	longer := func(l topology.Lanes) topology.Lanes {
		l.Waits = delay.Schedule{time.Minute, time.Hour}
		return l
	}
	timeout := func(d time.Duration) topology.WorkQueue {
		return work(func(w *topology.WorkQueue) { w.ConsumerTimeout = d })
	}
	theirs := func(t topology.QueueType, single bool) topology.WorkQueue {
		return work(func(w *topology.WorkQueue) { w.Existing, w.Type, w.SingleActiveConsumer = true, t, single })
	}
	own := func(l topology.Lanes) topology.Lanes {
		l.Lanes[1].Bindings = bound("shop", l.Lanes[1].Name)
		return l
	}
	lanes := func(names ...string) topology.Lanes {
		l := topology.Lanes{Name: "sms", Waits: minute, Bindings: bound("shop", "sms")}
		for _, name := range names {
			l.Lanes = append(l.Lanes, topology.Lane{Name: name})
		}
		return l
	}
	for _, tt := range []struct {
		rule, broker string
		old, next    []topology.Spec
		says         []string // in this order
		silent       string   // about this
	}{
		{"a new work queue is told once, with its parts", "4.3", []topology.Spec{plain}, []topology.Spec{plain, topology.WorkQueue{Name: "mails", Waits: minute}},
			[]string{"+ queue mails (queue-missing)", "OLD:     none", "; with mails.wait.1, mails.dlq, exchanges: 7", "it is new, and empty", "1 new: nothing has to stop"}, "do not wait as planned"},
		{"exact delays are told once", "4.3", []topology.Spec{plain}, []topology.Spec{plain, topology.Delays{Max: time.Second}},
			[]string{"+ parts of rehop.delays.1s", "rehop.delays.1s.00", "1 new: nothing has to stop"}, "+ exchange"},
		{"messages that wait come back in spite of another wait", "4.3", []topology.Spec{plain}, []topology.Spec{work(func(w *topology.WorkQueue) { w.Waits = delay.Schedule{time.Hour} })},
			[]string{"+ queue orders.wait.1.1h", "What waits elsewhere comes back as before", "- queue orders.wait.1 ", "messages in it come back as usual, and none come from programs of NEW", "note orders: wait 1 is 1h0m0s", "nothing has to stop"}, "do not wait as planned"},
		{"another engine", "4.3", []topology.Spec{plain}, []topology.Spec{as(topology.EngineRepublish)},
			[]string{"~ engine of orders", "OLD:     nack", "NEW:     republish (asked for)", "confirmed copies. What waits comes back as before", "programs of OLD and NEW run side by side", "1 by another engine: nothing has to stop"}, ""},
		{"an engine that the waits do not allow, and what would have to stop for it", "4.3", []topology.Spec{plain}, []topology.Spec{as(topology.EngineCarry)},
			[]string{"~ engine of orders", `NEW:     republish (queue "orders.wait.1" exists with a TTL)`, "note orders: its wait queues exist with a TTL and go on as they are", "to change that, stop the consumers"}, ""},
		{"an engine that stays because of the waits, with the reason", "4.3", []topology.Spec{as(topology.EngineCarry)}, []topology.Spec{plain},
			[]string{"note orders: its wait queues exist without a TTL and go on as they are, by the engine carry", "nothing has to stop"}, "~ engine"},
		{"another type stops what uses the queue", "4.3", []topology.Spec{plain}, []topology.Spec{work(func(w *topology.WorkQueue) { w.Type = topology.Classic })},
			[]string{"~ queue orders (queue-type)", "OLD:     x-queue-type quorum", "NEW:     x-queue-type classic", `stop what publishes to "orders"`, "1 cannot change in place: NEW cannot be declared before something stops, see ~"}, "- exchange"},
		{"messages come to what is deleted by bindings too", "4.3", []topology.Spec{shop, orders("orders")}, []topology.Spec{shop, topology.WorkQueue{Name: "orders", Type: topology.Classic, Waits: minute, Bindings: bound("shop", "order.#")}},
			[]string{"~ queue orders (queue-type)", `stop what publishes to "orders" and to the exchanges that it is bound to, let`, "declare again, then bind it again where others had bound it", `OLD binds it to exchange "shop" (key "order.#")`}, ""},
		{"and to the exchange of lanes", "4.3", []topology.Spec{shop, lanes("vip", "bulk")}, []topology.Spec{shop, lanes("bulk", "vip")},
			[]string{"~ exchange sms.lanes", "stop what publishes to it and to the exchanges that it is bound to, let the lanes", `OLD binds it to exchange "shop" (key "sms")`}, ""},
		{"and to dead letters", "4.3", []topology.Spec{topology.DeadLetterQueue{Name: "lost", Exchange: "fallback"}}, []topology.Spec{queue("lost")},
			[]string{"~ queue lost", `OLD binds it to exchange "fallback" (key "")`}, ""},
		{"a command is for its virtual host", "4.3 --vhost west", []topology.Spec{plain}, []topology.Spec{work(func(w *topology.WorkQueue) { w.Type = topology.Classic })}, []string{"rabbitmqctl delete_queue -p west orders"}, ""},
		{"more shards: keys move, messages do not", "4.3", []topology.Spec{shards(2)}, []topology.Spec{shards(3)},
			[]string{"+ queue bills.02", "with bills.02.wait.1", "Keys move to it when publishers know the larger Count, and no message moves", "declare and consume NEW first", "note bills: 3 shards", "nothing has to stop"}, "bills.00 (queue"},
		{"fewer shards: the last are emptied first, their dead letters can go back until then, and they are deleted alone", "4.3", []topology.Spec{shards(4)}, []topology.Spec{shards(2)},
			[]string{"- parts of shards bills (queue-extra)", "declared by OLD, with bills.02, bills.02.wait.1, bills.03, bills.03.wait.1\n", "topology.Declare of NEW returns an error while one of these queues has messages and no consumer",
				"1. let the publishers know the smaller Count, and consume the larger one", "2. let the consumers of bills.02, bills.03 empty them and their waits", "twice, 10 s apart), and stop them",
				`3. what failed in "bills.02" and "bills.03" and is in "bills.dlq" has no queue to go back to afterwards. Send back what is to be handled and do step 2 again:`, "rehop dlq send --queue=bills.02 bills.dlq\n", "rehop dlq send --queue=bills.03 bills.dlq\n",
				"4. when NEW is declared and no program of OLD runs:", "rabbitmqctl delete_queue bills.02\n", "rabbitmqctl delete_queue bills.03.wait.1\n", "1 left behind: nothing has to stop"}, "delete_queue bills.dlq"},
		{"a work queue that goes is told once, and deleted alone", "3.10", []topology.Spec{plain, topology.WorkQueue{Name: "mails", Waits: minute}}, []topology.Spec{plain},
			[]string{"- queue mails", "declared by OLD, with mails.wait.1, mails.dlq\n", `messages still come from what publishes to "mails" by name, and no program of NEW handles them`,
				`1. let what publishes to "mails" by name publish elsewhere`, `2. let its consumers empty it and its waits, because what still waits becomes a dead letter (rabbitmqctl list_queues name messages: 0 for "mails" and each "mails.wait.*", twice, 10 s apart), and stop them`,
				"3. empty mails.dlq: move the dead letters (rehop dlq move --all --to QUEUE mails.dlq), or take them out (rehop dlq drop --all --copy letters.jsonl mails.dlq), or send them back (rehop dlq send --all mails.dlq) and do step 2 again",
				`wait until nothing is left (rabbitmqctl list_queues name messages: 0 for "mails.dlq", twice, 10 s apart)`, "4. when NEW is declared and no program of OLD runs:",
				"rabbitmqctl delete_queue mails\n", "rabbitmqctl delete_queue mails.wait.1\n", "rabbitmqctl delete_queue mails.dlq\n", "curl -u USER -X DELETE 'http://HOST:15672/api/exchanges/%2F/{mails.rehop.", "1 left behind: nothing has to stop but for the steps of -\n"}, "orders"},
		{"a work queue with another name: messages reach both", "4.3", []topology.Spec{shop, orders("orders")}, []topology.Spec{shop, orders("purchases")},
			[]string{"+ queue purchases", "- queue orders", `each message reaches both "orders" and "purchases" from when NEW is declared until "orders" is unbound, and is handled twice while both are consumed`,
				`1. keep "orders" in NEW, as OLD has it and without Bindings until step 6`, "a program of OLD binds it again when it declares", `2. let what publishes to "orders" by name`,
				`3. when NEW is declared and no program of OLD runs, unbind "orders" from exchange "shop" (key "order.#"):`, "curl -u USER -X DELETE http://HOST:15672/api/bindings/%2F/e/shop/q/orders/order.%2523\n",
				"4. let its consumers empty it and its waits", "5. empty orders.dlq", "6. when NEW is declared and no program of OLD runs:", "rabbitmqctl delete_queue orders\n",
				"nothing has to stop but for the steps of -, and messages reach two queues until what - says is done"}, "delete_queue purchases"},
		{"a name that takes other messages is not both", "4.3", []topology.Spec{shop, orders("orders")}, []topology.Spec{shop, topology.WorkQueue{Name: "mails", Bindings: bound("shop", "mail.#")}},
			[]string{"- queue orders", `messages still come from exchange "shop", and no program of NEW handles them`, `Messages from exchange "shop" (key "order.#") that match no other binding reach no queue then: stop what publishes them before`}, "reaches both"},
		{"a key that takes some of the same messages", "4.3", []topology.Spec{shop, orders("orders")}, []topology.Spec{shop, topology.WorkQueue{Name: "paid", Bindings: bound("shop", "#.paid")}},
			[]string{"- queue orders", `each message that matches both reaches both "orders" and "paid"`}, ""},
		{"a key that takes some of them, beside a queue that has always taken all", "4.3", []topology.Spec{shop, orders("orders"), orders("audit")}, []topology.Spec{shop, orders("audit"), topology.WorkQueue{Name: "paid", Bindings: bound("shop", "#.paid")}},
			[]string{"- queue orders", `each message that matches both reaches both "orders" and "paid"`}, ""},
		{"a queue that is kept and takes them from now on", "4.3", []topology.Spec{shop, orders("orders"), plainMails}, []topology.Spec{shop, topology.WorkQueue{Name: "mails", Waits: minute, Bindings: bound("shop", "order.#")}},
			[]string{"- queue orders", `each message reaches both "orders" and "mails"`}, ""},
		{"delayed messages reach both too", "4.3", []topology.Spec{shop, orders("orders"), topology.Delays{Max: time.Second}}, []topology.Spec{shop, orders("purchases"), topology.Delays{Max: time.Second}},
			[]string{"- queue orders", `unbind "orders" from exchange "shop" (key "order.#") and exchange "rehop.delays.1s.deliver" (key that ends with ">1.shop.order.#")`, "messages that are delayed to it by its name still come"}, "delays ("},
		{"a dead-letter queue that NEW keeps is neither emptied nor deleted", "4.3", []topology.Spec{plain}, []topology.Spec{topology.DeadLetterQueue{Name: "orders.dlq"}},
			[]string{"- queue orders", "declared by OLD, with orders.wait.1\n", `what failed in "orders" and is in "orders.dlq" has no queue`, "rehop dlq send --queue=orders orders.dlq\n", "rabbitmqctl delete_queue orders\n", "rabbitmqctl delete_queue orders.wait.1\n"}, "empty orders.dlq"},
		{"a dead-letter queue that stays as such", "4.3", []topology.Spec{plain, topology.WorkQueue{Name: "orders.dlq", Waits: minute}}, []topology.Spec{plain},
			[]string{"- parts of queue orders.dlq", "declared by OLD, with orders.dlq.wait.1, orders.dlq.dlq\n", `no program of NEW consumes "orders.dlq" and brings back what waits`, `(rabbitmqctl list_queues name messages: 0 for each "orders.dlq.wait.*", twice, 10 s apart), and stop that program`,
				"empty orders.dlq.dlq: ", "rabbitmqctl delete_queue orders.dlq.wait.1\n", "rabbitmqctl delete_queue orders.dlq.dlq\n"}, "delete_queue orders.dlq\n"},
		{"lanes that go are told once", "4.3", []topology.Spec{shop, lanes("vip", "bulk")}, []topology.Spec{shop},
			[]string{"- lanes sms", "declared by OLD, with sms.vip, sms.vip.wait.1", `keep "sms.vip" and "sms.bulk" in NEW, as Lanes.WorkQueues of OLD has it and without Bindings until step 6`, `unbind "sms.lanes" from exchange "shop" (key "sms"). Messages`, "api/bindings/%2F/e/shop/e/sms.lanes/sms\n",
				"let the consumers of sms.vip, sms.bulk empty them and their waits", "0 for each of them and of their waits, twice, 10 s apart), and stop them", "empty sms.vip.dlq and sms.bulk.dlq", "rabbitmqctl delete_queue sms.vip\n", "1 left behind"}, "exchange sms.lanes ("},
		{"another set of lanes runs empty first", "4.3", []topology.Spec{shop, lanes("vip", "normal", "bulk")}, []topology.Spec{shop, lanes("vip", "bulk")},
			[]string{"~ exchange sms.lanes", "stop what publishes to it and to the exchanges that it is bound to, let the lanes and their waits run empty, delete it (curl", "- parts of lanes sms", "declared by OLD, with sms.normal, sms.normal.wait.1, sms.normal.dlq, exchange sms.lanes.unrouted.",
				`2. before exchange "sms.lanes" is deleted, see ~, let its consumers empty it and its waits`, "3. empty sms.normal.dlq: ", "send them back (rehop dlq send --all sms.normal.dlq) and do step 2 again", "rabbitmqctl delete_queue sms.normal\n", "sms.lanes.unrouted."}, "unbind"},
		{"delayed messages have come before the binding goes, also where another queue has always taken them too", "4.3", []topology.Spec{shop, orders("orders"), orders("audit"), topology.Delays{Max: time.Second}}, []topology.Spec{shop, orders("audit"), topology.Delays{Max: time.Second}},
			[]string{"- queue orders", "when no message is delayed to it any more"}, `unbind exchange "rehop.delays.1s.deliver"`},
		{"delays that others declare", "4.3", []topology.Spec{topology.WorkQueue{Name: "orders", Bindings: bound("rehop.delays.1s.deliver", "k")}}, []topology.Spec{queue("orders")},
			[]string{"- binding rehop.delays.1s.deliver --k--> orders", "what programs of OLD delayed has come"}, ""},
		{"a lane that NEW has as a work queue leaves the dead letters in common, and nothing stops for that", "4.3", []topology.Spec{shop, one(lanes("vip", "bulk"))}, []topology.Spec{shop, queue("sms.vip")},
			[]string{"lanes sms", "1 left behind: nothing has to stop"}, "no version of rehop binds it"},
		{"a lane that NEW has as a work queue is not deleted", "4.3 --vhost west", []topology.Spec{shop, lanes("vip", "bulk")}, []topology.Spec{shop, queue("sms.vip")},
			[]string{"- lanes sms", "declared by OLD, with sms.bulk, sms.bulk.wait.1, sms.bulk.dlq, exchange sms.lanes", `1. keep "sms.bulk" in NEW, as Lanes.WorkQueues of OLD has it and without Bindings until step 6`, `4. let its consumers empty it and its waits`, "5. empty sms.bulk.dlq", "--vhost=west",
				"6. when NEW is declared", "rabbitmqctl delete_queue -p west sms.bulk\n", "exchanges/west/{", "sms.lanes}'"}, "delete_queue -p west sms.vip"},
		{"lanes that NEW has as work queues: their exchange goes, and nothing else", "4.3", []topology.Spec{shop, lanes("vip", "bulk")}, []topology.Spec{shop, queue("sms.vip"), queue("sms.bulk")},
			[]string{"- lanes sms (exchange-extra)", "declared by OLD, with exchange sms.lanes.unrouted.", "exchange sms.lanes\n", `it stays with what is in it; messages still come from exchange "shop"` + "\n", `1. let what publishes to exchange "sms.lanes" publish elsewhere`,
				`2. when NEW is declared and no program of OLD runs, unbind "sms.lanes" from exchange "shop" (key "sms"). Messages from exchange "shop" (key "sms") that match no other binding reach no queue then`, "3. when NEW is declared and no program of OLD runs:", "exchanges/%2F/{"}, "delete_queue"},
		{"a lane that NEW has as a work queue, beside other lanes", "4.3", []topology.Spec{shop, lanes("vip", "normal", "bulk")}, []topology.Spec{shop, lanes("vip", "bulk"), queue("sms.normal")}, []string{"~ exchange sms.lanes", "- parts of lanes sms (exchange-extra)", "declared by OLD, with exchange sms.lanes.unrouted."}, "delete_queue"},
		{"a lane that goes, and its dead letters stay", "4.3", []topology.Spec{shop, lanes("vip", "normal", "bulk")}, []topology.Spec{shop, lanes("vip", "bulk"), topology.DeadLetterQueue{Name: "sms.normal.dlq"}},
			[]string{"- parts of lanes sms", "declared by OLD, with sms.normal, sms.normal.wait.1, exchange", "rehop dlq send --queue=sms.normal sms.normal.dlq\n", "rabbitmqctl delete_queue sms.normal\n", "rabbitmqctl delete_queue sms.normal.wait.1\n"}, "delete_queue sms.normal.dlq"},
		{"a lane of those with one dead-letter queue goes: no second one is made, and the one is unbound before it is emptied", "4.3", []topology.Spec{shop, one(lanes("vip", "bulk"))}, []topology.Spec{shop, queue("sms.vip")},
			[]string{"- lanes sms", "declared by OLD, with sms.bulk, sms.bulk.wait.1, sms.dlq, exchange", `dead letters of "sms.vip" still come to "sms.dlq" too`, `keep "sms.bulk" in NEW, as Lanes.WorkQueues of OLD has it`,
				`"sms.dlq" from exchange "sms.vip.rehop.unrouted" (key "")`, "api/bindings/%2F/e/sms.vip.rehop.unrouted/q/sms.dlq/~'\n", "let its consumers empty it", "empty sms.dlq: ", "rabbitmqctl delete_queue sms.dlq\n"}, "sms.bulk.dlq"},
		{"a lane of those with one dead-letter queue goes, and only its letters stay", "4.3", []topology.Spec{shop, one(lanes("vip", "bulk"))}, []topology.Spec{shop, topology.DeadLetterQueue{Name: "sms.dlq"}},
			[]string{"- lanes sms", "declared by OLD, with sms.vip, sms.vip.wait.1, sms.bulk, sms.bulk.wait.1, exchange", `rehop dlq send --queue=sms.vip sms.dlq` + "\n", "rabbitmqctl delete_queue sms.bulk\n", "sms.lanes}'"}, "delete_queue sms.dlq"},
		{"lanes whose dead letters NEW keeps lose their exchange", "4.3", []topology.Spec{shop, lanes("vip", "bulk")}, []topology.Spec{shop, queue("sms.vip"), topology.DeadLetterQueue{Name: "sms.bulk.dlq"}},
			[]string{"- lanes sms", "rabbitmqctl delete_queue sms.bulk\n", "exchanges/%2F/{", "sms.lanes}'"}, "delete_queue sms.bulk.dlq"},
		{"lanes with one dead-letter queue no more: it is unbound before it is emptied", "4.3", []topology.Spec{shop, one(lanes("vip", "bulk"))}, []topology.Spec{shop, lanes("vip", "bulk")},
			[]string{"~ exchange sms.lanes", "- parts of lanes sms", "declared by OLD, with sms.dlq, exchange sms.lanes.unrouted.", `unbind "sms.dlq" from exchange "sms.vip.rehop.unrouted" (key "") and exchange "sms.bulk.rehop.unrouted" (key "")`, "empty sms.dlq: ", "rabbitmqctl delete_queue sms.dlq\n"}, "keep "},
		{"a shard that NEW has as a work queue is not deleted", "4.3", []topology.Spec{shards(3)}, []topology.Spec{queue("bills.00")},
			[]string{"- shards bills", "declared by OLD, with bills.01, bills.01.wait.1, bills.02, bills.02.wait.1, bills.dlq", `dead letters of "bills.00" still come to "bills.dlq" too`, `unbind "bills.dlq" from exchange "bills.00.rehop.unrouted" (key "")`,
				"3. let the consumers of bills.01, bills.02 empty them", "4. empty bills.dlq: ", "rabbitmqctl delete_queue bills.01\n", "rabbitmqctl delete_queue bills.dlq\n"}, "delete_queue bills.00."},
		{"shards that NEW has as work queues leave their dead letters", "4.3", []topology.Spec{shards(1)}, []topology.Spec{queue("bills.00")},
			[]string{"- shards bills", "declared by OLD, with bills.dlq\n", `1. when NEW is declared and no program of OLD runs, unbind "bills.dlq" from exchange "bills.00.rehop.unrouted" (key "")`, "2. empty bills.dlq: ", "3. when NEW is declared and no program of OLD runs:", "rabbitmqctl delete_queue bills.dlq\n"}, "delete_queue bills.00."},
		{"of two bindings, only the messages of one reach no queue", "4.3", []topology.Spec{shop, topology.WorkQueue{Name: "orders", Bindings: append(bound("shop", "a"), bound("shop", "b")...)}},
			[]topology.Spec{shop, topology.WorkQueue{Name: "mails", Bindings: bound("shop", "a")}},
			[]string{"- queue orders", `(key "a", key "b")`, `Messages from exchange "shop" (key "b") that match no other binding reach no queue then`}, ""},
		{"messages that another queue has always taken too", "4.3", []topology.Spec{shop, orders("orders"), orders("audit")}, []topology.Spec{shop, orders("audit")},
			[]string{"- queue orders", `unbind "orders" from exchange "shop"`}, "reach no queue"},
		{"a key that takes some of the same messages: the others reach no queue", "4.3", []topology.Spec{shop, orders("orders")}, []topology.Spec{shop, topology.WorkQueue{Name: "paid", Bindings: bound("shop", "#.paid")}},
			[]string{"- queue orders", "that match no other binding reach no queue then"}, ""},
		{"shards that go", "4.3", []topology.Spec{shards(2)}, []topology.Spec{plain}, []string{"- shards bills", "declared by OLD, with bills.00, bills.00.wait.1", `let what publishes to "bills.00" and "bills.01" by name publish elsewhere`, "empty bills.dlq: ", "rabbitmqctl delete_queue bills.dlq\n"}, "- queue bills"},
		{"dead letters that go", "4.3", []topology.Spec{plain, topology.DeadLetterQueue{Name: "lost", Exchange: "fallback"}}, []topology.Spec{plain},
			[]string{"- queue lost", "with exchange fallback\n", `1. let what publishes to exchange "fallback" or to "lost" by name publish elsewhere`, "2. empty lost: move the dead letters", "or send them back (rehop dlq send --all lost); wait", "3. when NEW is declared", "rabbitmqctl delete_queue lost\n", "api/exchanges/%2F/fallback\n"}, "exchange fallback ("},
		{"dead letters that go, and their exchange stays", "4.3", []topology.Spec{plain, topology.DeadLetterQueue{Name: "lost", Exchange: "fallback"}}, []topology.Spec{plain, topology.Exchange{Name: "fallback", Kind: "fanout"}},
			[]string{"- queue lost", `unbind "lost" from exchange "fallback" (key "")`, "empty lost: ", "rabbitmqctl delete_queue lost\n"}, "api/exchanges"},
		{"exact delays that go", "4.3", []topology.Spec{plain, topology.Delays{}}, []topology.Spec{plain}, []string{"- delays rehop.delays.1s", "other services of the virtual host may use it", `0 for each of "rehop.delays.1s.`, "empty rehop.delays.1s.stranded: ", "rabbitmqctl delete_queue rehop.delays.1s.00"}, "delete_queue orders"},
		{"shorter delays: the levels that stay are not deleted", "4.3", []topology.Spec{plain, topology.Delays{Max: 3 * time.Second}}, []topology.Spec{plain, topology.Delays{Max: time.Second}}, []string{"- parts of delays rehop.delays.1s", "rabbitmqctl delete_queue rehop.delays.1s.01"}, "delete_queue rehop.delays.1s.00"},
		{"a queue that others declare from now on", "4.3", []topology.Spec{shop, orders("orders")}, []topology.Spec{shop, topology.WorkQueue{Name: "orders", Existing: true, Waits: minute}},
			[]string{"- declaration of orders", "OLD:     quorum, bound to exchange \"shop\" (key \"order.#\")", "NEW:     declared by others", "nobody puts it or a binding back after it was deleted", "its new owner declares"}, "delete_queue"},
		{"an exchange that others declare from now on", "4.3", []topology.Spec{shop, orders("orders")}, []topology.Spec{orders("orders")},
			[]string{"- declaration of shop", "OLD:     topic", "NEW:     declared by others", "topology.Declare of NEW returns an error if it is gone", "its new owner declares it, as topic"}, "api/exchanges"},
		{"an exchange that nobody needs", "4.3", []topology.Spec{shop, plain}, []topology.Spec{plain},
			[]string{"- exchange shop", "OLD:     topic", "NEW:     none", `1. let what publishes to exchange "shop" publish elsewhere`, `2. when NEW is declared and no program of OLD runs, and nothing that stays is bound to "shop" (rabbitmqctl list_bindings`, "curl -u USER -X DELETE http://HOST:15672/api/exchanges/%2F/shop\n"}, "rehop."},
		{"an exchange that goes takes the bindings of what stays with it", "4.3", []topology.Spec{topology.WorkQueue{Name: "orders", Waits: minute, Bindings: bound("fallback", "")}, topology.DeadLetterQueue{Name: "lost", Exchange: "fallback"}}, []topology.Spec{plain},
			[]string{"- queue lost", `nothing that stays, but "orders", is bound to "fallback" (rabbitmqctl list_bindings`, "api/exchanges/%2F/fallback\n"}, "delete_queue orders"},
		{"an exchange that goes, and was bound to what stays", "4.3", []topology.Spec{shop, orders("orders"), orders("mails")}, []topology.Spec{plain},
			[]string{"- queue mails", "- exchange shop", `nothing that stays, but "orders", is bound to "shop" (rabbitmqctl list_bindings`}, `"mails" is bound`},
		{"a binding of a work queue that cannot stay as it is, to dead letters that can", "4.3", []topology.Spec{shards(2)}, []topology.Spec{queue("bills.00"), topology.DeadLetterQueue{Name: "bills.dlq"}},
			[]string{"~ queue bills.00", "- binding bills.00.rehop.unrouted ----> bills.dlq", `each message reaches both "bills.dlq" and "bills.00.dlq"`}, ""},
		{"a wait of a work queue that cannot stay as it is", "4.3", []topology.Spec{plain}, []topology.Spec{work(func(w *topology.WorkQueue) { w.Type, w.Waits = topology.Classic, delay.Schedule{time.Hour} })},
			[]string{"~ queue orders", "- queue orders.wait.1 "}, "- binding"},
		{"two exchanges that lead to it and cannot stay as they are", "4.3", []topology.Spec{kind("a", "direct"), kind("b", "direct"), topology.WorkQueue{Name: "orders", Bindings: append(bound("a", "k"), bound("b", "k")...)}}, []topology.Spec{kind("a", ""), kind("b", "")},
			[]string{"- queue orders", `before exchange "a" or exchange "b" is deleted, see ~, let its consumers`}, ""},
		{"dead letters go to a work queue that cannot stay as it is: it is deleted after the steps", "4.3", []topology.Spec{shop, orders("orders"), queue("orders.dlq")}, []topology.Spec{shop, topology.WorkQueue{Name: "orders.dlq", Type: topology.Classic, Waits: minute}},
			[]string{"~ queue orders.dlq", `Before it is deleted, stop the consumers of "orders" too, whose dead letters come to it`, "- queue orders (", `1. stop what publishes to exchange "shop" (key "order.#") too, with what publishes to queue "orders.dlq", see ~`,
				`3. before queue "orders.dlq" is deleted, see ~, let its consumers empty it`, "4. when no program of OLD runs", `5. what failed in "orders" and is in "orders.dlq" has no queue to go back to afterwards. Send back what is to be handled and do steps 3 to 4 again`}, "keep "},
		{"a work queue of dead letters becomes a dead-letter queue: its waits come back before", "4.3", []topology.Spec{plain, topology.WorkQueue{Name: "orders.dlq", Type: topology.Classic, Waits: minute}}, []topology.Spec{plain},
			[]string{"~ queue orders.dlq", "- parts of queue orders.dlq", `1. before queue "orders.dlq" is deleted, see ~, stop what publishes to "orders.dlq" or call Pause`}, ""},
		{"a dead-letter queue in common is emptied after the work queue that is unbound when NEW is declared", "4.3", []topology.Spec{shop, topology.WorkQueue{Name: "bills", Waits: minute, Bindings: bound("shop", "a")}, shards(2)}, []topology.Spec{shop},
			[]string{"- queue bills (", "3. when NEW is declared", "- shards bills", `1. keep "bills.00" and "bills.01" in NEW`, `3. when NEW is declared and no program of OLD runs, and the steps of "bills" are done, let the consumers of bills.00, bills.01 empty`, "4. empty bills.dlq: ", "send them back (rehop dlq send --queue=bills.00 bills.dlq; rehop dlq send --queue=bills.01 bills.dlq) and do step 3 again", "order: first the steps of every entry before "}, ""},
		{"what takes dead letters of what goes, and cannot stay bound: both go before", "4.3", []topology.Spec{kind("a", "direct"), shop, orders("orders"), topology.WorkQueue{Name: "orders.dlq", Waits: minute, Bindings: bound("a", "k")}}, []topology.Spec{kind("a", ""), shop},
			[]string{"- queue orders (", `before exchange "a" is deleted, see ~, let its consumers`, "- queue orders.dlq (", `before exchange "a" is deleted, see ~, let its consumers`}, "keep "},
		{"fewer attempts", "4.3", []topology.Spec{work(func(w *topology.WorkQueue) { w.Waits = delay.Schedule{time.Minute, time.Hour} })}, []topology.Spec{plain},
			[]string{"~ attempts of queue orders", "OLD:     3", "NEW:     2", "a message whose attempt 2 or a later one fails with consumers of NEW is dead-lettered"}, ""},
		{"one attempt", "4.3", []topology.Spec{plain}, []topology.Spec{work(func(w *topology.WorkQueue) { w.Waits = nil })},
			[]string{"~ attempts of queue orders", "OLD:     2", "NEW:     1", "without waits a failure goes straight to the dead-letter queue"}, ""},
		{"more attempts", "4.3", []topology.Spec{shards(2)}, []topology.Spec{topology.Shards{Name: "bills", Count: 2, Waits: delay.Default()}},
			[]string{"~ attempts of shards bills", "OLD:     2", "NEW:     5", "a message that fails with consumers of NEW is attempted up to 5 times, also one that OLD has attempted"}, ""},
		{"lanes become a queue of their name", "4.3", []topology.Spec{shop, lanes("vip", "bulk")}, []topology.Spec{shop, topology.WorkQueue{Name: "sms", Waits: minute, Bindings: bound("shop", "sms")}},
			[]string{"- lanes sms", `each message reaches both lanes "sms" and "sms" from when NEW is declared until lanes "sms" is unbound`}, ""},
		{"a new work queue with the name of a wait that another one has not", "4.3", []topology.Spec{plain}, []topology.Spec{plain, queue("orders.wait.2")},
			[]string{"+ queue orders.wait.2", "it is new, and empty"}, "fails with consumers of NEW waits in it"},
		{"a line break in a name breaks no line", "4.3", []topology.Spec{plain}, []topology.Spec{plain, queue("a\nb")},
			[]string{"+ queue a b (queue-missing)", "with a b.wait.1, a b.dlq, exchanges"}, "a\nb"},
		{"a line break in an argument of a command is for the shell", "4.3", []topology.Spec{plain}, []topology.Spec{plain, topology.WorkQueue{Name: "a\nb", Existing: true, Waits: minute}},
			[]string{"+ queue a b (queue-missing)", "rabbitmqctl set_policy --apply-to queues \"$(printf 'rehop a\\nb')\" \"$(printf '^a\\nb$')\" '{\"dead-letter-exchange\":\"a\\nb.rehop.unrouted\""}, ""},
		{"a work queue beside lanes of its name keeps its attempts", "4.3", []topology.Spec{shop, plain, named("orders", lanes("vip", "bulk"))}, []topology.Spec{shop, plain, longer(named("orders", lanes("vip", "bulk")))},
			[]string{"~ attempts of lanes orders", "OLD:     2", "NEW:     3", "1 with other attempts"}, "attempts of queue"},
		{"consumers ask for another timeout", "4.3", []topology.Spec{timeout(30 * time.Minute)}, []topology.Spec{timeout(time.Minute)},
			[]string{"note queue orders: consumer_timeout is 1m0s, and 30m0s in OLD: the broker takes a message away from a handler of NEW that has it for so long", "nothing has to stop"}, ""},
		{"consumers ask for no timeout any more", "4.3", []topology.Spec{timeout(30 * time.Minute)}, []topology.Spec{plain},
			[]string{"note queue orders: consumer_timeout is that of the broker, and 30m0s in OLD"}, ""},
		{"a queue keeps its timeout", "4.0", []topology.Spec{plain}, []topology.Spec{timeout(time.Minute)},
			[]string{"note queue orders: consumer_timeout is 1m0s, and that of the broker in OLD: a queue that exists keeps its own"}, ""},
		{"a classic queue of 4.3 has no timeout", "4.3", []topology.Spec{work(func(w *topology.WorkQueue) { w.Type = topology.Classic })}, []topology.Spec{work(func(w *topology.WorkQueue) { w.Type, w.ConsumerTimeout = topology.Classic, time.Minute })},
			[]string{"note queue orders: consumer_timeout is 1m0s, and that of the broker in OLD: a classic queue of broker 4.3 has none"}, ""},
		{"what the specification says of a queue of others", "4.3", []topology.Spec{theirs(topology.Quorum, false)}, []topology.Spec{theirs(topology.Classic, true)},
			[]string{"note queue orders: type is classic, and quorum in OLD: others declare the queue, and it keeps its form", "note queue orders: single_active_consumer is true, and false in OLD: others declare"}, ""},
		{"a key that moves to another queue that is kept", "4.3", []topology.Spec{shop, orders("orders"), plainMails}, []topology.Spec{shop, plain, topology.WorkQueue{Name: "mails", Waits: minute, Bindings: bound("shop", "order.#")}},
			[]string{"- binding shop --order.#--> orders", `each message reaches both "orders" and "mails" until it is unbound`, "unbind it when NEW is declared and no program of OLD runs: curl -u USER -X DELETE http://HOST:15672/api/bindings/%2F/e/shop/q/orders/order.%2523"}, ""},
		{"a binding that goes stays", "4.3", []topology.Spec{topology.Exchange{Name: "shop"}, work(func(w *topology.WorkQueue) { w.Bindings = []topology.Binding{{Exchange: "shop", RoutingKey: "a"}} })},
			[]topology.Spec{topology.Exchange{Name: "shop"}, work(func(w *topology.WorkQueue) { w.Bindings = []topology.Binding{{Exchange: "shop", RoutingKey: "b"}} })},
			[]string{"+ binding shop --b--> orders", "messages that are published from then on, and match it, take it", "- binding shop --a--> orders", "it stays: messages that match it still take it, also while NEW runs"}, "may be in two queues"},
		{"exchanges that lead delayed messages to lanes stay until these have come", "4.3", []topology.Spec{shop, topology.Delays{Max: time.Second}, lanes("vip", "bulk")}, []topology.Spec{shop, lanes("vip", "bulk")},
			[]string{"- parts of lanes sms", "exchange sms.lanes.due.1s", `1. when NEW is declared and no program of OLD runs, wait until what programs of OLD delayed has come (rabbitmqctl list_queues name messages: 0 for each of "rehop.delays.1s.00" to "rehop.delays.1s.00"`, "2. when NEW", "sms.lanes.due.1s"}, ""},
		{"a work queue with a name like a wait of another one", "4.3", []topology.Spec{plain, queue("orders.wait.x")}, []topology.Spec{plain},
			[]string{"- queue orders.wait.x", "declared by OLD, with orders.wait.x.wait.1, orders.wait.x.dlq\n", "rabbitmqctl delete_queue orders.wait.x\n", "{orders.wait.x.rehop.", "1 left behind"}, "delete_queue orders.wait.1\n"},
		{"a work queue with a name like an exchange of another one", "4.3", []topology.Spec{plain, queue("orders.rehop.x")}, []topology.Spec{plain},
			[]string{"- queue orders.rehop.x", "declared by OLD, with orders.rehop.x.wait.1, orders.rehop.x.dlq\n", "rabbitmqctl delete_queue orders.rehop.x\n", "{orders.rehop.x.rehop.", "1 left behind"}, "delete_queue orders.wait.1\n"},
		{"a work queue with the name of a wait that another one has not", "4.3", []topology.Spec{plain, queue("orders.wait.9")}, []topology.Spec{plain},
			[]string{"- queue orders.wait.9", "declared by OLD, with orders.wait.9.wait.1, orders.wait.9.dlq\n", "rabbitmqctl delete_queue orders.wait.9\n", "1 left behind"}, "delete_queue orders.wait.1\n"},
		{"what takes dead letters goes after what they come from", "4.3", []topology.Spec{shop, queue("orders.dlq"), plain}, []topology.Spec{shop},
			[]string{"- queue orders (", "rehop dlq send --queue=orders orders.dlq\n", "rabbitmqctl delete_queue orders\n", "- queue orders.dlq (", "rabbitmqctl delete_queue orders.dlq\n"}, ""},
		{"a dead-letter queue goes with the last that has it", "4.3", []topology.Spec{shop, queue("bills"), shards(2)}, []topology.Spec{shop},
			[]string{"- queue bills (", "rehop dlq send --queue=bills bills.dlq\n", "rabbitmqctl delete_queue bills\n", "- shards bills", "empty bills.dlq: ", "rabbitmqctl delete_queue bills.dlq\n"}, ""},
		{"a queue that stays and dead-letters to what goes is declared anew first", "4.3", []topology.Spec{plainMails}, []topology.Spec{topology.Delays{Max: time.Second, Queues: []string{"mails"}}},
			[]string{"- parts of queue mails", `1. stop what publishes to "mails" or call Pause of its consumers, let a program of OLD run until its waits are empty`, `2. when nothing publishes to "mails" and it is empty, its new owner deletes it and declares it without x-dead-letter-exchange=mails.rehop.dlx. Nothing of this group is deleted before`, "3. empty mails.dlq: ", "rabbitmqctl delete_queue mails.dlq\n", "mails.rehop.dlx"}, "do step"},
		{"a shard that stays without its waits, beside one that goes after others: a program of OLD runs for the first, before none runs any more", "4.3", []topology.Spec{queue("bills"), shards(2)}, []topology.Spec{topology.Delays{Max: time.Second, Queues: []string{"bills.01"}}},
			[]string{"- shards bills", `1. keep "bills.00" in NEW`, `. stop what publishes to "bills.01" or call Pause of its consumers, let a program of OLD run`, `when NEW is declared and no program of OLD runs, and the steps of "bills" are done, let its consumers empty it`, "empty bills.dlq: "}, `are done, stop what publishes`},
		{"a queue of others that stays without its waits, beside what goes: no step runs a program of OLD behind one for which none may run", "4.3",
			[]topology.Spec{shards(2), topology.WorkQueue{Name: "bills", Existing: true, Waits: minute}}, []topology.Spec{topology.Delays{Max: time.Second, Queues: []string{"bills"}}},
			[]string{"- shards bills", "- queue bills", `1. stop what publishes to "bills" or call Pause`, `2. when NEW is declared and no program of OLD runs, and the steps of "bills.00" and "bills.01" are done, empty bills.dlq: `,
				"or send them back (rehop dlq send --queue=bills bills.dlq); wait until nothing is left"}, "step 1 again"},
		{"a shard that stays without its waits, beside one that goes: what is sent back to the second is consumed before this is deleted", "4.3", []topology.Spec{queue("bills"), shards(2)}, []topology.Spec{topology.Delays{Max: time.Second, Queues: []string{"bills.01"}}},
			[]string{"- shards bills", `1. keep "bills.00" in NEW`, `. stop what publishes to "bills.01"`, "4. when NEW is declared and no program of OLD runs, and the steps of \"bills\" are done, let its consumers empty it", "6. empty bills.dlq: ", "bills.dlq) and do step 4 again; wait", "7. when NEW"}, "do steps"},
		{"a binding goes after what cannot change in place", "4.3", []topology.Spec{shop, plain, topology.WorkQueue{Name: "mails", Waits: minute, Bindings: bound("shop", "mail.#")}}, []topology.Spec{shop, work(func(w *topology.WorkQueue) { w.Type = topology.Classic }), plainMails},
			[]string{"~ queue orders", "- binding shop --mail.#--> mails", "unbind it when NEW is declared", `order: first the steps of every entry before "when NEW is declared and no program of OLD runs", then ~, then the other steps`}, ""},
		{"two bindings go in any order", "4.3", []topology.Spec{shop, topology.WorkQueue{Name: "mails", Waits: minute, Bindings: append(bound("shop", "a"), bound("shop", "b")...)}}, []topology.Spec{shop, plainMails},
			[]string{"- binding shop --a--> mails", "- binding shop --b--> mails", "2 left behind: nothing has to stop"}, "order:"},
		{"a lane with bindings of its own goes: what publishes to these stops with the others", "4.3", []topology.Spec{shop, own(lanes("vip", "normal", "bulk"))}, []topology.Spec{shop, lanes("vip", "bulk")},
			[]string{"~ exchange sms.lanes", "- parts of lanes sms", `1. stop what publishes to exchange "shop" (key "normal") too, with what publishes to exchange "sms.lanes", see ~`, "let its consumers empty it", `unbind "sms.normal" from exchange "shop" (key "normal")`}, ""},
		{"dead letters that come to two queues are not sent back from both", "4.3", []topology.Spec{shop, one(lanes("vip", "bulk"))}, []topology.Spec{shop, lanes("vip", "bulk")},
			[]string{"- parts of lanes sms", "empty sms.dlq: ", `or send those back that failed before NEW was declared, TIME ago (rehop dlq send --older TIME sms.dlq): later ones may be in "sms.vip.dlq" and "sms.bulk.dlq" too; wait`}, "dlq send --all"},
		{"dead letters that come to two queues, of a shard that goes too", "4.3", []topology.Spec{shards(2)}, []topology.Spec{queue("bills.00")},
			[]string{"- shards bills", `(rehop dlq send --older TIME bills.dlq) and do step 3 again: later ones may be in "bills.00.dlq" too, but not those of "bills.01" (rehop dlq send --queue=bills.01 bills.dlq); wait`}, "dlq send --all"},
		{"a queue whose dead letters alone are unbound is not kept in NEW", "4.3", []topology.Spec{shards(2)}, []topology.Spec{queue("bills.00")}, []string{"- shards bills", `1. let what publishes to "bills.01" by name`}, "keep "},
		{"a binding by which delayed messages come stays until they have", "4.3", []topology.Spec{shop, topology.Delays{Max: time.Second}, topology.WorkQueue{Name: "orders", Waits: minute, Bindings: append(bound("shop", "a"), bound("shop", "b")...)}},
			[]topology.Spec{shop, topology.Delays{Max: time.Second}, topology.WorkQueue{Name: "orders", Waits: minute, Bindings: bound("shop", "a")}},
			[]string{"- binding shop --b--> orders", "unbind it when NEW is declared and no program of OLD runs: curl", "- binding rehop.delays.1s.deliver --", ">1.shop.b--> orders", "unbind it when NEW is declared and no program of OLD runs and what programs of OLD delayed has come, at the latest Delays.Max of OLD later: curl", "2 left behind"}, "shop.a--> orders"},
		{"shorter delays go on", "4.3", []topology.Spec{plain, topology.Delays{Max: 3 * time.Second}}, []topology.Spec{plain, topology.Delays{Max: time.Second}},
			[]string{"- parts of delays rehop.delays.1s", "1. when NEW is declared and no program of OLD runs, and no service delays messages by it for longer than Delays.Max of NEW any more"}, ""},
		{"lanes with a name like the exchange of others are told by their own name", "4.3", []topology.Spec{shop, lanes("vip", "bulk"), named("sms.lanes", lanes("a", "b"))}, []topology.Spec{shop, lanes("vip", "bulk")},
			[]string{"- lanes sms.lanes", "declared by OLD, with sms.lanes.a, ", `unbind "sms.lanes.lanes" from`, "rabbitmqctl delete_queue sms.lanes.a\n"}, "- lanes sms ("},
		{"the exchange of dead letters that stay goes, and the heading does not name these", "4.3", []topology.Spec{plain, topology.DeadLetterQueue{Name: "lost", Exchange: "fallback"}}, []topology.Spec{plain, topology.DeadLetterQueue{Name: "lost"}},
			[]string{"- parts of queue lost (exchange-extra)", "declared by OLD, with exchange fallback\n", "NEW:     none of these\n"}, "delete_queue"},
		{"headers that a float64 does not tell apart do not match the same messages", "4.3", []topology.Spec{ids, tenant("orders", int64(1746812345678901235))}, []topology.Spec{ids, tenant("purchases", int64(1746812345678901249))},
			[]string{"- queue orders", `tenant=1746812345678901235 x-match=all). Messages from exchange "ids"`, "that match no other binding reach no queue then"}, "each message reaches"},
		{"a header with a number and one with its text do not match the same messages", "4.3", []topology.Spec{ids, tenant("orders", int64(5))}, []topology.Spec{ids, tenant("purchases", "5")},
			[]string{"- queue orders", "that match no other binding reach no queue then"}, "each message reaches"},
		{"a header with a long number is unbound by a command", "4.3", []topology.Spec{ids, tenant("orders", int64(5000000))}, []topology.Spec{ids, orders("orders"), shop},
			[]string{"- binding ids -- tenant=5000000 x-match=all--> orders", "to do:   unbind it when NEW is declared and no program of OLD runs: curl"}, ""},
		{"an exchange that others have to declare for NEW", "4.3", []topology.Spec{plain}, []topology.Spec{work(func(w *topology.WorkQueue) { w.Bindings = []topology.Binding{{Exchange: "theirs", RoutingKey: "a"}} })},
			[]string{"+ exchange theirs", "NEW needs it, and topology.Declare of NEW returns an error without it"}, ""},
	} {
		s.run(exitPartly, append([]string{"topology", "compare", write(tt.old...), write(tt.next...), "--broker"}, strings.Fields(tt.broker)...)...)
		rest := s.out
		for _, text := range tt.says {
			_, after, found := strings.Cut(rest, text)
			if !found {
				t.Errorf("%s:\n%swant %q", tt.rule, s.out, text)
				break
			}
			rest = after
		}
		if tt.silent != "" && strings.Contains(s.out, tt.silent) {
			t.Errorf("%s:\n%swant nothing about %q", tt.rule, s.out, tt.silent)
		}
	}
	s.run(exitPartly, "topology", "compare", write(plain), write(as(topology.EngineRepublish)), "--broker", "4.3", "-o", "json")
	var c change
	must(t, json.Unmarshal([]byte(s.out), &c))
	if len(c.Engines) != 1 || c.Engines[0].Old != topology.EngineNack || c.Engines[0].New != topology.EngineRepublish || c.Stops || c.Differences == nil || c.Notes == nil {
		t.Errorf("%s", s.out)
	}
	s.run(exitPartly, "topology", "compare", write(shop, orders("orders"), queue("mails")), write(shop), "--broker", "4.3")
	_, order, _ := strings.Cut(s.out, "\norder: ")
	s.run(exitPartly, "topology", "compare", write(shop, orders("orders"), queue("mails")), write(shop), "--broker", "4.3", "-o", "json")
	must(t, json.Unmarshal([]byte(s.out), &c))
	if line, _, _ := strings.Cut(order, "\n"); line == "" || c.Order != line {
		t.Errorf("the order is %q, and %q in JSON", line, c.Order)
	}
	s.run(exitDone, "topology", "compare", write(theirs("", false)), write(theirs(topology.Quorum, false)), "--broker", "4.3")
	c = change{}
	s.run(exitDone, "topology", "compare", write(plain), write(plain), "--broker", "4.3", "-o", "json")
	must(t, json.Unmarshal([]byte(s.out), &c))
	if !c.isNone() || slices.Contains(strings.Fields(s.out), "null") {
		t.Errorf("%s", s.out)
	}
}
