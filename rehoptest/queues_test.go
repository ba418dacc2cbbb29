package rehoptest_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

func TestDeclarations(t *testing.T) { testRules(t, declarations) }

var declarations = []rule{
	{"declared again as it was", "", func(c *client, _ string) {
		c.must(c.queueFor("q", "quorum", amqp.Table{"x-delivery-limit": int32(3), "x-unknown": "a"}))
		c.must(c.queueFor("q", "quorum", amqp.Table{"x-delivery-limit": int64(3), "x-unknown": "b"}))
		c.refused(c.queueFor("q", "quorum", amqp.Table{"x-delivery-limit": 4}), 406, "inequivalent arg 'x-delivery-limit' for queue 'q' in vhost '/'")
		c.refused(c.queueFor("q", "quorum", nil), 406, "inequivalent arg 'x-delivery-limit' for queue 'q' in vhost '/': received none but current is the value '3'")
		c.exchange("x", "topic", nil)
		c.refused(c.ch.ExchangeDeclare("x", "fanout", true, false, false, false, nil), 406, "inequivalent arg 'type' for exchange 'x' in vhost '/': received 'fanout' but current is 'topic'")
		c.refused(c.ch.ExchangeDeclare("x", "topic", false, false, false, false, nil), 406, "inequivalent arg 'durable'")
		_, err := c.ch.QueueDeclare("q2", true, false, false, false, nil)
		c.must(err)
		c.must(c.queueFor("q2", "classic", nil)) // a queue without a type is one
		c.refused(c.queueFor("q2", "quorum", nil), 406, "inequivalent arg 'x-queue-type'")
	}},
	{"passive: only the name counts", "", func(c *client, _ string) {
		c.declare("q", "quorum", nil)
		c.numbered("q", 2)
		q, err := c.ch.QueueDeclarePassive("q", false, true, false, false, amqp.Table{"x-max-length": 1})
		c.must(err)
		if q.Messages != 2 || q.Consumers != 0 {
			c.Errorf("declared as %+v", q)
		}
		_, err = c.ch.QueueDeclarePassive("other", false, false, false, false, nil)
		c.refused(err, 404, "no queue 'other' in vhost '/'")
		c.must(c.ch.ExchangeDeclarePassive("amq.topic", "direct", false, false, false, false, nil))
	}},
	{"purge and delete", "", func(c *client, _ string) {
		for _, kind := range kinds {
			c.declare(kind, kind, nil)
			c.numbered(kind, 3)
			c.get(kind)
			if n, err := c.ch.QueuePurge(kind, false); n != 2 || err != nil {
				c.Errorf("%s: purged %d, %v; want 2 that are ready", kind, n, err)
			}
			if story := c.broker.Story("3"); !strings.Contains(story, "purged from "+kind) {
				c.Errorf("the story does not tell of the purge:\n%s", story)
			}
			c.publish(kind, persistent("m")).Wait()
			_, err := c.ch.Consume(kind, "", false, false, false, false, nil)
			c.must(err)
			_, unused := c.ch.QueueDelete(kind, true, false, false)
			if kind == "quorum" {
				c.refused(unused, 540, "queue.delete operations with if-unused flag set are not supported by quorum queues")
			} else {
				c.refused(unused, 406, "queue 'classic' in vhost '/' in use")
			}
			_, filled := c.ch.QueueDelete(kind, false, true, false)
			if kind == "quorum" {
				c.refused(filled, 540, "queue.delete operations with if-empty flag set are not supported by quorum queues")
			} else {
				c.refused(filled, 406, "queue 'classic' in vhost '/' not empty")
			}
			if n, err := c.ch.QueueDelete(kind, false, false, false); n != 2 || err != nil {
				c.Errorf("%s: deleted with %d, %v; want 2", kind, n, err)
			}
			if n, err := c.ch.QueueDelete(kind, false, false, false); n != 0 || err != nil {
				c.Errorf("%s: deleted again with %d, %v; want none", kind, n, err)
			}
		}
	}},
	{"expires: an unused queue goes", "", func(c *client, _ string) {
		for _, kind := range kinds {
			c.must(c.queueFor(kind, kind, amqp.Table{"x-expires": 60_000}))
			stream, err := c.ch.Consume(kind, kind, false, false, false, false, nil)
			c.must(err)
			time.Sleep(time.Hour)
			c.must(c.ch.Cancel(kind, false))
			for range stream {
				c.Error("a message from nowhere")
			}
			time.Sleep(59 * time.Second)
			if _, ok := c.broker.Queue(kind); !ok {
				c.Errorf("the %s queue is gone early", kind)
			}
			time.Sleep(2 * time.Second)
			if _, ok := c.broker.Queue(kind); ok {
				c.Errorf("the %s queue is still there", kind)
			}
		}
		c.refused(c.queueFor("q", "classic", amqp.Table{"x-expires": 0}), 406, "invalid arg 'x-expires' for queue 'q' in vhost '/': {value_zero,0}")
	}},
	{"exclusive: for its connection", "", func(c *client, _ string) {
		q, err := c.ch.QueueDeclare("", true, false, true, false, nil)
		c.must(err)
		if !strings.HasPrefix(q.Name, "amq.gen-") {
			c.Errorf("the broker names it %q", q.Name)
		}
		_, err = c.ch.QueueDeclare(q.Name, false, false, true, false, nil) // durable or not is the same
		c.must(err)
		c.publish("", persistent("m")) // not to the last queue
		first := c.conn
		c.connect()
		_, err = c.ch.Consume(q.Name, "", false, false, false, false, nil)
		c.refused(err, 405, "cannot obtain exclusive access to locked queue '"+q.Name+"' in vhost '/'")
		c.must(first.Close())
		synctest.Wait()
		if _, ok := c.broker.Queue(q.Name); ok {
			c.Error("it outlives its connection")
		}
	}},
	{"auto-delete: gone with its last consumer", "", func(c *client, _ string) {
		_, err := c.ch.QueueDeclare("q", true, true, false, false, nil)
		c.must(err)
		for _, tag := range []string{"a", "b"} {
			_, err := c.ch.Consume("q", tag, false, false, false, false, nil)
			c.must(err)
		}
		c.must(c.ch.Cancel("a", false))
		c.wantReady("q")
		c.must(c.ch.Cancel("b", false))
		if _, ok := c.broker.Queue("q"); ok {
			c.Error("it is still there")
		}
	}},
	{"names: not those of the broker", "", func(c *client, _ string) {
		c.refused(c.queueFor("amq.mine", "classic", nil), 403, "queue name 'amq.mine' contains reserved prefix 'amq.*'")
		c.refused(c.ch.ExchangeDeclare("amq.mine", "fanout", true, false, false, false, nil), 403, "exchange name 'amq.mine' contains reserved prefix 'amq.*'")
		c.refused(c.ch.QueueBind("amq.mine", "", "", false, nil), 403, "operation not permitted on the default exchange")
		c.refused(c.queueFor("", "quorum", nil), 406, "Cannot declare a server-named queue for type rabbit_quorum_queue")
	}},
	{"quorum queues are durable and shared", "", func(c *client, _ string) {
		args := amqp.Table{"x-queue-type": "quorum"}
		_, err := c.ch.QueueDeclare("q", false, false, false, false, args)
		c.refused(err, 406, "invalid property 'non-durable' for queue 'q' in vhost '/'")
		_, err = c.ch.QueueDeclare("q", true, false, true, false, args)
		c.refused(err, 406, "invalid property 'exclusive-owner'")
		_, err = c.ch.QueueDeclare("q", true, true, false, false, args)
		c.refused(err, 406, "invalid property 'auto-delete'")
	}},
	{"arguments of another type", "", func(c *client, version string) {
		for _, a := range []struct {
			kind, name string
			versions   string // that refuse it
		}{
			{"classic", "x-delivery-limit", "3.10 4.0 4.3"},
			{"classic", "x-dead-letter-strategy", "3.10 4.0 4.3"},
			{"classic", "x-queue-leader-locator", "3.10"},
			{"classic", "x-consumer-timeout", "4.3"},
			{"classic", "x-delayed-retry-type", "4.3"},
			{"classic", "x-max-age", "3.10 4.0 4.3"},
			{"quorum", "x-max-priority", "3.10 4.0 4.3"},
			{"quorum", "x-queue-mode", "3.10 4.0 4.3"},
			{"quorum", "x-initial-cluster-size", "3.10 4.0 4.3"},
		} {
			value := any("client-local")
			if a.name != "x-queue-leader-locator" {
				value = 1
			}
			err := c.queueFor(a.kind+a.name, a.kind, amqp.Table{a.name: value})
			if strings.Contains(a.versions, version) {
				c.refused(err, 406, "invalid arg '"+a.name+"' for queue '"+a.kind+a.name+"' in vhost '/' of queue type rabbit_"+a.kind+"_queue")
			} else {
				c.must(err)
			}
		}
	}},
	{"arguments with a wrong value", "", func(c *client, version string) {
		for _, a := range []struct {
			kind, name string
			value      any
			text       string
			versions   string
		}{
			{"classic", "x-message-ttl", -1, "{value_negative,-1}", ""},
			{"classic", "x-message-ttl", int64(315_360_000_001), "{value_too_large,315360000001}", ""},
			{"classic", "x-max-length", "1", `"expected integer, got longstr"`, ""},
			{"classic", "x-max-priority", 256, "{max_value_exceeded,256}", ""},
			{"classic", "x-overflow", "spill", "invalid_overflow", ""},
			{"classic", "x-single-active-consumer", "yes", "{unacceptable_type,longstr}", ""},
			{"classic", "x-dead-letter-routing-key", "q", "routing_key_but_no_dlx_defined", ""},
			{"classic", "x-queue-mode", "fast", `"unsupported queue mode 'fast'"`, "3.10 4.0"},
			{"classic", "x-queue-version", 1, `"unsupported queue version '1'"`, "4.3"},
			{"classic", "x-queue-leader-locator", "here", "invalid_queue_locator_arg", "4.0 4.3"},
			{"quorum", "x-queue-leader-locator", "here", "invalid_queue_locator_arg", ""},
			{"quorum", "x-quorum-initial-group-size", 0, "{value_zero,0}", ""},
			{"quorum", "x-max-in-memory-length", -1, "{value_negative,-1}", ""},
			{"quorum", "x-consumer-timeout", "1", `"expected integer, got longstr"`, "4.3"},
			{"quorum", "x-dead-letter-strategy", "twice", "invalid_dlx_strategy", ""},
		} {
			if a.versions == "" || strings.Contains(a.versions, version) {
				c.refused(c.queueFor("q", a.kind, amqp.Table{a.name: a.value}), 406, "invalid arg '"+a.name+"' for queue 'q' in vhost '/': "+a.text)
			}
		}
	}},
}

func TestReady(t *testing.T) { testRules(t, order) }

// order is what queues do with messages that are ready.
var order = []rule{
	{"time to live: only the head expires", "", func(c *client, version string) {
		for _, kind := range kinds {
			c.declare(kind, kind, amqp.Table{"x-message-ttl": 60_000})
			for _, ttl := range []string{"10000", "1000", "", "0"} {
				m := persistent(ttl)
				m.Expiration = ttl
				c.publish(kind, m).Wait()
			}
			time.Sleep(5 * time.Second)
			c.wantReady(kind, "10000", "1000", "", "0")
			time.Sleep(6 * time.Second)
			c.wantReady(kind, "", "0")
			time.Sleep(time.Minute)
			c.wantReady(kind)
		}
		// Since 4.3 it is the head of each priority.
		c.declare("q", "quorum", nil)
		for _, m := range []amqp.Publishing{{Body: []byte("low"), Expiration: "1000", Priority: 1}, {Body: []byte("high"), Expiration: "5000", Priority: 9}} {
			c.publish("q", m).Wait()
		}
		time.Sleep(2 * time.Second)
		switch version {
		case "3.10":
			c.wantReady("q", "high")
		case "4.0":
			c.wantReady("q", "high", "low")
		default:
			c.wantReady("q", "high")
		}
	}},
	{"time to live: with 0 only for who waits", "", func(c *client, _ string) {
		for _, kind := range kinds {
			c.declare(kind, kind, amqp.Table{"x-message-ttl": 0})
			in := c.consume(kind, kind, false, false, nil)
			c.publish(kind, persistent("waited for")).Wait()
			c.wantGot(in, "waited for")
			c.must(c.ch.Cancel(kind, false))
			c.publish(kind, persistent("not")).Wait()
			time.Sleep(time.Second)
			c.wantReady(kind)
		}
	}},
	{"priorities of a classic queue", "", func(c *client, _ string) {
		c.declare("q", "classic", amqp.Table{"x-max-priority": 5})
		for _, p := range []uint8{0, 1, 9, 5, 4} {
			m := persistent(string('0' + rune(p)))
			m.Priority = p
			c.publish("q", m).Wait()
		}
		c.wantReady("q", "9", "5", "4", "1", "0")
		c.must(c.take("q").Nack(false, true))
		c.wantReady("q", "9", "5", "4", "1", "0")
	}},
	{"priorities of a quorum queue", "", func(c *client, version string) {
		c.declare("q", "quorum", nil)
		for _, p := range []uint8{0, 3, 4, 5, 9, 40} {
			m := persistent(string('0' + rune(p)))
			m.Priority = p
			c.publish("q", m).Wait()
		}
		want := map[string]string{"3.10": "0 3 4 5 9 X", "4.0": "5 9 0 X 3 4", "4.3": "X 9 5 0 4 3"}[version]
		c.wantReady("q", strings.Fields(want)...)
		var got []string
		for range 6 {
			d, _, err := c.ch.Get("q", true)
			c.must(err)
			got = append(got, string(d.Body))
		}
		if s := strings.Join(got, " "); s != want {
			c.Errorf("handed out %s, want %s", s, want)
		}
	}},
	{"what is given back: where it was, or first", "", func(c *client, version string) {
		for _, kind := range kinds {
			c.declare(kind, kind, nil)
			c.numbered(kind, 3)
			first, second := c.get(kind), c.get(kind)
			c.must(second.Nack(false, true))
			c.must(first.Nack(false, true))
			switch {
			case kind == "classic":
				c.wantReady(kind, "1", "2", "3")
			case version == "3.10": // at the end, without a limit
				c.wantReady(kind, "3", "2", "1")
			default:
				c.wantReady(kind, "2", "1", "3")
			}
		}
	}},
	{"recover gives back what the channel has", "", func(c *client, _ string) {
		for _, kind := range kinds {
			c.declare(kind, kind, nil)
			c.numbered(kind, 2)
			c.get(kind)
			c.must(c.ch.Recover(true)) //nolint:staticcheck // clients may send it
			if q, _ := c.broker.Queue(kind); len(q.Ready) != 2 || len(q.Unacked) != 0 {
				c.Errorf("%s: %d ready and %d unacked, want 2 and 0", kind, len(q.Ready), len(q.Unacked))
			}
		}
		c.refused(c.ch.Recover(false), 540, "requeue=false") //nolint:staticcheck // and this
	}},
	{"a full queue drops its head", "", func(c *client, _ string) {
		c.declare("dead", "classic", nil)
		for _, kind := range kinds {
			c.declare(kind, kind, amqp.Table{"x-max-length": 2, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
			if taken := c.numbered(kind, 4); taken != "1234" {
				c.Errorf("%s took %s, want all", kind, taken)
			}
			c.wantReady(kind, "3", "4")
			c.wantReady("dead", "1", "2")
			c.broker.Drain("dead")
		}
		c.declare("bytes", "classic", amqp.Table{"x-max-length-bytes": 10})
		for _, body := range []string{"seven..", "four", "long beyond all"} {
			c.publish("bytes", persistent(body)).Wait()
			c.wantReady("bytes", map[string][]string{"seven..": {"seven.."}, "four": {"four"}}[body]...)
		}
	}},
	{"a full queue refuses: a quorum queue notices late", "", func(c *client, _ string) {
		for kind, want := range map[string]string{"classic": "123", "quorum": "1234"} {
			c.declare(kind, kind, amqp.Table{"x-max-length": 3, "x-overflow": "reject-publish"})
			if taken := c.numbered(kind, 6); taken != want {
				c.Errorf("%s took %s, want %s", kind, taken, want)
			}
			for range 2 { // down to four fifths, and there is room
				c.must(c.get(kind).Ack(false))
			}
			if !c.publish(kind, persistent("again")).Wait() {
				c.Errorf("%s has room and refuses", kind)
			}
		}
	}},
	{"a full queue dead-letters what it refuses", "", func(c *client, _ string) {
		c.declare("dead", "classic", nil)
		for _, kind := range kinds {
			c.declare(kind, kind, amqp.Table{"x-max-length": 1, "x-overflow": "reject-publish-dlx", "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
			taken := c.numbered(kind, 2)
			if kind == "quorum" { // it knows no such overflow, and drops its head
				c.wantReady("quorum", "2")
				c.wantReady("dead", "1")
				continue
			}
			if taken != "1" {
				c.Errorf("took %s, want 1", taken)
			}
			c.wantReady("classic", "1")
			c.wantReady("dead", "2")
			c.broker.Drain("dead")
		}
	}},
	{"one of several queues refuses", "", func(c *client, _ string) {
		c.declare("open", "classic", nil)
		c.declare("full", "classic", amqp.Table{"x-max-length": 0, "x-overflow": "reject-publish"})
		for _, q := range []string{"open", "full"} {
			c.bind(q, "", "amq.fanout", nil)
		}
		if c.send("amq.fanout", "", persistent("m")) {
			c.Error("confirmed")
		}
		c.wantReady("open", "m")
	}},
	{"a queue without a dead-letter exchange drops", "", func(c *client, _ string) {
		c.declare("q", "quorum", nil)
		c.declare("nowhere", "quorum", amqp.Table{"x-dead-letter-exchange": "missing"})
		for _, q := range []string{"q", "nowhere"} {
			c.publish(q, persistent(q)).Wait()
			c.must(c.get(q).Nack(false, false))
			c.wantReady(q)
		}
		for id, part := range map[string]string{"q": "dropped from q, which has no dead-letter exchange: rejected", "nowhere": "no dead-letter exchange missing"} {
			if story := c.broker.Story(id); !strings.Contains(story, part) {
				c.Errorf("the story does not say %q:\n%s", part, story)
			}
		}
	}},
}
