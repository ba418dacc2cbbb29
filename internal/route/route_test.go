package route

import (
	"testing"
	"time"

	"github.com/rehop/rehop/internal/levels"
)

func TestNackLandsOn(t *testing.T) {
	at := func(queue string, nack bool) Wait {
		return Wait{For: time.Minute, At: Target{RoutingKey: queue}, Nack: nack}
	}
	nacks := Facts{Queue: "q", Kind: Work, Waits: []Wait{at("q.wait.1", true), at("q.wait.2", true)}}
	changed := Facts{Queue: "q", Kind: Work, Waits: []Wait{at("q.wait.1", true), at("q.wait.2.3m", false), at("q.wait.3", true)}}
	for _, tt := range []struct {
		rule  string
		route Facts
		keys  []string
		want  int
	}{
		{"a producer's key", nacks, []string{"order.paid"}, 1},
		{"out of wait 1", nacks, []string{"q@1"}, 2},
		{"out of the last wait: there is no next", nacks, []string{"q@2"}, 0},
		{"out of a wait of a longer schedule, whose next wait is not ours", nacks, []string{"q@3"}, 0},
		{"out of the last wait that there can be", nacks, []string{"q@16"}, 0},
		{"beyond every schedule: a producer's key", nacks, []string{"q@17"}, 1},
		{"not a number as it is written", nacks, []string{"q@01"}, 1},
		{"not a number", nacks, []string{"q@x"}, 1},
		{"out of a wait of another queue", nacks, []string{"p@1"}, 1},
		{"CC beside it", nacks, []string{"order.paid", "copy"}, 1},
		{"CC that is the key of a wait", nacks, []string{"order.paid", "q@1"}, 0},
		{"no key", nacks, nil, 0},
		{"a wait of another duration is bound", changed, []string{"q@1"}, 0},
		{"the wait after it", changed, []string{"q@2"}, 3},
		{"republish never nacks", Facts{Queue: "q", Kind: Work, Waits: []Wait{at("q.wait.1", false)}}, []string{"order.paid"}, 0},
		{"somebody else's queue", Facts{Queue: "theirs"}, []string{"order.paid"}, 0},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			if got := tt.route.NackLandsOn(tt.keys...); got != tt.want {
				t.Errorf("NackLandsOn(%q) = %d, want %d", tt.keys, got, tt.want)
			}
		})
	}
}

func TestReturned(t *testing.T) {
	ours := Facts{Queue: "q", Kind: Work, Return: "q.rehop.return"}
	for _, tt := range []struct {
		rule     string
		route    Facts
		exchange string
		want     bool
	}{
		{"out of a wait", ours, "q.rehop.return", true},
		{"out of the levels of an exact delay", ours, levels.Of(time.Second).Exchange(3), true},
		{"published", ours, "shop", false},
		{"by the queue's name", ours, "", false},
		{"somebody else's queue", Facts{Queue: "q"}, "", false},
	} {
		if got := tt.route.Returned(tt.exchange); got != tt.want {
			t.Errorf("%s: Returned(%q) = %t, want %t", tt.rule, tt.exchange, got, tt.want)
		}
	}
	if at := ours.Back(3); at != (Target{"q.rehop.return", "q@3"}) || !ours.Returned(at.Exchange) || ours.WaitNumber(at.RoutingKey) != 3 {
		t.Errorf("Back(3) is %v, want the return exchange and the key of wait 3", at)
	}
}

func TestAtLeastIsTheShortestWaitThatIsLongEnough(t *testing.T) {
	r := Facts{Waits: []Wait{{For: 5 * time.Minute}, {For: time.Minute}, {For: time.Minute}, {For: time.Hour}}}
	for d, want := range map[time.Duration]int{0: 2, time.Minute: 2, time.Minute + 1: 1, time.Hour: 4, time.Hour + 1: 0} {
		if got, ok := r.AtLeast(d); got != want || ok != (want > 0) {
			t.Errorf("AtLeast(%v) is %d, %t; want %d", d, got, ok, want)
		}
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
