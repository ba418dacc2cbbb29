package page_test

import (
	"net/url"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/topology"
)

// The image of a queue is drawn, in the colours of the page, and is as wide as it should be.
func TestAQueueIsDrawn(t *testing.T) {
	const evil = `drawn<script>window.pwned=1</script>`
	s := open(t, siteConfig{specs: []topology.Spec{
		topology.Exchange{Name: "shop"},
		topology.WorkQueue{Name: "drawn-orders", Waits: delay.Schedule{10 * time.Second, time.Minute, time.Hour}, Bindings: []topology.Binding{{Exchange: "shop", RoutingKey: "order.drawn-orders"}}},
		topology.WorkQueue{Name: evil},
	}})
	_, letters := dead(t, shared, s, "drawn-orders", 12)
	b := s.browser()
	b.counts(letters, "12")
	image := `document.querySelector(".drawing img")`
	drawn := func() {
		t.Helper()
		b.wait(image + `.complete && ` + image + `.naturalWidth === 980 && ` + image + `.height === ` + image + `.naturalHeight`)
	}
	b.wait(`[...document.querySelectorAll(".sorts td a")].some(e => e.innerText === "drawn-orders")`)
	b.leave(`[...document.querySelectorAll(".sorts td a")].find(e => e.innerText === "drawn-orders").click()`)
	b.at("plan")
	drawn()
	shoot(t, b, "plan")
	b.click("Its dead letters")
	b.says("Look into")
	if tall := js[int](b, image+`.getAttribute("height") * 1`); tall < 50 {
		t.Errorf("the image has a height of %d before it comes", tall)
	}
	drawn()
	shoot(t, b, "drawing-look")
	b.click("Look")
	b.says("Looked at 12 letters")
	drawn()
	shoot(t, b, "drawing")
	fill := func(theme string) int { // how red the inside of a box is, of 255
		t.Helper()
		js[chromedp.Void](b, `document.documentElement.dataset.theme = "`+theme+`"; undefined`)
		return js[int](b, `(async () => { await new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r))); const c = new OffscreenCanvas(980, 400).getContext("2d"); c.drawImage(`+image+`, 0, 0); return c.getImageData(320, 26, 1, 1).data[0] })()`)
	}
	if light, dark := fill("light"), fill("dark"); light < 200 || dark > 50 {
		t.Errorf("a box is %d in a light page and %d in a dark one, want light and dark", light, dark)
	}
	do(b, chromedp.EmulateViewport(400, 860, chromedp.EmulateMobile))
	b.to("groups?queue=" + letters)
	drawn()
	shoot(t, b, "drawing-phone")
	if wide := js[int](b, `document.documentElement.scrollWidth`); wide > 400 {
		t.Errorf("the page is %d px wide on a phone of 400", wide)
	}
	b.to("groups?" + url.Values{"queue": {evil + ".dlq"}}.Encode())
	drawn()
	shoot(t, b, "drawing-evil")
	if js[bool](b, `!!window.pwned`) {
		t.Error("the name of a queue ran")
	}
}
