package differential

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

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
		m.add(op{do: "queue", queue: q, args: m.arguments(), flags: m.queueFlags()})
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
	return pick(m, "a", "b", "a.b", "a.b.c", "b.c", "", "", ".", "a.", ".b", "a..b")
}

func (m *maker) declareExchange(x string) {
	o := op{do: "exchange", exchange: x, kind: pick(m, "direct", "fanout", "topic", "headers"), args: amqp.Table{}}
	if m.chance(30) {
		o.args["alternate-exchange"] = m.exchange()
	}
	if m.chance(12) {
		o.flags = pick(m, "auto-delete", "internal", "transient")
	}
	m.add(o)
}

func (m *maker) queueFlags() string {
	if m.chance(88) {
		return ""
	}
	return pick(m, "exclusive", "exclusive auto-delete", "auto-delete", "transient", "transient auto-delete")
}

func (m *maker) bind() {
	o := op{do: pick(m, "bind", "bind", "bind", "bindexchange"), exchange: m.exchange(), queue: m.queue(), args: amqp.Table{}}
	if o.do == "bindexchange" {
		o.queue = m.exchange()
	}
	o.key = pick(m, "#", "a.*", "*.b", "a.#", "#.c", "a", "b", m.queue(), "", "*", "*.*", "#.*", "*.#", ".#", "a.", "#.a.#", "a.*.b")
	if m.chance(50) {
		o.args["x-match"] = pick(m, "all", "any", "all-with-x", "any-with-x")
	}
	if m.chance(50) {
		o.args[pick(m, "color", "size")] = m.value()
	}
	if m.chance(20) && m.version != "3.10" {
		o.args["x-last-death-reason"] = pick(m, "rejected", "expired")
	}
	if m.chance(20) {
		o.do = map[string]string{"bind": "unbind", "bindexchange": "unbindexchange"}[o.do]
	}
	m.add(o)
}

// value returns one of a header, of any type, that others may equal.
func (m *maker) value() any {
	n := m.IntN(3)
	one := func() any {
		return pick[any](m, int8(n), byte(n), int16(n), int32(n), int64(n), float32(n), float64(n), float64(n)/2, fmt.Sprint(n), []byte(fmt.Sprint(n)),
			amqp.Decimal{Scale: 1, Value: int32(n)}, time.Unix(int64(n), 0), n == 1, "red", "", nil)
	}
	switch {
	case m.chance(15):
		return []any{one()}
	case m.chance(10):
		return amqp.Table{"a": one()}
	case m.chance(8):
		return pick[any](m, []any{}, amqp.Table{}, []any{one(), one()}, int64(1000*n))
	}
	return one()
}

// arguments returns those of a queue, a few of them wrong.
func (m *maker) arguments() amqp.Table {
	kind := m.kind
	if m.chance(25) {
		kind = pick(m, "classic", "quorum")
	}
	quorum := kind == "quorum"
	a := amqp.Table{"x-queue-type": kind}
	if !quorum && m.chance(20) {
		delete(a, "x-queue-type")
	}
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
			if m.chance(10) {
				a["x-delivery-limit"] = pick[any](m, float32(2), 1.5, int8(1), "2", time.Unix(1, 0))
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
		a[name] = pick[any](m, int64(-1), "nonsense", int64(1<<50), true, int64(0), 1.5, float32(2), []byte("drop-head"), nil, []any{"a"}, amqp.Table{"a": int32(1)})
		if name == "x-expires" { // only values that are refused: looking would renew it
			a[name] = pick[any](m, int64(-1), int64(0), "nonsense", int64(1<<50))
		}
	}
	return a
}

// deleted tells whether a queue may have been deleted.
func (m *maker) deleted(queue string) bool {
	return slices.ContainsFunc(m.ops, func(o op) bool {
		return o.queue == queue && (o.do == "delete" || o.is("auto-delete") || o.is("exclusive")) || o.do == "delete" && o.queue == ""
	})
}

// declared returns the arguments with which a queue was declared first.
func (m *maker) declared(queue string) amqp.Table {
	i := slices.IndexFunc(m.ops, func(o op) bool { return o.do == "queue" && o.queue == queue })
	return m.ops[i].args
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
		if m.chance(5) {
			o.flags = "exclusive"
		}
		if m.version != "3.10" && m.singleActive(o.queue) { // a known difference
			o.args = amqp.Table{}
		}
		m.add(o)
	case n < 83:
		m.add(op{do: "cancel", key: fmt.Sprintf("c%d", 1+m.IntN(max(1, min(3, m.consumers))))})
	case n < 84:
		m.add(op{do: "purge", queue: m.queue()})
	case n < 85:
		m.add(op{do: "delete", queue: m.queue(), kind: pick(m, "", "", "", "unused", "empty")})
	case n < 88:
		o := op{do: "queue", queue: m.queue(), args: m.arguments(), flags: m.queueFlags()}
		if m.deleted(o.queue) { // a known difference
			o.args = m.declared(o.queue)
		}
		m.add(o)
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
		switch m.IntN(3) {
		case 0:
			m.add(op{do: "passive", queue: m.queue()})
		case 1:
			m.add(op{do: "passiveexchange", exchange: m.exchange(), kind: "direct"})
		case 2:
			m.add(op{do: "qos", n: m.IntN(4), flag: m.chance(50)})
		}
	default:
		m.wrong()
	}
}

func (m *maker) publish() {
	m.bodies++
	o := op{do: "publish", exchange: m.exchange(), key: m.key(), flag: m.chance(50)}
	if m.chance(10) {
		o.do, o.n = "publishes", 2+m.IntN(3)
	}
	o.message = amqp.Publishing{Body: fmt.Appendf(nil, "m%d", m.bodies), Headers: amqp.Table{}, DeliveryMode: 2, MessageId: fmt.Sprint(m.bodies)}
	if m.chance(30) {
		o.message.Priority = uint8(1 + m.IntN(9))
	}
	if m.chance(8) {
		o.message.DeliveryMode = 1
	}
	if m.chance(8) {
		o.message.ContentType, o.message.ContentEncoding, o.message.CorrelationId, o.message.ReplyTo = "text/plain", "gzip", "a question", "an answer"
		o.message.Type, o.message.AppId, o.message.UserId, o.message.Timestamp = "order", "shop", "guest", time.Unix(int64(m.IntN(3))*1_000_000_000, 0)
	}
	if m.chance(12) {
		o.message.Expiration = pick(m, "0", fmt.Sprint(short), fmt.Sprint(long))
	}
	h := o.message.Headers
	if m.chance(15) {
		h["color"] = m.value()
	}
	if m.chance(15) {
		h["size"] = m.value()
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
	switch m.IntN(18) {
	case 17: // the empty name is that of the queue that was declared last
		o = pick(m, op{do: "passive"}, op{do: "get"}, op{do: "bind", exchange: "amq.topic", key: pick(m, "", "a"), args: amqp.Table{}}, op{do: "purge"}, op{do: "delete"})
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
		o = op{do: "badtag", kind: pick(m, "", "all", "all", "again"), multiple: m.chance(50), flag: m.chance(50)}
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
		o = op{do: "bind", queue: m.queue(), exchange: "amq.headers", args: amqp.Table{"x-match": pick[any](m, "nonsense", int32(1), "", m.value())}}
		if s, ok := o.args["x-match"].(string); ok && slices.Contains([]string{"all", "any"}, s) {
			o.args["x-match"] = "none"
		}
	case 12:
		o = op{do: "deleteexchange", exchange: pick(m, "amq.topic", "amq.headers", "amq.match", "amq.rabbitmq.trace", "amq.none", ""), flag: m.chance(50)}
	case 13: // a name that is no text
		o = pick(m, op{do: "passive", queue: "\xffq"}, op{do: "get", queue: "\xffq"}, op{do: "bind", queue: m.queue(), exchange: "amq.topic", key: "\xff", args: amqp.Table{}},
			op{do: "deleteexchange", exchange: "\xffx"}, op{do: "delete", queue: "\xffq"}, op{do: "purge", queue: "\xff"})
	case 14: // where any bytes will do, or are shown
		o.exchange, o.key = pick(m, "\xffx", ""), pick(m, "\xffkey", m.queue())
		o.message.UserId = pick(m, "", "\xffuser")
		o.message.Headers = amqp.Table{"\xff": "\xff"}
	case 15:
		o.message.DeliveryMode = pick[uint8](m, 3, 5, 255)
	case 16: // a line's end is left out of names
		o = pick(m, op{do: "passive", queue: m.queue() + "\n"}, op{do: "purge", queue: "\r" + m.queue()}, op{do: "get", queue: m.queue() + "\n"},
			op{do: "delete", queue: m.queue() + "\n"}, op{do: "bind", queue: m.queue() + "\r", exchange: "amq.topic", args: amqp.Table{}},
			op{do: "deleteexchange", exchange: m.prefix + "x0\n"}, op{do: "exchange", exchange: m.prefix + "x0\n", kind: "direct", args: amqp.Table{}})
	}
	m.add(o)
}
