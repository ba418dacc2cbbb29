package rehoptest_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/rehoptest"
)

// What moves which count of a quorum queue, and whether the limit sees it.
func TestCountsOfAQuorumQueue(t *testing.T) {
	type counts struct{ delivery, acquired any }
	nack := func(c *client, d amqp.Delivery) { c.must(d.Nack(false, true)) }
	reject := func(c *client, d amqp.Delivery) { c.must(d.Reject(true)) }
	crash := func(c *client, _ amqp.Delivery) {
		c.broker.Cut("")
		c.connect()
	}
	one, none := int64(1), any(nil)
	for _, test := range []struct {
		version, name string
		giveBack      func(*client, amqp.Delivery)
		shown         counts
		limited       bool
	}{
		{"3.10", "nack", nack, counts{one, none}, true},
		{"3.10", "reject", reject, counts{one, none}, true},
		{"3.10", "crash", crash, counts{one, none}, true},
		{"4.0", "nack", nack, counts{one, none}, true},
		{"4.0", "reject", reject, counts{one, none}, true},
		{"4.0", "crash", crash, counts{one, none}, true},
		{"4.3", "nack", nack, counts{none, one}, false},
		{"4.3", "reject", reject, counts{one, one}, true},
		{"4.3", "crash", crash, counts{one, one}, true},
	} {
		t.Run(test.version+" "+test.name, func(t *testing.T) {
			inBubble(t, rehoptest.Config{Version: test.version}, func(c *client) {
				c.declare("dead", "quorum", nil)
				c.declare("q", "quorum", amqp.Table{"x-delivery-limit": int64(2), "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
				c.publish("q", persistent("m"))
				for i := range 3 {
					synctest.Wait()
					d, ok, err := c.ch.Get("q", false)
					c.must(err)
					if !ok {
						c.Fatal("the message is gone early")
					}
					if got := (counts{d.Headers["x-delivery-count"], d.Headers["x-acquired-count"]}); i == 1 && got != test.shown {
						c.Errorf("the second delivery shows %v, want %v", got, test.shown)
					}
					test.giveBack(c, d)
				}
				if test.limited {
					c.wantReady("q")
					c.wantReady("dead", "m")
					return
				}
				c.wantReady("q", "m")
			})
		})
	}
}

// A cycle is dropped unless there is a rejection on the way round.
func TestCycles(t *testing.T) {
	for _, version := range []string{"4.0", "4.3"} {
		inBubble(t, rehoptest.Config{Version: version}, func(c *client) {
			c.declare("work", "quorum", amqp.Table{"x-delivery-limit": int64(0), "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "wait"})
			c.declare("wait", "quorum", amqp.Table{"x-message-ttl": int64(1000), "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "work"})
			c.publish("work", persistent("m"))
			for range 3 { // rejections go round for ever
				d := c.take("work")
				c.must(d.Nack(false, false))
			}
			d := c.take("work")
			c.must(d.Reject(true)) // beyond the limit: no rejection since it was in the wait
			c.wantReady("wait")
			c.wantReady("work")
			if story := c.broker.Story("m"); !strings.Contains(story, "a cycle without a rejection") {
				c.Errorf("the story does not tell of the cycle:\n%s", story)
			}
		})
	}
}

// Every third message that leaves a quorum queue of 4.0 is a normal one, whatever
// waited when the others left.
func TestTurnsOfAQuorumQueue(t *testing.T) {
	for _, test := range []struct {
		version, expected string
	}{
		{"3.10", "a b c D E F"},
		{"4.0", "a b c D E F"}, // the third turn after a and b is that of c
		{"4.3", "a b D E F c"},
	} {
		t.Run(test.version, func(t *testing.T) {
			inBubble(t, rehoptest.Config{Version: test.version}, func(c *client) {
				c.declare("q", "quorum", nil)
				var got []string
				take := func() {
					d, _, err := c.ch.Get("q", true)
					c.must(err)
					got = append(got, string(d.Body))
				}
				publish := func(body string) {
					m := persistent(body)
					if body == strings.ToUpper(body) {
						m.Priority = 9
					}
					c.publish("q", m)
				}
				for _, body := range []string{"a", "b", "c"} {
					publish(body)
				}
				take()
				take()
				for _, body := range []string{"D", "E", "F"} {
					publish(body)
				}
				for range 4 {
					take()
				}
				if s := strings.Join(got, " "); s != test.expected {
					t.Errorf("handed out: %s, want %s", s, test.expected)
				}
			})
		})
	}
}

// What a basic.get says is left has not expired.
func TestLeftAfterExpiry(t *testing.T) {
	inBubble(t, rehoptest.Config{Version: "4.0"}, func(c *client) {
		c.declare("q", "quorum", nil)
		c.publish("q", persistent("stays"))
		m := persistent("goes")
		m.Expiration = "30"
		c.publish("q", m)
		time.Sleep(time.Second)
		d, _, err := c.ch.Get("q", true)
		c.must(err)
		if string(d.Body) != "stays" || d.MessageCount != 0 {
			c.Errorf("%q with %d left", d.Body, d.MessageCount)
		}
	})
}

// On 3.10 a consumer that gives back a message for the last time has room for
// two others.
func TestPrefetchBeyondTheDeliveryLimit(t *testing.T) {
	for version, want := range map[string]int{"3.10": 2, "4.0": 1, "4.3": 1} {
		t.Run(version, func(t *testing.T) {
			inBubble(t, rehoptest.Config{Version: version}, func(c *client) {
				c.declare("q", "quorum", amqp.Table{"x-delivery-limit": int64(0)})
				for _, body := range []string{"m1", "m2", "m3", "m4"} {
					c.publish("q", persistent(body))
				}
				c.must(c.ch.Qos(1, 0, false))
				stream, err := c.ch.Consume("q", "", false, false, false, false, nil)
				c.must(err)
				first := <-stream
				c.must(first.Reject(true))
				synctest.Wait()
				if q, _ := c.broker.Queue("q"); len(q.Unacked) != want {
					c.Errorf("%d messages are with the consumer, want %d", len(q.Unacked), want)
				}
			})
		})
	}
}
