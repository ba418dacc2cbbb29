package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

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
	bound := func(exchange, key string) []topology.Binding {
		return []topology.Binding{{Exchange: exchange, RoutingKey: key}}
	}
	orders := func(name string) topology.WorkQueue {
		return topology.WorkQueue{Name: name, Waits: minute, Bindings: bound("shop", "order.#")}
	}
	queue := func(name string) topology.WorkQueue { return topology.WorkQueue{Name: name, Waits: minute} }
	plainMails := topology.WorkQueue{Name: "mails", Waits: minute}
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
		{"a command is for its virtual host", "4.3 --vhost west", []topology.Spec{plain}, []topology.Spec{work(func(w *topology.WorkQueue) { w.Type = topology.Classic })}, []string{"rabbitmqctl delete_queue -p west orders"}, ""},
		{"more shards: keys move, messages do not", "4.3", []topology.Spec{shards(2)}, []topology.Spec{shards(3)},
			[]string{"+ queue bills.02", "with bills.02.wait.1", "Keys move to it when publishers know the larger Count, and no message moves", "declare and consume NEW first", "note bills: 3 shards", "nothing has to stop"}, "bills.00 (queue"},
		{"fewer shards: the last are emptied first, and deleted alone", "4.3", []topology.Spec{shards(4)}, []topology.Spec{shards(2)},
			[]string{"- queue bills.02", "topology.Declare of NEW returns an error while it has messages and no consumer", `1. let the publishers know the smaller Count, and consume the larger one until the shards from number 2 on and their waits are empty: let its consumers empty it`, `0 for "bills.02" and each "bills.02.wait.*", twice, 10 s apart), and stop them`, "2. topology.Delete of what Shards.WorkQueues of OLD has beyond NEW, [2:], which leaves bills.dlq", "- queue bills.03", "2 left behind: nothing has to stop"}, "Delete with OLD"},
		{"a work queue that goes is told once, and deleted alone", "3.10", []topology.Spec{plain, topology.WorkQueue{Name: "mails", Waits: minute}}, []topology.Spec{plain},
			[]string{"- queue mails", "declared by OLD, with mails.wait.1, mails.dlq", "what is published to it by its name still comes, and no program of NEW handles it",
				"1. let what publishes to it by its name publish elsewhere", `2. let its consumers empty it and its waits, because what still waits becomes a dead letter (rabbitmqctl list_queues name messages: 0 for "mails" and each "mails.wait.*", twice, 10 s apart), and stop them`,
				"3. empty mails.dlq: move the dead letters (rehop dlq move --all --to QUEUE mails.dlq), or take them out (rehop dlq drop --all --copy letters.jsonl mails.dlq), or send them back (rehop dlq send --all mails.dlq) and do step 2 again",
				`wait until nothing is left (rabbitmqctl list_queues name messages: 0 for "mails.dlq", twice, 10 s apart)`, "4. topology.Delete of this WorkQueue alone: with all of OLD it would delete what NEW keeps", "1 left behind: nothing has to stop"}, "mails.wait.1 ("},
		{"a work queue with another name: messages reach both", "4.3", []topology.Spec{shop, orders("orders")}, []topology.Spec{shop, orders("purchases")},
			[]string{"+ queue purchases", "- queue orders", `each message reaches both "orders" and "purchases" from when NEW is declared until "orders" is unbound, and is handled twice while both are consumed`,
				"1. keep it in NEW without its Bindings until step 5", "a program of OLD binds it again when it declares",
				`2. when NEW is declared and no program of OLD runs, unbind it from exchange "shop" (key "order.#")`, "Channel.QueueUnbind",
				"3. let its consumers empty it and its waits", "4. empty orders.dlq", "5. topology.Delete of this WorkQueue alone",
				"nothing has to stop, and messages reach two queues until the steps of - are done"}, "Delete with OLD"},
		{"a name that takes other messages is not both", "4.3", []topology.Spec{shop, orders("orders")}, []topology.Spec{shop, topology.WorkQueue{Name: "mails", Bindings: bound("shop", "mail.#")}},
			[]string{"- queue orders", `messages still come from exchange "shop", and no program of NEW handles them`, `Messages from exchange "shop" (key "order.#") that match no other binding reach no queue then: stop what publishes them before`}, "reaches both"},
		{"a key that takes some of the same messages", "4.3", []topology.Spec{shop, orders("orders")}, []topology.Spec{shop, topology.WorkQueue{Name: "paid", Bindings: bound("shop", "#.paid")}},
			[]string{"- queue orders", `each message that matches both reaches both "orders" and "paid"`}, ""},
		{"a key that takes some of them, beside a queue that has always taken all", "4.3", []topology.Spec{shop, orders("orders"), orders("audit")}, []topology.Spec{shop, orders("audit"), topology.WorkQueue{Name: "paid", Bindings: bound("shop", "#.paid")}},
			[]string{"- queue orders", `each message that matches both reaches both "orders" and "paid"`}, ""},
		{"a queue that is kept and takes them from now on", "4.3", []topology.Spec{shop, orders("orders"), plainMails}, []topology.Spec{shop, topology.WorkQueue{Name: "mails", Waits: minute, Bindings: bound("shop", "order.#")}},
			[]string{"- queue orders", `each message reaches both "orders" and "mails"`}, ""},
		{"delayed messages reach both too", "4.3", []topology.Spec{shop, orders("orders"), topology.Delays{Max: time.Second}}, []topology.Spec{shop, orders("purchases"), topology.Delays{Max: time.Second}},
			[]string{"- queue orders", `unbind it from exchange "shop" (key "order.#") and exchange "rehop.delays.1s.deliver" (key that ends with ">1.shop.order.#")`, "messages that are delayed to it by its name still come"}, ""},
		{"a dead-letter queue that NEW keeps is not deleted", "4.3", []topology.Spec{plain}, []topology.Spec{topology.DeadLetterQueue{Name: "orders.dlq"}},
			[]string{"- queue orders", "rabbitmqctl delete_queue orders; rabbitmqctl delete_queue orders.wait.1", "topology.Delete of it would delete orders.dlq, which NEW keeps"}, "rehop dlq"},
		{"a dead-letter queue that stays as such", "4.3", []topology.Spec{plain, topology.WorkQueue{Name: "orders.dlq", Waits: minute}}, []topology.Spec{plain},
			[]string{"- waits of orders.dlq", "NEW has the queue for dead letters, and no program of NEW consumes it", `(rabbitmqctl list_queues name messages: 0 for each "orders.dlq.wait.*", twice, 10 s apart), and stop that program`, "rabbitmqctl delete_queue orders.dlq.wait.1"}, "topology.Delete of this"},
		{"lanes that go are told once", "4.3", []topology.Spec{shop, lanes("vip", "bulk")}, []topology.Spec{shop},
			[]string{"- lanes sms", "declared by OLD, with sms.vip, sms.vip.wait.1", `unbind exchange "sms.lanes" from exchange "shop" (key "sms")`, "Channel.ExchangeUnbind", "let the consumers of sms.vip, sms.bulk empty them and their waits", "0 for each of them and of their waits, twice, 10 s apart), and stop them", "empty sms.vip.dlq and sms.bulk.dlq", "topology.Delete of these Lanes alone", "1 left behind"}, "exchange sms.lanes ("},
		{"another set of lanes runs empty first", "4.3", []topology.Spec{shop, lanes("vip", "normal", "bulk")}, []topology.Spec{shop, lanes("vip", "bulk")},
			[]string{"~ exchange sms.lanes", "stop what publishes to it, let the lanes and their waits run empty, delete it (curl", "- queue sms.normal", "before exchange sms.lanes is deleted, see ~, let its consumers empty it and its waits", "2. empty sms.normal.dlq: ", "topology.Delete of this one of Lanes.WorkQueues of OLD"}, "unbind"},
		{"a lane that NEW has as a work queue is not deleted", "4.3 --vhost west", []topology.Spec{shop, lanes("vip", "bulk")}, []topology.Spec{shop, queue("sms.vip")},
			[]string{"- lanes sms", "declared by OLD, with sms.bulk, sms.bulk.wait.1, sms.bulk.dlq", "1. keep sms.bulk in NEW by WorkQueue without Bindings until step 6", `3. of sms.bulk, let its consumers empty it and its waits`, "4. empty sms.bulk.dlq", "--vhost=west",
				"5. topology.Delete of sms.bulk of WorkQueues of OLD, one by one: of these Lanes it would delete sms.vip, which NEW keeps", "6. delete exchange sms.lanes (curl"}, "topology.Delete of these"},
		{"lanes that NEW has as work queues", "4.3", []topology.Spec{shop, lanes("vip", "bulk")}, []topology.Spec{shop, queue("sms.vip"), queue("sms.bulk")},
			[]string{"- lanes sms", "1. when NEW is declared and no program of OLD runs, unbind exchange", "2. delete exchange sms.lanes (curl"}, "topology.Delete of"},
		{"a lane that NEW has as a work queue, beside other lanes", "4.3", []topology.Spec{shop, lanes("vip", "normal", "bulk")}, []topology.Spec{shop, lanes("vip", "bulk"), queue("sms.normal")}, []string{"~ exchange sms.lanes"}, "- queue sms.normal"},
		{"a lane that goes, and its dead letters stay", "4.3", []topology.Spec{shop, lanes("vip", "normal", "bulk")}, []topology.Spec{shop, lanes("vip", "bulk"), topology.DeadLetterQueue{Name: "sms.normal.dlq"}},
			[]string{"- queue sms.normal", "2. rabbitmqctl delete_queue sms.normal; rabbitmqctl delete_queue sms.normal.wait.1 (topology.Delete of it would delete sms.normal.dlq, which NEW keeps)"}, "rehop dlq"},
		{"a shard that NEW has as a work queue is not deleted", "4.3", []topology.Spec{shards(3)}, []topology.Spec{queue("bills.00")},
			[]string{"- shards bills", "declared by OLD, with bills.01, bills.01.wait.1, bills.02, bills.02.wait.1, bills.dlq", "2. let the consumers of bills.01, bills.02 empty them", "3. empty bills.dlq: ",
				"4. topology.Delete of bills.01 and bills.02 of WorkQueues of OLD, one by one: of these Shards it would delete bills.00, which NEW keeps", "5. rabbitmqctl delete_queue bills.dlq"}, "topology.Delete of these"},
		{"shards that NEW has as work queues leave their dead letters", "4.3", []topology.Spec{shards(1)}, []topology.Spec{queue("bills.00")},
			[]string{"- queue bills.dlq", "1. empty bills.dlq: ", "2. rabbitmqctl delete_queue bills.dlq"}, "- shards"},
		{"of two bindings, only the messages of one reach no queue", "4.3", []topology.Spec{shop, topology.WorkQueue{Name: "orders", Bindings: append(bound("shop", "a"), bound("shop", "b")...)}},
			[]topology.Spec{shop, topology.WorkQueue{Name: "mails", Bindings: bound("shop", "a")}},
			[]string{"- queue orders", `(key "a", key "b")`, `Messages from exchange "shop" (key "b") that match no other binding reach no queue then`}, ""},
		{"messages that another queue has always taken too", "4.3", []topology.Spec{shop, orders("orders"), orders("audit")}, []topology.Spec{shop, orders("audit")},
			[]string{"- queue orders", `unbind it from exchange "shop"`}, "reach no queue"},
		{"a key that takes some of the same messages: the others reach no queue", "4.3", []topology.Spec{shop, orders("orders")}, []topology.Spec{shop, topology.WorkQueue{Name: "paid", Bindings: bound("shop", "#.paid")}},
			[]string{"- queue orders", "that match no other binding reach no queue then"}, ""},
		{"shards that go", "4.3", []topology.Spec{shards(2)}, []topology.Spec{plain}, []string{"- shards bills", "declared by OLD, with bills.00, bills.00.wait.1", "topology.Delete of these Shards alone"}, "- queue bills"},
		{"dead letters that go", "4.3", []topology.Spec{plain, topology.DeadLetterQueue{Name: "lost", Exchange: "fallback"}}, []topology.Spec{plain},
			[]string{"- queue lost", "1. when nothing publishes to it, empty lost: move the dead letters", "or send them back (rehop dlq send --all lost); wait", "2. topology.Delete of this DeadLetterQueue alone"}, "exchange fallback ("},
		{"exact delays that go", "4.3", []topology.Spec{plain, topology.Delays{}}, []topology.Spec{plain}, []string{"- delays rehop.delays.1s", "topology.Delete of these Delays alone"}, "Delete with OLD"},
		{"a queue that others declare from now on", "4.3", []topology.Spec{shop, orders("orders")}, []topology.Spec{shop, topology.WorkQueue{Name: "orders", Existing: true, Waits: minute}},
			[]string{"- declaration of orders", "OLD:     quorum, bound to exchange \"shop\" (key \"order.#\")", "NEW:     declared by others", "nobody puts it or a binding back after it was deleted", "its new owner declares"}, ""},
		{"an exchange that others declare from now on", "4.3", []topology.Spec{shop, orders("orders")}, []topology.Spec{orders("orders")},
			[]string{"- exchange shop", "OLD:     topic", "NEW:     declared by others", "topology.Declare of NEW returns an error if it is gone", "its new owner declares it, as topic"}, ""},
		{"an exchange that nobody needs", "4.3", []topology.Spec{shop, plain}, []topology.Spec{plain},
			[]string{"- exchange shop", "NEW:     none", "when nothing publishes to it: topology.Delete of this Exchange alone"}, ""},
		{"fewer attempts", "4.3", []topology.Spec{work(func(w *topology.WorkQueue) { w.Waits = delay.Schedule{time.Minute, time.Hour} })}, []topology.Spec{plain},
			[]string{"~ attempts of orders", "OLD:     3", "NEW:     2", "a message whose attempt 2 or a later one fails with consumers of NEW is dead-lettered"}, ""},
		{"one attempt", "4.3", []topology.Spec{plain}, []topology.Spec{work(func(w *topology.WorkQueue) { w.Waits = nil })},
			[]string{"~ attempts of orders", "OLD:     2", "NEW:     1", "without waits a failure goes straight to the dead-letter queue"}, ""},
		{"more attempts", "4.3", []topology.Spec{shards(2)}, []topology.Spec{topology.Shards{Name: "bills", Count: 2, Waits: delay.Default()}},
			[]string{"~ attempts of bills", "OLD:     2", "NEW:     5", "a message that fails with consumers of NEW is attempted up to 5 times, also one that OLD has attempted"}, ""},
		{"a key that moves to another queue that is kept", "4.3", []topology.Spec{shop, orders("orders"), plainMails}, []topology.Spec{shop, plain, topology.WorkQueue{Name: "mails", Waits: minute, Bindings: bound("shop", "order.#")}},
			[]string{"- binding shop --order.#--> orders", `each message reaches both "orders" and "mails" until it is unbound`, "Channel.QueueUnbind"}, ""},
		{"a binding that goes stays", "4.3", []topology.Spec{topology.Exchange{Name: "shop"}, work(func(w *topology.WorkQueue) { w.Bindings = []topology.Binding{{Exchange: "shop", RoutingKey: "a"}} })},
			[]topology.Spec{topology.Exchange{Name: "shop"}, work(func(w *topology.WorkQueue) { w.Bindings = []topology.Binding{{Exchange: "shop", RoutingKey: "b"}} })},
			[]string{"+ binding shop --b--> orders", "messages that are published from then on, and match it, take it", "- binding shop --a--> orders", "it stays: messages that match it still take it, also while NEW runs"}, "may be in two queues"},
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
	s.run(exitDone, "topology", "compare", write(plain), write(plain), "--broker", "4.3", "-o", "json")
	must(t, json.Unmarshal([]byte(s.out), &c))
	if !c.isNone() || slices.Contains(strings.Fields(s.out), "null") {
		t.Errorf("%s", s.out)
	}
	page, err := os.ReadFile("../../../docs/review.md")
	must(t, err)
	former, current := plain, as(topology.EngineRepublish)
	former.Waits, current.Waits = delay.Schedule{time.Minute, 5 * time.Minute}, delay.Schedule{2 * time.Minute, 5 * time.Minute}
	s.run(exitPartly, "topology", "compare", write(former), write(current), "--broker", "4.3")
	if !strings.Contains(string(page), "\n"+s.out+"```") {
		t.Errorf("the page has another answer than\n%s", s.out)
	}
}
