package levels

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// topic is the rule of a topic exchange, word by word.
func topic(pattern, words []string) bool {
	if len(pattern) == 0 {
		return len(words) == 0
	}
	if pattern[0] == "#" {
		return topic(pattern[1:], words) || len(words) > 0 && topic(pattern, words[1:])
	}
	return len(words) > 0 && (pattern[0] == "*" || pattern[0] == words[0]) && topic(pattern[1:], words[1:])
}

func match(pattern, key string) bool { return matches(words(pattern), words(key)) }

// walk follows a key through the bindings, as a broker would, and returns the
// queues it visits.
func walk(t *testing.T, key string, entry int) (visited []string) {
	t.Helper()
	names := Of(time.Second)
	for level := entry; level >= 0; level-- {
		var ways []string
		for _, high := range []bool{false, true} {
			if match(VisitPattern(level, high), key) {
				ways = append(ways, names.Queue(level, high))
			}
		}
		if match(PassPattern(level), key) {
			ways = append(ways, "")
		}
		if len(ways) != 1 {
			t.Fatalf("at level %d key %q has the ways %q, want one", level, key, ways)
		}
		if ways[0] != "" {
			visited = append(visited, ways[0])
		}
	}
	return visited
}

func TestAKeyVisitsItsLevelsInOrder(t *testing.T) {
	for _, high := range []bool{false, true} {
		for _, path := range []Path{1, 2, 13, 61, 1 << 27, 1<<28 - 1} {
			var want []string
			for level := path.Entry(); level >= 0; level = path.Next(level) {
				want = append(want, Of(time.Second).Queue(level, high))
			}
			for _, to := range []Target{{RoutingKey: "orders"}, {"shop", "+.-.#"}, {"shop", strings.Repeat("+.", 40)}} {
				if got := walk(t, Key(path, high, to), path.Entry()); !slices.Equal(got, want) {
					t.Errorf("%v to %v visits %q, want %q", path, to, got, want)
				}
			}
		}
	}
}

func TestTarget(t *testing.T) {
	for _, row := range []struct {
		rule         string
		bound, to    Target
		wantsDeliver bool
	}{
		{"a queue by its name", Target{RoutingKey: "eu.orders"}, Target{RoutingKey: "eu.orders"}, true},
		{"not by the end of its name", Target{RoutingKey: "orders"}, Target{RoutingKey: "eu.orders"}, false},
		{"not by its beginning", Target{RoutingKey: "eu"}, Target{RoutingKey: "eu.orders"}, false},
		{"an exchange by its binding key", Target{"shop", "order.#"}, Target{"shop", "order.paid"}, true},
		{"an exchange, another key", Target{"shop", "order.#"}, Target{"shop", "ticket.sold"}, false},
		{"any key", Target{"shop", "#"}, Target{"shop", "a.b.c"}, true},
		{"any key, the empty one too", Target{"shop", "#"}, Target{"shop", ""}, true},
		{"the empty key", Target{"shop", ""}, Target{"shop", ""}, true},
		{"one word is not the empty key", Target{"shop", "*"}, Target{"shop", ""}, false},
		{"the dot of an exchange is not that of a key", Target{"shop", "#"}, Target{"shop.eu", "paid"}, false},
		{"nor the other way round", Target{"shop.eu", "#"}, Target{"shop", "eu.paid"}, false},
		{"a queue is not an exchange", Target{RoutingKey: "shop"}, Target{"shop", ""}, false},
		{"wildcards in a message's key are words", Target{"shop", "a"}, Target{"shop", "*"}, false},
	} {
		t.Run(row.rule, func(t *testing.T) {
			for _, path := range []Path{1, 1<<28 - 1} {
				if got := match(DeliverPattern(row.bound), Key(path, false, row.to)); got != row.wantsDeliver {
					t.Errorf("%v bound, %v sent: delivered is %v", row.bound, row.to, got)
				}
			}
		})
	}
}

func TestNamesOfDifferentGrainsDiffer(t *testing.T) {
	seen := map[string]bool{}
	for _, grain := range []time.Duration{10 * time.Millisecond, 100 * time.Millisecond, time.Second} {
		n := Of(grain)
		for _, name := range []string{n.Exchange(3), n.Queue(3, true), n.Deliver(), n.Stranded()} {
			if seen[name] || !Is(name) {
				t.Errorf("%q is taken, or not ours", name)
			}
			seen[name] = true
		}
	}
}

func TestTheKeyTellsHowLongAMessageWasDelayed(t *testing.T) {
	for _, grain := range []time.Duration{10 * time.Millisecond, time.Second} {
		names := Of(grain)
		for _, to := range []Target{{RoutingKey: "orders.eu"}, {Exchange: "shop.eu", RoutingKey: "order.paid"}, {Exchange: "shop"}} {
			for _, path := range []Path{1, 6, 1<<MaxLevels - 1} {
				for _, exchange := range []string{names.Deliver(), names.Exchange(3)} {
					if got := Taken(exchange, Key(path, true, to)); got != path.Duration(grain) {
						t.Errorf("Taken(%q, %q) is %v, want %v", exchange, Key(path, true, to), got, path.Duration(grain))
					}
				}
			}
		}
	}
	key := Key(6, false, Target{RoutingKey: "orders"})
	for _, of := range [][2]string{{"", "orders"}, {"shop", key}, {"rehop.delays.x.deliver", key}, {Of(time.Second).Deliver(), "orders"}, {Of(time.Second).Deliver(), ""}} {
		if got := Taken(of[0], of[1]); got != 0 {
			t.Errorf("Taken(%q, %q) is %v, want 0", of[0], of[1], got)
		}
	}
}

func TestTheBindingKeysOfTargets(t *testing.T) {
	for _, to := range []Target{{"", "orders"}, {"", "a.b"}, {"", "=.x"}, {"shop", ""}, {"shop", "order.paid"}, {"shop.eu", "#"}, {"shop", "*.paid"}} {
		queue := to.RoutingKey
		if to.Exchange != "" {
			queue = "any"
		}
		if !IsDeliverPattern(DeliverPattern(to), queue) {
			t.Errorf("the key of %v is taken for none of a target", to)
		}
	}
	all := DeliverPattern(Target{}) // and the name of a queue
	for _, tt := range []struct{ key, queue string }{
		{"#", "evil"}, {"", "evil"}, {all + "orders", "evil"}, {all, ""}, {all + "#", "evil"},
		{DeliverPattern(Target{Exchange: "#"}), "evil"}, {DeliverPattern(Target{Exchange: "shop.*", RoutingKey: "x"}), "evil"},
		{strings.Replace(DeliverPattern(Target{Exchange: "shop"}), ">1", ">2", 1), "evil"}, {strings.Replace(DeliverPattern(Target{Exchange: "shop"}), ">1", "#", 1), "evil"},
		{strings.Replace(DeliverPattern(Target{Exchange: "shop"}), ">1", ">+1", 1), "evil"}, {strings.Replace(DeliverPattern(Target{Exchange: "shop"}), ">1", ">01", 1), "evil"},
	} {
		if IsDeliverPattern(tt.key, tt.queue) {
			t.Errorf("%s to %s is taken for the key of a target", tt.key, tt.queue)
		}
	}
}
