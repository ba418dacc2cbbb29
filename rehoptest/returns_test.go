package rehoptest_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

func TestReturns(t *testing.T) { testRules(t, returns) }

// returns are rules about what comes back to a queue, together.
var returns = []rule{
	{"a classic queue hands on the failures of queues before it", "4.0 4.3", func(c *client, version string) {
		to := func(next string) amqp.Table {
			return amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": next}
		}
		c.declare("first", "quorum", to("second"))
		c.declare("second", "classic", to("third"))
		c.declare("third", "quorum", nil)
		c.publish("first", persistent("m"))
		first := c.take("first")
		c.must(first.Reject(false))
		second := c.take("second")
		c.must(second.Nack(false, false))
		third := c.take("third")
		if n := third.Headers["x-delivery-count"]; n != int64(1) || !third.Redelivered {
			c.Errorf("x-delivery-count is %v, redelivered %t; the first queue has counted 1", n, third.Redelivered)
		}
		if version == "4.3" {
			if !second.Redelivered {
				c.Error("the classic queue does not say that the message was delivered before")
			}
			return
		}
		if second.Redelivered {
			c.Error("the classic queue looks at what another has counted")
		}
	}},
	{"a classic queue of 4.3 counts on", "4.3", func(c *client, _ string) {
		c.declare("q", "classic", amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "letters"})
		c.declare("letters", "classic", amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "end"})
		c.declare("end", "quorum", nil)
		c.publish("q", persistent("m"))
		first := c.take("q")
		c.must(first.Reject(false))
		second := c.take("letters")
		c.must(second.Reject(false))
		if third := c.take("end"); third.Headers["x-delivery-count"] != int64(2) {
			c.Errorf("x-delivery-count is %v, want 2", third.Headers["x-delivery-count"])
		}
	}},
	{"a classic queue drops from its head once all has come back", "", func(c *client, _ string) {
		c.declare("q", "classic", amqp.Table{"x-max-length-bytes": int64(2)})
		c.must(c.ch.Qos(2, 0, false))
		in := c.consume("q", "c", false, false, nil)
		c.publish("q", persistent("a")).Wait()
		c.publish("q", persistent("new")).Wait()
		c.wantGot(in, "a new")
		c.must(in.got[0].Reject(true)) // now it was handed out last
		c.wantGot(in, "a new a")
		c.must(c.ch.Close())
		c.reopen()
		c.wantReady("q")
	}},
	{"a quorum queue with too many messages takes back all before it hands out", "", func(c *client, _ string) {
		c.declare("q", "quorum", amqp.Table{"x-max-length": int64(2), "x-overflow": "reject-publish", "x-delivery-limit": int64(9)})
		c.must(c.ch.Qos(3, 0, false))
		in := c.consume("q", "c", false, false, nil)
		c.numbered("q", 5)
		c.wantGot(in, "1 2 3")
		c.must(c.ch.Recover(true)) //nolint:staticcheck // clients may send it
		c.wantGot(in, "1 2 3 1 2 3")
	}},
	{"a classic queue that drops its head looks at the next one", "", func(c *client, _ string) {
		c.declare("letters", "classic", nil)
		c.declare("q", "classic", amqp.Table{
			"x-max-priority": int64(1), "x-max-length": int64(2),
			"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "letters",
		})
		c.publish("q", persistent("1"))
		short := persistent("2")
		short.Expiration = "30"
		c.publish("q", short)
		c.publish("q", persistent("3"))
		time.Sleep(time.Second)
		c.wantReady("q", "3")
		c.wantReady("letters", "1", "2")
	}},
	{"a classic queue with priorities looks at a new head only for its single active consumer", "", func(c *client, _ string) {
		c.declare("q", "classic", amqp.Table{"x-max-priority": int64(1), "x-single-active-consumer": true})
		c.must(c.ch.Qos(1, 0, false))
		c.consume("q", "active", false, false, nil)
		c.consume("q", "next", false, false, nil)
		c.numbered("q", 2)
		short := persistent("3")
		short.Expiration, short.Priority = "0", 1
		c.publish("q", short)
		time.Sleep(time.Second)
		c.wantReady("q", "3", "2")
	}},
	{"a classic queue looks at its head when a channel ends that has got a message of it", "", func(c *client, _ string) {
		for _, gets := range []bool{true, false} {
			queue := fmt.Sprint(gets)
			c.declare(queue, "classic", amqp.Table{"x-max-priority": int64(1)})
			if gets {
				c.publish(queue, persistent("1"))
			}
			c.consume(queue, "c", true, false, nil)
			c.must(c.ch.Cancel("c", false))
			c.publish(queue, persistent("2"))
			short := persistent("3")
			short.Expiration, short.Priority = "0", 1
			c.publish(queue, short)
			time.Sleep(time.Second)
			c.wantReady(queue, "3", "2")
			c.must(c.ch.Close())
			c.reopen()
			if gets {
				c.wantReady(queue, "2")
				continue
			}
			c.wantReady(queue, "3", "2")
		}
	}},
	{"what a queue has not taken goes with its channel", "", func(c *client, _ string) {
		c.declare("q", "quorum", nil)
		c.broker.Refuse("q", true)
		c.publish("q", persistent("m"))
		synctest.Wait()
		c.broker.Cut("")
		synctest.Wait() // until the broker has noticed
		c.connect()
		c.broker.Refuse("q", false)
		c.wantReady("q")
		if story := c.broker.Story("m"); !strings.Contains(story, "lost with its channel before q took it") {
			c.Errorf("the story does not tell of it:\n%s", story)
		}
	}},
}
