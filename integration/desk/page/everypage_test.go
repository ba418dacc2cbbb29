package page_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/rehop/rehop/desk"
	"github.com/rehop/rehop/desk/web"
	"github.com/rehop/rehop/integration/broker"
	"github.com/rehop/rehop/topology"
)

// No page is wider than its screen, beside fifty queues, at a desk and on a phone, in light and in
// dark. With -screenshots the pictures of all pages are kept.
func TestNoPageIsWiderThanItsScreen(t *testing.T) {
	own, err := broker.Start(t.Context(), broker.Options{Version: os.Getenv("RABBITMQ_VERSIONS"), Name: "rehop-page-all"})
	must(t, err)
	t.Cleanup(func() { own.Close(t.Context()) })
	s := open(t, siteConfig{broker: own, collected: true, specs: []topology.Spec{
		topology.Exchange{Name: "shop"},
		topology.WorkQueue{Name: "shop-07.orders", Bindings: []topology.Binding{{Exchange: "shop", RoutingKey: "order.shop-07.orders"}}},
	}})
	for i := range 49 {
		dead(t, own, s, fmt.Sprintf("shop-%02d.orders", i), i*i%37)
	}
	dead(t, own, s, "a-very-long-name-of-a-queue-that-somebody-has-given-it.orders-of-all-customers-in-europe", 7)
	_, letters := dead(t, own, s, "warehouse", 341)
	dead(t, own, s, "returns", 87)
	s.collect("returns.dlq", 87)
	b := s.browser()
	b.counts(letters, "341")
	b.to("groups?queue=shop-07.orders.dlq")
	b.click("Look")
	b.to("groups?queue=" + letters)
	b.click("Look")
	for _, end := range []struct{ to, words string }{{"", "done"}, {"missing", "nothing sent"}} {
		b.to("letters?queue=" + letters + "&text=index+out+of+range")
		b.leave(`document.querySelector("tbody tr a").click()`)
		b.click("Send back")
		b.fill("to", end.to)
		b.fill("why", "the index is mended, and the warehouse in Leipzig is stocked again")
		b.leave(`document.querySelector("main button.main").click()`)
		b.wait(fmt.Sprintf(`document.body.innerText.includes("send · %s")`, end.words))
	}
	redrive := js[string](b, `location.search`)
	b.to("groups?queue=" + letters)
	b.click("Look")
	b.to("letters?queue=" + letters)
	one := js[string](b, `new URL(document.querySelector("tbody tr a").href).search`)
	review := func() {
		b.to("edit" + one)
		js[chromedp.Void](b, `document.querySelector("textarea").value = document.querySelector("textarea").value.replace("EUR", "CHF"); undefined`)
		b.click("Review the change")
	}
	pick := func() {
		b.to("letters?queue=" + letters)
		js[chromedp.Void](b, `[...document.querySelectorAll("tbody input")].slice(0, 3).forEach(e => e.click())`)
	}
	slow := s.slowly("shop-09.orders.dlq")
	conflict := func() {
		b.to("redrive?id=" + slow)
		b.leave(`const f = document.querySelector("form[action=stop]"); f.action = "resume"; f.submit()`)
		b.says("Another process works on this redrive")
	}
	for _, screen := range []struct {
		name       string
		wide, tall int64
		options    []chromedp.EmulateViewportOption
	}{{"wide", 1280, 860, nil}, {"phone", 400, 860, []chromedp.EmulateViewportOption{chromedp.EmulateMobile}}} {
		do(b, chromedp.EmulateViewport(screen.wide, screen.tall, screen.options...))
		for _, p := range []struct {
			name, address string
			open          func()
		}{
			{"overview", "./", nil}, {"filtered", "./?name=shop-1&sort=letters", nil}, {"plan", "plan?queue=shop-07.orders", nil},
			{"look", "groups?queue=shop-09.orders.dlq", nil}, {"groups", "groups?queue=" + letters, nil}, {"drawn", "groups?queue=shop-07.orders.dlq", nil}, {"collected", "groups?store=store+letters.db", nil},
			{"letters", "letters?queue=" + letters, nil}, {"sorted", "letters?sort=failed&queue=" + letters, nil}, {"conditions", "letters?queue=" + letters + "&cause=exhausted&error=stock", nil}, {"picked", "", pick}, {"collected-letters", "letters?store=store+letters.db", nil},
			{"letter", "letter" + one, nil}, {"send-all", "send?queue=" + letters, nil}, {"send", "send" + one, nil}, {"move", "send" + one + "&deed=move", nil}, {"delete", "send" + one + "&deed=drop", nil},
			{"edit", "edit" + one, nil}, {"review", "", review}, {"keep", "keep?store=store+letters.db&do=park&cause=exhausted", nil}, {"keep-all", "keep?store=store+letters.db&do=release&cause=gone", nil}, {"conflict", "", conflict},
			{"search", "search?text=stock", nil}, {"redrives", "redrives", nil}, {"redrive", "redrive" + redrive, nil}, {"audit", "audit", nil}, {"nothing", "groups?queue=nothing.dlq", nil},
		} {
			if p.open != nil {
				p.open()
			} else {
				b.to(p.address)
			}
			if p.name == "overview" {
				b.wait(`document.querySelectorAll(".places tbody tr").length > 45`)
			}
			checkWidth(t, b, screen.name+", "+p.name, screen.wide)
			full(t, b, screen.name+"-"+p.name)
		}
	}
}

// slowly begins a redrive as another process does, and returns its id. The redrive ends with the test.
func (s *site) slowly(queue string) (id string) {
	s.Helper()
	other, err := desk.NewLive(s.conn, queue, desk.LiveConfig{Journal: s.journal})
	must(s.T, err)
	ctx, stop := context.WithCancel(context.Background())
	begun, ended := make(chan struct{}), make(chan error, 1)
	once := sync.OnceFunc(func() { close(begun) })
	go func() {
		_, err := other.Execute(ctx, desk.Redrive{ID: "of-another-desk", Action: desk.Send, All: true, Rate: 0.001, By: desk.By{Who: "ben", Why: "the stock is counted again"}}, func(desk.Progress) { once() })
		ended <- err
		close(ended)
	}()
	s.Cleanup(func() {
		stop()
		if err, first := <-ended; first && !errors.Is(err, desk.ErrRedriveStopped) {
			s.Errorf("the redrive of another desk: %v", err)
		}
	})
	select {
	case <-begun:
	case err := <-ended:
		s.Fatal(err)
	}
	return "of-another-desk"
}

// checkWidth fails if a page can be moved sideways, or something that is used is beyond its edge.
func checkWidth(t *testing.T, b *tab, page string, most int64) {
	t.Helper()
	if beyond := js[string](b, fmt.Sprintf(`[...document.querySelectorAll("main :is(input, button, a, select, textarea)")].filter(e => e.checkVisibility() && e.getBoundingClientRect().right > %d && !e.closest(".scroll")).map(e => e.outerHTML.slice(0, 80)).slice(0, 5).join()`, most)); beyond != "" {
		t.Errorf("%s: beyond the edge: %s", page, beyond)
	}
	if wide := js[int64](b, `document.documentElement.scrollWidth`); wide > most {
		t.Errorf("%s is %d px wide, on a screen of %d: %s", page, wide, most,
			js[string](b, fmt.Sprintf(`[...document.querySelectorAll("main *")].filter(e => e.getBoundingClientRect().right > %d && !e.closest(".scroll")).map(e => e.tagName + "." + e.className).slice(0, 5).join()`, most)))
	}
}

// The form that asks for the token is as wide as its screen, too.
func TestTheLoginIsNoWiderThanItsScreen(t *testing.T) {
	s := open(t, siteConfig{access: web.Access{Token: strings.Repeat("secret", 3)}})
	b := s.browser()
	do(b, chromedp.EmulateViewport(400, 860, chromedp.EmulateMobile))
	b.to("groups?queue=orders.dlq")
	b.says("token")
	checkWidth(t, b, "login", 400)
	full(t, b, "phone-login")
}

// full keeps pictures of a whole page in light and dark, with -screenshots.
func full(t *testing.T, b *tab, name string) {
	t.Helper()
	if *screenshots == "" {
		return
	}
	for _, theme := range []string{"dark", "light"} {
		js[chromedp.Void](b, `document.documentElement.dataset.theme = "`+theme+`"; undefined`)
		must(t, os.WriteFile(filepath.Join(*screenshots, "all-"+name+"-"+theme+".png"), do(b, chromedp.FullScreenshot(100)), 0o644))
	}
}
