package carry

import (
	"strings"
	"testing"

	"github.com/rehop/rehop/internal/management"
)

func TestConsumersOfAWaitThatAreNoCarriersAreStrangers(t *testing.T) {
	ours := management.Consumer{Tag: tagPrefix + "host-1" + tagSuffix, Connection: "orders"}
	for rule, tt := range map[string]struct {
		consumers []management.Consumer
		says      string // empty: there are none
	}{
		"nobody":                          {nil, ""},
		"carriers alone":                  {[]management.Consumer{ours, ours}, ""},
		"another program":                 {[]management.Consumer{ours, {Tag: "amq.ctag-x", Connection: "shovel"}}, `consumer "amq.ctag-x" of connection "shovel" of wait queue "orders.wait.1"`},
		"one of rehop that is no carrier": {[]management.Consumer{{Tag: "rehop-host-1-2"}}, `consumer "rehop-host-1-2"`},
	} {
		t.Run(rule, func(t *testing.T) {
			switch err := strangers("orders.wait.1", tt.consumers); {
			case tt.says == "" && err != nil:
				t.Errorf("found %v", err)
			case tt.says != "" && (err == nil || !strings.Contains(err.Error(), tt.says)):
				t.Errorf("found %v, want %q", err, tt.says)
			}
		})
	}
}
