package model

import (
	amqp "github.com/rabbitmq/amqp091-go"
)

func inequivalent(arg, title, got, current string) *Error {
	return Fail(PreconditionFailed, "inequivalent arg '%s' for %s: received %s but current is %s", arg, title, got, current)
}

func boolText(v bool) string {
	if v {
		return "'true'"
	}
	return "'false'"
}

func (b *Broker) equivalentExchange(x *exchange, s ExchangeSpec) *Error {
	title := x.title(b)
	if x.kind != s.Kind {
		return inequivalent("type", title, "'"+s.Kind+"'", "'"+x.kind+"'")
	}
	for _, f := range []struct {
		name     string
		got, was bool
	}{
		{"durable", s.Durable, x.durable},
		{"auto_delete", s.AutoDelete, x.autoDelete},
		{"internal", s.Internal, x.internal},
	} {
		if f.got != f.was {
			return inequivalent(f.name, title, boolText(f.got), boolText(f.was))
		}
	}
	return equivalentArgs(title, []string{"alternate-exchange"}, s.Arguments, x.args)
}

func equivalentArgs(title string, known []string, got, was amqp.Table) *Error {
	for _, name := range known {
		v, there := got[name]
		w, before := was[name]
		switch {
		case there && before && term(v) != term(w):
			return inequivalent(name, title, quoted(v), quoted(w))
		case there != before:
			return inequivalent(name, title, shown(v, there), shown(w, before))
		}
	}
	return nil
}
