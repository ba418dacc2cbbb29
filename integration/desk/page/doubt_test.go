package page_test

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/desk"
)

// TestALetterInDoubtNeedsItsTarget has a letter whose publisher forged the headers that name another queue.
func TestALetterInDoubtNeedsItsTarget(t *testing.T) {
	s := open(t, siteConfig{queues: []string{"forged-orders.dlq"}})
	work, letters := dead(t, shared, s, "forged-orders", 3)
	ch := channel(t, shared)
	forget(t, ch, "forged-payments", "forged-mine", "forged-mine.kept")
	for _, name := range []string{"forged-payments", "forged-mine"} {
		args := amqp.Table{"x-queue-type": "quorum"}
		if name == "forged-mine" {
			args["x-dead-letter-exchange"], args["x-dead-letter-routing-key"] = "", letters
		}
		_, err := ch.QueueDeclare(name, true, false, false, false, args)
		must(t, err)
	}
	must(t, ch.Publish("", "forged-mine", true, false, amqp.Publishing{
		MessageId: "pay-me", DeliveryMode: amqp.Persistent, Expiration: "1", Body: []byte("pay me"),
		Headers: amqp.Table{"x-rehop-queue": "forged-payments", "x-rehop-cause": "permanent", "x-rehop-error": "no stock", "x-rehop-final-attempts": int64(1)},
	}))
	has(t, shared, letters, 4)

	b := s.browser()
	b.to("groups?queue=" + letters)
	b.click("Look")
	b.to("letters?queue=" + letters)
	b.says("in doubt")
	b.leave(`[...document.querySelectorAll("tbody tr")].find(e => e.innerText.includes("pay-me")).querySelector("a").click()`)
	b.says("In doubt")
	b.says("Without a target it is not sent back")

	b.to("letters?queue=" + letters)
	b.click("Send these")
	b.says("3 letters to queue " + work)
	b.says("1 letter of them is in doubt")
	b.says("Without another place it is left")
	b.leave(`document.querySelector("main button.main").click()`)
	b.says("send · done")
	b.says("name a target")
	has(t, shared, work, 3)
	has(t, shared, letters, 1)
	has(t, shared, "forged-payments", 0)

	// With its target named it goes there.
	b.to("groups?queue=" + letters)
	b.click("Look")
	b.to("letters?queue=" + letters)
	b.click("Send these")
	b.fill("to", "forged-mine.kept")
	_, err := ch.QueueDeclare("forged-mine.kept", true, false, false, false, amqp.Table{"x-queue-type": "quorum"})
	must(t, err)
	b.leave(`document.querySelector("main button.main").click()`)
	b.says("send · done")
	has(t, shared, "forged-mine.kept", 1)
	has(t, shared, letters, 0)
}

// TestOfTwoEqualLettersTheOneThatStaysIsAskedAbout resumes a redrive whose process died after it had sent one of two equal letters.
func TestOfTwoEqualLettersTheOneThatStaysIsAskedAbout(t *testing.T) {
	for _, tt := range []struct {
		answer desk.Answer
		sent   int
	}{{desk.Again, 1}, {desk.Delete, 0}} {
		t.Run(string(tt.answer), func(t *testing.T) {
			name := "equal-" + string(tt.answer)
			letters := name + ".dlq"
			s := open(t, siteConfig{queues: []string{letters}})
			ch := channel(t, shared)
			forget(t, ch, name, letters)
			for _, queue := range []string{name, letters} {
				_, err := ch.QueueDeclare(queue, true, false, false, false, amqp.Table{"x-queue-type": "quorum"})
				must(t, err)
			}
			must(t, ch.Publish("", letters, true, false, amqp.Publishing{MessageId: "m-7", DeliveryMode: amqp.Persistent,
				Headers: amqp.Table{"x-rehop-queue": name, "x-rehop-cause": "exhausted", "x-rehop-error": "no stock", "x-rehop-final-attempts": int64(3)}}))
			has(t, shared, letters, 1)

			b := s.browser()
			b.to("groups?queue=" + letters)
			b.click("Look")
			b.to("letters?queue=" + letters + "&error=no+stock")
			b.leave(`document.querySelector("tbody tr a").click()`)
			link, err := url.Parse(js[string](b, `location.href`))
			must(t, err)
			digest := link.Query().Get("id")
			folder := filepath.Dir(filepath.Dir(s.journal.DroppedTo("o-7")))
			must(t, os.WriteFile(filepath.Join(folder, "redrives", "o-7.jsonl"), fmt.Appendf(nil, `{"redrive":{"id":"o-7","action":"send","source":"queue %[1]s","all":true,"created":%[2]q},"there":2}
{"seen":[%[3]q,%[3]q],"try":[%[3]q]}
{"sent":[%[3]q]}
`, letters, time.Now().UTC().Format(time.RFC3339), digest), 0o600))

			b.to("redrive?id=o-7")
			b.says("send · cut off")
			b.click("Resume")
			b.says("send · done")
			b.says("perhaps sent")
			b.says("m-7")
			has(t, shared, letters, 1) // nobody has decided yet
			has(t, shared, name, 0)
			b.leave(fmt.Sprintf(`document.querySelector("main [name=maybe_sent][value=%s]").click()`, tt.answer))
			b.says("send · done")
			has(t, shared, letters, 0)
			has(t, shared, name, tt.sent)
		})
	}
}
