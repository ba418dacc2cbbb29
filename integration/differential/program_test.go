package differential

import (
	"fmt"
	"math/rand/v2"
	"slices"

	amqp "github.com/rabbitmq/amqp091-go"
)

// short and long are the times to live in programs, in milliseconds: one that
// passes after every operation, and one that never does.
const (
	short = 30
	long  = 600_000
)

// program is a list of operations on objects of its own.
type program struct {
	seed      uint64
	version   string
	kind      string // of most queues
	queues    []string
	exchanges []string
	ops       []op
}

// maker makes programs.
type maker struct {
	*rand.Rand
	version   string
	kind      string
	prefix    string
	queues    []string
	exchanges []string
	consumers int
	bodies    int
	ops       []op
}

// newProgram makes the program of a seed, with n operations beside those that
// declare.
func newProgram(seed uint64, version, kind, prefix string, n int) program {
	m := &maker{Rand: rand.New(rand.NewPCG(seed, 1)), version: version, kind: kind, prefix: prefix}
	for i := range 1 + m.IntN(4) {
		m.queues = append(m.queues, fmt.Sprintf("%sq%d", prefix, i))
	}
	for i := range m.IntN(4) {
		m.exchanges = append(m.exchanges, fmt.Sprintf("%sx%d", prefix, i))
	}
	for _, x := range m.exchanges {
		m.declareExchange(x)
	}
	for _, q := range m.queues {
		m.add(op{do: "queue", queue: q, args: m.arguments()})
	}
	for range 2 * len(m.exchanges) {
		m.bind()
	}
	for range n {
		m.next()
	}
	return program{seed, version, kind, m.queues, append(m.exchanges, prefix+"new"), m.ops}
}

func (m *maker) add(o op) { m.ops = append(m.ops, o) }

func (m *maker) chance(percent int) bool { return m.IntN(100) < percent }

func pick[T any](m *maker, list ...T) T { return list[m.IntN(len(list))] }

func (m *maker) queue() string { return pick(m, m.queues...) }

func (m *maker) exchange() string {
	if len(m.exchanges) == 0 || m.chance(20) {
		return ""
	}
	return pick(m, m.exchanges...)
}

func (m *maker) key() string {
	if m.chance(60) {
		return m.queue()
	}
	return pick(m, "a", "b", "a.b", "a.b.c", "b.c", "")
}

func (m *maker) declareExchange(x string) {
	o := op{do: "exchange", exchange: x, kind: pick(m, "direct", "fanout", "topic", "headers"), args: amqp.Table{}}
	if m.chance(30) {
		o.args["alternate-exchange"] = m.exchange()
	}
	m.add(o)
}

func (m *maker) bind() {
	o := op{do: pick(m, "bind", "bind", "bind", "bindexchange"), exchange: m.exchange(), queue: m.queue(), args: amqp.Table{}}
	if o.do == "bindexchange" {
		o.queue = m.exchange()
	}
	o.key = pick(m, "#", "a.*", "*.b", "a.#", "#.c", "a", "b", m.queue())
	if m.chance(50) {
		o.args["x-match"] = pick(m, "all", "any", "all-with-x", "any-with-x")
	}
	if m.chance(50) {
		o.args[pick(m, "color", "size")] = pick[any](m, "red", int32(3), nil, true)
	}
	if m.chance(20) && m.version != "3.10" {
		o.args["x-last-death-reason"] = pick(m, "rejected", "expired")
	}
	if m.chance(20) {
		o.do = map[string]string{"bind": "unbind", "bindexchange": "unbindexchange"}[o.do]
	}
	m.add(o)
}

// arguments returns those of a queue, a few of them wrong.
func (m *maker) arguments() amqp.Table {
	kind := m.kind
	if m.chance(25) {
		kind = pick(m, "classic", "quorum")
	}
	quorum := kind == "quorum"
	a := amqp.Table{"x-queue-type": kind}
	if m.chance(35) {
		a["x-message-ttl"] = pick[any](m, int64(short), int64(short), int64(long), int32(long))
	}
	if m.chance(70) {
		a["x-dead-letter-exchange"] = m.exchange()
		if m.chance(5) {
			a["x-dead-letter-exchange"] = m.prefix + "missing"
		}
		if m.chance(50) {
			a["x-dead-letter-routing-key"] = m.key()
		}
	}
	if m.chance(25) {
		a[pick(m, "x-max-length", "x-max-length", "x-max-length-bytes")] = int64(m.IntN(4))
	}
	if m.chance(30) {
		a["x-overflow"] = pick(m, "drop-head", "reject-publish", "reject-publish-dlx")
	}
	if m.chance(10) {
		a["x-single-active-consumer"] = true
	}
	if quorum {
		if m.chance(50) {
			a["x-delivery-limit"] = int64(m.IntN(4))
			if m.chance(20) && m.version == "4.3" { // on 4.0: a known difference
				a["x-delivery-limit"] = int64(-1)
			}
		}
		if m.chance(30) {
			a["x-dead-letter-strategy"] = pick(m, "at-most-once", "at-least-once", "at-least-once")
			if m.chance(70) {
				a["x-overflow"] = "reject-publish"
			}
		}
	} else if m.chance(20) {
		a["x-max-priority"] = int64(1 + m.IntN(4))
	}
	if m.chance(4) { // wrong in one way
		name := pick(m, "x-message-ttl", "x-expires", "x-max-length", "x-overflow", "x-dead-letter-exchange", "x-max-priority",
			"x-delivery-limit", "x-dead-letter-strategy", "x-single-active-consumer", "x-queue-type", "x-foo", "x-queue-version")
		a[name] = pick[any](m, int64(-1), "nonsense", int64(1<<50), true, int64(0))
		if name == "x-expires" { // only values that are refused: looking would renew it
			a[name] = pick[any](m, int64(-1), int64(0), "nonsense", int64(1<<50))
		}
	}
	return a
}

// singleActive tells whether a queue may have one active consumer only.
func (m *maker) singleActive(queue string) bool {
	return slices.ContainsFunc(m.ops, func(o op) bool { return o.queue == queue && o.args["x-single-active-consumer"] == true })
}

func (m *maker) next() {
	switch n := m.IntN(100); {
	case n < 32:
		m.publish()
	case n < 48:
		m.add(op{do: "get", queue: m.queue(), flag: m.chance(15)})
	case n < 74:
		m.add(op{do: pick(m, "ack", "nack", "nack", "reject"), n: m.IntN(100), flag: m.chance(60), multiple: m.chance(20)})
	case n < 80:
		if m.consumers++; m.consumers > 3 {
			return
		}
		o := op{do: "consume", queue: m.queue(), key: fmt.Sprintf("c%d", m.consumers), flag: m.chance(15), n: m.IntN(4), args: amqp.Table{}}
		if m.chance(20) {
			o.args["x-priority"] = int32(m.IntN(3) - 1)
		}
		if m.version == "4.0" && m.singleActive(o.queue) { // a known difference
			o.args = amqp.Table{}
		}
		m.add(o)
	case n < 83:
		m.add(op{do: "cancel", key: fmt.Sprintf("c%d", 1+m.IntN(3))})
	case n < 84:
		m.add(op{do: "purge", queue: m.queue()})
	case n < 85:
		m.add(op{do: "delete", queue: m.queue(), kind: pick(m, "", "", "", "unused", "empty")})
	case n < 88:
		m.add(op{do: "queue", queue: m.queue(), args: m.arguments()})
	case n < 91:
		m.bind()
	case n < 93:
		m.add(op{do: "recover"})
	case n < 96:
		m.add(op{do: "reopen", flag: m.chance(40)})
	case n < 97 && len(m.exchanges) > 0:
		x := m.exchange()
		if m.chance(50) {
			m.declareExchange(x)
		} else {
			m.add(op{do: "deleteexchange", exchange: x, flag: m.chance(50)})
		}
	case n < 98:
		m.add(op{do: "passive", queue: m.queue()})
	default:
		m.wrong()
	}
}

func (m *maker) publish() {
	m.bodies++
	o := op{do: "publish", exchange: m.exchange(), key: m.key(), flag: m.chance(50)}
	o.message = amqp.Publishing{Body: fmt.Appendf(nil, "m%d", m.bodies), Headers: amqp.Table{}, DeliveryMode: 2}
	if m.chance(30) {
		o.message.Priority = uint8(1 + m.IntN(9))
	}
	if m.chance(12) {
		o.message.Expiration = pick(m, "0", fmt.Sprint(short), fmt.Sprint(long))
	}
	h := o.message.Headers
	if m.chance(15) {
		h["color"] = pick[any](m, "red", "blue", int32(3), true)
	}
	if m.chance(15) {
		h["size"] = pick[any](m, int64(3), int32(3), "red", nil)
	}
	if m.chance(8) {
		h["CC"] = []any{m.key(), m.key()}
	}
	if m.chance(6) {
		h["BCC"] = []any{m.key()}
	}
	if m.chance(5) {
		h["x-delivery-count"] = int64(7)
	}
	if m.chance(5) {
		h["x-death"] = pick[any](m, "junk", []any{
			amqp.Table{"count": int64(2), "queue": m.queue(), "reason": pick(m, "rejected", "expired"), "exchange": "", "routing-keys": []any{"k"}},
			amqp.Table{"count": int64(1), "queue": m.queue(), "reason": pick(m, "rejected", "expired"), "exchange": "", "routing-keys": []any{"k"}},
		})
	}
	m.add(o)
}

// wrong adds an operation that ends its channel, or the connection.
func (m *maker) wrong() {
	o := op{do: "publish", exchange: "", key: m.queue(), message: amqp.Publishing{Body: []byte("wrong"), DeliveryMode: 2}}
	switch m.IntN(12) {
	case 0:
		o.exchange = m.prefix + "missing"
	case 1:
		o.message.Expiration = pick(m, "abc", "-1", "1.5", "99999999999999", "", "+5", " 5")
	case 2:
		o.message.UserId = "somebody"
	case 3:
		o.message.Headers = amqp.Table{"CC": pick[any](m, "text", int32(3), []any{int32(3)}, amqp.Table{})}
	case 4:
		o = op{do: "get", queue: m.prefix + "missing"}
	case 5:
		o = op{do: "badtag", multiple: m.chance(50)}
	case 6:
		o = op{do: "passive", queue: m.prefix + "missing"}
	case 7:
		o = op{do: "bind", queue: m.queue(), exchange: m.prefix + "missing", args: amqp.Table{}}
	case 8:
		o = op{do: "queue", queue: "amq.reserved", args: amqp.Table{}}
	case 9:
		o = op{do: "exchange", exchange: pick(m, "amq.reserved", ""), kind: "direct", args: amqp.Table{}}
	case 10:
		o = op{do: "exchange", exchange: m.prefix + "new", kind: "nonsense", args: amqp.Table{}}
	case 11:
		o = op{do: "bind", queue: m.queue(), exchange: "amq.headers", args: amqp.Table{"x-match": pick[any](m, "nonsense", int32(1))}}
	}
	m.add(o)
}
