package model

import (
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"
)

// route returns the queues that a message goes to, each once.
func (b *Broker) route(x *exchange, keys []string, headers amqp.Table) []*Queue {
	if x.name == "" { // the common case
		var found []*Queue
		for _, key := range keys {
			found = b.addQueue(found, b.queues[key])
		}
		return found
	}
	var found []*Queue
	seen := map[*exchange]bool{x: true}
	for todo := []*exchange{x}; len(todo) > 0; {
		x, todo = todo[0], todo[1:]
		matched := false
		for _, to := range x.bindings {
			if !b.matches(x, to, keys, headers) {
				continue
			}
			matched = true
			if to.queue != nil {
				found = b.addQueue(found, to.queue)
			} else if !seen[to.exchange] {
				seen[to.exchange] = true
				todo = append(todo, to.exchange)
			}
		}
		if x.name == "" {
			for _, key := range keys {
				found = b.addQueue(found, b.queues[key])
			}
			continue
		}
		if other := b.exchanges[x.alternate]; !matched && x.alternate != "" && other != nil && !seen[other] {
			seen[other] = true
			todo = append(todo, other)
		}
	}
	return found
}

func (b *Broker) addQueue(found []*Queue, q *Queue) []*Queue {
	if q == nil {
		return found
	}
	for _, f := range found {
		if f == q {
			return found
		}
	}
	return append(found, q)
}

func (b *Broker) matches(x *exchange, to *binding, keys []string, headers amqp.Table) bool {
	switch x.kind {
	case "fanout":
		return true
	case "direct":
		for _, key := range keys {
			if key == to.key {
				return true
			}
		}
		return false
	case "topic":
		for _, key := range keys {
			if matchTopic(to.words, topicWords(key)) {
				return true
			}
		}
		return false
	default:
		return b.matchHeaders(to.args, headers)
	}
}

// topicWords returns the words of a key: the empty one has none.
func topicWords(key string) []string {
	if key == "" {
		return nil
	}
	return strings.Split(key, ".")
}

// matchTopic matches words of a key with those of a pattern.
func matchTopic(pattern, words []string) bool {
	for len(pattern) > 0 {
		if pattern[0] == "#" {
			if len(pattern) == 1 {
				return true
			}
			for i := 0; i <= len(words); i++ {
				if matchTopic(pattern[1:], words[i:]) {
					return true
				}
			}
			return false
		}
		if len(words) == 0 || pattern[0] != "*" && pattern[0] != words[0] {
			return false
		}
		pattern, words = pattern[1:], words[1:]
	}
	return len(words) == 0
}

// checkHashes refuses a topic with more than two hashes, as 4.3 does.
func (b *Broker) checkHashes(words []string, key string) *Error {
	n := 0
	for _, word := range words {
		if word == "#" {
			n++
		}
	}
	if n > 2 && b.atLeast(4, 3) {
		return Fail(PreconditionFailed, "Topic binding key '%s' uses %d '#' wildcards, at most 2 are allowed", key, n)
	}
	return nil
}

func checkMatch(args amqp.Table) *Error {
	v, ok := args["x-match"]
	if !ok {
		return nil
	}
	s, ok := v.(string)
	if !ok {
		return Fail(PreconditionFailed, "Invalid x-match field type %s (value %s); expected longstr", typeName(v), term(v))
	}
	switch s {
	case "all", "any", "all-with-x", "any-with-x":
		return nil
	}
	return Fail(PreconditionFailed, "Invalid x-match field value %s; expected all, any, all-with-x, or any-with-x", term(s))
}

func (b *Broker) matchHeaders(args, headers amqp.Table) bool {
	kind, _ := args["x-match"].(string)
	withX := strings.HasSuffix(kind, "-with-x")
	matchAny := strings.HasPrefix(kind, "any")
	for name, want := range args {
		if name == "x-match" || !withX && strings.HasPrefix(name, "x-") {
			continue
		}
		got, ok := headers[name]
		match := ok && (want == nil || b.sameHeader(want, got))
		if match && matchAny {
			return true
		}
		if !match && !matchAny {
			return false
		}
	}
	return !matchAny
}
