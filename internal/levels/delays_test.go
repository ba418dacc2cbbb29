package levels

import (
	"strings"
	"testing"
)

func to(exchange, key string) Target { return Target{Exchange: exchange, RoutingKey: key} }

func TestWhatADelayReaches(t *testing.T) {
	bound := func(exchange, key, queue string) Binding { return Binding{to(exchange, key), queue} }
	d := Delays{
		Queues:    []string{"orders"},
		Exchanges: []Exchange{{"topics", "topic"}, {"keys", "direct"}, {"all", "fanout"}, {"heads", "headers"}, {"hash", "x-consistent-hash"}},
		Bound:     []Binding{bound("topics", "order.#", "orders"), bound("keys", "order.paid", "orders")},
	}
	known := append([]Binding{
		bound("topics", "*.sold", "tickets"),
		bound("keys", "ticket.sold", "tickets"),
		bound("keys", "order.*", "tickets"),
		bound("keys", "order.paid", "audit"),
		bound("all", "x", "tickets"),
		bound("heads", "", "tickets"),
		bound("elsewhere", "order.lost", "tickets"),
	}, d.Bound...)
	d = d.Among(known)
	for _, row := range []struct {
		rule    string
		to      Target
		refuses string // none: "" and not misses
		misses  string // the queue
		reaches bool
	}{
		{"a queue", to("", "orders"), "", "", true},
		{"a queue that is no target", to("", "tickets"), "", "", false},
		{"an exchange that is no target", to("elsewhere", "order.lost"), "", "", false},
		{"a topic exchange", to("topics", "order.paid"), "", "", true},
		{"by a key with wildcards, which are words there", to("topics", "order.*"), "", "", true},
		{"a key that nobody is known to have bound", to("topics", "refund"), "", "", true},
		{"a key whose queue was declared apart", to("topics", "ticket.sold"), "", "tickets", false},
		{"one of two queues was declared apart", to("topics", "order.sold"), "", "", true},
		{"a direct exchange", to("keys", "order.paid"), "", "", true},
		{"by the empty key", to("keys", ""), "", "", true},
		{"by a key with a star in a word", to("keys", "order*.#1"), "", "", true},
		{"by a key with the word *", to("keys", "order.*"), "kind direct", "", false},
		{"by the key #", to("keys", "#"), "kind direct", "", false},
		{"whose queue was declared apart", to("keys", "ticket.sold"), "", "tickets", false},
		{"a fanout whose queue was declared apart", to("all", "any.key"), "", "tickets", false},
		{"a headers exchange", to("heads", ""), "kind headers", "", false},
		{"an exchange of a plugin", to("hash", "1"), "kind x-consistent-hash", "", false},
	} {
		t.Run(row.rule, func(t *testing.T) {
			why := d.Refuses(row.to)
			missed, misses := d.Misses(row.to)
			if (why != "") != (row.refuses != "") || !strings.Contains(why, row.refuses) || misses != (row.misses != "") || missed.To != row.misses {
				t.Errorf("refuses because %q, misses %+v, want %q and %q", why, missed, row.refuses, row.misses)
			}
			if got := d.Reaches(row.to); got != row.reaches {
				t.Errorf("reaches is %v, want %v", got, row.reaches)
			}
		})
	}
}

func TestAFanoutWithWildcardsIsReached(t *testing.T) {
	d := Delays{Exchanges: []Exchange{{"all", "fanout"}}, Bound: []Binding{{to("all", "x"), "orders"}}}
	d = d.Among([]Binding{{to("all", "y"), "audit"}})
	for _, key := range []string{"", "#", "order.*", "x"} {
		if !d.Reaches(to("all", key)) {
			t.Errorf("key %q is not reached", key)
		}
	}
}

func FuzzMatches(f *testing.F) {
	for _, seed := range [][2]string{{"#", ""}, {"*", ""}, {"", ""}, {"a.#.b", "a.b"}, {"#.a.#.b", "a.a.b"}, {"*.#", "a"}, {"a.*", "a.*"}, {"#", "#"}, {"a..b", "a..b"}, {"#.*.#.a", "b.a"}} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, pattern, key string) {
		if len(pattern) > 30 || len(key) > 30 {
			return // the plain rule takes long
		}
		if got, want := match(pattern, key), topic(words(pattern), words(key)); got != want {
			t.Errorf("key %q matches %q: %v, want %v", key, pattern, got, want)
		}
	})
}

func TestNoPatternTakesLong(t *testing.T) {
	if match(strings.Repeat("#.a.", 60)+"b", strings.Repeat("a.", 120)+"c") {
		t.Error("it matches")
	}
}
