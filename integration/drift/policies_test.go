package drift

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rehop/rehop/integration/nodes"
	"github.com/rehop/rehop/integration/poll"
	"github.com/rehop/rehop/topology"
)

// Which policies apply to a queue, and what they say together, is the same in a file of definitions as
// on the broker that wrote it.
func TestPoliciesOfAFile(t *testing.T) {
	type policy = map[string]any
	of := func(pattern, applyTo string, priority int, definition policy) policy {
		return policy{"pattern": pattern, "apply-to": applyTo, "priority": priority, "definition": definition}
	}
	long, short := policy{"max-length": 50}, policy{"max-length": 7}
	rules := map[string]struct {
		policies map[string]policy // by the end of their path
		says     string
	}{
		"a part of the name":                {map[string]policy{"policies/p": of("rder", "queues", 0, short)}, "max-length to 7"},
		"one of two names":                  {map[string]policy{"policies/p": of("^(orders|x)$", "all", 0, short)}, "max-length to 7"},
		"the higher priority":               {map[string]policy{"policies/p": of("o", "queues", 1, long), "policies/q": of("o", "queues", 2, short)}, "max-length to 7"},
		"one for exchanges is another's":    {map[string]policy{"policies/p": of("o", "exchanges", 9, policy{"alternate-exchange": "x"}), "policies/q": of("o", "queues", 0, short)}, "max-length to 7"},
		"one for quorum queues":             {map[string]policy{"policies/p": of("o", "quorum_queues", 9, short), "policies/q": of("o", "queues", 0, long)}, "max-length to 7"},
		"one for classic queues is another": {map[string]policy{"policies/p": of("o", "classic_queues", 9, long), "policies/q": of("o", "queues", 0, short)}, "max-length to 7"},
		"one for streams is another":        {map[string]policy{"policies/p": of("o", "streams", 9, policy{"max-age": "1h"}), "policies/q": of("o", "queues", 0, short)}, "max-length to 7"},
		"the operator's number is lower":    {map[string]policy{"policies/p": of("o", "queues", 0, long), "operator-policies/op": of("o", "queues", 0, short)}, "max-length to 7"},
		"the user's number is lower":        {map[string]policy{"policies/p": of("o", "queues", 0, short), "operator-policies/op": of("o", "queues", 0, long)}, "max-length to 7"},
		"both times":                        {map[string]policy{"policies/p": of("o", "queues", 0, policy{"message-ttl": 9000}), "operator-policies/op": of("o", "queues", 0, policy{"message-ttl": 7000})}, "message-ttl to 7s"},
		"another entry of each":             {map[string]policy{"policies/p": of("o", "queues", 0, policy{"expires": 3600000}), "operator-policies/op": of("o", "queues", 0, short)}, "max-length to 7"},
		"the operator's overflow":           {map[string]policy{"policies/p": of("o", "queues", 0, policy{"max-length": 7, "overflow": "drop-head"}), "operator-policies/op": of("o", "queues", 0, policy{"overflow": "reject-publish"})}, "the queue refuses what is published"},
		"the user's overflow":               {map[string]policy{"policies/p": of("o", "queues", 0, policy{"overflow": "reject-publish"}), "operator-policies/op": of("o", "queues", 0, short)}, "the queue refuses what is published"},
	}
	onEachVersion(t, func(t *testing.T, n *nodes.Node) {
		specs := []topology.Spec{topology.WorkQueue{Name: "orders", Engine: topology.EngineRepublish}}
		v := newVhost(t, n, "policies")
		if err := topology.Declare(t.Context(), v.conn, specs...); err != nil {
			t.Fatal(err)
		}
		tried := 0
		for _, rule := range slices.Sorted(maps.Keys(rules)) {
			refused := false
			for name, body := range rules[rule].policies {
				kind, name, _ := strings.Cut(name, "/")
				if _, err := v.call(t.Context(), http.MethodPut, kind+"/"+v.path()+"/"+name, body); err != nil {
					refused = true // a version without such a kind of policy
					t.Logf("%s: %v", rule, err)
				}
			}
			if !refused {
				tried++
				var drift topology.Drift
				poll.Until(t, time.Minute, rule+": "+rules[rule].says, func() bool {
					drift = v.verify(v.conn, specs...)
					return strings.Contains(drift.String(), rules[rule].says)
				})
				v.sameInAFile(rule, drift, specs)
			}
			for name := range rules[rule].policies {
				kind, name, _ := strings.Cut(name, "/")
				_, _ = v.call(t.Context(), http.MethodDelete, kind+"/"+v.path()+"/"+name, nil) // it may have been refused
			}
			poll.Until(t, time.Minute, "no policy applies after "+rule, func() bool { return v.verify(v.conn, specs...).OK() })
		}
		if tried < len(rules)-4 {
			t.Errorf("%d of %d rules were tried", tried, len(rules))
		}
	})
}
