package rehoptest_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

func TestConsumers(t *testing.T) { testRules(t, consuming) }

var consuming = []rule{
	{"a closed channel's messages come back by the names of those who had them", "", func(c *client, version string) {
		c.declare("q", "quorum", nil)
		for i := range 14 {
			c.publish("q", persistent(string(rune('a'+i))))
		}
		for range 10 {
			c.take("q") // tags 1 to 10
		}
		c.must(c.ch.Qos(2, 0, false))
		c.wantGot(c.consume("q", "z", false, false, nil), "k l")
		c.wantGot(c.consume("q", "y", false, false, nil), "m n")
		c.must(c.ch.Close())
		c.reopen()
		want := []string{"a", "j", "b", "c", "d", "e", "f", "g", "h", "i", "m", "n", "k", "l"}
		if version != "3.10" { // consumers first, as they began
			want = []string{"k", "l", "m", "n", "a", "j", "b", "c", "d", "e", "f", "g", "h", "i"}
		}
		c.wantReady("q", want...)
	}},
	{"recover: one consumer's messages after the other's", "", func(c *client, _ string) {
		for _, kind := range kinds {
			c.declare(kind, kind, nil)
			for _, body := range []string{"a", "b", "c"} {
				c.publish(kind, persistent(body))
			}
			c.take(kind)
			c.take(kind)
			c.must(c.ch.Qos(1, 0, false))
			x := c.consume(kind, "x", false, false, nil)
			c.wantGot(x, "c")
			y := c.consume(kind, "y", false, false, nil)
			c.must(c.ch.Recover(true)) //nolint:staticcheck // clients may send it
			c.wantGot(y, "a")
			c.wantGot(x, "c b")
			c.must(c.ch.Close())
			c.reopen()
		}
	}},
	{"prefetch: of a consumer that goes on after its cancel", "", func(c *client, version string) {
		for _, kind := range kinds {
			if kind == "quorum" && version == "3.10" {
				continue // see the package
			}
			c.declare(kind, kind, nil)
			c.numbered(kind, 7)
			c.must(c.ch.Qos(2, 0, false))
			c.wantGot(c.consume(kind, "x", false, false, nil), "1 2")
			c.must(c.ch.Cancel("x", false))
			c.must(c.ch.Qos(3, 0, false))
			more := "3"
			if kind == "classic" { // what it had counts no more
				more = "3 4 5"
			}
			c.wantGot(c.consume(kind, "x", false, false, nil), more)
			c.must(c.ch.Close())
			c.reopen()
			c.wantReady(kind, "1", "2", "3", "4", "5", "6", "7")
		}
	}},
	{"prefetch: of each consumer", "", func(c *client, _ string) {
		for _, kind := range kinds {
			c.declare(kind, kind, nil)
			c.must(c.ch.Qos(1, 0, false))
			a := c.consume(kind, kind+"a", false, false, nil)
			c.must(c.ch.Qos(2, 0, false))
			b := c.consume(kind, kind+"b", false, false, nil)
			c.numbered(kind, 5)
			c.wantGot(a, "1")
			c.wantGot(b, "2 3")
			c.must(b.got[1].Ack(true)) // up to it, which is all
			c.wantGot(a, "1 4")
			c.wantGot(b, "2 3 5")
		}
	}},
	{"prefetch: shared by a channel", "", func(c *client, version string) {
		c.declare("q", "classic", nil)
		c.declare("other", "classic", nil)
		c.publish("other", persistent("m")).Wait()
		c.must(c.ch.Qos(2, 0, true))
		c.get("other") // what is fetched does not count
		a, b := c.consume("q", "a", false, false, nil), c.consume("q", "b", false, false, nil)
		auto := c.consume("other", "auto", true, false, nil)
		c.numbered("q", 3)
		c.publish("other", persistent("m")).Wait()
		if version == "4.3" { // it is of each consumer there
			c.wantGot(a, "1 3")
			c.wantGot(b, "2")
			c.wantGot(auto, "m")
			return
		}
		c.wantGot(a, "1")
		c.wantGot(b, "2")
		c.wantGot(auto, "") // no acks are no exception
		c.must(a.got[0].Ack(false))
		c.wantGot(a, "1 3")
		c.must(b.got[0].Ack(false))
		c.wantGot(auto, "m")
	}},
	{"prefetch: shared, and what was fetched before counts for good", "3.10 4.0", func(c *client, _ string) {
		c.declare("q", "classic", nil)
		c.publish("q", persistent("m")).Wait()
		fetched := c.get("q")
		in := c.consume("q", "c", false, false, nil)
		c.must(c.ch.Qos(1, 0, true))
		c.must(fetched.Nack(false, true))
		c.wantGot(in, "")
		c.must(c.ch.Qos(1, 0, false)) // ends it
		c.wantGot(in, "m")
		c.declare("quorum", "quorum", nil)
		c.consume("quorum", "other", false, false, nil)
	}},
	{"prefetch: shared is not for quorum queues", "3.10 4.0", func(c *client, _ string) {
		c.declare("q", "quorum", nil)
		c.must(c.ch.Qos(2, 0, true))
		_, err := c.ch.Consume("q", "", false, false, false, false, nil)
		c.refused(err, 540, "queue 'q' in vhost '/' does not support global qos")
	}},
	{"priority: the highest first while it has room", "", func(c *client, _ string) {
		for _, kind := range kinds {
			c.declare(kind, kind, nil)
			c.must(c.ch.Qos(2, 0, false))
			low := c.consume(kind, kind+"low", false, false, amqp.Table{"x-priority": -1})
			none := c.consume(kind, kind+"none", false, false, nil)
			high := c.consume(kind, kind+"high", false, false, amqp.Table{"x-priority": 10})
			c.numbered(kind, 5)
			c.wantGot(high, "1 2")
			c.wantGot(none, "3 4")
			c.wantGot(low, "5")
		}
		_, err := c.ch.Consume("quorum", "", false, false, false, false, amqp.Table{"x-priority": "high"})
		c.refused(err, 406, `invalid arg 'x-priority' for queue 'quorum' in vhost '/': "expected integer, got longstr"`)
	}},
	{"single active: one at a time, the next by turn", "", func(c *client, version string) {
		for _, kind := range kinds {
			c.declare(kind, kind, amqp.Table{"x-single-active-consumer": true})
			a, b := c.consume(kind, kind+"a", false, false, nil), c.consume(kind, kind+"b", false, false, nil)
			c.numbered(kind, 2)
			c.wantGot(a, "1 2")
			c.wantGot(b, "")
			c.must(c.ch.Cancel(kind+"a", false))
			c.publish(kind, persistent("3")).Wait()
			c.wantGot(b, "3")
			high := c.consume(kind, kind+"high", false, false, amqp.Table{"x-priority": 1}) // which waits for its turn
			c.publish(kind, persistent("4")).Wait()
			c.must(b.got[0].Ack(false))
			synctest.Wait()
			if kind == "quorum" && version != "3.10" { // the active one gets nothing more, and has nothing in hand now
				c.wantGot(b, "3")
				c.wantGot(high, "4")
			} else {
				c.wantGot(b, "3 4")
				c.wantGot(high, "")
			}
		}
		_, _, err := c.ch.Get("quorum", false)
		c.refused(err, 405, "basic.get operations are not supported by")
	}},
	{"single active: who follows", "", func(c *client, version string) {
		waiting := []struct {
			tag                string
			prefetch, priority int
			autoAck            bool
		}{
			{"1", 1, 0, false}, {"3", 3, 0, false}, {"none", 0, 0, false}, {"2000", 2000, 0, false}, {"2001", 2001, 0, false},
			{"also 3", 3, 0, false}, {"4, without acks", 4, 0, true}, {"high", 1, 1, false}, {"high, 2", 2, 1, false},
		}
		began := []string{"1", "3", "none", "2000", "2001", "also 3", "4, without acks", "high", "high, 2"}
		want := map[string][]string{
			"classic":      {"high", "high, 2", "1", "3", "none", "2000", "2001", "also 3", "4, without acks"},
			"quorum":       {"high, 2", "high", "2001", "none", "2000", "4, without acks", "3", "also 3", "1"},
			"classic 3.10": {}, // see Cancel
			"quorum 3.10":  began,
		}
		for _, kind := range kinds {
			c.declare(kind, kind, amqp.Table{"x-single-active-consumer": true})
			c.must(c.ch.Qos(1, 0, false))
			c.consume(kind, "first", false, false, amqp.Table{"x-priority": 2})
			all := map[string]*inbox{}
			for _, w := range waiting {
				c.must(c.ch.Qos(w.prefetch, 0, false))
				all[w.tag] = c.consume(kind, w.tag, w.autoAck, false, amqp.Table{"x-priority": w.priority})
			}
			order := want[kind]
			if of, ok := want[kind+" "+version]; ok {
				order = of
			}
			before := "first"
			for _, tag := range order {
				c.must(c.ch.Cancel(before, false))
				c.publish(kind, persistent(tag)).Wait()
				c.wantGot(all[tag], tag)
				before = tag
			}
			c.must(c.ch.Close())
			c.reopen()
		}
	}},
	{"single active: it hands over with nothing in hand, whether the higher priority stays or not", "4.0 4.3", func(c *client, _ string) {
		c.declare("q", "quorum", amqp.Table{"x-single-active-consumer": true})
		low := c.consume("q", "low", false, false, nil)
		c.numbered("q", 2)
		c.wantGot(low, "1 2")
		high := c.consume("q", "high", false, false, amqp.Table{"x-priority": 1})
		c.publish("q", persistent("3")).Wait()
		c.wantGot(low, "1 2")
		c.must(c.ch.Cancel("high", false))
		c.must(low.got[0].Ack(false))
		c.wantGot(low, "1 2")
		c.wantReady("q", "3")
		c.must(low.got[1].Ack(false))
		c.wantGot(low, "1 2 3")
		c.wantGot(high, "")
	}},
	{"a cancel has a classic queue with priorities look at its head", "", func(c *client, version string) {
		for _, of := range []string{"the only one", "one of two"} {
			c.declare(of, "classic", amqp.Table{"x-max-priority": 1})
			c.must(c.ch.Qos(1, 0, false))
			c.consume(of, of, false, false, nil)
			c.publish(of, persistent("in hand")).Wait()
			if of == "one of two" {
				c.consume(of, "other", false, false, nil)
				c.publish(of, persistent("in hand")).Wait()
			}
			c.publish(of, persistent("low")).Wait()
			for _, expiration := range []string{"0", "60000"} {
				c.publish(of, amqp.Publishing{Body: []byte("high"), Priority: 1, Expiration: expiration}).Wait()
			}
			c.must(c.ch.Cancel("none", false))
			c.wantReady(of, "high", "high", "low")
			c.must(c.ch.Cancel(of, false))
			if version == "3.10" {
				c.wantReady(of, "high", "high", "low")
				time.Sleep(2 * time.Minute)
				c.wantReady(of, "high", "high", "low")
				continue
			}
			c.wantReady(of, "high", "low")
			time.Sleep(2 * time.Minute)
			c.wantReady(of, "low")
		}
	}},
	{"exclusive: nobody beside it, of classic queues", "", func(c *client, _ string) {
		for _, kind := range kinds {
			c.declare(kind, kind, nil)
			c.consume(kind, kind, false, true, nil)
			_, err := c.ch.Consume(kind, "", false, false, false, false, nil)
			if kind == "quorum" {
				c.must(err)
			} else {
				c.refused(err, 403, "queue 'classic' in vhost '/' in exclusive use")
			}
		}
		c.declare("single", "classic", amqp.Table{"x-single-active-consumer": true})
		_, err := c.ch.Consume("single", "", false, true, false, false, nil)
		c.refused(err, 403, "queue 'single' in vhost '/' in exclusive use")
	}},
	{"a tag once", "", func(c *client, _ string) {
		c.declare("q", "classic", nil)
		c.consume("q", "tag", false, false, nil)
		_, err := c.ch.Consume("q", "tag", false, false, false, false, nil)
		c.refused(err, 530, "attempt to reuse consumer tag 'tag'")
	}},
	{"cancelled by the broker with its queue", "", func(c *client, _ string) {
		for _, kind := range kinds {
			c.declare(kind, kind, nil)
			cancelled := c.ch.NotifyCancel(make(chan string, 1))
			in := c.consume(kind, kind, false, false, nil)
			_, err := c.ch.QueueDelete(kind, false, false, false)
			c.must(err)
			if tag := <-cancelled; tag != kind {
				c.Errorf("%q is cancelled, want %q", tag, kind)
			}
			c.wantGot(in, "")
			c.reopen()
		}
	}},
	{"what a cancelled consumer has stays with it", "", func(c *client, _ string) {
		c.declare("q", "quorum", nil)
		c.numbered("q", 1)
		in := c.consume("q", "tag", false, false, nil)
		c.wantGot(in, "1")
		c.must(c.ch.Cancel("tag", false))
		c.wantReady("q")
		c.must(in.got[0].Nack(false, true))
		c.wantReady("q", "1")
	}},
	{"tags are settled once", "", func(c *client, _ string) {
		c.declare("q", "classic", nil)
		c.numbered("q", 1)
		d := c.get("q")
		c.must(d.Ack(false))
		c.refused(c.failed(func() error { return d.Ack(false) }), 406, "unknown delivery tag 1")
	}},
	{"a stream's offset is not for other queues", "", func(c *client, _ string) {
		c.declare("q", "quorum", nil)
		_, err := c.ch.Consume("q", "", false, false, false, false, amqp.Table{"x-stream-offset": "first"})
		c.refused(err, 406, "invalid arg 'x-stream-offset' for queue 'q' in vhost '/' of queue type rabbit_quorum_queue")
	}},
	{"timeout: that of the queue", "4.0", func(c *client, _ string) {
		for _, kind := range kinds {
			c.declare(kind, kind, amqp.Table{"x-consumer-timeout": int64(90_000)})
			c.declare("slow "+kind, kind, nil)
			for _, q := range []string{"slow " + kind, kind} {
				c.publish(q, persistent("m")).Wait()
			}
			oldest := c.get("slow " + kind) // only the oldest is looked at
			c.get(kind)
			closed := c.ch.NotifyClose(make(chan *amqp.Error, 1))
			time.Sleep(20 * time.Minute)
			if len(closed) > 0 {
				c.Fatalf("the channel is closed early: %v", <-closed)
			}
			c.must(oldest.Ack(false))
			start := time.Now()
			err := <-closed
			if took := time.Since(start); code(err) != 406 || took > time.Minute || !strings.Contains(err.Reason, "Timeout value used: 90000 ms") {
				c.Errorf("%v after %v, want 406 within a minute", err, took)
			}
			c.reopen()
		}
	}},
}

// What the channels of a broker that ends had comes back in the order in which they
// were opened.
func TestKillGivesBackInOrder(t *testing.T) {
	testRules(t, []rule{{"channel by channel", "4.3", func(c *client, _ string) {
		c.declare("q", "quorum", nil)
		var want []string
		for i := range 9 {
			if i > 0 {
				c.reopen()
			}
			body := string('a' + rune(i))
			c.publish("q", persistent(body)).Wait()
			c.get("q")
			want = append(want, body)
		}
		c.broker.Kill()
		c.broker.Start()
		if got := c.ready("q"); !slices.Equal(got, want) {
			c.Errorf("after Kill: %v, want %v", got, want)
		}
	}}})
}
