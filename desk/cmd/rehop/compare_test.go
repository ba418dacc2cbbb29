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
			[]string{"~ queue orders (queue-type)", "OLD:     x-queue-type quorum", "NEW:     x-queue-type classic", "stop what publishes to it", "1 cannot change in place: NEW cannot be declared before something stops, see ~"}, "- exchange"},
		{"a command is for its virtual host", "4.3 --vhost west", []topology.Spec{plain}, []topology.Spec{work(func(w *topology.WorkQueue) { w.Type = topology.Classic })}, []string{"rabbitmqctl delete_queue -p west orders"}, ""},
		{"more shards: keys move, messages do not", "4.3", []topology.Spec{shards(2)}, []topology.Spec{shards(3)},
			[]string{"+ queue bills.02", "with bills.02.wait.1", "Keys move to it when publishers know the larger Count, and no message moves", "declare and consume NEW first", "note bills: 3 shards", "nothing has to stop"}, "bills.00 (queue"},
		{"fewer shards: the last is emptied first", "4.3", []topology.Spec{shards(3)}, []topology.Spec{shards(2)},
			[]string{"- queue bills.02", "topology.Declare of NEW returns an error while it has messages and no consumer", "consume the larger Count until it and its waits are empty", "1 left behind: nothing has to stop"}, "topology.Delete with OLD"},
		{"a work queue that goes is told once", "3.10", []topology.Spec{plain, topology.WorkQueue{Name: "mails", Waits: minute}}, []topology.Spec{plain},
			[]string{"- queue mails", "no program of NEW handles them", "consume it until it is empty, then topology.Delete with OLD", "1 left behind: nothing has to stop"}, "mails.wait.1 ("},
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
