package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/topology"
)

// A file of specifications is planned, and compared with a file of definitions or a broker.
func TestATopologyIsReviewed(t *testing.T) {
	s := open(t)
	specs := []topology.Spec{topology.Exchange{Name: "shop"}, topology.WorkQueue{Name: "bills", Bindings: []topology.Binding{{Exchange: "shop", RoutingKey: "bill"}}, Waits: delay.Schedule{time.Minute}}}
	text, err := topology.MarshalSpecs(specs...)
	must(t, err)
	write := func(name string, text []byte) string {
		path := filepath.Join(s.TempDir(), name)
		must(t, os.WriteFile(path, text, 0o600))
		return path
	}
	file := write("shop.json", text)
	text2, err := topology.MarshalSpecs(specs[0], topology.WorkQueue{Name: "bills", Bindings: specs[1].(topology.WorkQueue).Bindings, Waits: delay.Schedule{time.Minute, time.Hour}})
	must(t, err)
	longer := write("longer.json", text2)
	text3, err := topology.MarshalSpecs(topology.WorkQueue{Name: "orders"})
	must(t, err)
	other := write("other.json", text3)
	text5, err := topology.MarshalSpecs(topology.WorkQueue{Name: "orders"}, topology.Delays{Queues: []string{"orders"}}, topology.DeadLetterQueue{Name: "lost"})
	must(t, err)
	delayed := write("delayed.json", text5)
	text6, err := topology.MarshalSpecs(topology.WorkQueue{Name: "orders", Existing: true})
	must(t, err)
	theirs := write("theirs.json", text6)
	text4, err := topology.MarshalSpecs(specs[0], topology.WorkQueue{Name: "bills", Type: topology.Classic, Bindings: specs[1].(topology.WorkQueue).Bindings, Waits: delay.Schedule{time.Minute}})
	must(t, err)
	classic := write("classic.json", text4)
	bound := func(name, key string, more ...topology.Spec) string {
		specs := append(more, topology.Delays{Queues: []string{"theirs"}}, topology.WorkQueue{Name: "found", Existing: true},
			topology.WorkQueue{Name: "bills", Bindings: []topology.Binding{{Exchange: "shop", RoutingKey: key}}})
		text, err := topology.MarshalSpecs(specs...)
		must(t, err)
		return write(name, text)
	}
	ofOthers, otherKey, ownShop := bound("others.json", "bill"), bound("key.json", "bill.#"), bound("own.json", "bill", topology.Exchange{Name: "shop", Kind: "direct"})
	empty := write("definitions.json", []byte(`{"rabbitmq_version":"4.3.6","vhosts":[{"name":"/"},{"name":"b"}],"queues":[{"vhost":"b","name":"bills","durable":true,"arguments":{"x-queue-type":"classic"}}],"exchanges":[],"bindings":[]}`))
	granted := write("granted.json", []byte(`{"rabbitmq_version":"4.3.6","vhosts":[{"name":"/"}],"queues":[],"exchanges":[],"bindings":[],"users":[{"name":"shopper"},{"name":"admin"}],`+
		`"permissions":[{"user":"shopper","vhost":"/","configure":"^$","write":"^$","read":"^bills$"},{"user":"admin","vhost":"b","configure":".*","write":".*","read":".*"}]}`))
	faulty := write("faulty.json", []byte(`{"specs": [{"work_queue": {"name": "bills", "waits": ["soon"], "type": "stream"}}, {"exchange": {"name": "amq.x"}}]}`))
	twice := write("twice.json", []byte(`{"specs": [{"exchange": {"name": "shop"}}, {"work_queue": {"name": "bills"}}, {"exchange": {"name": "shop", "kind": "direct"}}, {"work_queue": {"name": "bills"}}]}`))
	carried := write("nack.json", []byte(`{"specs": [{"work_queue": {"name": "bills", "engine": "nack", "waits": ["1m"], "type": "classic"}}]}`))
	old := write("old.json", []byte(`{"rabbitmq_version":"3.10.8","vhosts":[{"name":"/"}],"queues":[],"exchanges":[],"bindings":[]}`))
	const unreachable = " --url amqp://guest:guest@127.0.0.1:1/" // nothing connects before the file is read
	for _, tt := range []struct {
		rule, line string
		code       int
		says       string
	}{
		{"all faults with their places", "plan " + faulty + " --broker 4.3", exitUsage, faulty + `": topology: specifications: specs[0].work_queue.waits[0] is "soon"`},
		{"also those of values", "plan " + faulty + " --broker 4.3", exitUsage, faulty + `": topology: specifications: specs[0].work_queue: WorkQueue "bills": Type is "stream"`},
		{"also of later specifications", "plan " + faulty + " --broker 4.3", exitUsage, faulty + `": topology: specifications: specs[1].exchange: Exchange.Name is "amq.x"`},
		{"verify has the same, and connects to nothing", "verify " + faulty + unreachable, exitUsage, faulty + `": topology: specifications: specs[1].exchange: Exchange.Name is "amq.x"`},
		{"faults of several together", "plan " + twice + " --broker 4.3", exitUsage, twice + `": specs[2]: topology: exchange "shop" is specified twice`},
		{"all of them", "plan " + twice + " --broker 4.3", exitUsage, twice + `": specs[3]: topology: queue "bills" is specified twice`},
		{"verify has them too", "verify " + twice + unreachable, exitUsage, twice + `": specs[3]: topology: queue "bills" is specified twice`},
		{"and compare, of both files", "compare " + twice + " " + faulty + " --broker 4.3", exitUsage, twice + `": specs[3]: topology: queue "bills" is specified twice`},
		{"and of the second", "compare " + twice + " " + faulty + " --broker 4.3", exitUsage, faulty + `": topology: specifications: specs[1].exchange`},
		{"a fault on a version", "verify " + carried + " --definitions " + old, exitUsage, carried + `": specs[0]: topology: WorkQueue "bills": Engine`},
		{"a version before the first", "plan " + file + " --broker 3.9", exitUsage, `--broker is "3.9", want a version such as 4.3 or 4.3.6, from 3.10 on`},
		{"also to compare", "compare " + file + " " + file + " --broker 3.9", exitUsage, `--broker is "3.9"`},
		{"a version after the last", "plan " + file + " --broker 4.9", exitDone, "--broker is 4.9: rehop knows brokers up to 4.3, and plans as for that one"},
		{"a series after the last", "compare " + file + " " + file + " --broker 5.0", exitDone, "--broker is 5.0: rehop knows"},
		{"permissions of a user", "permissions " + file + " --broker 4.0 --role consume --user shopper", exitDone, "rabbitmqctl set_permissions shopper \\\n"},
		{"definitions with permissions", "definitions " + file + " --broker 4.0 --role consume --user shopper --vhost b", exitDone, "\"permissions\": [\n    {\n      \"user\": \"shopper\",\n      \"vhost\": \"b\",\n      \"configure\": \"^(bills"},
		{"definitions with permissions of nobody", "definitions " + file + " --broker 4.0 --role consume", exitUsage, "needs both of --user and --role"},
		{"definitions with a user that has no role", "definitions " + file + " --broker 4.0 --user shopper", exitUsage, "needs both of --user and --role"},
		{"a plan needs no broker", "plan " + file + " --broker 4.3", exitDone, "queue     bills.wait.1"},
		{"it is that of the version", "plan " + file + " --broker 3.10", exitDone, "carry"},
		{"a drawing needs no broker", "draw " + file + " --broker 4.3", exitDone, `n1["bills<br>quorum, engine nack"]`},
		{"a picture", "draw " + file + " --broker 3.10 --svg", exitDone, "bills.wait.1: 1m</text>"},
		{"a drawing is no JSON", "draw " + file + " --broker 4.3 -o json", exitUsage, "a drawing has no such form"},
		{"definitions are JSON in every form", "definitions " + file + " --broker 4.3 -o json", exitDone, `"rabbitmq_version": "4.3"`},
		{"a change that adds a wait", "compare " + file + " " + longer + " --broker 4.3", exitPartly, "+ queue bills.wait.2 (queue-missing)"},
		{"a change that leaves a wait behind", "compare " + longer + " " + file + " --broker 4.3", exitPartly, "- queue bills.wait.2"},
		{"a change that leaves a work queue and an exchange behind", "compare " + file + " " + other + " --broker 4.3", exitPartly, "- queue bills (queue-extra)"},
		{"a change of a type", "compare " + file + " " + classic + " --broker 4.3", exitPartly, "topology.Declare returns an error, so no program that declares it starts"},
		{"delays that NEW has no use for", "compare " + delayed + " " + other + " --broker 4.3", exitPartly, "- delays rehop.delays.1s (queue-extra)"},
		{"dead letters by themselves that NEW has no use for", "compare " + delayed + " " + other + " --broker 4.3", exitPartly, "- queue lost (queue-extra)"},
		{"a queue of others that NEW declares itself", "compare " + theirs + " " + other + " --broker 4.3", exitPartly, "others declared it for OLD"},
		{"no change", "compare " + file + " " + file + " --broker 3.10", exitDone, "no difference"},
		{"no change of what others declare", "compare " + ofOthers + " " + ofOthers + " --broker 4.3", exitDone, "no difference"},
		{"another key to an exchange of others", "compare " + ofOthers + " " + otherKey + " --broker 4.3", exitPartly, "+ binding shop --bill.#--> bills"},
		{"an exchange that NEW declares itself", "compare " + ofOthers + " " + ownShop + " --broker 4.3", exitPartly, "+ exchange shop"},
		{"an exchange that NEW leaves to others", "compare " + ownShop + " " + ofOthers + " --broker 4.3", exitPartly, "- declaration of shop (exchange-extra)"},
		{"two files from the standard input", "compare - - --broker 4.3", exitUsage, "OLD and NEW are both -"},
		{"permissions of two roles", "permissions " + file + " --broker 4.0 --vhost b --role declare,publish", exitDone, "rabbitmqctl set_permissions -p b USER \\\n  '^(bills|bills\\.dlq|bills\\.rehop\\..*|bills\\.wait\\..*|shop)$'"},
		{"a role that is empty", "verify " + file + " --role=", exitUsage, "--role is empty"},
		{"a role that is none", "permissions " + file + " --broker 4.0 --role read", exitUsage, `--role is "read", want declare, consume or publish`},
		{"no role", "permissions " + file + " --broker 4.0", exitUsage, "needs --role"},
		{"manifests for an operator", "manifests " + file + " --broker 4.3 --cluster rabbit --vhost b", exitDone, `"deletionPolicy": "retain"`},
		{"no cluster", "manifests " + file + " --broker 4.3", exitUsage, "rehop topology manifests needs --cluster"},
		{"a cluster that Kubernetes cannot have", "manifests " + file + " --broker 4.3 --cluster A_b", exitUsage, `--cluster is "A_b", want up to 253 characters`},
		{"a version that is none", "plan " + file + " --broker new", exitUsage, `--broker is "new", want a version such as 4.3 or 4.3.6`},
		{"a plan for a series says so", "plan " + file + " --broker 4.3", exitDone, "plan for broker 4.3 (queues"},
		{"commands in its notes are for the virtual host", "plan " + theirs + " --broker 4.3 --vhost b", exitDone, "rabbitmqctl set_policy --apply-to queues -p b 'rehop orders'"},
		{"a version is taken at its word", "plan " + file + " --broker 4.3.5", exitDone, "plan for broker 4.3.5 (queues"},
		{"a number is no series", "plan " + file + " --broker 4", exitUsage, `--broker is "4", want a version such as 4.3 or 4.3.6`},
		{"no version", "plan " + file, exitUsage, "rehop topology plan needs --broker"},
		{"a file that is not there", "plan none.json --broker 4.3", exitUsage, "open none.json"},
		{"a file that is none", "plan " + empty + " --broker 4.3", exitUsage, "no file of specifications"},
		{"a definitions file that lacks all", "verify " + file + " --definitions " + empty, exitPartly, "+ queue bills (queue-missing)"},
		{"in another virtual host the queue differs", "verify " + file + " --vhost b --definitions " + empty, exitPartly, "~ queue bills (queue-type)"},
		{"a virtual host that the file does not have", "verify " + file + " --vhost c --definitions " + empty, exitUsage, `it has no virtual host "c"`},
		{"definitions that are none", "verify " + file + " --definitions " + file, exitUsage, "it is no file of definitions"},
		{"definitions that are not there", "verify " + file + " --definitions none.json", exitUsage, "--definitions: open none.json"},
		{"permissions that cannot be seen are said to be", "verify " + file + " --role declare,consume", exitPartly, "? permissions of user \"guest\": connection.Config.ManagementURL is empty"},
		{"a role that is none, of a broker", "verify " + file + " --role admin", exitUsage, `--role is "admin", want declare, consume or publish`},
		{"permissions of nobody", "verify " + file + " --role consume --definitions " + empty, exitUsage, "needs --user"},
		{"a user of a broker", "verify " + file + " --role consume --user shopper", exitUsage, "--user is for --definitions with --role"},
		{"a file without permissions", "verify " + file + " --role consume --user shopper --definitions " + empty, exitPartly, `? permissions of user "shopper": the file has no permissions`},
		{"permissions of a file", "verify " + file + " --role consume --user shopper --definitions " + granted, exitPartly, "! user shopper (permission-missing)"},
		{"a user of the file without permissions in the virtual host", "verify " + file + " --role consume --user admin --definitions " + granted, exitPartly, "! user admin (permission-missing)"},
		{"a user that the file does not have", "verify " + file + " --role consume --user nobody --definitions " + granted, exitUsage, `user "nobody" is not in the file`},
		{"arguments of a file need no declaration", "verify " + file + " --by-declaring --definitions " + empty, exitUsage, "--by-declaring asks a broker by AMQP alone"},
		{"what is missing is not declared", "verify " + file + " --by-declaring", exitPartly, "+ queue bills (queue-missing)"},
		{"a broker that lacks all", "verify " + file, exitPartly, "the broker is not as planned"},
	} {
		s.run(tt.code, append([]string{"topology"}, strings.Fields(tt.line)...)...)
		if !strings.Contains(s.out+s.err, tt.says) {
			t.Errorf("%s: %s%swant %s", tt.rule, s.out, s.err, tt.says)
		}
	}
	s.run(exitDone, "topology", "definitions", file, "--broker", "4.3", "--vhost", "b")
	exported := write("exported.json", []byte(s.out))
	s.run(exitDone, "topology", "verify", file, "--definitions", exported, "--vhost", "b")
	s.prints("no difference in what was looked at")
	if q, _ := s.broker.Queue("bills"); q.Name != "" {
		t.Error("the queue was declared")
	}
	s.declare(specs...)
	s.run(exitDone, "topology", "verify", file)
	s.prints("no difference in what was looked at", "? arguments, bindings")
	s.run(exitDone, "topology", "verify", file, "--by-declaring")
	s.prints("no difference in what was looked at", "? bindings, policies and limits")
	conn, err := amqp.Dial(s.url)
	must(t, err)
	defer conn.Close()
	ch, err := conn.Channel()
	must(t, err)
	_, err = ch.QueueDeclare("lost", false, false, true, false, nil) // AMQP shows it to this connection alone
	must(t, err)
	text7, err := topology.MarshalSpecs(topology.DeadLetterQueue{Name: "lost"})
	must(t, err)
	locked := write("lost.json", text7)
	s.run(exitFailed, "topology", "verify", locked)
	s.prints("no difference in what was looked at", `? queue "lost": `, "not all that was asked for could be looked at")
	for line, want := range map[string]bool{ // of users with few permissions
		`exchange "shop": ACCESS_REFUSED - configure access to exchange 'shop' in vhost '/' refused for user 'shopper': it may not exist`:              true,
		`form of queue "bills": ACCESS_REFUSED - configure access to queue 'bills' in vhost '/' refused for user 'shopper'`:                            true,
		`arguments of queue "theirs", which messages are delayed to: others declare it`:                                                                false,
		`lifetime and alternate of exchange "x": its kind x-y is that of a plugin, and a broker of 3.x that has it no longer would end the connection`: false,
	} {
		if isOfPart(line) != want {
			t.Errorf("%s: %v, want %v", line, !want, want)
		}
	}
	away := "http://guest:guest@127.0.0.1:1"
	for _, tt := range []struct {
		rule string
		code int
		line []string
	}{
		{"a management API that is given and does not answer", exitFailed, []string{file, "--management-url", away}},
		{"one that is none, in place of which the parts are declared again", exitFailed, []string{file, "--management-url", away, "--by-declaring"}},
		{"a role that cannot be checked without the management API", exitFailed, []string{file, "--role", "consume"}},
		{"a role that cannot be checked, by a file without permissions", exitFailed, []string{file, "--definitions", exported, "--vhost", "b", "--role", "consume", "--user", "shopper"}},
		{"a difference counts for more", exitPartly, []string{longer, "--management-url", away}},
	} {
		s.run(tt.code, append([]string{"topology", "verify"}, tt.line...)...)
		s.prints("? ")
		must(t, os.Setenv("AMQP_MANAGEMENT_URL", "")) // which the flag has set
		if tt.code == exitFailed && !strings.Contains(s.err, "not all that was asked for could be looked at") {
			t.Errorf("%s: %s", tt.rule, s.err)
		}
	}
	s.run(exitPartly, "topology", "verify", classic, "--by-declaring")
	s.prints("~ queue bills (queue-type)")
	s.in = strings.NewReader(string(text))
	s.run(exitDone, "topology", "verify", "-", "-o", "json")
	var drift topology.Drift
	must(t, json.Unmarshal([]byte(s.out), &drift))
	if len(drift.Differences) > 0 || len(drift.Unseen) == 0 {
		t.Errorf("%+v", drift)
	}
	s.in = nil
	s.run(exitDone, "topology", "plan", file, "--broker", "4.0", "-o", "json")
	var plan struct {
		Version   string
		Exchanges []struct {
			Name, Kind string
			Arguments  map[string]any
		}
		Queues []struct {
			Name      string
			Arguments map[string]any
		}
		Bindings []binding
		Engines  []struct{ Queue, Engine string }
	}
	must(t, json.Unmarshal([]byte(s.out), &plan))
	if plan.Version != "4.0" || len(plan.Queues) != 3 || len(plan.Engines) != 1 || plan.Engines[0].Engine != "nack" {
		t.Errorf("%+v", plan)
	}
	if e := plan.Exchanges[0]; e.Name != "bills.rehop.return" && e.Name != "shop" || e.Kind == "" {
		t.Errorf("%+v", plan.Exchanges)
	}
	for _, e := range plan.Exchanges {
		if e.Name == "bills.rehop.return" && (e.Kind != "headers" || e.Arguments["alternate-exchange"] != "bills.rehop.return.spare") {
			t.Errorf("%+v", e)
		}
	}
	if q := plan.Queues[1]; q.Name != "bills.wait.1" || q.Arguments["x-message-ttl"] != 60000.0 || len(plan.Bindings) < 5 {
		t.Errorf("%+v", plan)
	}
}
