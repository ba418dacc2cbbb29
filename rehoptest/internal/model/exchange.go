package model

import (
	"maps"
	"slices"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"
)

type exchange struct {
	name, kind                    string
	durable, autoDelete, internal bool
	args                          amqp.Table
	alternate                     string
	bindings                      []*binding
	incoming                      int // bindings of other exchanges to this one
}

// binding from an exchange to a queue or another exchange.
type binding struct {
	key      string
	words    []string // of a topic's key
	args     amqp.Table
	queue    *Queue
	exchange *exchange
}

func (x *exchange) title(b *Broker) string {
	return "exchange '" + x.name + "' in vhost '" + b.opt.Vhost + "'"
}

func (b *Broker) exchange(name string) (*exchange, *Error) {
	if x := b.exchanges[name]; x != nil {
		return x, nil
	}
	return nil, Fail(NotFound, "no exchange '%s' in vhost '%s'", b.latin1(name), b.opt.Vhost)
}

// ExchangeSpec is what an exchange is declared as.
type ExchangeSpec struct {
	Name, Kind                    string
	Durable, AutoDelete, Internal bool
	Arguments                     amqp.Table
}

// CheckExchange is a passive declaration.
func (b *Broker) CheckExchange(named string) *Error {
	if named == "" {
		return Fail(AccessRefused, "operation not permitted on the default exchange")
	}
	_, err := b.exchange(name(named))
	return err
}

var withoutLineEnds = strings.NewReplacer("\r", "", "\n", "")

// name returns a name as the broker takes it from a client that declares, looks or deletes.
func name(s string) string { return withoutLineEnds.Replace(s) }

// DeclareExchange declares.
func (b *Broker) DeclareExchange(s ExchangeSpec) *Error {
	s.Name = name(s.Name)
	if s.Kind == "x-local-random" && b.atLeast(4, 0) {
		return Fail(NotImplemented, "rehoptest has no exchanges of type %s", s.Kind)
	}
	if !slices.Contains([]string{"direct", "fanout", "topic", "headers"}, s.Kind) {
		code := uint16(CommandInvalid)
		if b.atLeast(4, 0) {
			code = PreconditionFailed
		}
		if s.Kind == "" {
			return Fail(code, "invalid exchange type ''")
		}
		return Fail(code, "unknown exchange type '%s'", s.Kind)
	}
	if s.Name == "" {
		return Fail(AccessRefused, "operation not permitted on the default exchange")
	}
	if x := b.exchanges[s.Name]; x != nil {
		return b.equivalentExchange(x, s)
	}
	if strings.HasPrefix(s.Name, "amq.") {
		return Fail(AccessRefused, "exchange name '%s' contains reserved prefix 'amq.*'", s.Name)
	}
	alternate := ""
	if v, ok := s.Arguments["alternate-exchange"]; ok {
		if alternate, ok = v.(string); !ok {
			return Fail(PreconditionFailed, "invalid type '%s' for arg 'alternate-exchange' in exchange '%s' in vhost '%s'", typeName(v), s.Name, b.opt.Vhost)
		}
	}
	b.exchanges[s.Name] = &exchange{
		name: s.Name, kind: s.Kind, durable: s.Durable, autoDelete: s.AutoDelete,
		internal: s.Internal, args: maps.Clone(s.Arguments), alternate: alternate,
	}
	return nil
}

// DeleteExchange deletes; that there is none is fine.
func (b *Broker) DeleteExchange(named string, ifUnused bool) *Error {
	name := name(named)
	if name == "" {
		return Fail(AccessRefused, "operation not permitted on the default exchange")
	}
	if strings.HasPrefix(name, "amq.") {
		return Fail(AccessRefused, "deletion of system exchange '%s' in vhost '%s' not allowed", name, b.opt.Vhost)
	}
	x := b.exchanges[name]
	if x == nil {
		return nil
	}
	if ifUnused && len(x.bindings) > 0 {
		return Fail(PreconditionFailed, "%s in use", x.title(b))
	}
	b.dropExchange(x)
	return nil
}

func (b *Broker) dropExchange(x *exchange) {
	delete(b.exchanges, x.name)
	bindings := x.bindings
	x.bindings = nil
	for _, to := range bindings {
		b.unlinked(to)
	}
	for _, from := range b.exchanges {
		b.unbindAll(from, func(to *binding) bool { return to.exchange == x })
	}
}

// unlinked is called after a binding was removed from its source.
func (b *Broker) unlinked(to *binding) {
	if to.exchange != nil {
		to.exchange.incoming--
	}
}

// unbindAll removes bindings of an exchange, which may be its end.
func (b *Broker) unbindAll(x *exchange, which func(*binding) bool) {
	before := len(x.bindings)
	x.bindings = slices.DeleteFunc(x.bindings, func(to *binding) bool {
		gone := which(to)
		if gone {
			b.unlinked(to)
		}
		return gone
	})
	if len(x.bindings) < before && len(x.bindings) == 0 && x.autoDelete && b.exchanges[x.name] == x {
		b.dropExchange(x)
	}
}

// BindSpec is what is bound, or unbound.
type BindSpec struct {
	Source, Destination, Key string
	ToExchange               bool
	Arguments                amqp.Table
}

// Bind binds a queue or an exchange to an exchange.
func (c *Channel) Bind(s BindSpec) *Error {
	x, to, err := c.binding(s)
	if err != nil {
		return err
	}
	switch x.kind {
	case "headers":
		err = checkMatch(s.Arguments)
	case "topic":
		to.words = topicWords(to.key)
		err = c.b.checkHashes(to.words, to.key)
	}
	if err != nil {
		return err
	}
	for _, old := range x.bindings {
		if old.same(to) {
			return nil
		}
	}
	to.args = maps.Clone(s.Arguments)
	x.bindings = append(x.bindings, to)
	if to.exchange != nil {
		to.exchange.incoming++
	}
	return nil
}

// Unbind removes a binding; that there is none is fine.
func (c *Channel) Unbind(s BindSpec) *Error {
	x, to, err := c.binding(s)
	if err != nil {
		if err.Code == NotFound {
			return nil
		}
		return err
	}
	c.b.unbindAll(x, to.same)
	return nil
}

func (c *Channel) binding(s BindSpec) (*exchange, *binding, *Error) {
	s.Source, s.Destination = name(s.Source), name(s.Destination)
	to := &binding{key: s.Key, args: s.Arguments}
	if s.Source == "" || s.ToExchange && s.Destination == "" {
		return nil, nil, Fail(AccessRefused, "operation not permitted on the default exchange")
	}
	x, err := c.b.exchange(s.Source)
	if err != nil {
		return nil, nil, err
	}
	if s.ToExchange {
		if to.exchange, err = c.b.exchange(s.Destination); err != nil {
			return nil, nil, err
		}
	} else if to.queue, err = c.queue(s.Destination); err != nil {
		return nil, nil, err
	}
	return x, to, nil
}

func (a *binding) same(o *binding) bool {
	return a.queue == o.queue && a.exchange == o.exchange && a.key == o.key && term(a.args) == term(o.args)
}
