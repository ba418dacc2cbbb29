package page_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/desk"
	"github.com/rehop/rehop/integration/broker"
	"github.com/rehop/rehop/integration/poll"
	"github.com/rehop/rehop/store"
	"github.com/rehop/rehop/topology"
)

// TestAQueueIsSeenUnderstoodAndSentBack goes through every view of a live queue.
func TestAQueueIsSeenUnderstoodAndSentBack(t *testing.T) {
	s := open(t, siteConfig{queues: []string{"live-orders.dlq"}})
	const n = 60
	work, letters := dead(t, shared, s, "live-orders", n)
	b := s.browser()
	b.counts(letters, "60")
	b.to("groups?queue=" + letters)
	b.says("Look into")
	b.click("Look")
	b.says("Looked at 60 letters")
	b.says("60 letters in 5 groups")
	b.says("reserve stock for article")

	// One letter, in all its forms.
	b.to("letters?queue=" + letters + "&text=index+out+of+range")
	b.leave(`document.querySelector("tbody tr a").click()`)
	b.says("goroutine 84")
	b.says("published to exchange")
	b.says("given up: permanent after 5 attempts")
	b.says(`"currency": "EUR"`)
	b.leave(`[...document.querySelectorAll(".modes a")].find(e => e.innerText === "hex").click(); window.leaving = false`)
	b.says("7b 22 6f 72 64 65 72")
	panics := js[string](b, `document.querySelector(".letter-head .mono").innerText`)

	// It is sent alone.
	b.click("Send back")
	b.says("Send 1 letter back")
	b.fill("why", "the index is mended")
	b.leave(`document.querySelector("main button.main").click()`)
	b.says("send · done")
	has(t, shared, work, 1)
	sent := drain(t, shared, work)
	if sent[0].MessageId != panics || sent[0].Headers["x-rehop-redrives"] == nil || sent[0].Headers["x-rehop-error"] != nil {
		t.Errorf("sent: %s %v, want %s", sent[0].MessageId, sent[0].Headers, panics)
	}
	b.to("audit")
	b.says("the index is mended")
	b.says("ada")

	// The look outlives the redrive; then a group is sent by its cause.
	b.to("groups?queue=" + letters)
	b.says("59 letters in 5 groups")
	b.to("letters?queue=" + letters + "&cause=crash-loop")
	crashed := js[int](b, `document.querySelectorAll("tbody tr").length`)
	b.click("Send these")
	b.fill("rate", "500")
	b.leave(`document.querySelector("main button.main").click()`)
	b.says("send · done")
	has(t, shared, work, crashed)
	drain(t, shared, work)
	has(t, shared, letters, n-1-crashed)

	// One is changed and sent.
	b.to("groups?queue=" + letters)
	b.click("Look")
	b.to("letters?queue=" + letters + "&error=decode+order")
	b.leave(`document.querySelector("tbody tr a").click()`)
	b.click("Edit")
	b.fill("body", `{"order": "mended"}`)
	js[chromedp.Void](b, `document.querySelector("[aria-label='Name of a new header']").value = "checked"; document.querySelector("[aria-label='Value of the new header']").value = "yes"; document.querySelector("[name=remove][value=tenant]").checked = true; undefined`)
	b.click("Review the change")
	b.says("What changes")
	b.says("removed")
	b.click("Send the changed message")
	b.says("send · done")
	has(t, shared, work, 1)
	sent = drain(t, shared, work)
	if string(sent[0].Body) != `{"order": "mended"}` || sent[0].Headers["checked"] != "yes" || sent[0].Headers["tenant"] != nil {
		t.Errorf("changed: %s %v", sent[0].Body, sent[0].Headers)
	}

	// All are found again by search, and downloaded.
	b.to("groups?queue=" + letters)
	b.click("Look")
	b.to("./")
	b.fillSearch("connection refused")
	b.says("connect: connection refused")
	lines := js[string](b, fmt.Sprintf(`fetch("export", {method: "POST", body: new URLSearchParams({queue: %q, cause: "exhausted"})}).then(r => r.text())`, letters))
	for i, line := range strings.Split(strings.TrimSpace(lines), "\n") {
		var l struct{ Cause string }
		if json.Unmarshal([]byte(line), &l) != nil || l.Cause != "exhausted" {
			t.Fatalf("line %d: %.200s", i, line)
		}
	}
	b.to("redrives")
	if redrives := js[int](b, `document.querySelectorAll("tbody tr").length`); redrives != 3 {
		t.Errorf("%d redrives, want 3", redrives)
	}
	b.leave(`document.querySelector("tbody tr a").click()`)
	b.says("What was asked for")
}

// TestCollectedLettersAreKeptEditedAndSent goes through what only a store can do.
func TestCollectedLettersAreKeptEditedAndSent(t *testing.T) {
	s := open(t, siteConfig{collected: true, queues: []string{"kept-orders.dlq"}})
	const n = 50
	work, letters := dead(t, shared, s, "kept-orders", n)
	s.collect(letters, n)
	b := s.browser()
	b.says("store letters.db")
	b.to("groups?store=store+letters.db")
	b.says("50 letters in 5 groups")
	poll.Until(t, time.Minute, "trends of the groups", func() bool { // a page leaves out trends that take long, as on a busy machine
		b.to("groups?store=store+letters.db")
		return js[int](b, `document.querySelectorAll("svg.bars").length`) > 0
	})
	count := func(q store.Query) int {
		t.Helper()
		have, err := s.letters.Count(t.Context(), q)
		must(t, err)
		return have
	}
	b.to("letters?store=store+letters.db&cause=crash-loop")
	crashed := js[int](b, `document.querySelectorAll("tbody tr").length`)
	b.click("Park")
	b.fill("why", "ask the team of the warehouse")
	b.leave(`document.querySelector("main button.main").click()`)
	b.says("parked.")
	if have := count(store.Query{States: []store.State{store.Parked}}); have != crashed {
		t.Errorf("%d parked, want %d", have, crashed)
	}
	b.to("letters?store=store+letters.db&error=index+out")
	archived := js[int](b, `document.querySelectorAll("tbody tr").length`)
	b.click("Archive")
	b.leave(`document.querySelector("main button.main").click()`)
	b.says("archived.")
	if have := count(store.Query{States: []store.State{store.Archived}}); have != archived {
		t.Errorf("%d archived, want %d", have, archived)
	}

	b.to("letters?store=store+letters.db&error=decode+order")
	b.leave(`document.querySelector("tbody tr a").click()`)
	letter := js[string](b, `new URLSearchParams(location.search).get("id")`)
	b.click("Edit")
	b.fill("body", `{"order":"mended"}`)
	b.click("Review the change")
	b.leave(`[...document.querySelectorAll("main button")].find(e => e.innerText === "Save").click()`)
	b.says("Saved")
	b.says("mended")
	b.click("Send back")
	b.leave(`document.querySelector("main button.main").click()`)
	b.says("send · done")
	has(t, shared, work, 1)
	if sent := drain(t, shared, work); string(sent[0].Body) != `{"order":"mended"}` {
		t.Errorf("letter %s was sent with %q", letter, sent[0].Body)
	}

	// The rest, slowly, with progress; stopped, and resumed.
	left := count(store.Query{States: []store.State{store.Held}})
	b.to("letters?store=store+letters.db&state=held")
	b.click("Send these")
	b.fill("rate", "4")
	b.leave(`document.querySelector("main button.main").click()`)
	b.wait(`parseInt(document.querySelector("main .depth b").innerText) >= 2`)
	b.click("Stop")
	b.says("send · stopped")
	if have := count(store.Query{States: []store.State{store.Held}}); have == 0 || have == left {
		t.Errorf("%d of %d are left after a stop", have, left)
	}
	b.click("Resume")
	b.says("send · done")
	has(t, shared, work, left)
	drain(t, shared, work)
}

// TestALetterThatComesBackStopsTheOrder sends with a canary to a queue whose consumer
// fails at once.
func TestALetterThatComesBackStopsTheRedrive(t *testing.T) {
	s := open(t, siteConfig{queues: []string{"canary-orders.dlq"}})
	work, letters := dead(t, shared, s, "canary-orders", 20)
	ch := channel(t, shared)
	deliveries, err := ch.Consume(work, "", false, false, false, false, nil)
	must(t, err)
	go func() { // a consumer that gives up at once
		for d := range deliveries {
			d.Headers["x-rehop-queue"], d.Headers["x-rehop-cause"] = work, "permanent"
			_ = ch.Publish("", letters, false, false, amqp.Publishing{MessageId: d.MessageId, Headers: d.Headers, Body: d.Body, DeliveryMode: amqp.Persistent})
			_ = d.Ack(false)
		}
	}()
	b := s.browser()
	b.to("letters?queue=" + letters)
	b.click("Look")
	b.click("Send these")
	b.fill("canary", "15s")
	b.leave(`document.querySelector("main button.main").click()`)
	b.says("send · failed")
	b.says("canary came back")
	has(t, shared, letters, 20)
}

// TestThePageNamesWhatItDoesNotSee: letters behind a look, queues without one, and no numbers
// of the page's own doing.
func TestThePageNamesWhatItDoesNotSee(t *testing.T) {
	s := open(t, siteConfig{queues: []string{"many-orders.dlq"}})
	const n = 10_050
	work, letters := dead(t, shared, s, "many-orders", n)
	last := id("many-orders", n-1)
	b := s.browser()
	b.counts(letters, "10,050")
	b.fillSearch(last)
	b.says("Not searched")
	b.says(letters)
	b.to("groups?queue=" + letters)
	b.click("Look")
	b.says("Looked at 10,000 letters")
	b.says("the first 10000 of 10050 letters")
	b.fillSearch(last)
	b.says("Nothing among the first 10000 of 10050 letters")
	b.to("letters?queue=" + letters + "&mid=" + last)
	b.says("No letter fits the conditions among those that were looked at")

	// A download is whole or nothing.
	for _, cause := range []string{"", "exhausted"} {
		refused := js[string](b, fmt.Sprintf(`fetch("export", {method: "POST", body: new URLSearchParams({queue: %q, cause: %q})}).then(r => r.text().then(t => r.status + " " + r.headers.get("Content-Disposition") + " " + t.includes("would leave letters out")))`, letters, cause))
		if refused != "409 null true" {
			t.Errorf("cause %q: %s", cause, refused)
		}
	}

	// The page's own redrive is no collector, and has no letters in hand.
	b.to("send?queue=" + letters + "&mid=" + id("many-orders", 3))
	b.leave(`document.querySelector("main button.main").click()`)
	b.says("send · done")
	has(t, shared, work, 1)
	b.to("./")
	if row := b.counts(letters, "10,049"); !strings.Contains(row, "none") || strings.Contains(row, "in hand") {
		t.Errorf("after a redrive: %s", row)
	}
}

// TestTwoBrowsersSeeTheSame: a redrive of one browser is seen, and stopped, in another.
func TestTwoBrowsersSeeTheSame(t *testing.T) {
	s := open(t, siteConfig{queues: []string{"two-orders.dlq"}})
	_, letters := dead(t, shared, s, "two-orders", 80)
	one, other := s.browser(), s.browser()
	one.to("letters?queue=" + letters)
	one.click("Look")
	one.click("Send these")
	one.fill("rate", "3")
	one.leave(`document.querySelector("main button.main").click()`)
	one.says("send · running")
	other.says("send · running") // the overview, which was open all the time
	other.to("redrives")
	other.leave(`document.querySelector("tbody tr a").click()`)
	other.wait(`parseInt(document.querySelector("main .depth b").innerText) >= 3`)
	other.click("Stop")
	other.says("send · stopped")
	one.says("send · stopped")
}

// TestABrokerThatGoesAndComes is seen by a page that is open.
func TestABrokerThatGoesAndComes(t *testing.T) {
	own, err := broker.Start(t.Context(), broker.Options{Version: os.Getenv("RABBITMQ_VERSIONS"), Name: "rehop-page-away"})
	must(t, err)
	t.Cleanup(func() { own.Close(context.Background()) })
	s := open(t, siteConfig{broker: own, queues: []string{"away-orders.dlq"}})
	_, letters := dead(t, own, s, "away-orders", 5)
	b := s.browser()
	b.counts(letters, "5")
	b.to("groups?queue=" + letters)
	b.click("Look")
	b.says("5 letters in")
	b.to("./")
	b.says("Queues counted now, by the management API, whose numbers lag")
	must(t, own.Stop(t.Context()))
	b.says("The broker is away")
	b.says("stale Queues counted")
	b.says("the numbers below are those of")
	b.counts(letters, "5")
	b.to("groups?queue=" + letters)
	b.says("5 letters in") // the last look is still there
	b.click("Look again")
	b.says("The letters are safe in their queues")
	b.to("./")
	must(t, own.Start(t.Context()))
	b.wait(`!document.body.innerText.includes("broker away") && !document.body.innerText.includes("The broker is away")`)
	b.wait(`!document.body.innerText.includes("stale")`)
	b.to("groups?queue=" + letters)
	b.click("Look again")
	b.says("Looked at 5 letters")
}

// TestABrokerWithAnAlarm is there, and a redrive waits for it. The page tells it from one that is away.
func TestABrokerWithAnAlarm(t *testing.T) {
	own, err := broker.Start(t.Context(), broker.Options{Version: os.Getenv("RABBITMQ_VERSIONS"), Name: "rehop-page-alarm"})
	must(t, err)
	t.Cleanup(func() { own.Close(context.Background()) })
	s := open(t, siteConfig{broker: own})
	work, letters := dead(t, own, s, "alarm-orders", 5)
	b := s.browser()
	b.counts(letters, "5")
	ctl := func(args ...string) string {
		t.Helper()
		out, err := own.Exec(t.Context(), append([]string{"rabbitmqctl", "-q"}, args...)...)
		must(t, err)
		return strings.TrimSpace(out)
	}
	watermark := ctl("eval", "vm_memory_monitor:get_vm_memory_high_watermark().")
	ctl("set_vm_memory_high_watermark", "0.0000001")
	poll.Until(t, patience, "an alarm", func() bool { return ctl("eval", "rabbit_alarm:get_alarms().") != "[]" })
	b.to("groups?queue=" + letters)
	b.click("Look") // takes letters all the same
	b.says("5 letters in")
	b.to("send?queue=" + letters)
	b.click("Send 5 letters")
	b.says("send · running")
	redrive := js[string](b, `location.search`)
	b.to("./")
	b.says("RabbitMQ " + s.conn.Server().Version.String() + " takes no messages")
	b.says("low on memory")
	b.wait(`!/away|stale/.test(document.querySelector("main").innerText + document.querySelector("#live-status").innerText)`)
	ctl("eval", "vm_memory_monitor:set_vm_memory_high_watermark("+watermark+").")
	b.wait(`document.querySelector("#live-status .good") != null && !document.body.innerText.includes("takes no messages")`)
	b.to("redrive" + redrive)
	b.says("send · done")
	has(t, own, work, 5)
}

// TestABrokerThatAnswersNobody keeps its sockets and answers neither AMQP nor the management
// API. A page that is open says so, and calls no queue empty; so does the command.
func TestABrokerThatAnswersNobody(t *testing.T) {
	own, err := broker.Start(t.Context(), broker.Options{Version: os.Getenv("RABBITMQ_VERSIONS"), Name: "rehop-page-silent"})
	must(t, err)
	t.Cleanup(func() { own.Close(context.Background()) })
	s := open(t, siteConfig{broker: own, lazy: true}) // as the command
	must(t, topology.Declare(t.Context(), s.conn, topology.WorkQueue{Name: "silent-orders"}))
	b := s.browser()
	b.says("No dead letters")
	b.wait(`document.querySelector("#live-status .good") != null`)
	must(t, own.Pause(t.Context()))
	b.says("broker away since")
	b.says("The broker is away")
	b.says("No dead letters when they were counted")
	b.wait(`document.querySelector("#live-status .good") == null && !document.body.innerText.includes("The broker itself does")`)
	findings := desk.Examine(t.Context(), connection.Config{URLs: []string{own.AMQPURL()}, ManagementURL: own.ManagementURL()})
	if len(findings) != 1 || findings[0].About != "connection" || findings[0].Level != desk.Wrong {
		t.Errorf("the doctor says %+v", findings)
	}
	must(t, own.Unpause(t.Context()))
	b.wait(`document.querySelector("#live-status .good") != null`)
	b.wait(`!document.body.innerText.includes("The broker is away") && !document.body.innerText.includes("when they were counted")`)
}

const evil = `<script>window.pwned=1</script>"><img src=x onerror="window.pwned=1"><svg onload="window.pwned=1">'` + "\u202etxet"

// TestAHostileLetterIsOnlyText opens letters in every view that try to run in the page.
func TestAHostileLetterIsOnlyText(t *testing.T) {
	const queue = `evil<img src=x onerror="window.pwned=1">.dlq`
	s := open(t, siteConfig{collected: true, queues: []string{queue}})
	must(t, topology.Declare(t.Context(), s.conn, topology.DeadLetterQueue{Name: queue}))
	ch := channel(t, shared)
	must(t, ch.Confirm(false))
	bodies := []string{evil, `{"a":"` + `<script>window.pwned=1<\/script>` + `"}`, strings.Repeat("[", 9000) + strings.Repeat("]", 9000), strings.Repeat(evil, 10<<20/len(evil)), "\xff\xfe\x00\x01", ""}
	for i, body := range bodies {
		confirm, err := ch.PublishWithDeferredConfirm("", queue, false, false, amqp.Publishing{
			MessageId: fmt.Sprintf("%d%s", i, evil[:60]), ContentType: "text/html", Body: []byte(body), DeliveryMode: amqp.Persistent,
			Headers: amqp.Table{
				evil: evil, "nested": amqp.Table{evil: []any{evil}}, "x-rehop-queue": "work" + evil, "x-rehop-cause": evil, "x-rehop-error": evil, "x-rehop-error-type": evil, "x-rehop-stack": evil, "x-rehop-host": evil,
			},
		})
		must(t, err)
		confirm.Wait()
	}
	has(t, shared, queue, len(bodies))
	b := s.browser()
	harmless := func(page string) {
		t.Helper()
		b.to(page)
		bad := js[string](b, `[window.pwned ? "it ran" : "", document.querySelector("img, main script, svg[onload]") ? "it is an element" : "", document.documentElement.outerHTML.length > 2e6 ? "it is large" : ""].join("")`)
		if bad != "" {
			t.Errorf("%s: %s", page, bad)
		}
	}
	place := "queue=" + strings.NewReplacer("<", "%3C", ">", "%3E", `"`, "%22", " ", "+", "=", "%3D").Replace(queue)
	b.to("letters?" + place)
	b.click("Look")
	b.says("Looked at")
	ids := js[[]string](b, `[...document.querySelectorAll("tbody tr a")].map(a => new URL(a.href).searchParams.get("id"))`)
	if len(ids) != len(bodies) {
		t.Fatalf("%d letters", len(ids))
	}
	for _, page := range []string{"./", "groups?" + place, "letters?" + place, "search?text=pwned", "send?" + place} {
		harmless(page)
	}
	for _, id := range ids {
		for _, page := range []string{"letter?", "letter?body=text&", "letter?body=hex&", "edit?", "send?"} {
			harmless(page + place + "&id=" + id)
		}
	}
	s.collect(queue, len(bodies))
	for _, page := range []string{"groups?store=store+letters.db", "letters?store=store+letters.db", "letter?store=store+letters.db&id=1", "edit?store=store+letters.db&id=1", "keep?store=store+letters.db&id=1&do=park", "./"} {
		harmless(page)
	}
	_, err := s.hostileRecord()
	must(t, err)
	harmless("audit")
}

// hostileRecord writes something hostile into the audit.
func (s *site) hostileRecord() (int, error) {
	c, err := desk.NewCollected(s.letters, s.conn, desk.CollectedConfig{Journal: s.journal, Name: "store " + evil})
	if err != nil {
		return 0, err
	}
	return c.Park(s.Context(), desk.Filter{Error: evil}, desk.By{Who: evil, Why: evil})
}
