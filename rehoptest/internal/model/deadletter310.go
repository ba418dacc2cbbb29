package model

import (
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/rehoptest/internal/wire"
)

// Until 3.12 the history of a message is its x-death header, whoever wrote it.

func letter310(p wire.Properties, d death, ownKey bool) wire.Properties {
	return withHeaders(p, func(h amqp.Table) {
		old, there := h["x-death"]
		list, isList := old.([]any)
		switch {
		case !there:
			h["x-first-death-reason"], h["x-first-death-queue"], h["x-first-death-exchange"] = d.reason, d.queue, d.exchange
			h["x-death"] = []any{d.table()}
		case !isList:
			h["x-death"] = []any{d.table()}
		default:
			h["x-death"] = record310(list, d)
		}
		if ownKey {
			delete(h, "CC")
		}
	})
}

// record310 groups what is there by queue and reason, which turns its order
// round, and puts the newest first.
func record310(list []any, d death) []any {
	type pair struct{ queue, reason any }
	of := func(t amqp.Table) pair { return pair{text(t["queue"]), text(t["reason"])} }
	var grouped []amqp.Table
	seen := map[pair]bool{}
	for _, v := range list {
		t, ok := v.(amqp.Table)
		if !ok || seen[of(t)] {
			continue
		}
		seen[of(t)] = true
		n := int64(0)
		for _, w := range list {
			if w, ok := w.(amqp.Table); ok && of(w) == of(t) {
				n++
			}
		}
		if _, ok := t["count"]; !ok {
			t = cloneTable(t)
			t["count"] = n
		}
		grouped = append([]amqp.Table{t}, grouped...)
	}
	newest := d.table()
	var others []any
	for _, t := range grouped {
		if of(t) != (pair{d.queue, d.reason}) {
			others = append(others, t)
			continue
		}
		newest = cloneTable(t)
		n, _ := integer(t["count"])
		newest["count"] = n + 1
	}
	return append([]any{newest}, others...)
}

func cycle310(m *Message, queue string) bool {
	list, _ := m.Properties.Headers["x-death"].([]any)
	for _, v := range list {
		t, ok := v.(amqp.Table)
		if !ok || t["reason"] == "rejected" {
			return false
		}
		if t["queue"] == queue {
			return true
		}
	}
	return false
}

// text keeps what may be a key of a map.
func text(v any) any {
	s, _ := v.(string)
	return s
}

func cloneTable(t amqp.Table) amqp.Table {
	c := make(amqp.Table, len(t))
	for k, v := range t {
		c[k] = v
	}
	return c
}
