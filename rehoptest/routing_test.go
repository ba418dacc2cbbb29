package rehoptest_test

import (
	"slices"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

func TestRouting(t *testing.T) { testRules(t, routing) }

var routing = []rule{
	{"direct and fanout", "", func(c *client, _ string) {
		for _, q := range []string{"a", "b", "all"} {
			c.declare(q, "classic", nil)
		}
		c.exchange("letters", "direct", nil)
		c.exchange("copies", "fanout", nil)
		c.bind("a", "a", "letters", nil)
		c.bind("b", "b", "letters", nil)
		c.bind("all", "ignored", "copies", nil)
		c.send("letters", "a", persistent("1"))
		c.send("copies", "b", persistent("2"))
		c.wantReady("a", "1")
		c.wantReady("b")
		c.wantReady("all", "2")
	}},
	{"topic: a star is one word, a hash is any number", "", func(c *client, _ string) {
		c.exchange("shop", "topic", nil)
		for pattern, keys := range map[string]string{
			"order.*": "order.paid order.", "order.#": "order order.paid order.paid.late order.", "#.late": "late order.paid.late a.late",
			"*.*": "order.paid a.late order.", "#": "order order.paid order.paid.late late a.late order.", "order": "order",
			"#.paid.#": "order.paid order.paid.late",
		} {
			c.declare(pattern, "classic", nil)
			c.bind(pattern, pattern, "shop", nil)
			for _, key := range []string{"order", "order.paid", "order.paid.late", "late", "a.late", "order."} {
				c.send("shop", key, persistent(key))
				if got := len(c.broker.Drain(pattern)) == 1; got != slices.Contains(strings.Fields(keys), key) {
					c.Errorf("%q matches %q: %v", pattern, key, got)
				}
			}
		}
	}},
	{"topic: more than two hashes", "", func(c *client, version string) {
		c.declare("q", "classic", nil)
		c.bind("q", "#.a.#", "amq.topic", nil)
		err := c.ch.QueueBind("q", "#.a.#.b.#", "amq.topic", false, nil)
		if version == "4.3" {
			c.refused(err, 406, "Topic binding key '#.a.#.b.#' uses 3 '#' wildcards, at most 2 are allowed")
			return
		}
		c.must(err)
	}},
	{"headers: the forms of x-match", "", func(c *client, _ string) {
		c.declare("q", "classic", nil)
		for _, test := range []struct {
			args, headers amqp.Table
			want          bool
		}{
			{nil, nil, true},
			{amqp.Table{"a": "1"}, amqp.Table{"a": "1", "b": "2"}, true}, // all is the default
			{amqp.Table{"x-match": "all", "a": "1", "b": "2"}, amqp.Table{"a": "1"}, false},
			{amqp.Table{"x-match": "all", "a": nil}, amqp.Table{"a": "whatever"}, true},
			{amqp.Table{"x-match": "all", "a": "1"}, amqp.Table{"a": int32(1)}, false},
			{amqp.Table{"x-match": "all", "a": int64(1)}, amqp.Table{"a": int32(1)}, true},
			{amqp.Table{"x-match": "all", "x-a": "1"}, nil, true}, // x- is not looked at
			{amqp.Table{"x-match": "any"}, amqp.Table{"a": "1"}, false},
			{amqp.Table{"x-match": "any", "a": "1", "b": "2"}, amqp.Table{"b": "2"}, true},
			{amqp.Table{"x-match": "any", "a": "1", "b": "2"}, amqp.Table{"c": "3"}, false},
			{amqp.Table{"x-match": "any", "x-a": "1"}, amqp.Table{"x-a": "1"}, false},
			{amqp.Table{"x-match": "all-with-x", "a": "1", "x-a": "1"}, amqp.Table{"a": "1"}, false},
			{amqp.Table{"x-match": "all-with-x", "a": "1", "x-a": "1"}, amqp.Table{"a": "1", "x-a": "1"}, true},
			{amqp.Table{"x-match": "any-with-x", "a": "1", "x-a": "1"}, amqp.Table{"x-a": "1"}, true},
			{amqp.Table{"x-match": "any-with-x", "a": "1", "x-a": "1"}, amqp.Table{"x-a": "2"}, false},
		} {
			c.bind("q", "", "amq.headers", test.args)
			m := persistent("m")
			m.Headers = test.headers
			c.send("amq.headers", "", m)
			if got := len(c.broker.Drain("q")) == 1; got != test.want {
				c.Errorf("%v matches %v: %v", test.args, test.headers, got)
			}
			c.must(c.ch.QueueUnbind("q", "", "amq.headers", test.args))
		}
		c.refused(c.ch.QueueBind("q", "", "amq.headers", false, amqp.Table{"x-match": "some"}), 406, "expected all, any, all-with-x, or any-with-x")
	}},
	{"between exchanges: each queue gets one", "", func(c *client, _ string) {
		c.declare("q", "classic", nil)
		for _, x := range []string{"one", "two", "three"} {
			c.exchange(x, "fanout", nil)
			c.bind("q", "", x, nil)
		}
		for _, ends := range [][2]string{{"two", "one"}, {"three", "two"}, {"one", "three"}} { // round in a circle
			c.must(c.ch.ExchangeBind(ends[0], "", ends[1], false, nil))
		}
		c.must(c.ch.QueueUnbind("q", "", "one", nil))
		c.send("one", "", persistent("m"))
		c.wantReady("q", "m")
		c.must(c.ch.ExchangeUnbind("two", "", "one", false, nil))
		c.send("one", "", persistent("n"))
		c.wantReady("q", "m")
	}},
	{"alternate exchange: it takes what nothing matches", "", func(c *client, _ string) {
		c.declare("q", "classic", nil)
		c.declare("rest", "classic", nil)
		c.exchange("others", "fanout", nil)
		c.exchange("shop", "direct", amqp.Table{"alternate-exchange": "others"})
		c.bind("q", "q", "shop", nil)
		c.bind("rest", "", "others", nil)
		returns := c.ch.NotifyReturn(make(chan amqp.Return, 1))
		for _, key := range []string{"q", "nobody"} {
			d, err := c.ch.PublishWithDeferredConfirm("shop", key, true, false, persistent(key))
			c.must(err)
			d.Wait()
		}
		c.wantReady("q", "q")
		c.wantReady("rest", "nobody")
		if len(returns) > 0 {
			c.Error("what the alternate exchange took was returned")
		}
	}},
	{"exchanges: auto-delete, internal, in use", "", func(c *client, _ string) {
		c.declare("q", "classic", nil)
		c.must(c.ch.ExchangeDeclare("passing", "fanout", true, true, false, false, nil))
		c.bind("q", "", "passing", nil)
		c.must(c.ch.QueueUnbind("q", "", "passing", nil))
		c.refused(c.ch.ExchangeDeclarePassive("passing", "fanout", true, true, false, false, nil), 404, "no exchange 'passing' in vhost '/'")
		c.must(c.ch.ExchangeDeclare("inner", "fanout", true, false, true, false, nil))
		c.refused(c.failed(func() error { return c.ch.Publish("inner", "", false, false, persistent("m")) }), 403, "cannot publish to internal exchange 'inner'")
		c.bind("q", "", "inner", nil)
		c.refused(c.ch.ExchangeDelete("inner", true, false), 406, "exchange 'inner' in vhost '/' in use")
	}},
	{"CC and BCC: more keys, and BCC is not shown", "", func(c *client, _ string) {
		for _, q := range []string{"to", "cc", "bcc"} {
			c.declare(q, "quorum", nil)
		}
		m := persistent("m")
		m.Headers = amqp.Table{"CC": []any{"cc", "to"}, "BCC": []any{"bcc"}}
		c.send("", "to", m)
		for _, q := range []string{"to", "cc", "bcc"} {
			c.wantReady(q, "m")
			d := c.get(q)
			if _, shown := d.Headers["BCC"]; shown || d.Headers["CC"] == nil || d.RoutingKey != "to" {
				c.Errorf("%s got the key %q and the headers %v", q, d.RoutingKey, d.Headers)
			}
		}
		m.Headers = amqp.Table{"CC": "cc"}
		c.refused(c.failed(func() error { return c.ch.Publish("", "to", false, false, m) }), 406, `{unacceptable_type_in_header,"CC",longstr}`)
	}},
	{"mandatory: returned before the confirm", "", func(c *client, _ string) {
		returns := c.ch.NotifyReturn(make(chan amqp.Return, 1))
		if !c.publish("nowhere", persistent("m")).Wait() {
			c.Error("nacked")
		}
		select {
		case r := <-returns:
			if r.ReplyCode != 312 || r.ReplyText != "NO_ROUTE" || string(r.Body) != "m" || r.RoutingKey != "nowhere" {
				c.Errorf("returned as %+v", r)
			}
		default:
			c.Error("confirmed before it was returned")
		}
	}},
}
