package web

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rehop/rehop/desk"
)

// An address has so many conditions and so many bytes, and no more is parsed. All faults
// are named at once.
func TestTheConditionsOfAPageAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, nil)
		for i := range 100 { // as many groups as a page has
			l := letter(i + 10)
			l.Fingerprint, l.State = fmt.Sprint("g", i), "parked"
			r.store.letters = append(r.store.letters, l)
		}
		many := func(n int, name, value string) string {
			v := url.Values{"store": {"store letters.db"}}
			for range n {
				v.Add(name, value)
			}
			return v.Encode()
		}
		for _, page := range []string{"groups", "letters", "letter", "send", "edit", "keep", "search", "body", "events"} {
			for _, tt := range []struct {
				query string
				says  []string
			}{
				{many(5000, "id", "1"), []string{"the address has 5001 values, want 64 or fewer", "the address has 25022 bytes, want 8192 or fewer"}},
				{many(65, "mid", "a"), []string{"the address has 66 values, want 64 or fewer"}},
				{many(1, "text", strings.Repeat("x", 2049)), []string{"text has 2049 bytes, want 2048 or fewer"}},
				{many(1, "text", strings.Repeat("x", 2049)) + "&header=" + strings.Repeat("y", 3000), []string{"text has 2049 bytes", "header has 3000 bytes, want 2048 or fewer"}},
				{many(1, strings.Repeat("n", 65), "x"), []string{"want a name of 64 bytes or fewer"}},
			} {
				w := r.get("/" + page + "?" + tt.query)
				r.has(w, 400, tt.says...)
				if w.Body.Len() > 20<<10 {
					t.Errorf("%s: the answer has %d bytes", page, w.Body.Len())
				}
			}
		}
		// As much as is allowed: 100 groups, each with links that repeat it.
		v := url.Values{"store": {"store letters.db"}, "error": {"no stock"}, "state": {"parked"}} // or another state
		for range 4 {
			v.Add("state", strings.Repeat("%", 660))
		}
		if n := len(v.Encode()); n < 7500 || n > 8192 {
			t.Fatalf("the address has %d bytes", n)
		}
		w := r.get("/groups?" + v.Encode())
		r.has(w, 200, "in 100 groups")
		if w.Body.Len() > 6<<20 {
			t.Errorf("the answer has %d bytes", w.Body.Len())
		}
		r.has(r.post("/send", url.Values{"store": {"store letters.db"}, "id": make([]string, 65)}), 400, "id has 65 values, want 64 or fewer")
		r.has(r.post("/send", url.Values{"store": {"store letters.db"}, "group": {"f1"}, "why": {strings.Repeat("x", 2049)}}), 400, "why has 2049 bytes, want 2048 or fewer")
		r.has(r.post("/send", url.Values{"store": {"store letters.db"}, "x": make([]string, 2000)}), 400, "the form has 2001 values, want 1000 or fewer")
		r.has(r.post("/send", url.Values{"store": {"store letters.db"}, "x": {strings.Repeat("x", 65<<10)}}), 413, "64 KiB")
		if len(r.store.redrives) > 0 {
			t.Error("letters were sent")
		}
	})
}

// A page that grows beyond all measure is an error, and not in memory.
func TestAPageIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, func(cfg *Config) {
			cfg.Sources = []desk.Source{&fake{name: strings.Repeat("<", 5<<20)}} // of four bytes each in HTML
		})
		w := r.get("/")
		r.has(w, 500, "more than 16 MiB")
		if w.Body.Len() > 20<<10 {
			t.Errorf("the answer has %d bytes", w.Body.Len())
		}
	})
}

// Other sites get no image, no script and no frame of the desk, and a visit to what shows
// something alone.
func TestOtherSitesGetNoPageButAVisit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, nil)
		ask := func(page string, headers ...string) int {
			req := httptest.NewRequest(http.MethodGet, "/"+page, nil)
			for i := 0; i < len(headers); i += 2 {
				req.Header.Set(headers[i], headers[i+1])
			}
			return r.ask(req).Code
		}
		const letters = "?store=store+letters.db&id=id1&text=a&do=park&group=f1"
		for page, visited := range map[string]bool{
			"": true, "groups" + letters: true, "letters" + letters: true, "letter" + letters: true, "search" + letters: true, "redrives": true, "audit": true,
			"send" + letters: false, "edit" + letters: false, "keep" + letters: false, "body" + letters: false, "events": false, "static/desk.js": false,
		} {
			for _, site := range []string{"cross-site", "same-site"} {
				if code := ask(page, "Sec-Fetch-Site", site, "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"); code == 403 == visited {
					t.Errorf("a visit to %q from %s: %d", page, site, code)
				}
				for dest, mode := range map[string]string{"image": "no-cors", "iframe": "navigate", "empty": "cors", "script": "no-cors", "object": "navigate"} {
					if code := ask(page, "Sec-Fetch-Site", site, "Sec-Fetch-Mode", mode, "Sec-Fetch-Dest", dest); code != 403 {
						t.Errorf("%q as %s from %s: %d", page, dest, site, code)
					}
				}
			}
			if code := ask(page, "Origin", "https://evil.example"); code != 403 {
				t.Errorf("%q by a script without metadata: %d", page, code)
			}
			if code := ask(page, "Sec-Fetch-Site", "same-origin", "Sec-Fetch-Mode", "cors", "Sec-Fetch-Dest", "empty"); code == 403 {
				t.Errorf("%q by the page itself: %d", page, code)
			}
		}
	})
}

// Whoever opens a letter is in the audit, and no other site puts a person there.
func TestAVisitShowsNoLetterByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, nil)
		const page = "letter?id=id1&store=store+letters.db"
		req := httptest.NewRequest(http.MethodGet, "/"+page, nil)
		for name, value := range map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"} {
			req.Header.Set(name, value)
		}
		w := r.ask(req)
		r.has(w, 200, "Open this letter?", `href="letter?id=id1&amp;store=store&#43;letters.db"`)
		if strings.Contains(w.Body.String(), "m-1") {
			t.Error("the letter is shown")
		}
		r.has(r.get("/"+page), 200, "m-1")
	})
}

// Looks are in memory for those who have looked. No GET takes them away.
func TestAGETTakesNoLookAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, nil)
		r.has(r.post("/look", url.Values{"queue": {"orders.dlq"}}), 303)
		before := r.broker.opens
		r.broker.source = live{&fake{name: "queue other.dlq", live: true, journal: r.queue.journal}} // of queues that are opened from now on
		for i := range 20 {
			for _, page := range []string{"groups", "letters", "letter", "send", "edit", "keep", "body"} {
				r.get(fmt.Sprintf("/%s?queue=q%d&id=id1&do=park&group=f1", page, i))
			}
		}
		r.has(r.get("/letters?queue=orders.dlq"), 200, "m-1")
		synctest.Wait() // a page lets go of its queue when its context has ended
		r.h.places.mu.Lock()
		kept := len(r.h.places.open)
		r.h.places.mu.Unlock()
		if r.broker.opens == before || kept != 1 {
			t.Errorf("%d queues were opened, and %d are kept", r.broker.opens-before, kept)
		}
		if r.queue.looked != 1 {
			t.Errorf("%d looks", r.queue.looked)
		}
	})
}

// Forms that come slowly, and readers that take nothing, keep nobody from a page.
func TestSlowFormsKeepNobodyFromAPage(t *testing.T) {
	r := newRoom(t, nil)
	server := httptest.NewServer(r.h)
	defer server.Close()
	began := make(chan struct{}, 4*maxRequests)
	for _, action := range []string{"send", "edit", "look", "export"} {
		for range maxRequests {
			conn, err := net.Dial("tcp", server.Listener.Addr().String())
			must(t, err)
			defer conn.Close()
			_, err = fmt.Fprintf(conn, "POST /%s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 1000\r\nExpect: 100-continue\r\n\r\n", action)
			must(t, err)
			go func() { // 100 Continue: the body is asked for
				line := make([]byte, len("HTTP/1.1 100"))
				if _, err := io.ReadFull(conn, line); err == nil && strings.HasSuffix(string(line), "100") {
					began <- struct{}{}
				}
			}()
		}
	}
	for range 3*maxRequests + maxLarge { // an edit that has no place is not asked for its body
		<-began
	}
	res, err := server.Client().Get(server.URL + "/")
	must(t, err)
	res.Body.Close()
	if res.StatusCode != 200 {
		t.Errorf("%s", res.Status)
	}
	server.CloseClientConnections()
}

// pipes is a listener in memory, whose deadlines keep the time of a bubble.
type pipes struct{ conns chan net.Conn }

func (p pipes) Accept() (net.Conn, error) {
	if c, ok := <-p.conns; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (p pipes) Close() error   { close(p.conns); return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// A form that does not come ends, also in a server that bounds nothing.
func TestAFormThatDoesNotComeEnds(t *testing.T) {
	for path, tt := range map[string]struct {
		within time.Duration
		code   int
	}{"/send": {formTime, 408}, "/edit": {editTime, 408}, "/login": {formTime, 400}} {
		synctest.Test(t, func(t *testing.T) {
			r := enter(t, nil)
			h := http.Handler(r.h)
			if path == "/login" {
				h = guarded(t, Access{Token: token})
			}
			l := pipes{make(chan net.Conn)}
			server := &http.Server{Handler: h}
			ended := make(chan error)
			go func() { ended <- server.Serve(l) }()
			client, conn := net.Pipe()
			l.conns <- conn
			_, err := fmt.Fprintf(client, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 1000\r\n\r\nstore=", path)
			must(t, err)
			began := time.Now()
			res, err := http.ReadResponse(bufio.NewReader(client), nil)
			must(t, err)
			if took := time.Since(began); res.StatusCode != tt.code || took != tt.within {
				t.Errorf("%s: %s after %v, want %d after %v", path, res.Status, took, tt.code, tt.within)
			}
			client.Close()
			must(t, server.Close())
			<-ended
		})
	}
}
