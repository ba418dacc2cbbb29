package levels

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// The kinds of the exchanges that messages can be delayed to.
const (
	topicKind  = "topic"
	directKind = "direct"
	fanoutKind = "fanout"
)

// Delays are the exact delays of one grain, as far as a process has declared them.
type Delays struct {
	Levels Levels // with the defaults

	// Queues and Exchanges are what was declared together with the delays. They are
	// targets, but for exchanges that refuse.
	Queues    []string
	Exchanges []Exchange

	// Bound are the bindings to Exchanges that delayed messages take too, and Apart those
	// that they do not take, because no call has declared them together with the delays.
	Bound, Apart []Binding

	// Confirmed says that the broker confirms every hop.
	Confirmed bool

	// Classes says that messages of high priority have queues of their own.
	Classes bool
}

// Exchange is an exchange by its name and its kind.
type Exchange struct{ Name, Kind string }

// Refuses returns why no message with a routing key can be delayed to the exchange, and ""
// where it can. With a binding key, it returns why the binding leads nothing delayed.
func (x Exchange) Refuses(key string) string {
	switch x.Kind {
	case topicKind, fanoutKind:
	case directKind:
		if HasWildcard(key) {
			return fmt.Sprintf("messages cannot be delayed to exchange %q with key %q: it is of kind direct, and the words * and # are wildcards on the way", x.Name, key)
		}
	default:
		return fmt.Sprintf("messages cannot be delayed to an exchange of kind %s, only to topic, direct and fanout", x.Kind)
	}
	return ""
}

// Binding is a binding of an exchange by its binding key.
type Binding struct {
	Target
	To string // the queue, or the lanes
}

// takes reports whether a message to an exchange of a kind takes the binding.
func (b Binding) takes(kind string, to Target) bool {
	switch {
	case b.Exchange != to.Exchange:
		return false
	case kind == fanoutKind:
		return true
	case kind == directKind:
		return b.RoutingKey == to.RoutingKey
	}
	return matches(words(b.RoutingKey), words(to.RoutingKey))
}

// words returns the words of a key of a topic exchange: the empty one has none.
func words(key string) []string {
	if key == "" {
		return nil
	}
	return strings.Split(key, ".")
}

// matches is the rule of a topic exchange. It goes back to the last # alone, so that no
// pattern takes long.
func matches(pattern, words []string) bool {
	hash, next := -1, 0 // the last #, and the first word that it has not taken
	p, w := 0, 0
	for w < len(words) {
		switch {
		case p < len(pattern) && pattern[p] == "#":
			hash, next = p, w
			p++
		case p < len(pattern) && (pattern[p] == "*" || pattern[p] == words[w]):
			p++
			w++
		case hash >= 0:
			next++
			p, w = hash+1, next
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == "#" {
		p++
	}
	return p == len(pattern)
}

// Reaches reports whether a message may be delayed to a target.
func (d Delays) Reaches(to Target) bool {
	if to.Exchange == "" {
		return slices.Contains(d.Queues, to.RoutingKey)
	}
	x, ok := d.exchange(to.Exchange)
	_, missed := d.Misses(to)
	return ok && x.Refuses(to.RoutingKey) == "" && !missed
}

func (d Delays) exchange(name string) (Exchange, bool) {
	i := slices.IndexFunc(d.Exchanges, func(x Exchange) bool { return x.Name == name })
	if i < 0 {
		return Exchange{}, false
	}
	return d.Exchanges[i], true
}

// Refuses returns why no message can be delayed to a target, whatever is declared, and ""
// where that is not known.
func (d Delays) Refuses(to Target) string {
	if x, ok := d.exchange(to.Exchange); ok {
		return x.Refuses(to.RoutingKey)
	}
	return ""
}

// Misses returns a binding that leads a message to its queue without a delay, if none is
// known that does so after one.
func (d Delays) Misses(to Target) (missed Binding, ok bool) {
	x, _ := d.exchange(to.Exchange)
	takes := func(b Binding) bool { return b.takes(x.Kind, to) }
	i := slices.IndexFunc(d.Apart, takes)
	if i < 0 || slices.ContainsFunc(d.Bound, takes) {
		return Binding{}, false
	}
	return d.Apart[i], true
}

// Among returns the delays with their Apart, by all bindings that are known.
func (d Delays) Among(known []Binding) Delays {
	d.Apart = nil
	for _, b := range known {
		if x, ok := d.exchange(b.Exchange); ok && x.Refuses(b.RoutingKey) == "" && !slices.Contains(d.Bound, b) {
			d.Apart = append(d.Apart, b)
		}
	}
	return d
}

// Way returns where a message is published to that is to reach a target after a
// delay, and how long it takes there: the delay rounded up to grains. The error is
// that of Levels.Path.
func (d Delays) Way(to Target, after time.Duration, priority uint8) (exchange, key string, takes time.Duration, err error) {
	path, err := d.Levels.Path(after)
	if err != nil {
		return "", "", 0, err
	}
	names := Of(d.Levels.Grain)
	high := d.Classes && IsHigh(priority)
	return names.Exchange(path.Entry()), Key(path, high, to), path.Duration(d.Levels.Grain), nil
}
