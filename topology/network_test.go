package topology

import (
	"fmt"
	"slices"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

// network routes like a broker on which steps of declarations were done, enough to
// follow one message from a queue that it died in.
type network struct {
	queues    map[string]amqp.Table
	exchanges map[string]plannedExchange
	bindings  []bound
}

// bound is a binding with its description, which tells it from every other.
type bound struct {
	plannedBinding
	text string
}

func newNetwork() *network {
	return &network{queues: map[string]amqp.Table{}, exchanges: map[string]plannedExchange{}}
}

// do does a step, and returns an error for one that a broker refuses.
func (n *network) do(s step) error {
	switch {
	case s.queue != nil:
		if args, exists := n.queues[s.queue.Name]; exists && !equalTables(args, s.queue.Args) {
			return fmt.Errorf("%s: it exists with %v", s.what, args)
		}
		n.queues[s.queue.Name] = s.queue.Args
	case s.exchange != nil:
		x, exists := n.exchanges[s.exchange.Name]
		if exists && (x.Kind != s.exchange.Kind || !equalTables(x.Args, s.exchange.Args)) {
			return fmt.Errorf("%s: it exists as %v", s.what, x)
		}
		n.exchanges[s.exchange.Name] = *s.exchange
	case s.binding != nil:
		b := *s.binding
		_, from := n.exchanges[b.Exchange]
		_, queue := n.queues[b.Queue]
		_, exchange := n.exchanges[b.ToExchange]
		if !from || !queue && !exchange {
			return fmt.Errorf("%s: not found", s.what)
		}
		text := b.describe()
		if !slices.ContainsFunc(n.bindings, func(have bound) bool { return have.text == text }) {
			n.bindings = append(n.bindings, bound{b, text})
		}
	}
	return nil
}

// declare does all steps of a plan.
func (n *network) declare(t *testing.T, p Plan) {
	t.Helper()
	for _, s := range p.steps() {
		if err := n.do(s); err != nil {
			t.Fatal(err)
		}
	}
}

// without returns a network in which a part of a plan is deleted, as a person would,
// with the bindings that go with it.
func (n *network) without(s step) *network {
	less, unbound := newNetwork(), ""
	if s.binding != nil {
		unbound = s.binding.describe()
	}
	for name, args := range n.queues {
		if s.queue == nil || name != s.queue.Name {
			less.queues[name] = args
		}
	}
	for name, x := range n.exchanges {
		if s.exchange == nil || name != s.exchange.Name {
			less.exchanges[name] = x
		}
	}
	for _, b := range n.bindings {
		_, from := less.exchanges[b.Exchange]
		_, queue := less.queues[b.Queue]
		_, exchange := less.exchanges[b.ToExchange]
		if from && (queue || exchange) && b.text != unbound {
			less.bindings = append(less.bindings, b)
		}
	}
	return less
}

// String returns the network as text. Two networks with one text are the same.
func (n *network) String() string { return fmt.Sprint(n.queues, n.exchanges, n.bindings) }

// leads returns the queues that a message with this key and reason of death reaches
// from an exchange. None: the broker holds it in the queue that it left, where that
// dead-letters at-least-once, and returns it to a client.
func (n *network) leads(exchange, routingKey, reason string) []string {
	x, exists := n.exchanges[exchange]
	if !exists {
		return nil
	}
	var out []string
	matched := false
	for _, b := range n.bindings {
		if b.Exchange != exchange {
			continue
		}
		if want, given := b.Args["x-last-death-reason"]; given && want != reason || x.Kind == amqp.ExchangeDirect && b.RoutingKey != routingKey {
			continue
		}
		matched = true
		if b.ToExchange != "" {
			out = append(out, n.leads(b.ToExchange, routingKey, reason)...)
		} else {
			out = append(out, b.Queue)
		}
	}
	if alternate, ok := x.Args["alternate-exchange"].(string); ok && !matched {
		return n.leads(alternate, routingKey, reason)
	}
	slices.Sort(out)
	return slices.Compact(out) // an exchange delivers once to a queue
}
