// Package whereto reads the place that letters go to, as a person types it.
package whereto

import (
	"errors"
	"strings"

	"github.com/rehop/rehop/topology"
)

// Read reads "queue", "exchange/key", or "/queue" for a queue with a slash in its name; "" is nil. It refuses
// a URL, whose password the journal would have.
func Read(text string) (*topology.Address, error) {
	if strings.Contains(text, "://") {
		return nil, errors.New("is a URL, which is not shown")
	}
	exchange, key, found := strings.Cut(text, "/")
	switch {
	case text == "":
		return nil, nil
	case !found:
		return &topology.Address{RoutingKey: text}, nil
	}
	return &topology.Address{Exchange: exchange, RoutingKey: key}, nil
}
