// Package levels makes any delay of a few waits: the arithmetic of exact delays, the
// names of their queues and exchanges, and the routing keys by which messages find
// their way through them. Everything in it is a value or a pure function.
//
// A routing key has these words:
//
//	n.+.-.+. ... .-.=.orders            to a queue
//	n.+.-.+. ... .-.>1.shop.order.paid  to an exchange
//
// The first is the class of the message, one for each level say whether the
// message visits it (see Path.Words), and the rest is the target.
package levels

import (
	"strconv"
	"strings"
	"time"
)

// prefix begins the name of every part.
const prefix = "rehop.delays."

// Is reports whether a queue or exchange is a part of exact delays, by its name.
func Is(name string) bool { return strings.HasPrefix(name, prefix) }

// Names are the names of the parts for one grain. Delays of different grains share
// nothing; those of one grain share all levels that they have in common.
type Names struct{ base string }

// Of returns the names for a grain.
func Of(grain time.Duration) Names { return Names{prefix + grain.String()} }

// Prefix returns what the names of all parts begin with.
func (n Names) Prefix() string { return n.base + "." }

// Exchange returns the topic exchange where a message is published to, or comes to
// from a higher level, that may visit this level.
func (n Names) Exchange(level int) string { return n.base + "." + number(level) }

// Queue returns the queue of a level, for messages of one class.
func (n Names) Queue(level int, high bool) string {
	if high {
		return n.Exchange(level) + ".high"
	}
	return n.Exchange(level)
}

// Deliver returns the topic exchange behind the lowest level.
func (n Names) Deliver() string { return n.base + ".deliver" }

// Stranded returns the fanout exchange, and the queue, of what found no target.
func (n Names) Stranded() string { return n.base + ".stranded" }

func number(level int) string {
	if level < 10 {
		return "0" + strconv.Itoa(level)
	}
	return strconv.Itoa(level)
}

// Taken returns how long a message was delayed that has left the levels, by the exchange
// and the routing key that it came with; 0 if these are of no such message.
func Taken(exchange, key string) time.Duration {
	name, ok := strings.CutPrefix(exchange, prefix)
	name, _, _ = strings.Cut(name, ".")
	grain, err := time.ParseDuration(name)
	words := strings.SplitN(key, ".", MaxLevels+2) // the class, the levels, the target
	if !ok || err != nil || len(words) < MaxLevels+2 {
		return 0
	}
	var path Path
	for level, word := range words[1 : MaxLevels+1] {
		if word == Visit {
			path |= 1 << level
		}
	}
	return path.Duration(grain)
}

// Target is where a message goes when its delay is over. The empty exchange stands
// for the queue that Key names.
type Target struct{ Exchange, RoutingKey string }

// The classes of messages, the first word of a key.
const (
	normalClass = "n"
	highClass   = "h"
)

// Key returns the routing key of a message with this way and target.
func Key(path Path, high bool, to Target) string {
	class := normalClass
	if high {
		class = highClass
	}
	return class + "." + path.Words() + "." + to.words()
}

// words returns the last words of a key. The number of words of the exchange keeps
// shop with key eu.paid apart from shop.eu with key paid. An empty key is no word,
// as in a topic exchange.
func (t Target) words() string {
	if t.Exchange == "" {
		return "=." + t.RoutingKey
	}
	words := ">" + strconv.Itoa(strings.Count(t.Exchange, ".")+1) + "." + t.Exchange
	if t.RoutingKey != "" {
		words += "." + t.RoutingKey
	}
	return words
}

// VisitPattern is the binding key from the exchange of a level to its queue.
func VisitPattern(level int, high bool) string {
	class := normalClass
	if high {
		class = highClass
	}
	return class + strings.Repeat(".*", level) + "." + Visit + ".#"
}

// PassPattern is the binding key from the exchange of a level to the next one.
func PassPattern(level int) string {
	return "*" + strings.Repeat(".*", level) + "." + Pass + ".#"
}

// DeliverPattern is the binding key from the last exchange to a target. The key of
// one with an exchange is a binding key of that.
func DeliverPattern(to Target) string {
	return "*" + strings.Repeat(".*", MaxLevels) + "." + to.words()
}

// IsDeliverPattern reports whether a binding key is the DeliverPattern of a target: of the queue that it leads to, or of an
// exchange, whose bindings lead anywhere.
func IsDeliverPattern(pattern, queue string) bool {
	words, ok := strings.CutPrefix(pattern, strings.TrimSuffix(DeliverPattern(Target{}), "=."))
	if !ok || words == "=."+queue && queue != "" {
		return ok
	}
	number, rest, _ := strings.Cut(words, ".")
	exchange := strings.Split(rest, ".") // and the key
	n, err := strconv.Atoi(strings.TrimPrefix(number, ">"))
	return err == nil && number == ">"+strconv.Itoa(n) && n > 0 && n <= len(exchange) && rest != "" && !HasWildcard(strings.Join(exchange[:n], "."))
}

// HasWildcard reports whether a name has a word that a binding key would read as
// a wildcard.
func HasWildcard(name string) bool {
	for word := range strings.SplitSeq(name, ".") {
		if word == "*" || word == "#" {
			return true
		}
	}
	return false
}

// IsHigh reports whether messages of a priority have queues of their own where
// priorities have two classes, on broker 4.0 to 4.2.
func IsHigh(priority uint8) bool { return priority >= 5 }
