package rehoptest_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

func TestLetters(t *testing.T) { testRules(t, letters) }

// deaths is the history of a message in short: queue, reason and count of each
// entry of its x-death.
func deaths(headers amqp.Table) string {
	list, _ := headers["x-death"].([]any)
	var all []string
	for _, v := range list {
		if t, ok := v.(amqp.Table); ok {
			all = append(all, fmt.Sprintf("%v %v %v", t["queue"], t["reason"], t["count"]))
		}
	}
	return strings.Join(all, ", ")
}

// to are the arguments of a queue whose dead letters go to another.
func to(queue string) amqp.Table {
	return amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue}
}

// until adds a time to live in milliseconds.
func until(ms int, args amqp.Table) amqp.Table {
	args["x-message-ttl"] = ms
	return args
}

var letters = []rule{
	{"x-death: its entry, and what a message loses", "", func(c *client, version string) {
		for _, kind := range kinds {
			c.declare("dead", kind, nil)
			c.declare("q", kind, to("dead"))
			m := persistent("m")
			m.Expiration, m.Priority, m.CorrelationId = "1000", 7, "mine"
			c.bind("q", "key", "amq.direct", nil)
			died := time.Now().Add(time.Second)
			c.send("amq.direct", "key", m)
			time.Sleep(2 * time.Second)
			d := c.get("dead")
			if d.Expiration != "" || d.Priority != 7 || d.CorrelationId != "mine" || d.DeliveryMode != 2 || d.Exchange != "" || d.RoutingKey != "dead" {
				c.Errorf("the letter is %+v", d)
			}
			entry := d.Headers["x-death"].([]any)[0].(amqp.Table)
			at, _ := entry["time"].(time.Time)
			delete(entry, "time")
			if s := fmt.Sprint(entry); s != "map[count:1 exchange:amq.direct original-expiration:1000 queue:q reason:expired routing-keys:[key]]" || at.Sub(died).Abs() > time.Second {
				c.Errorf("its history is %v at %v, want %v", s, at, died)
			}
			first := fmt.Sprint(d.Headers["x-first-death-queue"], d.Headers["x-first-death-reason"], d.Headers["x-first-death-exchange"])
			last := fmt.Sprint(d.Headers["x-last-death-queue"], d.Headers["x-last-death-reason"], d.Headers["x-last-death-exchange"])
			want := map[bool]string{true: "<nil> <nil> <nil>", false: "qexpiredamq.direct"}[version == "3.10"]
			if first != "qexpiredamq.direct" || last != want {
				c.Errorf("first %q, last %q; want last %q", first, last, want)
			}
			for _, q := range []string{"q", "dead"} {
				_, err := c.ch.QueueDelete(q, false, false, false)
				c.must(err)
			}
		}
	}},
	{"x-death: the newest first, the rest scrambled on 3.10", "", func(c *client, version string) {
		c.declare("end", "classic", nil)
		for _, hop := range [][2]string{{"d", "end"}, {"c", "d"}, {"b", "c"}, {"a", "b"}} {
			c.declare(hop[0], "classic", until(10, to(hop[1])))
		}
		c.publish("a", persistent("m"))
		time.Sleep(time.Second)
		want := map[bool]string{true: "d expired 1, b expired 1, a expired 1, c expired 1", false: "d expired 1, c expired 1, b expired 1, a expired 1"}[version == "3.10"]
		if got := deaths(c.get("end").Headers); got != want {
			c.Errorf("x-death is %s, want %s", got, want)
		}
	}},
	{"x-death: repeated ones count, and keep their first time", "", func(c *client, _ string) {
		c.declare("work", "quorum", to("wait"))
		c.declare("wait", "quorum", until(1000, to("work")))
		c.publish("work", persistent("m"))
		var first any
		for i := range 3 {
			d := c.take("work")
			if i == 1 {
				first = d.Headers["x-death"].([]any)[1].(amqp.Table)["time"]
			}
			c.must(d.Nack(false, false))
		}
		d := c.take("work")
		if got := deaths(d.Headers); got != "wait expired 3, work rejected 3" {
			c.Errorf("x-death is %s", got)
		}
		if again := d.Headers["x-death"].([]any)[1].(amqp.Table)["time"]; again != first {
			c.Errorf("the time was %v, and is %v", first, again)
		}
	}},
	{"x-death: that of a client counts on 3.10", "", func(c *client, version string) {
		c.declare("dead", "classic", nil)
		c.declare("q", "classic", to("dead"))
		m := persistent("m")
		m.Headers = amqp.Table{
			"x-death": []any{
				amqp.Table{"queue": "other", "reason": "expired", "count": int64(2), "exchange": "", "routing-keys": []any{"other"}},
				amqp.Table{"queue": "q", "reason": "rejected", "count": int64(7), "exchange": "", "routing-keys": []any{"q"}},
			},
			"x-first-death-queue": "other",
		}
		c.publish("q", m).Wait()
		d := c.get("q")
		if got := deaths(d.Headers); got != "other expired 2, q rejected 7" {
			c.Errorf("before the broker's first it is %s", got)
		}
		c.must(d.Nack(false, false))
		synctest.Wait()
		want, first := "q rejected 1", "q"
		if version == "3.10" {
			want, first = "q rejected 8, other expired 2", "other"
		}
		letter := c.get("dead")
		if got := deaths(letter.Headers); got != want || letter.Headers["x-first-death-queue"] != first {
			c.Errorf("x-death is %s with %v first, want %s with %s", got, letter.Headers["x-first-death-queue"], want, first)
		}
	}},
	{"cycles: one by time to live ends after a lap", "", func(c *client, _ string) {
		for _, kind := range kinds {
			c.declare(kind, kind, until(1000, to(kind)))
			c.publish(kind, persistent(kind)).Wait()
			time.Sleep(time.Minute)
			c.wantReady(kind)
			if story := c.broker.Story(kind); !strings.HasSuffix(strings.TrimSpace(story), "not to "+kind+" again, a cycle without a rejection: expired") {
				c.Errorf("the story is\n%s", story)
			}
		}
	}},
	{"cycles: an old rejection hides one on 3.10", "", func(c *client, version string) {
		c.declare("work", "classic", until(5000, to("wait")))
		c.declare("wait", "classic", until(1000, to("work")))
		c.publish("work", persistent("m"))
		c.must(c.take("work").Nack(false, false))
		time.Sleep(time.Hour)
		work, _ := c.broker.Queue("work")
		wait, _ := c.broker.Queue("wait")
		if goesOn := len(work.Ready)+len(wait.Ready) > 0; goesOn != (version == "3.10") {
			c.Errorf("goes round for ever: %v\n%s", goesOn, c.broker.Story("m"))
		}
	}},
	{"cycles: one that takes no time ends, where RabbitMQ 3.10 would go on", "", func(c *client, version string) {
		for _, q := range []string{"a", "b"} {
			c.declare(q, "classic", amqp.Table{"x-max-length": int64(0), "x-dead-letter-exchange": ""})
		}
		c.declare("seen", "classic", nil)
		m := persistent("m")
		m.Headers = amqp.Table{"CC": []any{"b", "seen"}, "x-death": []any{
			amqp.Table{"count": int64(1), "queue": "x", "reason": "rejected", "exchange": "", "routing-keys": []any{"x"}},
			amqp.Table{"count": int64(1), "queue": "y", "reason": "rejected", "exchange": "", "routing-keys": []any{"y"}},
		}}
		c.publish("a", m).Wait()
		seen, _ := c.broker.Queue("seen")
		story := c.broker.Story("m")
		told := strings.Contains(story, "goes round without an end")
		if hidden := version == "3.10"; told != hidden || (len(seen.Ready) > 5) != hidden {
			c.Errorf("the round was dead-lettered %d times, the story tells of it: %v", len(seen.Ready), told)
		}
		c.publish("seen", persistent("n")).Wait() // the broker goes on
	}},
	{"keys: those of BCC are left out of later deaths too", "4.0 4.3", func(c *client, _ string) {
		for _, q := range []string{"a", "b"} {
			c.declare(q, "classic", amqp.Table{"x-dead-letter-exchange": ""})
		}
		m := persistent("m")
		m.Headers = amqp.Table{"BCC": []any{"b"}}
		c.publish("a", m)
		c.must(c.take("a").Nack(false, false))
		c.take("a")
		for range 2 {
			d := c.take("b")
			list, _ := d.Headers["x-death"].([]any)
			for _, v := range list {
				if keys := fmt.Sprint(v.(amqp.Table)["routing-keys"]); keys != "[a]" {
					c.Errorf("died with the keys %s, want [a]", keys)
				}
			}
			c.must(d.Nack(false, false))
		}
	}},
	{"counts: those of a classic queue come along on 4.3", "", func(c *client, version string) {
		c.declare("dead", "quorum", nil)
		c.declare("q", "classic", to("dead"))
		c.publish("q", persistent("m"))
		c.must(c.take("q").Nack(false, true)) // no failure
		c.must(c.take("q").Reject(true))
		c.must(c.take("q").Reject(false))
		d := c.get("dead")
		if counted, _ := d.Headers["x-delivery-count"].(int64); (counted == 2) != (version == "4.3") || d.Redelivered != (version == "4.3") {
			c.Errorf("x-delivery-count is %v, redelivered %v", counted, d.Redelivered)
		}
	}},
	{"counts: a consumer that waits at a classic queue is not told of them", "4.3", func(c *client, _ string) {
		c.declare("dead", "classic", nil)
		c.declare("q", "quorum", to("dead"))
		for _, waits := range []bool{true, false} {
			c.publish("q", persistent("m"))
			var i *inbox
			if waits {
				i = c.consume("dead", "c", true, false, nil)
			}
			c.must(c.take("q").Reject(false))
			if waits {
				c.wantGot(i, "m")
				if i.got[0].Redelivered {
					c.Errorf("said to be redelivered")
				}
				c.must(c.ch.Cancel("c", false))
				continue
			}
			if d := c.get("dead"); !d.Redelivered {
				c.Errorf("not said to be redelivered")
			}
		}
	}},
	{"at-least-once: a queue's own letters are never confirmed on 3.10", "", func(c *client, version string) {
		c.declare("q", "quorum", amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-strategy": "at-least-once",
			"x-overflow": "reject-publish", "x-max-length": int64(2)})
		c.publish("q", persistent("m"))
		c.must(c.take("q").Reject(false))
		c.wantReady("q", "m")
		taken := 0
		for c.publish("q", persistent("n")).Wait() {
			taken++
		}
		if want := map[bool]int{true: 1, false: 2}[version == "3.10"]; taken != want {
			c.Errorf("takes %d messages, want %d", taken, want)
		}
	}},
	{"keys: all of its own, or that of the queue", "", func(c *client, version string) {
		c.exchange("dead", "direct", nil)
		for _, q := range []string{"own", "cc", "fixed"} {
			c.declare(q, "classic", nil)
			c.bind(q, q, "dead", nil)
		}
		for _, key := range []string{"", "fixed"} {
			args := amqp.Table{"x-dead-letter-exchange": "dead", "x-message-ttl": 10}
			if key != "" {
				args["x-dead-letter-routing-key"] = key
			}
			q := "from " + key
			c.declare(q, "quorum", args)
			c.bind(q, "own", "amq.direct", nil)
			m := persistent("m")
			m.Headers = amqp.Table{"CC": []any{"cc"}}
			c.send("amq.direct", "own", m)
			time.Sleep(time.Second)
			if key == "" {
				c.wantReady("own", "m")
				c.wantReady("cc", "m")
				c.wantReady("fixed")
				c.must(c.ch.QueueUnbind(q, "own", "amq.direct", nil))
				continue
			}
			c.wantReady("cc", "m") // the one before
			d := c.get("fixed")
			_, kept := d.Headers["CC"]
			if keys := d.Headers["x-death"].([]any)[0].(amqp.Table)["routing-keys"]; kept != (version != "3.10") || fmt.Sprint(keys) != "[own cc]" {
				c.Errorf("CC is kept: %v; the keys were %v", kept, keys)
			}
		}
	}},
	{"at-least-once: 32 refused letters hold up all others", "", func(c *client, _ string) {
		c.exchange("letters", "direct", nil)
		c.declare("full", "classic", amqp.Table{"x-max-length": 10, "x-overflow": "reject-publish"})
		c.declare("free", "classic", nil)
		c.declare("q", "quorum", amqp.Table{
			"x-dead-letter-exchange": "letters", "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish", "x-message-ttl": 1000,
		})
		for _, key := range []string{"full", "free"} {
			c.bind(key, key, "letters", nil)
			c.bind("q", key, "amq.direct", nil)
		}
		for range 42 {
			c.send("amq.direct", "full", persistent("m"))
		}
		c.send("amq.direct", "free", persistent("m"))
		time.Sleep(2 * time.Second)
		q, _ := c.broker.Queue("q")
		if got := len(c.ready("full")); got != 10 || len(q.Dead) != 33 || len(q.Ready) != 0 {
			c.Errorf("%d arrived, %d are held and %d ready; want 10, 33 and 0", got, len(q.Dead), len(q.Ready))
		}
		if n, err := c.ch.QueueDeclarePassive("q", true, false, false, false, nil); err != nil || n.Messages != 0 {
			c.Errorf("a passive declare counts %d, %v", n.Messages, err)
		}
		c.broker.Drain("full")
		time.Sleep(2 * time.Minute)
		c.wantReady("full") // nothing is sent again before its time
		c.wantReady("free")
		time.Sleep(2 * time.Minute)
		c.wantReady("free", "m")
		if got := len(c.ready("full")); got != 10 {
			c.Errorf("%d arrived after the timeout, want 10", got)
		}
	}},
	{"at-least-once: kept without a way", "", func(c *client, _ string) {
		args := to("missing")
		args["x-dead-letter-strategy"], args["x-overflow"], args["x-message-ttl"], args["x-max-length"] = "at-least-once", "reject-publish", 1000, 3
		c.declare("q", "quorum", args)
		c.numbered("q", 3)
		time.Sleep(time.Hour)
		if taken := c.numbered("q", 3); taken != "1" { // what it keeps counts
			c.Errorf("a full queue took %q", taken)
		}
		c.declare("missing", "classic", nil)
		time.Sleep(time.Hour)
		if n := len(c.ready("missing")); n != 4 {
			c.Errorf("%d arrived, want 4", n)
		}
	}},
	{"at-least-once: not with drop-head", "", func(c *client, _ string) {
		args := to("missing")
		args["x-dead-letter-strategy"], args["x-message-ttl"] = "at-least-once", 1000
		c.declare("q", "quorum", args)
		c.numbered("q", 3)
		time.Sleep(time.Minute)
		if q, _ := c.broker.Queue("q"); len(q.Dead) != 0 {
			c.Errorf("%d are kept", len(q.Dead))
		}
	}},
	{"at-least-once: purged since 4.3", "", func(c *client, version string) {
		args := to("missing")
		args["x-dead-letter-strategy"], args["x-overflow"], args["x-message-ttl"] = "at-least-once", "reject-publish", 1000
		c.declare("q", "quorum", args)
		c.numbered("q", 1)
		time.Sleep(time.Minute)
		_, err := c.ch.QueuePurge("q", false)
		c.must(err)
		q, _ := c.broker.Queue("q")
		purged := strings.Contains(c.broker.Story("1"), "purged from q")
		if gone := len(q.Dead) == 0; gone != (version == "4.3") || gone != purged {
			c.Errorf("gone: %v, in the story: %v", gone, purged)
		}
	}},
	{"delivery limit: 20 since 4.0", "", func(c *client, version string) {
		c.declare("q", "quorum", nil)
		c.publish("q", persistent("m")).Wait()
		for range 20 {
			c.must(c.get("q").Reject(true))
		}
		c.wantReady("q", "m")
		c.must(c.get("q").Reject(true))
		if version == "3.10" {
			c.wantReady("q", "m")
			return
		}
		c.wantReady("q")
	}},
	{"delayed retry: since 4.3, longer with each failure", "", func(c *client, version string) {
		c.declare("q", "quorum", amqp.Table{"x-delayed-retry-type": "failed", "x-delayed-retry-min": 1000, "x-delayed-retry-max": 2500})
		c.publish("q", persistent("m")).Wait()
		if version != "4.3" {
			c.must(c.get("q").Reject(true))
			c.wantReady("q", "m")
			return
		}
		for _, wait := range []time.Duration{time.Second, 2 * time.Second, 2500 * time.Millisecond} {
			c.must(c.get("q").Reject(true))
			synctest.Wait()
			time.Sleep(wait - time.Millisecond)
			if q, _ := c.broker.Queue("q"); len(q.Delayed) != 1 || len(q.Ready) != 0 {
				c.Errorf("after %v less a millisecond %d wait and %d are ready", wait, len(q.Delayed), len(q.Ready))
			}
			time.Sleep(time.Millisecond)
			c.wantReady("q", "m")
		}
		c.must(c.get("q").Nack(false, true)) // no failure
		c.wantReady("q", "m")
	}},
}

// An auto-delete queue does not go with the broker, as it does with its last
// consumer. What a queue has not answered does.
func TestKillTakesNoQueueThatLasts(t *testing.T) {
	testRules(t, []rule{{"auto-delete", "", func(c *client, _ string) {
		_, err := c.ch.QueueDeclare("lasting", true, true, false, false, nil)
		c.must(err)
		_, err = c.ch.QueueDeclare("passing", false, false, false, false, nil)
		c.must(err)
		c.consume("lasting", "", false, false, nil)
		c.declare("q", "quorum", nil)
		c.broker.Refuse("q", true)
		c.publish("q", persistent("m"))
		synctest.Wait()
		c.broker.Kill()
		c.broker.Start()
		if got := strings.Join(c.broker.Queues(), " "); got != "lasting q" {
			c.Errorf("the broker has kept %s", got)
		}
		if story := c.broker.Story("m"); !strings.Contains(story, "lost with the broker from q") {
			c.Errorf("the story does not tell of the loss:\n%s", story)
		}
	}}})
}
