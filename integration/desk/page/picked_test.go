package page_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// Of the letters of one look two are deleted, one is moved and two are sent, each picked by hand.
func TestLettersArePickedByHand(t *testing.T) {
	s := open(t, siteConfig{queues: []string{"picked.dlq"}})
	const n = 12
	work, letters := dead(t, shared, s, "picked", n)
	_, parked := dead(t, shared, s, "picked-parked", 0)
	b := s.browser()
	b.to("groups?queue=" + letters)
	b.click("Look")
	b.says("12 letters in")
	pick := func(rows ...int) (ids []string) {
		t.Helper()
		b.to("letters?queue=" + letters)
		b.wait(`getComputedStyle(document.querySelector(".picked")).display === "none"`)
		const tops = `[...document.querySelectorAll("tbody tr")].map(e => e.getBoundingClientRect().top + scrollY).join(" ")`
		before := js[string](b, tops)
		for _, row := range rows {
			at := fmt.Sprintf(`document.querySelectorAll("tbody tr")[%d]`, row)
			js[chromedp.Void](b, at+`.querySelector("input").click()`)
			ids = append(ids, js[string](b, at+`.querySelector(".id").innerText`))
		}
		b.wait(`getComputedStyle(document.querySelector(".picked")).display !== "none"`)
		if after := js[string](b, tops); after != before { // the next click would select another letter
			t.Errorf("rows are at %s once letters are selected, and were at %s", after, before)
		}
		if all := js[int](b, `[...document.querySelectorAll("main a, main button")].filter(e => e.checkVisibility() && /^(Send|Delete|Move)/.test(e.innerText)).length`); all != 3 {
			t.Errorf("%d buttons send, delete or move, want the three that are about what is selected", all)
		}
		b.wait(fmt.Sprintf(`/^%d letters? selected$/.test(document.querySelector("[data-picked]").innerText)`, len(rows)))
		return ids
	}
	press := func(deed string) {
		b.leave(fmt.Sprintf(`document.querySelector("button[name=deed][value=%s]").click()`, deed))
	}

	gone := pick(1, 4)
	do(b, chromedp.EmulateViewport(400, 500, chromedp.EmulateMobile))
	js[chromedp.Void](b, `scrollTo(0, 101); undefined`)
	b.wait(`scrollY > 100`)
	b.wait(`[...document.querySelectorAll(".picked button, [data-picked]")].every(e => { const r = e.getBoundingClientRect(); return document.elementFromPoint(r.x + r.width / 2, r.y + 2) === e; })`) // nothing is over them
	do(b, chromedp.EmulateViewport(1280, 860))
	press("drop")
	b.says("Delete 2 letters")
	b.fill("why", "test data")
	b.click("Delete 2 letters")
	b.says("delete · done")
	has(t, shared, letters, n-2)
	command := js[string](b, `document.querySelector(".redrive code").innerText`)
	file, isImport := strings.CutPrefix(command, "rehop dlq import "+letters+" ")
	if !isImport {
		t.Fatalf("the letters go command with %q, want an import of their file into %s", command, letters)
	}
	text, err := os.ReadFile(file)
	must(t, err)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	for i, id := range gone {
		if len(lines) != len(gone) || !strings.Contains(lines[i], id) {
			t.Fatalf("the file has %d lines: %.400s, want %q", len(lines), text, gone)
		}
	}

	b.leave(`history.go(-2)`) // the letters at the places of those that were deleted are not ticked for them
	b.wait(fmt.Sprintf(`document.querySelectorAll("tbody tr").length === %d && !document.querySelector("tbody input:checked")`, n-2))

	aside := pick(0)
	press("move")
	b.says("Move 1 letter")
	b.fill("to", parked)
	b.click("Move 1 letter")
	b.says("move · done")
	has(t, shared, parked, 1)
	if moved := drain(t, shared, parked); moved[0].MessageId != aside[0] || moved[0].Headers["x-rehop-error"] == nil {
		t.Errorf("moved: %s %v, want %s as it was", moved[0].MessageId, moved[0].Headers, aside[0])
	}

	back := pick(2, 3)
	b.leave(`document.querySelector("tbody tr a").click()`)
	b.leave(`history.back()`)
	b.wait(`document.querySelectorAll("tbody input:checked").length === 2`) // the browser ticks them again
	b.wait(`document.querySelector("[data-picked]").innerText.startsWith("2 letters")`)
	press("send")
	b.says("Send 2 letters back")
	b.click("Send 2 letters")
	b.says("send · done")
	has(t, shared, work, 2)
	for i, sent := range drain(t, shared, work) {
		if sent.MessageId != back[i] {
			t.Errorf("sent: %s, want %s", sent.MessageId, back[i])
		}
	}
	has(t, shared, letters, n-5)
	b.to("groups?queue=" + letters)
	b.says("7 letters in")

	// One of three is edited, and the others stay selected.
	three := pick(0, 1, 2)
	if shown := js[int](b, `[...document.querySelectorAll("button.one")].filter(e => e.checkVisibility()).length`); shown != len(three) {
		t.Errorf("%d rows can be edited, want the %d that are selected", shown, len(three))
	}
	b.leave(`document.querySelectorAll("tbody tr")[1].querySelector("button.one").click()`)
	b.says("Edit and send")
	b.fill("content_type", "text/plain")
	b.click("Review the change")
	b.click("Send the changed message")
	b.says("send · done")
	b.click("Go on with 2 letters")
	b.wait(`document.querySelectorAll("tbody tr").length === 2`)
	b.wait(`document.querySelector("[data-picked]").innerText.startsWith("2 letters")`)
	press("send")
	b.says("Send 2 letters back")
	b.click("Send 2 letters")
	b.says("send · done")
	has(t, shared, work, 3)
	for i, sent := range drain(t, shared, work) {
		if want := []string{three[1], three[0], three[2]}[i]; sent.MessageId != want {
			t.Errorf("sent: %s, want %s", sent.MessageId, want)
		}
	}

	// Nothing is picked, and the form is sent all the same.
	b.to("send?picked=1&deed=drop&queue=" + letters)
	b.says("no letter is selected")
}
