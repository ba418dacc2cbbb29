package rehoptest_test

import (
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/rehoptest"
)

// Before 4.3 the channel looks once a minute, and is closed.
func TestConsumerTimeoutOfAChannel(t *testing.T) {
	for _, version := range []string{"3.10", "4.0"} {
		inBubble(t, rehoptest.Config{Version: version}, func(c *client) {
			c.declare("q", "quorum", nil)
			closed := c.ch.NotifyClose(make(chan *amqp.Error, 1))
			_, err := c.ch.Consume("q", "", false, false, false, false, nil)
			c.must(err)
			time.Sleep(30 * time.Second)
			c.publish("q", persistent("m"))
			start := time.Now()
			err = <-closed
			if took := time.Since(start); code(err) != 406 || took < 30*time.Minute || took > 31*time.Minute {
				c.Errorf("%s: %v after %v, want 406 after 30 to 31 minutes", version, err, took)
			}
			c.wantReady("q", "m")
		})
	}
}

// Since 4.3 the queue cancels the consumer, and gives it nothing more until it
// has settled what came too late.
func TestConsumerTimeoutOfAQueue(t *testing.T) {
	inBubble(t, rehoptest.Config{Version: "4.3"}, func(c *client) {
		c.declare("q", "quorum", nil)
		c.must(c.ch.Qos(1, 0, false))
		cancelled := c.ch.NotifyCancel(make(chan string, 1))
		deliveries, err := c.ch.Consume("q", "slow", false, false, false, false, amqp.Table{"x-consumer-timeout": int64(2000)})
		c.must(err)
		c.publish("q", persistent("m"))
		start := time.Now()
		d := <-deliveries
		if tag := <-cancelled; tag != "slow" || time.Since(start) != 2*time.Second {
			c.Errorf("%s was cancelled after %v", tag, time.Since(start))
		}
		c.wantReady("q", "m")
		c.must(d.Ack(false)) // too late: the next one goes to the dead tag
		synctest.Wait()
		c.wantReady("q")
		q, _ := c.broker.Queue("q")
		if len(q.Unacked) != 1 || q.Unacked[0].Headers["x-acquired-count"] != int64(1) {
			c.Errorf("with a consumer: %v", q.Unacked)
		}
	})
}
