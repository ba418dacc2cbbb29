package topology

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/delay"
)

// Each queue of a plan is in a box.
func TestADrawingHasEveryQueue(t *testing.T) {
	for rule, specs := range kindsOfPlans() {
		for _, v := range oneOfEachForm {
			plan, err := NewPlan(v, specs...)
			if err != nil {
				t.Fatal(err)
			}
			var drawn []string
			for _, r := range plan.rows() {
				drawn = append(drawn, r.main.names...)
				for _, e := range r.to {
					for _, b := range e.boxes {
						drawn = append(drawn, b.names...)
					}
				}
			}
			for _, name := range plan.Queues() {
				if !slices.Contains(drawn, name) {
					t.Errorf("%s on %s: %q is not drawn:\n%s", rule, v, name, plan.Mermaid())
				}
			}
			if err := wellFormed(plan.SVG()); err != nil {
				t.Errorf("%s on %s: the SVG: %v", rule, v, err)
			}
			checkMermaid(t, plan.Mermaid())
		}
	}
}

func wellFormed(text string) error {
	d := xml.NewDecoder(strings.NewReader(text))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

var (
	mermaidBox   = regexp.MustCompile(`^    (n[0-9]+)(\(\[|\[|\{\{|\[\()"((?:[^"#;<>]|#[0-9]+;|<br>)*)"(\]\)|\]|\}\}|\)\])$`)
	mermaidArrow = regexp.MustCompile(`^    (n[0-9]+) -->(?:\|"(?:[^"#;<>]|#[0-9]+;)+"\|)? (n[0-9]+)$`)
)

// checkMermaid fails the test unless each line is a box or an arrow between boxes.
func checkMermaid(t *testing.T, text string) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	var ids []string
	for _, line := range lines[1:] {
		if m := mermaidBox.FindStringSubmatch(line); m != nil {
			if slices.Contains(ids, m[1]) {
				t.Errorf("%s is there twice:\n%s", m[1], text)
			}
			ids = append(ids, m[1])
		} else if m := mermaidArrow.FindStringSubmatch(line); m == nil || !slices.Contains(ids, m[1]) || !slices.Contains(ids, m[2]) {
			t.Errorf("line %q is no box, and no arrow between two:\n%s", line, text)
		}
	}
	if lines[0] != "flowchart LR" || len(ids) == 0 {
		t.Errorf("no flowchart with boxes:\n%s", text)
	}
}

func TestADrawingShows(t *testing.T) {
	bound := []Binding{{Exchange: "shop", RoutingKey: "order.#"}}
	waits := delay.Schedule{time.Minute, time.Hour}
	orders := WorkQueue{Name: "orders", Bindings: bound, Waits: waits}
	for _, tt := range []struct {
		rule  string
		specs []Spec
		lines []string // that are there, in this order
	}{
		{"the way of a failed message", []Spec{Exchange{Name: "shop"}, orders}, []string{
			`n1["orders<br>quorum, engine nack"]`, `n2(["shop<br>topic"])`, `n2 -->|"order.#35;"| n1`,
			`n3{{"orders.wait.1: 1m<br>orders.wait.2: 1h"}}`, `n1 -->|"failed"| n3`, `n3 -->|"comes back"| n1`, `n4[("orders.dlq")]`, `n1 -->|"dead letter"| n4`,
		}},
		{"an exchange that others declare, and a queue that they declare", []Spec{orders, WorkQueue{Name: "old", Existing: true}}, []string{
			`n2(["shop<br>declared by others"])`, `["old<br>declared by others"]`,
		}},
		{"no way to waits where there are none", []Spec{WorkQueue{Name: "orders"}}, []string{
			`n1["orders<br>quorum"]`, `n2(["default exchange"])`, `n2 -->|"orders"| n1`, `n3[("orders.dlq")]`, `n1 -->|"dead letter"| n3`,
		}},
		{"lanes in one box", []Spec{Lanes{Name: "sms", Lanes: []Lane{{Name: "vip", Share: 3}, {Name: "bulk", Share: 1, Bindings: bound}}, Waits: waits}}, []string{
			`n1["sms: lanes by share<br>sms.vip, share 3<br>sms.bulk, share 1<br>quorum, engine nack"]`,
			`n2(["sms.lanes<br>headers"])`, `n2 -->|"by priority"| n1`, `n3(["shop<br>declared by others"])`, `n3 -->|"order.#35; to sms.bulk"| n1`,
			`{{"sms.#42;.wait.1: 1m<br>sms.#42;.wait.2: 1h"}}`, `[("sms.#42;.dlq")]`,
		}},
		{"strict lanes behind an exchange", []Spec{Lanes{Name: "sms", Lanes: []Lane{{Name: "vip"}, {Name: "bulk"}}, Bindings: bound, OneDeadLetterQueue: true}}, []string{
			`n1["sms: lanes, the highest first<br>sms.vip<br>sms.bulk<br>quorum"]`, `n2 -->|"order.#35; by priority"| n1`, `[("sms.dlq")]`,
		}},
		{"shards in one box", []Spec{&Shards{Name: "bills", Count: 8, SingleActiveConsumer: true}}, []string{
			`n1["bills: 8 shards by OrderKey<br>bills.00 to bills.07<br>quorum<br>single active consumer"]`, `[("bills.dlq")]`,
		}},
		{"one dead-letter queue of two work queues, with its age", []Spec{WorkQueue{Name: "a.b"}, DeadLetterQueue{Name: "a.b.dlq", Exchange: "fallback", MaxAge: time.Hour}}, []string{
			`n3[("a.b.dlq<br>kept 1h")]`, `n1 -->|"dead letter"| n3`, `n4(["fallback<br>fanout"])`, `n4 --> n3`,
		}},
		{"a dead-letter queue that is consumed as a work queue", []Spec{WorkQueue{Name: "orders"}, WorkQueue{Name: "orders.dlq", Waits: waits}}, []string{
			`n3["orders.dlq<br>quorum, engine nack"]`, `n1 -->|"dead letter"| n3`, `n2 -->|"orders.dlq"| n3`,
		}},
		{"the age of the dead letters of one lane", []Spec{Lanes{Name: "sms", Lanes: []Lane{{Name: "vip"}, {Name: "bulk"}}}, DeadLetterQueue{Name: "sms.bulk.dlq", MaxAge: time.Hour}}, []string{
			`[("sms.#42;.dlq<br>sms.bulk.dlq: kept 1h")]`,
		}},
		{"what delayed messages reach", []Spec{Exchange{Name: "shop"}, Exchange{Name: "by headers", Kind: "headers"}, orders, Delays{Queues: []string{"old"}}}, []string{
			`n5{{"rehop.delays.1s: exact delays<br>1s to 3106 days<br>28 queues"}}`, `n5 -->|"when due"| n1`, `n6["old<br>declared by others"]`,
			`n5 -->|"when due"| n6`, `n5 -->|"when due"| n2`, `n7[("rehop.delays.1s.stranded")]`, `n5 -->|"no queue"| n7`, `n8(["by headers<br>headers"])`,
		}},
		{"names that Mermaid or a browser would take for its own", []Spec{Exchange{Name: "<b>\"x\"]"}, WorkQueue{Name: "订单 `a`\n|"}}, []string{
			`n1["订单 #96;a#96;#10;#124;<br>quorum"]`, `(["#60;b#62;#34;x#34;#93;<br>topic"])`,
		}},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			plan, err := NewPlan(connection.Version{Major: 4, Minor: 3}, tt.specs...)
			if err != nil {
				t.Fatal(err)
			}
			text, rest := plan.Mermaid(), plan.Mermaid()
			for _, line := range tt.lines {
				_, after, found := strings.Cut(rest, line)
				if !found {
					t.Fatalf("no %s in its place in\n%s", line, text)
				}
				rest = after
			}
			checkMermaid(t, text)
		})
	}
}

// Lanes that were declared on brokers of several versions have engines of their own.
func TestADrawingShowsTheEnginesInForce(t *testing.T) {
	lanes := Lanes{Name: "sms", Lanes: []Lane{{Name: "vip"}, {Name: "bulk"}}, Waits: delay.Schedule{time.Minute}}
	v43 := connection.Version{Major: 4, Minor: 3}
	plan, err := newPlan(v43, found{queues: map[string]existing{"sms.vip": {form: carried}}}, []Spec{lanes})
	if err != nil {
		t.Fatal(err)
	}
	if want := "engine carry or nack"; !strings.Contains(plan.Mermaid(), want) || !strings.Contains(plan.SVG(), want) {
		t.Errorf("no %s in\n%s", want, plan.Mermaid())
	}
}

func TestADrawingOfSomeQueues(t *testing.T) {
	waits := delay.Schedule{time.Minute}
	plan, err := NewPlan(connection.Version{Major: 4, Minor: 3}, WorkQueue{Name: "orders", Waits: waits}, WorkQueue{Name: "bills"},
		Lanes{Name: "sms", Lanes: []Lane{{Name: "vip"}, {Name: "bulk"}}}, DeadLetterQueue{Name: "lost", Exchange: "orders"}, Delays{Queues: []string{"old"}})
	if err != nil {
		t.Fatal(err)
	}
	all := []string{"orders", "bills", "sms: lanes, the highest first", "lost", "rehop.delays.1s: exact delays"}
	for _, tt := range []struct {
		rule   string
		queues []string
		rows   []string // by their main boxes
	}{
		{"all rows for no queue", nil, all},
		{"the row of a work queue, and not an exchange of its name", []string{"orders"}, all[:1]},
		{"the row of its dead letters", []string{"orders.dlq"}, all[:1]},
		{"the row of a wait", []string{"orders.wait.1"}, all[:1]},
		{"the row of all lanes for one lane", []string{"sms.bulk.dlq"}, all[2:3]},
		{"a dead-letter queue of its own", []string{"lost"}, all[3:4]},
		{"delays for what is stranded", []string{"rehop.delays.1s.stranded"}, all[4:5]},
		{"the rows of several", []string{"bills.dlq", "orders"}, all[:2]},
		{"nothing for an exchange, for a queue that others declare, and for one that is not planned", []string{"sms.lanes", "", "old", "orders.dlq.dlq"}, nil},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			svg := plan.SVG(tt.queues...)
			if (svg == "") != (tt.rows == nil) || svg != "" && wellFormed(svg) != nil {
				t.Fatalf("the picture is\n%s", svg)
			}
			for _, name := range all {
				first := regexp.MustCompile(fmt.Sprintf(`<text class="name" x="%d" y="\d+">%s</text>`, mainAt+svgPad, regexp.QuoteMeta(name)))
				if drawn, want := first.MatchString(svg), slices.Contains(tt.rows, name); drawn != want {
					t.Errorf("%s is drawn: %t, want %t", name, drawn, want)
				}
			}
		})
	}
}

// A name goes on in the next line, and nothing of it is left out.
func TestALongNameIsWhole(t *testing.T) {
	for _, name := range []string{strings.Repeat("n", 230), strings.Repeat("订", 76), "<&>\x01"} {
		plan, err := NewPlan(connection.Version{Major: 4}, WorkQueue{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		svg := plan.SVG()
		if err := wellFormed(svg); err != nil {
			t.Fatal(err)
		}
		if lines := wrapped(name, mainWide); strings.Join(lines, "") != name {
			t.Errorf("%q is drawn as %q", name, lines)
		}
	}
}

// A line ends between words, or between the parts of a name.
func TestALineEndsBetweenWords(t *testing.T) {
	for text, want := range map[string][]string{
		"service.billing: lanes, the highest first":   {"service.billing: lanes, the ", "highest first"},
		"service.billing.normal.of.some.wait.1: 1m":   {"service.billing.normal.of.some", ".wait.1: 1m"},
		"service.billing.normal.of.others.wait.1: 1m": {"service.billing.normal.of.others", ".wait.1: 1m"},
		"service-of-many-departments-by-name-and-no":  {"service-of-many-departments-by-", "name-and-no"},
		"a shop":                               {"a shop"},
		strings.Repeat("n", 40) + " of a name": {strings.Repeat("n", 33), "nnnnnnn of a name"},
	} {
		lines := wrapped(text, mainWide)
		if !slices.Equal(lines, want) {
			t.Errorf("%q\nwant %q", lines, want)
		}
	}
}

// An exchange that leads to several queues is drawn once, as in Mermaid.
func TestAnExchangeIsDrawnOnce(t *testing.T) {
	bound := func(key string) []Binding { return []Binding{{Exchange: "shop", RoutingKey: key}} }
	plan, err := NewPlan(connection.Version{Major: 4, Minor: 3}, Exchange{Name: "shop"}, WorkQueue{Name: "orders", Bindings: bound("order.#")},
		Lanes{Name: "sms", Lanes: []Lane{{Name: "vip"}, {Name: "bulk"}}, Bindings: bound("sms")}, WorkQueue{Name: "bills"}, WorkQueue{Name: "mails"})
	if err != nil {
		t.Fatal(err)
	}
	svg := plan.SVG()
	if n := strings.Count(svg, `<rect class="exchange"`); n != 2 {
		t.Errorf("%d exchanges are drawn, want shop and the default exchange:\n%s", n, svg)
	}
	for _, key := range []string{"order.#", "sms by priority", "bills", "mails"} {
		if !strings.Contains(svg, ">"+key+"</text>") {
			t.Errorf("no key %s in\n%s", key, svg)
		}
	}
	if n := strings.Count(svg, fmt.Sprintf("H%d\" marker-end", mainAt)); n != 4 {
		t.Errorf("%d arrows lead to queues, want 4:\n%s", n, svg)
	}
	if err := wellFormed(svg); err != nil {
		t.Error(err)
	}
}
