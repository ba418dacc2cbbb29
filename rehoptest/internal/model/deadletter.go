package model

import (
	"slices"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/rehoptest/internal/wire"
)

// death is one line of a message's history, since 4.0.
type death struct {
	queue, reason, exchange string
	keys                    []string
	expiration              string
	count                   int64
	at                      time.Time
}

// letter is a message between its queue and its dead-letter exchange.
type letter struct {
	q      *Queue
	e      *entry
	reason string
}

// deadLetter sends a message that has left the queue to where its dead letters
// go; at-least-once, it stays here until it has arrived.
func (q *Queue) deadLetter(e *entry, reason string) {
	if !q.args.hasDLX {
		e.step(q.b, stepDropped, q.name, reason)
		return
	}
	if q.discards != nil && reason != "maxlen" {
		q.discards.add(e, reason)
		return
	}
	q.b.letters = append(q.b.letters, letter{q, e, reason})
}

// move publishes a dead letter at-most-once: who does not take it, has lost it.
func (b *Broker) move(l letter) {
	m, queues := b.redirect(l.q, l.e, l.reason)
	for _, q := range queues {
		q.offer(m, &receipt{waiting: 1}, nil)
	}
}

// redirect returns what a dead letter becomes, and the queues it goes to.
func (b *Broker) redirect(q *Queue, e *entry, reason string) (*Message, []*Queue) {
	x := b.exchanges[q.args.dlx]
	if x == nil {
		e.step(b, stepNoExchange, q.args.dlx, reason)
		return nil, nil
	}
	if e.endless(b.now) {
		e.step(b, stepEndless, q.name, reason)
		return nil, nil
	}
	m := b.letter(q, e, reason)
	queues := b.route(x, m.Keys, m.Properties.Headers)
	kept := slices.DeleteFunc(queues, func(to *Queue) bool {
		cycle := reason != "rejected" && m.cycle(b, to.name)
		if cycle {
			e.step(b, stepCycle, to.name, reason)
		}
		return cycle
	})
	switch {
	case len(queues) == 0:
		e.step(b, stepNoRoute, q.args.dlx, reason)
	case len(kept) > 0:
		e.step(b, stepDead, q.name, reason)
	}
	return m, kept
}

// endless counts a dead letter, and tells whether there were too many of them.
func (m *Message) endless(now time.Time) bool {
	if m.round == nil {
		m.round = &round{}
	}
	if !m.round.at.Equal(now) {
		*m.round = round{at: now}
	}
	m.round.n++
	return m.round.n > maxRound
}

// cycle tells whether the way back to a queue knows no rejection.
func (m *Message) cycle(b *Broker, queue string) bool {
	if !b.atLeast(4, 0) {
		return cycle310(m, queue)
	}
	for _, d := range m.deaths {
		if d.reason == "rejected" {
			return false
		}
		if d.queue == queue {
			return true
		}
	}
	return false
}

// letter returns a message as its dead-lettering leaves it.
func (b *Broker) letter(q *Queue, e *entry, reason string) *Message {
	m := &Message{Exchange: q.args.dlx, Keys: e.Keys, Properties: e.Properties, Body: e.Body, steps: e.steps, round: e.round, encoded: e.encoded}
	if q.args.hasDLK {
		m.Keys = []string{q.args.dlk}
	}
	d := death{queue: q.name, reason: reason, exchange: e.Exchange, keys: e.shownKeys(b), count: 1, at: b.now.Truncate(time.Second)}
	if e.Properties.Has(wire.FlagExpiration) {
		d.expiration = e.Properties.Expiration
		m.Properties.Flags &^= wire.FlagExpiration
		m.Properties.Expiration = ""
	}
	if !b.atLeast(4, 0) {
		m.Properties = letter310(m.Properties, d, q.args.hasDLK)
		return m
	}
	m.failures = e.failures
	m.bcc = e.bcc
	m.deaths = record(e.deaths, d)
	first := e.deaths
	m.Properties = withHeaders(m.Properties, func(h amqp.Table) {
		list := make([]any, len(m.deaths))
		for i, d := range m.deaths {
			list[i] = d.table()
		}
		h["x-death"] = list
		if len(first) == 0 {
			h["x-first-death-queue"], h["x-first-death-reason"], h["x-first-death-exchange"] = d.queue, d.reason, d.exchange
		}
		h["x-last-death-queue"], h["x-last-death-reason"], h["x-last-death-exchange"] = d.queue, d.reason, d.exchange
	})
	return m
}

// shownKeys are the keys that histories show: without those of BCC. Since 4.0
// these are taken off the list one by one, wherever they stand.
func (m *Message) shownKeys(b *Broker) []string {
	if b.atLeast(4, 0) {
		keys := slices.Clone(m.Keys)
		for _, gone := range m.bcc {
			if i := slices.Index(keys, gone); i >= 0 {
				keys = slices.Delete(keys, i, i+1)
			}
		}
		return keys
	}
	cc, _ := headerRoutes(m.Properties.Headers, "CC")
	return append([]string{m.Keys[0]}, cc...)
}

// record adds a death to a history: a repeated one moves to the front.
func record(deaths []death, d death) []death {
	i := slices.IndexFunc(deaths, func(o death) bool { return o.queue == d.queue && o.reason == d.reason })
	if i < 0 {
		return append([]death{d}, deaths...)
	}
	again := deaths[i]
	again.count++
	list := append([]death{again}, deaths[:i]...)
	return append(list, deaths[i+1:]...)
}

func (d death) table() amqp.Table {
	t := amqp.Table{
		"count": d.count, "reason": d.reason, "queue": d.queue, "time": d.at,
		"exchange": d.exchange, "routing-keys": anyKeys(d.keys),
	}
	if d.expiration != "" {
		t["original-expiration"] = d.expiration
	}
	return t
}
