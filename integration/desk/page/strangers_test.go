package page_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/rehop/rehop/desk/web"
	"github.com/rehop/rehop/integration/poll"
)

// TestOtherSitesSeeAndChangeNothing opens a page of another site, which asks for everything
// of the desk in every way that a browser has, and then is left by a link.
func TestOtherSitesSeeAndChangeNothing(t *testing.T) {
	var mu sync.Mutex
	got := map[string]int{} // answers to the other site, by what the browser wanted and the status
	answers := 0
	s := open(t, siteConfig{queues: []string{"safe-orders.dlq"}, around: func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			status := &statusWriter{ResponseWriter: w, status: 200}
			next.ServeHTTP(status, r)
			if site := r.Header.Get("Sec-Fetch-Site"); site != "same-origin" && site != "none" {
				mu.Lock()
				defer mu.Unlock()
				got[fmt.Sprintf("%s %s as %s: %d", r.Method, r.URL.Path, r.Header.Get("Sec-Fetch-Dest"), status.status)]++
				answers++
			}
		})
	}})
	_, letters := dead(t, shared, s, "safe-orders", 12)
	b := s.browser()
	b.to("letters?queue=" + letters)
	b.click("Look")
	b.says("12 letters, the oldest place first")

	pages := []string{"", "groups", "letters", "letter", "send", "search", "redrives", "audit", "events", "body"}
	var html strings.Builder
	for i, page := range pages {
		address := fmt.Sprintf("%s%s?queue=other%d.dlq&id=1&text=x", s.url, page, i)
		fmt.Fprintf(&html, `<img src="%s"><iframe src="%s"></iframe><link rel="stylesheet" href="%s"><script src="%s"></script><script>fetch("%s", {mode: "no-cors", credentials: "include"}).catch(() => {})</script>`, address, address, address, address, address)
	}
	for _, action := range []string{"look", "send", "stop"} {
		fmt.Fprintf(&html, `<iframe name="to-%s"></iframe><form method="post" target="to-%s" action="%s%s"><input name="queue" value="%s"><input name="all" value="1"></form>`, action, action, s.url, action, letters)
	}
	fmt.Fprintf(&html, `<a id="leave" href="%sletters?queue=%s">a runbook</a><script>for (const f of document.forms) f.submit()</script>`, s.url, letters)
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		if r.URL.Path == "/" {
			fmt.Fprint(w, html.String())
		}
	}))
	t.Cleanup(other.Close)
	elsewhere, err := url.Parse(other.URL)
	must(t, err)
	do(b, chromedp.Navigate("http://localhost:"+elsewhere.Port()+"/")) // the desk is at 127.0.0.1
	want := len(pages)*5 + 3
	poll.Until(t, patience, "the other site's requests are answered", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return answers >= want
	})
	mu.Lock()
	for what := range got {
		if !strings.HasSuffix(what, ": 403") {
			t.Errorf("the other site gets %s", what)
		}
	}
	mu.Unlock()
	b.leave(`document.getElementById("leave").click()`)
	b.says("12 letters, the oldest place first") // a link is followed, and the look is still there
	b.to("redrives")
	b.says("No redrives yet")
	has(t, shared, letters, 12)
}

// statusWriter remembers the status of an answer.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// TestEightTabsAreServed: a browser opens six connections to a host, and no page keeps one.
func TestEightTabsAreServed(t *testing.T) {
	s := open(t, siteConfig{queues: []string{"tabs-orders.dlq"}})
	_, letters := dead(t, shared, s, "tabs-orders", 7)
	first := s.browser()
	tabs := []*tab{first}
	for range 7 {
		b := s.tab(chromedp.NewContext(first.ctx)) // in the same browser, with the same connections
		b.counts(letters, "7")
		tabs = append(tabs, b)
	}
	dead(t, shared, s, "tabs-returns", 3)
	tabs[len(tabs)-1].says("tabs-returns.dlq") // the one that is seen asks for what is new
	for _, b := range tabs {
		b.to("groups?queue=" + letters)
		b.says("Look into")
	}
}

const token = "correct-horse-battery"

// TestALoginLeadsOnAndALogoutEndsIt follows a link into a desk with a token.
func TestALoginLeadsOnAndALogoutEndsIt(t *testing.T) {
	var mu sync.Mutex
	var told []string // addresses and Referers after the login
	s := open(t, siteConfig{queues: []string{"login-orders.dlq"}, access: web.Access{Token: token}, around: func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			if !r.URL.Query().Has("token") {
				told = append(told, r.URL.String(), r.Referer())
			}
			mu.Unlock()
			next.ServeHTTP(w, r)
		})
	}})
	_, letters := dead(t, shared, s, "login-orders", 9)
	page := "letters?queue=" + letters + "&text=order"

	b := s.browser()
	b.to(page)
	login := func(token string) {
		t.Helper()
		b.wait(`document.querySelector("main [name=token]")`)
		for _, fault := range append(js[[]string](b, unnamed), js[[]string](b, pale)...) {
			if fault != "0 first headings" {
				t.Errorf("the form: %s", fault)
			}
		}
		b.fill("token", token)
		b.fill("name", "eve")
		b.leave(`document.querySelector("main button").click()`)
	}
	login("not-the-token-of-it")
	b.says("not the token of this desk")
	login(token)
	b.at("/letters")
	if got := js[string](b, `location.search`); got != "?queue="+letters+"&text=order" {
		t.Errorf("the login leads to %s", got)
	}
	b.click("Look")
	b.says("9 letters, the oldest place first")
	b.click("Send these")
	b.leave(`document.querySelector("main button.main").click()`)
	b.says("send · done")
	b.to("audit")
	b.says("eve, token from 127.0.0.1")

	// The link that the command prints. Nothing is left of its token.
	other := s.browser()
	other.to("groups?queue=" + letters + "&token=" + token)
	other.at("/groups")
	if got := js[string](other, `location.href + document.referrer + performance.getEntries().map(e => e.name).join() + document.documentElement.outerHTML + document.cookie`); strings.Contains(got, token) {
		t.Errorf("the token is left in the page: %.300s", got)
	}
	other.to("./")
	mu.Lock()
	for _, text := range told {
		if strings.Contains(text, token) {
			t.Errorf("the token is told: %s", text)
		}
	}
	mu.Unlock()

	// An open page says that its login has ended. A logout ends no other login.
	b.to("audit")
	js[int](b, `fetch("logout", {method: "POST", redirect: "manual"}).then(r => r.status)`)
	b.says("You are not logged in any more")
	b.to("audit")
	login(token)
	b.at("/audit")
	b.leave(`[...document.querySelectorAll("header button")].find(e => e.innerText === "Log out").click()`)
	b.at("/login")
	b.to("audit")
	b.wait(`document.querySelector("main [name=token]")`)
	other.to("audit")
	other.says("eve, token from 127.0.0.1")
}
