package differential

import (
	"fmt"
	"sort"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// op is one operation of a program.
type op struct {
	do       string
	queue    string
	exchange string
	key      string
	kind     string // of an exchange
	flag     bool   // what it means depends on do
	multiple bool
	n        int    // which of the deliveries in hand, a prefetch, or how many
	flags    string // of what is declared, and exclusive of a consumer
	args     amqp.Table
	message  amqp.Publishing
}

func (o op) String() string {
	var parts []string
	add := func(name string, v any) { parts = append(parts, fmt.Sprintf("%s=%v", name, v)) }
	if o.queue != "" {
		add("queue", o.queue)
	}
	if o.exchange != "" || o.do == "publish" || o.do == "publishes" {
		add("exchange", "'"+o.exchange+"'")
	}
	if o.key != "" {
		add("key", o.key)
	}
	if o.kind != "" {
		add("kind", o.kind)
	}
	switch o.do {
	case "nack", "reject":
		add("requeue", o.flag)
	case "get", "consume":
		add("autoAck", o.flag)
	case "publish", "publishes":
		add("mandatory", o.flag)
	case "qos":
		add("global", o.flag)
	}
	if o.multiple {
		add("multiple", true)
	}
	if o.n != 0 {
		add("n", o.n)
	}
	if o.flags != "" {
		add("flags", o.flags)
	}
	if len(o.args) > 0 {
		add("args", text(o.args))
	}
	if o.do == "publish" || o.do == "publishes" {
		m := o.message
		add("body", string(m.Body))
		if m.ContentType != "" {
			add("described", true)
		}
		if m.Priority > 0 {
			add("priority", m.Priority)
		}
		if m.Expiration != "" {
			add("expiration", m.Expiration)
		}
		if m.DeliveryMode != 2 {
			add("mode", m.DeliveryMode)
		}
		if m.UserId != "" {
			add("user", m.UserId)
		}
		if len(m.Headers) > 0 {
			add("headers", text(m.Headers))
		}
	}
	return o.do + " " + strings.Join(parts, " ")
}

// text is a value of a table, the same for the same value: times only by their
// type.
func text(v any) string {
	switch v := v.(type) {
	case amqp.Table:
		names := make([]string, 0, len(v))
		for name := range v {
			names = append(names, name)
		}
		sort.Strings(names)
		parts := make([]string, len(names))
		for i, name := range names {
			parts[i] = name + ":" + text(v[name])
		}
		return "{" + strings.Join(parts, " ") + "}"
	case []any:
		parts := make([]string, len(v))
		for i, e := range v {
			parts[i] = text(e)
		}
		return "[" + strings.Join(parts, " ") + "]"
	case time.Time:
		if v.Unix() > 1_000_000 { // when a message died, and not what a program wrote
			return "time"
		}
		return fmt.Sprintf("time(%d)", v.Unix())
	case string:
		return fmt.Sprintf("%q", v)
	default:
		return fmt.Sprintf("%T(%v)", v, v)
	}
}

// seen is what a client sees of one operation.
type seen struct {
	result    string              // errors, confirms, returns, a message
	delivered map[string][]string // by consumer
	ready     map[string]string   // messages and consumers, by queue
	timed     bool                // time brought something: not compared
	chance    bool                // a matter of chance: the program ends before it
}

// differs returns the first difference, or "".
func (s seen) differs(o seen) string {
	if s.result != o.result {
		return fmt.Sprintf("result:\n    rehoptest: %s\n    RabbitMQ:  %s", s.result, o.result)
	}
	for _, tag := range keys(s.delivered, o.delivered) {
		a, b := strings.Join(s.delivered[tag], "\n      "), strings.Join(o.delivered[tag], "\n      ")
		if a != b {
			return fmt.Sprintf("deliveries to %s:\n    rehoptest:\n      %s\n    RabbitMQ:\n      %s", tag, a, b)
		}
	}
	for _, q := range keys(s.ready, o.ready) {
		if s.ready[q] != o.ready[q] {
			return fmt.Sprintf("queue %s:\n    rehoptest: %s\n    RabbitMQ:  %s", q, s.ready[q], o.ready[q])
		}
	}
	return ""
}

func keys[V any](maps ...map[string]V) []string {
	all := map[string]bool{}
	for _, m := range maps {
		for k := range m {
			all[k] = true
		}
	}
	var names []string
	for k := range all {
		names = append(names, k)
	}
	sort.Strings(names)
	return names
}
