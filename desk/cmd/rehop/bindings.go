package main

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/rehop/rehop/internal/ctl"
	"github.com/rehop/rehop/internal/levels"
)

// binding is a binding of a file of definitions.
type binding struct {
	Source          string         `json:"source"`
	Destination     string         `json:"destination"`
	DestinationType string         `json:"destination_type"`
	RoutingKey      string         `json:"routing_key"`
	Arguments       map[string]any `json:"arguments"`
}

func (b binding) key() string {
	if target := strings.TrimLeft(b.RoutingKey, "*."); levels.Is(b.Source) {
		return fmt.Sprintf("key that ends with %q", target)
	}
	text := fmt.Sprintf("key %q", b.RoutingKey)
	for _, name := range sortedKeys(b.Arguments) {
		text += fmt.Sprintf(" %s=%v", name, b.Arguments[name])
	}
	return text
}

// String is the name of the binding in a topology.Difference.
func (b binding) String() string {
	args := ""
	for _, name := range sortedKeys(b.Arguments) {
		args += fmt.Sprintf(" %s=%v", name, b.Arguments[name])
	}
	to := b.Destination
	if b.DestinationType == "exchange" {
		to = "exchange " + to
	}
	return fmt.Sprintf("%s --%s%s--> %s", b.Source, b.RoutingKey, args, to)
}

func (b binding) to() part { return part{b.DestinationType, b.Destination} }

func (b binding) from() part { return part{"exchange", b.Source} }

func (b binding) isOfPublishers() bool {
	return !strings.Contains(b.Source, ".rehop.") && !levels.Is(b.Source)
}

// unbinding is the command that takes a binding away.
func (b binding) unbinding(vhost string) string {
	return ctl.Unbind(vhost, b.Source, b.DestinationType, b.Destination, b.RoutingKey, len(b.Arguments) > 0)
}

// described returns what bindings lead to, and from which exchanges with which keys.
func described(list []binding) string {
	var texts []string
	for _, group := range grouped(list, binding.to) {
		texts = append(texts, fmt.Sprintf("%q from %s", group[0].Destination, sourcesText(group)))
	}
	return strings.Join(texts, ", and ")
}

// sourcesText returns the exchanges that bindings lead from, with their keys.
func sourcesText(list []binding) string {
	var texts []string
	for _, group := range grouped(list, binding.from) {
		var keys []string
		for _, b := range group {
			keys = append(keys, b.key())
		}
		texts = append(texts, fmt.Sprintf("exchange %q (%s)", group[0].Source, strings.Join(keys, ", ")))
	}
	return strings.Join(texts, " and ")
}

// grouped returns the bindings of each end together, in the order of the first ones.
func grouped(list []binding, end func(binding) part) (groups [][]binding) {
	for _, b := range list {
		at := slices.IndexFunc(groups, func(group []binding) bool { return end(group[0]) == end(b) })
		if at < 0 {
			at, groups = len(groups), append(groups, nil)
		}
		groups[at] = append(groups[at], b)
	}
	return groups
}

// newcomers returns where else a new binding leads messages of a former one to, whether each of these takes all of the
// messages, and whether some binding of NEW elsewhere does.
func (w written) newcomers(old written, b binding) (names []string, all, same bool) {
	all = true
	for _, n := range w.bindings {
		if n.Source != b.Source || n.to() == b.to() {
			continue
		}
		kind := old.kinds[b.from()]
		equal := kind == "fanout" || n.RoutingKey == b.RoutingKey && reflect.DeepEqual(n.Arguments, b.Arguments)
		same = same || equal
		isNew := !slices.ContainsFunc(old.bindings, func(o binding) bool { return o.String() == n.String() })
		if isNew && (equal || meet(kind, n.RoutingKey, b.RoutingKey)) {
			all = all && equal
			if !slices.Contains(names, n.Destination) {
				names = append(names, n.Destination)
			}
		}
	}
	return names, all, same
}

// meet reports whether one message may match two binding keys of an exchange of a kind.
func meet(kind, a, b string) bool {
	switch kind {
	case "direct":
		return a == b
	case "topic":
		return topicsMeet(strings.Split(a, "."), strings.Split(b, "."))
	}
	return true
}

func topicsMeet(a, b []string) bool {
	// meets[i][j] is whether a from word i on and b from word j on meet.
	meets := make([][]bool, len(a)+1)
	for i := len(a); i >= 0; i-- {
		meets[i] = make([]bool, len(b)+1)
		for j := len(b); j >= 0; j-- {
			switch {
			case i == len(a) && j == len(b):
				meets[i][j] = true
			case i < len(a) && a[i] == "#":
				meets[i][j] = meets[i+1][j] || j < len(b) && meets[i][j+1]
			case j < len(b) && b[j] == "#":
				meets[i][j] = meets[i][j+1] || i < len(a) && meets[i+1][j]
			case i < len(a) && j < len(b):
				meets[i][j] = (a[i] == b[j] || a[i] == "*" || b[j] == "*") && meets[i+1][j+1]
			}
		}
	}
	return meets[0][0]
}
