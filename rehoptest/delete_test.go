package rehoptest_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/rehoptest"
)

func TestADeletedQueueGivesAllItHeld(t *testing.T) {
	inBubble(t, rehoptest.Config{}, func(c *client) {
		c.declare("q", "classic", nil)
		cancelled := c.ch.NotifyCancel(make(chan string, 1))
		for _, body := range []string{"fetched", "ready"} {
			m := persistent(body)
			m.MessageId = body
			c.publish("q", m).Wait()
		}
		c.take("q")
		if _, err := c.ch.Consume("q", "office", false, false, false, false, nil); err != nil {
			c.Fatal(err)
		}
		c.broker.Refuse("q", true)
		waiting := persistent("not answered")
		waiting.MessageId = "not answered"
		confirm := c.publish("q", waiting)
		synctest.Wait()

		var bodies []string
		for _, m := range c.broker.DeleteQueue("q") {
			bodies = append(bodies, string(m.Body))
			if story := c.broker.Story(m.MessageId); !strings.Contains(story, "deleted with q") {
				c.Errorf("the story of %q does not end with the queue:\n%s", m.Body, story)
			}
		}
		slices.Sort(bodies)
		if want := []string{"fetched", "not answered", "ready"}; !slices.Equal(bodies, want) {
			c.Errorf("DeleteQueue = %q, want %q", bodies, want)
		}
		if tag := <-cancelled; tag != "office" {
			c.Errorf("consumer %q is cancelled, want office", tag)
		}
		if !confirm.Wait() {
			c.Error("what the queue had not answered is not confirmed")
		}
		if _, ok := c.broker.Queue("q"); ok || c.broker.DeleteQueue("q") != nil {
			c.Error("the queue is still there")
		}
	})
}

func TestADeletedExchangeTakesItsBindings(t *testing.T) {
	inBubble(t, rehoptest.Config{}, func(c *client) {
		c.declare("q", "quorum", nil)
		c.must(c.ch.ExchangeDeclare("shop", "fanout", true, false, false, false, nil))
		c.must(c.ch.QueueBind("q", "", "shop", false, nil))
		if !c.broker.DeleteExchange("shop") || c.broker.DeleteExchange("shop") || c.broker.DeleteExchange("") {
			c.Error("DeleteExchange does not say whether there was one")
		}
		c.must(c.ch.ExchangeDeclare("shop", "fanout", true, false, false, false, amqp.Table{}))
		if n, err := c.broker.Publish(rehoptest.Message{Exchange: "shop"}); n != 0 || err != nil {
			c.Errorf("published to %d queues, %v; want none", n, err)
		}
	})
}
