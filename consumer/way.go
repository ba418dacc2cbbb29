package consumer

import (
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/declared"
	"github.com/rehop/rehop/internal/levels"
	"github.com/rehop/rehop/internal/route"
	"github.com/rehop/rehop/topology"
)

// way is what a consumer knows of the queue it reads: the exported fields of its
// route, and the facts behind it.
type way struct {
	topology.Route
	facts route.Facts

	// delays lead to the queue and are confirmed by the broker; the finest grain
	// first.
	delays []declared.Delays
}

func wayOf(r topology.Route) way { return way{Route: r, facts: route.Of(r)} }

// withDelays returns the way with the exact delays that are declared on conn and
// as safe as a wait.
func (w way) withDelays(conn *connection.Conn) way {
	for _, d := range declared.On(conn) {
		if d.Confirmed && d.Reaches(w.target()) {
			w.delays = append(w.delays, d)
		}
	}
	return w
}

// target is the queue itself.
func (w way) target() levels.Target { return levels.Target{Key: w.Queue} }

// exact is a way through exact delays.
type exact struct {
	to    topology.Address
	takes time.Duration
}

// exactly returns a way that takes d, or little more. It returns false if there is
// none.
func (w way) exactly(d time.Duration, priority uint8) (exact, bool) {
	for _, delays := range w.delays {
		after := max(d, delays.Levels.Grain)
		exchange, key, takes, err := delays.Way(w.target(), after, priority)
		if err == nil {
			return exact{topology.Address{Exchange: exchange, Key: key}, takes}, true
		}
	}
	return exact{}, false
}

// furthest returns the longest of the exact delays, or 0.
func (w way) furthest() (longest time.Duration) {
	for _, delays := range w.delays {
		longest = max(longest, delays.Levels.Max)
	}
	return longest
}

// end returns where a message is published to that goes to the end of the queue
// before this attempt, as one that has come back from a wait.
func (w way) end(attempt int) topology.Address {
	if !w.facts.Ours {
		return topology.Address{Key: w.Queue}
	}
	exchange, key := w.facts.Back(max(attempt-1, 1))
	return topology.Address{Exchange: exchange, Key: key}
}
