package differential

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// side is a broker with the way to wait until an operation is done.
type side interface {
	// open returns a connection that nobody uses, and release takes it back.
	open() (*link, error)
	release(l *link)
	// settle waits until nothing more happens; expected is nil where the broker
	// knows that by itself.
	settle(r *runner, expected, got *seen)
}

// link is a connection with what outlives a program.
type link struct {
	conn  *amqp.Connection
	lost  chan *amqp.Error
	look  *amqp.Channel // for lengths
	sweep *amqp.Channel // for removing
}

func newLink(conn *amqp.Connection, err error) (*link, error) {
	if err != nil {
		return nil, err
	}
	return &link{conn: conn, lost: conn.NotifyClose(make(chan *amqp.Error, 1))}, nil
}

func (l *link) close() {
	_ = l.conn.CloseDeadline(time.Now().Add(5 * time.Second))
}

// held is a delivery in hand.
type held struct {
	tag  uint64
	name string
}

// runner runs a program against one broker.
type runner struct {
	side      side
	link      *link
	ch        *amqp.Channel // of the program
	closed    chan *amqp.Error
	returns   chan amqp.Return
	streams   map[string]<-chan amqp.Delivery
	auto      map[string]bool
	consumed  map[string]string // queues, by consumer
	shared    bool              // a prefetch of all consumers of the channel
	held      []held
	settled   uint64 // the last tag
	several   bool   // consumers at once: the order of their tags is open
	queues    map[string]bool
	quorum    map[string]bool // queues
	exclusive bool            // a queue is
	short     bool            // a queue has a short time to live
	timed     bool            // the operation may have put a message where it expires soon
	err       error           // of the harness

	single    map[string]bool           // on 3.10: classic queues with a single active consumer
	fills     map[string]bool           // on 3.10: quorum queues with a limit, at-least-once
	idle      bool                      // one of them has messages for a consumer and does not look
	did       string                    // the operation
	published string                    // by the operation
	ids       []string                  // of all that was published
	had       map[string]map[string]int // messages of quorum queues before the operation
}

// run runs a program. With expected, it stops at the first difference, and
// returns its index, or -1.
func run(s side, p program, expected []seen) (all []seen, at int, err error) {
	r := &runner{side: s, queues: map[string]bool{}, quorum: map[string]bool{}, single: map[string]bool{}, fills: map[string]bool{}, had: map[string]map[string]int{}}
	defer r.end()
	for i, o := range p.ops {
		if err := r.open(); err != nil {
			return nil, 0, err
		}
		got := seen{delivered: map[string][]string{}, ready: map[string]string{}}
		r.short = r.short || o.args["x-message-ttl"] == int64(short)
		r.timed = r.short && moves[o.do] || o.message.Expiration == "0" || o.message.Expiration == fmt.Sprint(short)
		if o.args["x-queue-type"] == "quorum" {
			r.quorum[o.queue] = true
		}
		if o.args["x-single-active-consumer"] == true && p.version == "3.10" {
			r.single[o.queue] = true
		}
		if o.args["x-dead-letter-strategy"] == "at-least-once" && p.version == "3.10" && (o.args["x-max-length"] != nil || o.args["x-max-length-bytes"] != nil) {
			r.fills[o.queue] = true
		}
		r.did, r.published = o.do, string(o.message.Body)
		if o.do == "publish" || o.do == "publishes" {
			r.ids = append(r.ids, o.message.MessageId)
		}
		got.result = r.do(o)
		var want *seen
		if expected != nil {
			want = &expected[i]
		}
		s.settle(r, want, &got)
		if r.err != nil {
			return nil, 0, fmt.Errorf("%s: %w", o, r.err)
		}
		if got.chance {
			return all, -1, nil
		}
		all = append(all, got)
		if want != nil && want.differs(got) != "" {
			return all, i, nil
		}
	}
	return all, -1, nil
}

// moves are the operations that may put a message where it expires soon.
var moves = map[string]bool{
	"publish": true, "publishes": true, "get": true, "consume": true, "nack": true, "reject": true, "recover": true, "reopen": true, "badtag": true,
}

// open makes what is closed.
func (r *runner) open() (err error) {
	if r.link == nil {
		if r.link, err = r.side.open(); err != nil {
			return err
		}
	}
	if r.link.look == nil {
		if r.link.look, err = r.link.conn.Channel(); err != nil {
			return err
		}
	}
	if r.ch != nil {
		return nil
	}
	if r.ch, err = r.link.conn.Channel(); err != nil {
		return err
	}
	r.closed = r.ch.NotifyClose(make(chan *amqp.Error, 1))
	r.returns = r.ch.NotifyReturn(make(chan amqp.Return, 100))
	r.streams, r.auto, r.held, r.settled, r.several = map[string]<-chan amqp.Delivery{}, map[string]bool{}, nil, 0, false
	r.consumed, r.shared = map[string]string{}, false
	return r.ch.Confirm(false)
}

// end leaves the connection to the next program.
func (r *runner) end() {
	if r.ch != nil {
		_ = r.ch.Close()
	}
	switch {
	case r.link == nil:
	case r.exclusive: // it goes with its connection
		r.link.close()
	default:
		r.side.release(r.link)
	}
}

// do does one operation and returns what came of it.
func (r *runner) do(o op) string {
	ch := r.ch
	var result string
	var err error
	switch o.do {
	case "exchange":
		err = ch.ExchangeDeclare(o.exchange, o.kind, !o.is("transient"), o.is("auto-delete"), o.is("internal"), false, o.args)
	case "passiveexchange":
		err = ch.ExchangeDeclarePassive(o.exchange, o.kind, true, false, false, false, nil)
	case "deleteexchange":
		err = ch.ExchangeDelete(o.exchange, o.flag, false)
	case "queue":
		var q amqp.Queue
		if q, err = ch.QueueDeclare(o.queue, !o.is("transient"), o.is("auto-delete"), o.is("exclusive"), false, o.args); err == nil {
			r.queues[o.queue] = true
			r.exclusive = r.exclusive || o.is("exclusive")
			result = fmt.Sprintf("%d messages, %d consumers", q.Messages, q.Consumers)
		}
	case "passive":
		var q amqp.Queue
		if q, err = ch.QueueDeclarePassive(o.queue, true, false, false, false, nil); err == nil {
			result = fmt.Sprintf("%d messages, %d consumers", q.Messages, q.Consumers)
		}
	case "bind":
		err = ch.QueueBind(o.queue, o.key, o.exchange, false, o.args)
	case "unbind":
		err = ch.QueueUnbind(o.queue, o.key, o.exchange, o.args)
	case "bindexchange":
		err = ch.ExchangeBind(o.queue, o.key, o.exchange, false, o.args)
	case "unbindexchange":
		err = ch.ExchangeUnbind(o.queue, o.key, o.exchange, false, o.args)
	case "purge":
		var n int
		n, err = ch.QueuePurge(o.queue, false)
		result = fmt.Sprint(n)
	case "delete":
		var n int
		n, err = ch.QueueDelete(o.queue, o.kind == "unused", o.kind == "empty", false)
		result = fmt.Sprint(n)
		if err == nil {
			delete(r.queues, o.queue)
		}
	case "publish":
		result, err = r.publish(o)
	case "publishes":
		result, err = r.publishes(o)
	case "qos":
		err = ch.Qos(o.n, 0, o.flag)
		r.shared = o.flag && o.n > 0
	case "get":
		var d amqp.Delivery
		var ok bool
		if d, ok, err = ch.Get(o.queue, o.flag); ok {
			result = fmt.Sprintf("%s left=%d", r.delivery(d, ""), d.MessageCount)
			if !o.flag {
				r.held = append(r.held, held{d.DeliveryTag, string(d.Body) + " of " + o.queue})
			}
		} else if err == nil {
			result = "empty"
		}
	case "ack", "nack", "reject":
		result, err = r.settle(o)
	case "badtag":
		switch o.kind {
		case "all":
			err = ch.Nack(0, o.multiple, o.flag)
			if o.multiple {
				r.held = nil
			}
		case "again":
			err = ch.Ack(r.settled, o.multiple)
		default:
			err = ch.Ack(999, o.multiple)
		}
	case "recover":
		err = ch.Recover(true) //nolint:staticcheck // clients may send it
		r.held = nil
	case "consume":
		result, err = r.consume(o)
	case "cancel":
		if r.streams[o.key] != nil {
			r.drain(nil)
			err = ch.Cancel(o.key, false)
		}
	case "reopen":
		r.reopen(o.flag)
		return ""
	}
	if err == nil && (o.do == "ack" || o.do == "nack" || o.do == "reject" || o.do == "badtag") {
		err = ch.Flow(true) // the answer comes after that to what was before
	}
	if err != nil {
		return result + r.failed(err)
	}
	return result
}

func (r *runner) publish(o op) (string, error) {
	c, err := r.ch.PublishWithDeferredConfirm(o.exchange, o.key, o.flag, false, o.message)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	ack, err := c.WaitContext(ctx)
	if err != nil {
		return "no confirm", nil
	}
	result := "ack"
	if !ack {
		result = "nack"
		if err := r.ch.Flow(true); err != nil { // or the channel is gone
			return "", err
		}
	}
	for {
		select {
		case m := <-r.returns:
			result += fmt.Sprintf(" returned %d %s %s %s %s", m.ReplyCode, m.ReplyText, m.Exchange, m.RoutingKey, text(m.Headers))
		default:
			return result, nil
		}
	}
}

// publishes publishes several messages before it looks at an answer.
func (r *runner) publishes(o op) (string, error) {
	var confirms []*amqp.DeferredConfirmation
	for i := range o.n {
		m := o.message
		m.Body = fmt.Appendf(nil, "%s-%d", m.Body, i)
		c, err := r.ch.PublishWithDeferredConfirm(o.exchange, o.key, o.flag, false, m)
		if err != nil {
			return "", err
		}
		confirms = append(confirms, c)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	result := ""
	for _, c := range confirms {
		ack, err := c.WaitContext(ctx)
		if err != nil {
			return "no confirm", nil
		}
		result += fmt.Sprintf(" %v", ack)
	}
	if err := r.ch.Flow(true); err != nil {
		return "", err
	}
	for {
		select {
		case m := <-r.returns:
			result += fmt.Sprintf(" returned %d %s %s", m.ReplyCode, m.Body, m.RoutingKey)
		default:
			return result, nil
		}
	}
}

func (r *runner) settle(o op) (string, error) {
	if len(r.held) == 0 {
		return "nothing in hand", nil
	}
	sort.Slice(r.held, func(i, j int) bool {
		a, b := r.held[i], r.held[j]
		return a.name < b.name || a.name == b.name && a.tag < b.tag
	})
	h := r.held[o.n%len(r.held)]
	r.settled = h.tag
	multiple := o.multiple && !r.several && o.do != "reject"
	var kept []held
	for _, other := range r.held {
		if other.tag > h.tag || other.tag < h.tag && !multiple {
			kept = append(kept, other)
		}
	}
	r.held = kept
	switch o.do {
	case "ack":
		return h.name, r.ch.Ack(h.tag, multiple)
	case "nack":
		return h.name, r.ch.Nack(h.tag, multiple, o.flag)
	default:
		return h.name, r.ch.Reject(h.tag, o.flag)
	}
}

func (r *runner) consume(o op) (string, error) {
	if r.streams[o.key] != nil {
		return "consumes already", nil
	}
	if err := r.ch.Qos(o.n, 0, false); err != nil {
		return "", err
	}
	stream, err := r.ch.Consume(o.queue, o.key, o.flag, o.is("exclusive"), false, false, o.args)
	if err != nil {
		return "", err
	}
	r.several, r.shared = r.several || len(r.streams) > 0, false
	r.streams[o.key], r.auto[o.key], r.consumed[o.key] = stream, o.flag, o.queue
	return "", nil
}

// reopen closes the channel, or the connection, with what is in hand.
func (r *runner) reopen(connection bool) {
	if !connection {
		_ = r.ch.Close()
		r.ch = nil
		return
	}
	r.link.close()
	r.link, r.ch = nil, nil
}

// failed returns the exception that ended the channel or the connection.
func (r *runner) failed(err error) string {
	var e *amqp.Error
	timeout := time.NewTimer(30 * time.Second)
	defer timeout.Stop()
	select {
	case e = <-r.closed:
	case <-timeout.C:
	}
	if e == nil && !errors.As(err, &e) {
		return "error " + err.Error()
	}
	r.ch = nil
	if r.link.conn.IsClosed() || e.Code >= 500 {
		select {
		case <-r.link.lost:
		case <-timeout.C:
		}
		r.link.close()
		r.link = nil
	}
	return fmt.Sprintf("closed: %d %s", e.Code, e.Reason)
}

// delivery is a message as it is compared.
func (r *runner) delivery(d amqp.Delivery, tag string) string {
	s := fmt.Sprintf("%s exchange='%s' key=%s", d.Body, d.Exchange, d.RoutingKey)
	s += fmt.Sprintf(" redelivered=%v", d.Redelivered)
	if d.Expiration != "" {
		s += " expiration=" + d.Expiration
	}
	if d.Priority > 0 {
		s += fmt.Sprintf(" priority=%d", d.Priority)
	}
	if d.DeliveryMode != 2 {
		s += fmt.Sprintf(" mode=%d", d.DeliveryMode)
	}
	if d.ContentType+d.ContentEncoding+d.CorrelationId+d.ReplyTo+d.Type+d.AppId+d.UserId != "" || !d.Timestamp.IsZero() {
		s += fmt.Sprintf(" %q", []string{d.ContentType, d.ContentEncoding, d.CorrelationId, d.ReplyTo, d.Type, d.AppId, d.UserId, d.Timestamp.UTC().String()})
	}
	return s + " " + text(d.Headers)
}

func (o op) is(flag string) bool { return strings.Contains(o.flags, flag) }

// drain takes what the consumers have got.
func (r *runner) drain(into map[string][]string) {
	for _, tag := range keys(r.streams) {
		for more := true; more; {
			select {
			case d, ok := <-r.streams[tag]:
				if !ok {
					delete(r.streams, tag)
					more = false
					if into != nil {
						into[tag] = append(into[tag], "end")
					}
					continue
				}
				r.took(tag, d, into)
			default:
				more = false
			}
		}
	}
}

func (r *runner) took(tag string, d amqp.Delivery, into map[string][]string) {
	if into != nil {
		into[tag] = append(into[tag], r.delivery(d, tag))
	}
	if !r.auto[tag] {
		r.held = append(r.held, held{d.DeliveryTag, string(d.Body) + " to " + tag})
	}
}
