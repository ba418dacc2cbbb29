package page_test

import (
	"fmt"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/desk"
)

// TestAButtonSendsNoMoreThanItSays looks into a queue that is longer than a look. Letters come
// before each button is pressed.
func TestAButtonSendsNoMoreThanItSays(t *testing.T) {
	s := open(t, siteConfig{queues: []string{"bound-orders.dlq"}})
	const n, late = desk.MaxWindow + 1300, 40
	work, letters := dead(t, shared, s, "bound-orders", n)
	ch := channel(t, shared)
	come := func() {
		t.Helper()
		for range late {
			must(t, ch.Publish("", letters, false, false, amqp.Publishing{DeliveryMode: amqp.Persistent, Headers: amqp.Table{"x-rehop-queue": work, "x-rehop-cause": "exhausted", "x-rehop-error": "late"}}))
		}
	}
	b := s.browser()
	b.to("letters?queue=" + letters + "&cause=crash-loop")
	b.click("Look")
	b.click("Send these")
	crashed := js[int](b, `parseInt(document.querySelector("main button.main").value)`)
	b.says(fmt.Sprintf("Send these %d", crashed))
	b.says("Send all that match, at most 11,300")
	come()
	b.leave(`document.querySelector("main button.main").click()`)
	b.says("send · done")
	b.says("of the look at")
	b.says(fmt.Sprintf("%d of %d", crashed, crashed))
	has(t, shared, work, crashed)

	b.to("letters?queue=" + letters)
	b.click("Look")
	b.click("Send these")
	b.says("Send these 10,000")
	left := n + late - crashed
	button := fmt.Sprintf("Send all %d,%03d", left/1000, left%1000)
	b.says(button)
	come()
	b.fill("rate", "0")
	b.click(button)
	b.says("send · done")
	has(t, shared, letters, late)
	has(t, shared, work, left+crashed)
}
