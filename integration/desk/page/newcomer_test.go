package page_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// newcomer uses a page by what it shows alone, with a pointer and a keyboard, and counts what a
// person has to do.
type newcomer struct {
	*tab
	clicks, fields int
}

// press clicks what shows a text, wherever it is, which leads to another page.
func (n *newcomer) press(text string) {
	n.Helper()
	n.clicks++
	quoted := fmt.Sprintf("%q", text)
	n.wait(fmt.Sprintf(`[...document.querySelectorAll("main a, main button")].some(e => e.checkVisibility() && e.innerText.trim().startsWith(%s))`, quoted))
	n.leave(fmt.Sprintf(`[...document.querySelectorAll("main a, main button")].find(e => e.checkVisibility() && e.innerText.trim().startsWith(%s)).click()`, quoted))
}

// point clicks something on the page.
func (n *newcomer) point(element string) {
	n.Helper()
	n.clicks++
	if !js[bool](n.tab, fmt.Sprintf(`(e => e && e.checkVisibility() && (e.click(), true))(%s)`, element)) {
		n.Fatalf("%s is not seen at %s", element, js[string](n.tab, `location.href`))
	}
}

func (n *newcomer) write(name, text string) {
	n.Helper()
	n.fields++
	n.fill(name, text)
}

// Somebody who has never seen the page finds out why letters died, selects five of them, sends one
// changed and two as they are, and deletes two. A click takes such a person up to four seconds and a
// field ten; that is less than three minutes.
func TestANewcomerTakesThreeMinutes(t *testing.T) {
	s := open(t, siteConfig{queues: []string{"newcomer.dlq"}})
	work, letters := dead(t, shared, s, "newcomer", 80)
	b := &newcomer{tab: s.browser()}
	b.counts(letters, "80")
	began := time.Now()

	// Why did they die?
	b.clicks++
	b.leave(fmt.Sprintf(`[...document.querySelectorAll(".places tbody tr")].find(e => e.dataset.row === %q).querySelector("button").click()`, letters))
	b.says("no stock in warehouse Leipzig")
	b.says("cannot unmarshal string into Go struct field Order.amount")
	b.clicks++
	b.leave(`[...document.querySelectorAll(".groups h2 a")].find(e => e.innerText.includes("decode order")).click()`)
	b.says("Send these")
	b.clicks++
	b.leave(`document.querySelector("tbody tr a").click()`)
	b.says("given up: permanent after 5 attempts")
	b.press(letters)

	// Five are selected.
	rows := func() []string {
		return js[[]string](b.tab, `[...document.querySelectorAll("tbody tr .id")].map(e => e.innerText)`)
	}
	pick := func(ids ...string) {
		t.Helper()
		for _, id := range ids {
			b.point(fmt.Sprintf(`[...document.querySelectorAll("tbody tr")].find(e => e.querySelector(".id").innerText === %q).querySelector("input")`, id))
		}
	}
	found := rows()
	if len(found) < 5 {
		t.Fatalf("%d letters of the group: %q", len(found), found)
	}
	five := found[:5]
	pick(five...)
	b.says("5 letters selected")
	pick(five[:3]...) // of these, two are to be deleted
	b.says("2 letters selected")
	b.press("Delete")
	b.says("Delete 2 letters")
	b.write("why", "orders of a test")
	b.press("Delete 2 letters")
	b.says("delete · done")

	// One is changed.
	b.press("The letters that are left")
	b.clicks++
	b.leave(fmt.Sprintf(`[...document.querySelectorAll("tbody tr")].find(e => e.querySelector(".id").innerText === %q).querySelector("a").click()`, five[0]))
	b.press("Edit")
	body := js[string](b.tab, `document.querySelector("textarea").value`)
	b.write("body", strings.Replace(body, `"44.30"`, `44.30`, 1))
	b.press("Review the change")
	b.says("44.30")
	b.press("Send")
	b.says("send · done")

	// Two go as they are.
	b.press("The letters that are left")
	pick(five[1:3]...)
	b.press("Send back")
	b.says("Send 2 letters back")
	b.press("Send 2 letters")
	b.says("send · done")

	took := time.Since(began)
	person := time.Duration(b.clicks)*4*time.Second + time.Duration(b.fields)*10*time.Second
	t.Logf("%d clicks and %d fields: %v of a person, and %v of this browser", b.clicks, b.fields, person, took.Round(time.Second/10))
	if person > 3*time.Minute {
		t.Errorf("%d clicks and %d fields take a newcomer %v", b.clicks, b.fields, person)
	}
	has(t, shared, letters, 75)
	has(t, shared, work, 3)
	sent := drain(t, shared, work)
	if sent[0].MessageId != five[0] || !strings.Contains(string(sent[0].Body), `:44.30,`) || sent[1].MessageId != five[1] || sent[2].MessageId != five[2] {
		t.Errorf("sent: %s %s, %s, %s; want %q", sent[0].MessageId, sent[0].Body, sent[1].MessageId, sent[2].MessageId, five[:3])
	}
}
