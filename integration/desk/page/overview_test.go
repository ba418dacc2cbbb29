package page_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/integration/broker"
)

// TestFiftyQueuesAreSeenAtOnce: the overview of fifty queues with letters is no longer than a
// screen and a half, and a list on a phone.
func TestFiftyQueuesAreSeenAtOnce(t *testing.T) {
	own, err := broker.Start(t.Context(), broker.Options{Version: os.Getenv("RABBITMQ_VERSIONS"), Name: "rehop-page-fifty"})
	must(t, err)
	t.Cleanup(func() { own.Close(t.Context()) })
	s := open(t, siteConfig{broker: own})
	const small = "shop-00.orders.dlq"
	for i := range 50 {
		dead(t, own, s, fmt.Sprintf("shop-%02d.orders", i), 1+i*i%37)
	}
	_, letters := dead(t, own, s, "warehouse", 341)
	b := s.browser()
	rows := `document.querySelectorAll(".places tbody tr").length`
	b.wait(rows + ` === 51`)
	b.to("./?sort=letters")
	if first := js[string](b, `document.querySelector(".places tbody tr").dataset.row`); first != letters {
		t.Errorf("%s is first, want %s, which has most letters", first, letters)
	}
	b.click("Look")
	b.says("Looked at 341 letters")
	b.to("./?sort=letters")
	b.wait(rows + ` === 51`)
	row := js[string](b, `document.querySelector(".places tbody tr").innerText`)
	for _, part := range []string{letters, "341", "none"} {
		if !strings.Contains(row, part) {
			t.Errorf("the row of %s does not say %q: %s", letters, part, row)
		}
	}
	if reason := js[string](b, `document.querySelector(".places td.reason a").href`); !strings.Contains(reason, "group=") {
		t.Errorf("the top reason leads to %s", reason)
	}
	const screen = 860
	if end := js[int](b, `Math.ceil(document.querySelectorAll(".places tbody tr")[49].getBoundingClientRect().bottom + scrollY)`); end > screen*3/2 {
		t.Errorf("the fiftieth row ends at %d px, want %d", end, screen*3/2)
	}
	shoot(t, b, "fifty")

	// A row keeps the focus when it moves.
	b.to("./")
	b.leave(`[...document.querySelectorAll(".places th a")].find(e => e.innerText.startsWith("Letters")).click()`)
	b.wait(`document.querySelector("th.letters").getAttribute("aria-sort") === "descending"`)
	js[chromedp.Void](b, fmt.Sprintf(`[...document.querySelectorAll(".places tr")].find(e => e.dataset.row === %q).querySelector("button").focus(); undefined`, small))
	before := js[int](b, `[...document.querySelectorAll(".places tbody tr")].indexOf(document.activeElement.closest("tr"))`)
	ch := channel(t, own)
	for range 400 {
		must(t, ch.Publish("", small, false, false, amqp.Publishing{}))
	}
	b.wait(fmt.Sprintf(`document.querySelector(".places tbody tr").dataset.row === %q`, small))
	if at := js[string](b, `document.activeElement.closest("tr")?.dataset.row + " " + document.activeElement.tagName`); at != small+" BUTTON" || before == 0 {
		t.Errorf("the focus of row %d is at %s", before, at)
	}

	js[chromedp.Void](b, `document.querySelector(".narrow input[name=name]").value = "SHOP-4"; undefined`)
	b.leave(`document.querySelector(".narrow").submit()`)
	b.wait(rows + ` === 10`)
	b.wait(`document.querySelector("th.letters").getAttribute("aria-sort") === "descending"`)

	do(b, chromedp.EmulateViewport(400, 860, chromedp.EmulateMobile))
	b.to("./")
	b.wait(rows + ` === 51`)
	if wide := js[int](b, `document.documentElement.scrollWidth`); wide > 400 {
		t.Errorf("the overview is %d px wide on a phone of 400", wide)
	}
	if tall := js[int](b, `document.querySelector(".places tbody tr").offsetHeight`); tall > 110 {
		t.Errorf("a row on a phone is %d px tall", tall)
	}
	if hidden := js[string](b, `[...document.querySelectorAll(".places tbody tr:first-child td")].filter(e => e.getBoundingClientRect().right > 400).map(e => e.className).join()`); hidden != "" {
		t.Errorf("beyond the edge of a phone: %s", hidden)
	}
	if tall := js[int](b, `Math.max(...[...document.querySelectorAll(".works tbody tr")].map(e => e.offsetHeight))`); tall > 80 {
		t.Errorf("a row of a work queue on a phone is %d px tall", tall)
	}
	shoot(t, b, "fifty-phone")
}

// shoot keeps pictures of a page in light and dark, with -screenshots.
func shoot(t *testing.T, b *tab, name string) {
	t.Helper()
	if *screenshots == "" {
		return
	}
	for _, theme := range []string{"dark", "light"} {
		js[chromedp.Void](b, `document.documentElement.dataset.theme = "`+theme+`"; undefined`)
		must(t, os.WriteFile(filepath.Join(*screenshots, name+"-"+theme+".png"), do(b, chromedp.CaptureScreenshot()), 0o644))
	}
}
