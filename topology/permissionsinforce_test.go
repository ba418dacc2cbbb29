package topology

import (
	"regexp"
	"testing"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/delay"
)

// A consumer that may not look at its waits takes them for those of its specification alone. Where
// the broker has others, its messages would come back late: so it may look.
func TestPermissionsOfTheEngineInForce(t *testing.T) {
	v3, v43 := connection.Version{Major: 3, Minor: 10}, connection.Version{Major: 4, Minor: 3}
	waits := delay.Schedule{time.Minute}
	for _, tt := range []struct {
		rule   string
		v      connection.Version
		engine Engine
		have   found
		looks  bool
	}{
		{"waits of 3.x after an upgrade", v43, EngineAuto, found{queues: map[string]existing{"orders": {form: carried}}}, true},
		{"timed waits where they would be carried", v3, EngineAuto, found{queues: map[string]existing{"orders": {form: timed}}}, true},
		{"a wait of another schedule", v43, EngineRepublish, found{taken: map[string]string{"orders.wait.1": "x-message-ttl 1h0m0s"}}, true},
		{"all as the specification says", v43, EngineRepublish, found{}, false},
		{"all as it says, carried", v3, EngineAuto, found{}, false},
	} {
		plan, err := newPlan(tt.v, tt.have, []Spec{WorkQueue{Name: "orders", Engine: tt.engine, Waits: waits}})
		if err != nil {
			t.Fatal(err)
		}
		p := plan.Permissions(RoleConsume)
		for _, name := range append(plan.Engines[0].Waits, "orders") {
			if got := regexp.MustCompile(p.Configure).MatchString(name); got != tt.looks {
				t.Errorf("%s: %+v lets it look at %s: %t, want %t", tt.rule, p, name, got, tt.looks)
			}
		}
	}
}
