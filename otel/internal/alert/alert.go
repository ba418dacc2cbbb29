// Package alert has the rules for Prometheus, and the tests of each.
package alert

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	. "github.com/rehop/rehop/otel/internal/catalog" //nolint:staticcheck // the rules are read beside the catalog
)

// Rule is one alert.
type Rule struct {
	Name     string
	Expr     string
	For      string
	Severity string // page: somebody looks now; ticket: on the next working day
	Summary  string
	Why      string // this threshold
	Tests    []Test
}

// Test says whether the rule fires after a time of such series.
type Test struct {
	Name   string
	Series []Series
	At     string
	Fires  map[string]string // labels of the alert besides its name and severity; nil: it is silent
}

// Series is one with its values minute by minute, in promtool's notation.
type Series struct{ Name, Values string }

var (
	deadLetters = Settled.Of(Disposition, "dead-letter")
	lettersNow  = "max " + By(Destination) + " (" + QueueMessages.Of(Part, "dead-letter") + ")"
	letters15m  = "max " + By(Destination) + " (" + QueueMessages.Of(Part, "dead-letter") + " offset 15m)"
	queue       = map[string]string{Label(Destination): "orders"}
)

// Rules returns all alerts.
func Rules() []Rule {
	return []Rule{
		{
			Name: "RehopMessagesNotHandled",
			Expr: "max " + By(Destination) + " (" + QueueMessages.Of(Part, "work") + ") > 0\n" +
				"unless on (" + Label(Destination) + ")\n" +
				"sum " + By(Destination) + " (rate(" + Consumed.Of() + "[5m])) > 0",
			For: "10m", Severity: "page",
			Summary: "Messages wait in a work queue and no handler has taken one for 10 minutes.",
			Why: "A deployment or a restart of the broker takes a minute or two. After 10 minutes without a single delivery no consumer runs, " +
				"or every one of them is stuck in its handler or holds its messages.",
			Tests: []Test{
				{"fires when no consumer runs", []Series{
					{QueueMessages.Of(Destination, "orders", Part, "work", "instance", "a"), "5+5x30"},
				}, "20m", queue},
				{"fires when the consumer has stopped taking messages", []Series{
					{QueueMessages.Of(Destination, "orders", Part, "work", "instance", "a"), "5+5x30"},
					{Consumed.Of(Destination, "orders", "instance", "a"), "7x30"},
				}, "20m", queue},
				{"is silent while messages are handled, however many wait", []Series{
					{QueueMessages.Of(Destination, "orders", Part, "work", "instance", "a"), "5000x30"},
					{Consumed.Of(Destination, "orders", "instance", "a"), "0+10x30"},
				}, "20m", nil},
				{"is silent when the queue is empty and nothing happens", []Series{
					{QueueMessages.Of(Destination, "orders", Part, "work", "instance", "a"), "0x30"},
				}, "20m", nil},
				{"is silent while messages only wait for their next attempt", []Series{
					{QueueMessages.Of(Destination, "orders.wait.4", Part, "wait", "instance", "a"), "50x30"},
				}, "20m", nil},
				{"is silent during a deployment of three minutes", []Series{
					{QueueMessages.Of(Destination, "orders", Part, "work", "instance", "a"), "0x10 5 5 5 0x20"},
					{Consumed.Of(Destination, "orders", "instance", "a"), "0+10x10 100x3 110+10x20"},
				}, "20m", nil},
			},
		},
		{
			Name: "RehopDeadLettersRising",
			Expr: "sum " + By(Destination, Cause, ErrorType) + " (\n" +
				"  (" + deadLetters + " unless " + deadLetters + " offset 15m)\n" +
				"  or increase(" + deadLetters + "[15m])\n" +
				") > 10",
			For: "0m", Severity: "page",
			Summary: "More than 10 messages were dead-lettered for one reason within 15 minutes.",
			Why: "Single dead letters are daily work. More than 10 with one cause and one type of error within 15 minutes are one fault, " +
				"and each minute makes more of them. The first line counts a series that has just begun, which increase() takes for its zero.",
			Tests: []Test{
				{"fires when one error makes many letters", []Series{
					{Settled.Of(Destination, "orders", Disposition, "dead-letter", Cause, "exhausted", ErrorType, "*shop.Error", "instance", "a"), "0+1x30"},
				}, "20m", map[string]string{Label(Destination): "orders", Label(Cause): "exhausted", Label(ErrorType): "*shop.Error"}},
				{"fires for the first letters of a consumer that has just started", []Series{
					{Settled.Of(Destination, "orders", Disposition, "dead-letter", Cause, "permanent", "instance", "a"), "_x15 40x15"},
				}, "20m", map[string]string{Label(Destination): "orders", Label(Cause): "permanent"}},
				{"is silent for a letter now and then", []Series{
					{Settled.Of(Destination, "orders", Disposition, "dead-letter", Cause, "exhausted", ErrorType, "*shop.Error", "instance", "a"), "0 1x9 2x9 3x9"},
				}, "20m", nil},
				{"is silent for many letters of yesterday", []Series{
					{Settled.Of(Destination, "orders", Disposition, "dead-letter", Cause, "exhausted", ErrorType, "*shop.Error", "instance", "a"), "5000x60"},
				}, "50m", nil},
				{"is silent while attempts fail and are repeated", []Series{
					{Settled.Of(Destination, "orders", Disposition, "wait", "instance", "a"), "0+100x30"},
				}, "20m", nil},
			},
		},
		{
			Name: "RehopDeadLetterQueueGrows",
			Expr: lettersNow + " - " + letters15m + " > 10",
			For:  "0m", Severity: "page",
			Summary: "A dead-letter queue has grown by more than 10 messages within 15 minutes.",
			Why: "The broker makes dead letters too: of messages that end their consumer again and again, that are too old, or that a full queue drops. " +
				"No consumer counts these; the queue shows them.",
			Tests: []Test{
				{"fires when the broker dead-letters", []Series{
					{QueueMessages.Of(Destination, "orders.dlq", Part, "dead-letter", "instance", "a"), "100+1x30"},
				}, "20m", map[string]string{Label(Destination): "orders.dlq"}},
				{"is silent when letters only lie there", []Series{
					{QueueMessages.Of(Destination, "orders.dlq", Part, "dead-letter", "instance", "a"), "5000x30"},
				}, "20m", nil},
				{"is silent when somebody sends them back", []Series{
					{QueueMessages.Of(Destination, "orders.dlq", Part, "dead-letter", "instance", "a"), "5000-100x30"},
				}, "20m", nil},
			},
		},
		{
			Name: "RehopUnhealthy",
			Expr: "max " + By(Component) + " (" + Health.Of(Status, "unhealthy") + ") == 1",
			For:  "2m", Severity: "page",
			Summary: "A consumer, producer or connection of a service has been unhealthy for 2 minutes.",
			Why: "What heals by itself is degraded first: a connection for 15 s, a queue while its leader is elected. Two minutes of unhealthy are " +
				"more than a restart of a node takes.",
			Tests: []Test{
				{"fires when one of two processes is unhealthy", []Series{
					{Health.Of(Component, "orders", Status, "unhealthy", "instance", "a"), "1x10"},
					{Health.Of(Component, "orders", Status, "unhealthy", "instance", "b"), "0x10"},
				}, "5m", map[string]string{Label(Component): "orders"}},
				{"is silent while it is degraded", []Series{
					{Health.Of(Component, "orders", Status, "unhealthy", "instance", "a"), "0x10"},
					{Health.Of(Component, "orders", Status, "degraded", "instance", "a"), "1x10"},
				}, "5m", nil},
				{"is silent for a minute of it", []Series{
					{Health.Of(Component, "orders", Status, "unhealthy", "instance", "a"), "0 0 0 1 1 0 0 0"},
				}, "5m", nil},
			},
		},
		{
			Name: "RehopPublisherBlocked",
			Expr: "max " + By(Connection) + " (" + ConnectionStatus.Of(Status, "blocked") + ") == 1",
			For:  "1m", Severity: "page",
			Summary: "The broker has blocked publishers for a minute: it is short of memory or disk.",
			Why:     "An alarm that ends within a minute is a peak, and the window of the producer bears it. After that the broker needs help.",
			Tests: []Test{
				{"fires when the broker is short of disk", []Series{
					{ConnectionStatus.Of(Connection, "main", Role, "publish", Status, "blocked", "instance", "a"), "0 0 1x10"},
				}, "6m", map[string]string{Label(Connection): "main"}},
				{"is silent after a peak", []Series{
					{ConnectionStatus.Of(Connection, "main", Role, "publish", Status, "blocked", "instance", "a"), "0 0 1 0x10"},
				}, "6m", nil},
			},
		},
		{
			Name: "RehopConnectionDown",
			Expr: "max " + By(Connection, Role) + " (" + ConnectionStatus.Of(Status, "=~down|connecting") + ") == 1",
			For:  "2m", Severity: "page",
			Summary: "A socket has had no connection for 2 minutes.",
			Why:     "A restart of the broker takes less, and a reconnect seconds.",
			Tests: []Test{
				{"fires when it tries and fails in turn", []Series{
					{ConnectionStatus.Of(Connection, "main", Role, "consume", Status, "down", "instance", "a"), "0 1 0 1 0 1 0 1 0 1"},
					{ConnectionStatus.Of(Connection, "main", Role, "consume", Status, "connecting", "instance", "a"), "0 0 1 0 1 0 1 0 1 0"},
				}, "6m", map[string]string{Label(Connection): "main", Label(Role): "consume"}},
				{"is silent through a restart of the broker", []Series{
					{ConnectionStatus.Of(Connection, "main", Role, "consume", Status, "down", "instance", "a"), "0 1 1 0x10"},
				}, "6m", nil},
				{"is silent for a socket that nobody needs", []Series{
					{ConnectionStatus.Of(Connection, "spare", Role, "publish", Status, "idle", "instance", "a"), "1x10"},
					{ConnectionStatus.Of(Connection, "spare", Role, "publish", Status, "down", "instance", "a"), "0x10"},
				}, "6m", nil},
			},
		},
		{
			Name: "RehopStoreNotDraining",
			Expr: "max " + By(Store) + " (" + Letters.Of(State, "ready") + ") > 0\n" +
				"unless on ()\n" +
				"sum (rate(" + Forwarded.Of(ErrorType, "") + "[5m])) > 0",
			For: "10m", Severity: "page",
			Summary: "Messages in a store are ready to be published, and none has been for 10 minutes.",
			Why: "The Forwarder waits while the broker is away, so this fires with RehopConnectionDown in an outage. Without an outage the Forwarder does not run, " +
				"or the targets of all its messages refuse them.",
			Tests: []Test{
				{"fires when the Forwarder does not run", []Series{
					{Letters.Of(Store, "store", State, "ready", "instance", "a"), "500x30"},
				}, "20m", map[string]string{Label(Store): "store"}},
				{"fires when every message is refused", []Series{
					{Letters.Of(Store, "store", State, "ready", "instance", "a"), "500x30"},
					{Forwarded.Of(Destination, "shop", ErrorType, "nacked", "instance", "a"), "0+10x30"},
				}, "20m", map[string]string{Label(Store): "store"}},
				{"is silent while it drains", []Series{
					{Letters.Of(Store, "store", State, "ready", "instance", "a"), "5000-100x30"},
					{Forwarded.Of(Destination, "shop", "instance", "a"), "0+100x30"},
				}, "20m", nil},
				{"is silent for messages that wait for a person or for their time", []Series{
					{Letters.Of(Store, "store", State, "ready", "instance", "a"), "0x30"},
					{Letters.Of(Store, "store", State, "held", "instance", "a"), "5x30"},
					{Letters.Of(Store, "store", State, "scheduled", "instance", "a"), "5x30"},
				}, "20m", nil},
			},
		},
		{
			Name: "RehopOldLetters",
			Expr: "max " + By(Store, State) + " (" + OldestLetter.Of(State, "=~held|parked") + ") > 3 * 86400",
			For:  "0m", Severity: "ticket",
			Summary: "A message that needs a person has been in a store for more than three days.",
			Why:     "Held and parked messages wait until somebody replays or deletes them. Three days bear a weekend.",
			Tests: []Test{
				{"fires when nobody looks", []Series{
					{OldestLetter.Of(Store, "store", State, "held", "instance", "a"), "259100+60x30"},
				}, "10m", map[string]string{Label(Store): "store", Label(State): "held"}},
				{"is silent after a weekend", []Series{
					{OldestLetter.Of(Store, "store", State, "parked", "instance", "a"), "200000+60x30"},
				}, "10m", nil},
				{"is silent for archived messages", []Series{
					{OldestLetter.Of(Store, "store", State, "archived", "instance", "a"), "9000000+60x30"},
				}, "10m", nil},
			},
		},
	}
}

const generated = "# Generated by go generate in otel. Change otel/internal/alert.\n"

// YAML returns the rules as a file for Prometheus.
func YAML() string {
	var b strings.Builder
	b.WriteString(generated + "groups:\n  - name: rehop\n    rules:\n")
	for _, r := range Rules() {
		fmt.Fprintf(&b, "      - alert: %s\n        expr: |\n%s\n        for: %s\n        labels:\n          severity: %s\n        annotations:\n          summary: %q\n          description: %q\n",
			r.Name, indent(r.Expr, 10), r.For, r.Severity, r.Summary, r.Why)
	}
	return b.String()
}

// TestYAML returns the tests as a file for promtool, beside the rules.
func TestYAML(rules string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%srule_files:\n  - %s\nevaluation_interval: 1m\ntests:\n", generated, rules)
	for _, r := range Rules() {
		for _, t := range r.Tests {
			fmt.Fprintf(&b, "  - name: %q\n    interval: 1m\n    input_series:\n", r.Name+" "+t.Name)
			for _, s := range t.Series {
				fmt.Fprintf(&b, "      - series: '%s'\n        values: '%s'\n", s.Name, s.Values)
			}
			fmt.Fprintf(&b, "    alert_rule_test:\n      - eval_time: %s\n        alertname: %s\n", t.At, r.Name)
			if t.Fires == nil {
				b.WriteString("        exp_alerts: []\n")
				continue
			}
			fmt.Fprintf(&b, "        exp_alerts:\n          - exp_labels:\n              severity: %s\n", r.Severity)
			for _, label := range slices.Sorted(maps.Keys(t.Fires)) {
				fmt.Fprintf(&b, "              %s: %q\n", label, t.Fires[label])
			}
			fmt.Fprintf(&b, "            exp_annotations:\n              summary: %q\n              description: %q\n", r.Summary, r.Why)
		}
	}
	return b.String()
}

func indent(s string, n int) string {
	pad := strings.Repeat(" ", n)
	return pad + strings.ReplaceAll(s, "\n", "\n"+pad)
}
