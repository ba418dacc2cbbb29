package route

import (
	"testing"
	"time"

	"github.com/rehop/rehop/internal/levels"
)

func TestNackLandsOn(t *testing.T) {
	ladder := Facts{Queue: "q", Ours: true, Rungs: []Rung{{"q.wait.1", true}, {"q.wait.2", true}}}
	changed := Facts{Queue: "q", Ours: true, Rungs: []Rung{{"q.wait.1", true}, {"q.wait.2.3m", false}, {"q.wait.3", true}}}
	for _, tt := range []struct {
		rule  string
		facts Facts
		keys  []string
		want  int
	}{
		{"a producer's key", ladder, []string{"order.paid"}, 1},
		{"out of wait 1", ladder, []string{"q@1"}, 2},
		{"out of the last wait: there is no next", ladder, []string{"q@2"}, 0},
		{"a rung of a longer schedule, whose next wait is not ours", ladder, []string{"q@3"}, 0},
		{"the last rung there can be", ladder, []string{"q@16"}, 0},
		{"beyond every schedule: a producer's key", ladder, []string{"q@17"}, 1},
		{"not a rung", ladder, []string{"q@01"}, 1},
		{"not a number", ladder, []string{"q@x"}, 1},
		{"a rung of another queue", ladder, []string{"p@1"}, 1},
		{"CC beside it", ladder, []string{"order.paid", "copy"}, 1},
		{"CC that climbs", ladder, []string{"order.paid", "q@1"}, 0},
		{"no key", ladder, nil, 0},
		{"a wait of another duration is bound", changed, []string{"q@1"}, 0},
		{"the wait after it", changed, []string{"q@2"}, 3},
		{"republish never nacks", Facts{Queue: "q", Ours: true, Rungs: []Rung{{"q.wait.1", false}}}, []string{"order.paid"}, 0},
		{"somebody else's queue", Facts{Queue: "theirs"}, []string{"order.paid"}, 0},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			if got := tt.facts.NackLandsOn(tt.keys...); got != tt.want {
				t.Errorf("NackLandsOn(%q) = %d, want %d", tt.keys, got, tt.want)
			}
		})
	}
}

func TestReturned(t *testing.T) {
	ours := Facts{Queue: "q", Ours: true, Retry: "q.retry"}
	for _, tt := range []struct {
		rule     string
		facts    Facts
		exchange string
		want     bool
	}{
		{"out of a wait", ours, "q.retry", true},
		{"out of the levels of an exact delay", ours, levels.Of(time.Second).Exchange(3), true},
		{"published", ours, "shop", false},
		{"by the queue's name", ours, "", false},
		{"somebody else's queue", Facts{Queue: "q"}, "", false},
	} {
		if got := tt.facts.Returned(tt.exchange); got != tt.want {
			t.Errorf("%s: Returned(%q) = %t, want %t", tt.rule, tt.exchange, got, tt.want)
		}
	}
	if exchange, key := ours.Back(3); exchange != "q.retry" || key != "q@3" || !ours.Returned(exchange) || ours.next(key) != 4 {
		t.Errorf("Back(3) is (%q, %q), want the retry exchange and the key of rung 3", exchange, key)
	}
}

func TestNames(t *testing.T) {
	for got, want := range map[string]string{
		WaitQueue("orders", 2):       "orders.wait.2",
		CarriedQueue("orders", 2, 1): "orders.wait.2",
		CarriedQueue("orders", 2, 3): "orders.wait.2.3",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
