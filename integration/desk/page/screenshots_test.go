package page_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/rehop/rehop/integration/broker"
)

// TestScreenshots shows what people see, in light and dark, wide and on a phone. With
// -screenshots the pictures are kept.
func TestScreenshots(t *testing.T) {
	b, err := broker.Start(t.Context(), broker.Options{Version: os.Getenv("RABBITMQ_VERSIONS"), Name: "rehop-pictures"})
	must(t, err)
	t.Cleanup(func() { b.Close(t.Context()) })
	s := open(t, siteConfig{broker: b, collected: true, queues: []string{"orders.dlq", "invoices.dlq", "newsletters.dlq"}})
	dead(t, b, s, "orders", 341)
	dead(t, b, s, "invoices", 58)
	dead(t, b, s, "newsletters", 0)
	dead(t, b, s, "returns", 87)
	s.collect("returns.dlq", 87)
	dir := *screenshots
	if dir == "" {
		dir = t.TempDir()
	}
	must(t, os.MkdirAll(dir, 0o755))
	tab := s.browser()
	shot := func(name string) {
		t.Helper()
		png := do(tab, chromedp.CaptureScreenshot())
		must(t, os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644))
	}
	theme := func(name string) {
		js[chromedp.Void](tab, `localStorage.setItem("rehop-desk-theme", "`+name+`"); document.documentElement.dataset.theme = "`+name+`"; undefined`)
	}
	theme("light")
	tab.counts("orders.dlq", "341")
	shot("overview")
	tab.to("groups?queue=orders.dlq")
	tab.says("Look into")
	shot("look")
	tab.click("Look")
	tab.says("in 5 groups")
	shot("groups")
	tab.to("letters?queue=orders.dlq")
	tab.says("the oldest place first")
	shot("letters")
	tab.to("letters?queue=orders.dlq&text=index+out")
	tab.leave(`document.querySelector("tbody tr a").click()`)
	tab.says("Life")
	shot("letter")
	tab.to("groups?queue=orders.dlq")
	tab.click("Send back")
	tab.says("to the queue that failed")
	shot("send")
	tab.fill("why", "warehouse Leipzig is stocked again")
	tab.fill("rate", "40")
	tab.leave(`document.querySelector("main button.main").click()`)
	tab.wait(`[...document.querySelectorAll("dt")].some(e => e.innerText === "Per second")`)
	shot("redrive")
	tab.says("send · done")
	tab.to("audit")
	shot("audit")
	theme("dark")
	tab.to("./")
	tab.says("Sorted by need: faults")
	shot("overview-dark")
	tab.to("groups?store=store+letters.db")
	tab.wait(`document.querySelector(".groups .card")`)
	shot("groups-dark")
	tab.leave(`document.querySelector(".groups h2 a").click()`)
	tab.leave(`document.querySelector("tbody tr a").click()`)
	shot("letter-dark")
	tab.to("edit?store=store+letters.db&id=1")
	shot("edit-dark")
	do(tab, chromedp.EmulateViewport(390, 844, chromedp.EmulateMobile))
	tab.to("./")
	tab.says("Sorted by need: faults")
	shot("phone-overview-dark")
	theme("light")
	tab.to("groups?store=store+letters.db")
	shot("phone-groups")
	tab.to("letters?store=store+letters.db")
	shot("phone-letters")
	tab.to("letter?store=store+letters.db&id=3")
	shot("phone-letter")
	for _, page := range []string{"./", "groups?store=store+letters.db", "letters?store=store+letters.db", "letter?store=store+letters.db&id=3", "redrives", "audit"} {
		tab.to(page)
		if wide := js[int](tab, `document.documentElement.scrollWidth`); wide > 390 {
			t.Errorf("%s is %d px wide on a phone of 390", page, wide)
		}
	}
	for _, page := range []string{"redrives", "audit"} {
		tab.to(page)
		tab.wait(`document.querySelectorAll(".deeds tbody tr").length > 0`)
		shot("phone-" + page)
		if tall := js[int](tab, `Math.max(...[...document.querySelectorAll(".deeds tbody tr")].map(e => e.offsetHeight))`); tall > 200 {
			t.Errorf("a row of %s is %d px tall on a phone", page, tall)
		}
		if hidden := js[string](tab, `[...document.querySelectorAll(".deeds tbody td")].filter(e => e.getBoundingClientRect().right > 390).map(e => e.className).join()`); hidden != "" {
			t.Errorf("%s, beyond the edge of a phone: %s", page, hidden)
		}
		js[chromedp.Void](tab, `document.querySelector("td.when time").click()`)
		tab.wait(`document.querySelector("td.when time").textContent === local(document.querySelector("td.when time"))`)
		js[chromedp.Void](tab, `document.querySelector("td.when time").click()`)
		tab.wait(`/ago|now/.test(document.querySelector("td.when time").textContent)`)
	}
}
