package web

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/desk"
)

var quiet = slog.New(slog.DiscardHandler)

func TestEachPageShowsWhatItIsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, nil)
		r.has(r.get("/"), 200, "orders.dlq", "store letters.db", "<b>3</b>", "RabbitMQ 4.3.6")
		r.has(r.get("/groups?store=store+letters.db"), 200, "no stock", "3 letters in 1 group", "Send back", `action="export"`)
		r.has(r.get("/letters?store=store+letters.db&text=order"), 200, "m-1", "m-3", "Send these 3", "Remove the condition text")
		r.has(r.get("/letter?store=store+letters.db&id=id2"), 200, "m-2", "queue orders", "&#34;order&#34;: 1", "Life")
		r.has(r.get("/send?store=store+letters.db&group=f1"), 200, "Send 3 letters", "queue orders", `name="canary"`)
		r.has(r.get("/edit?store=store+letters.db&id=id1"), 200, "{&#34;order&#34;:1}", "Save and send")
		r.has(r.get("/keep?do=park&store=store+letters.db&group=f1"), 200, "Park 3 letters")
		r.has(r.get("/search?text=m-2"), 200, "m-2")
		r.has(r.get("/redrives"), 200, "No redrives yet")
		r.has(r.get("/audit"), 200, "Nothing was done yet")
		r.has(r.get("/nonsense"), 404, "no such page")
		r.has(r.get("/letter?store=store+letters.db&id=none"), 404, "not here any more")
		r.has(r.get("/groups?store=other"), 404, "Not here")
		r.has(r.get("/letters?store=store+letters.db&newer=soon"), 400, "want a span")
	})
}

// Only a person looks: no page does by being opened, nor does anything beside a button.
func TestNoPageLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, nil)
		for _, page := range []string{"groups", "letters", "letter", "send", "edit", "search"} {
			r.get("/" + page + "?queue=orders.dlq&id=id1&text=m-1")
		}
		if r.queue.looked != 0 {
			t.Fatalf("%d looks", r.queue.looked)
		}
		r.has(r.get("/groups?queue=orders.dlq"), 200, "Look into", "redelivered")
		w := r.post("/look", url.Values{"queue": {"orders.dlq"}, "back": {"letters?queue=orders.dlq&text=stock"}})
		if to := w.Header().Get("Location"); w.Code != 303 || !strings.HasPrefix(to, "letters?queue=orders.dlq&said=") || !strings.HasSuffix(to, "text=stock") {
			t.Errorf("%d to %q", w.Code, to)
		}
		r.has(r.get("/letters?queue=orders.dlq"), 200, "m-1")
		if r.queue.looked != 1 {
			t.Errorf("%d looks", r.queue.looked)
		}
	})
}

func TestALookLeadsBackToThisDeskOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, nil)
		for _, back := range []string{"https://evil.example/groups", "//evil.example/groups", "javascript:alert(1)", "/groups", "../groups", "login"} {
			if to := r.post("/look", url.Values{"queue": {"orders.dlq"}, "back": {back}}).Header().Get("Location"); !strings.HasPrefix(to, "groups?queue=orders.dlq") {
				t.Errorf("back %q leads to %q", back, to)
			}
		}
	})
}

func TestARedriveIsTheOneThatWasAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, nil)
		w := r.post("/send", url.Values{
			"store": {"store letters.db"}, "group": {"f1"}, "rate": {"40"}, "limit": {"2"}, "canary": {"2m"}, "why": {" stock is back "}, "to": {"shop/order.again"}, "redrive": {"o-1"},
		})
		if w.Code != 303 || w.Header().Get("Location") != "redrive?id=o-1" {
			t.Fatalf("%d %s: %s", w.Code, w.Header().Get("Location"), w.Body)
		}
		redrive := r.store.redrives[0]
		if redrive.ID != "o-1" || redrive.Filter.Fingerprint != "f1" || redrive.Rate != 40 || redrive.Limit != 2 || redrive.Canary != 2*time.Minute || redrive.By != (desk.By{Who: "ada", Why: "stock is back"}) ||
			redrive.To.Exchange != "shop" || redrive.To.RoutingKey != "order.again" || redrive.All {
			t.Errorf("%+v", redrive)
		}
		r.post("/send", url.Values{"store": {"store letters.db"}, "group": {"f1"}, "to": {"/eu/orders"}, "redrive": {"o-2"}})
		if to := r.store.redrives[1].To; to.Exchange != "" || to.RoutingKey != "eu/orders" {
			t.Errorf("a queue with a slash in its name is %+v", to)
		}
		r.has(r.post("/send", url.Values{"store": {"store letters.db"}, "group": {"f1"}, "rate": {"fast"}}), 400, "want a number")
		r.post("/send", url.Values{"store": {"store letters.db"}, "group": {"f1"}, "rate": {"0.5"}, "redrive": {"o-4"}})
		if rate := r.store.redrives[2].Rate; rate != 0.5 {
			t.Errorf("a rate of 0.5 is %v", rate)
		}
		r.has(r.post("/send", url.Values{"store": {"store letters.db"}}), 500, "Redrive.Filter is empty")
	})
}

// A span that reaches nowhere would select more letters than were asked for.
func TestASpanIsMoreThanZero(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, nil)
		for _, span := range []string{"-1h", "0", "-7d", "0d"} {
			for _, name := range []string{"newer", "older"} {
				r.has(r.post("/send", url.Values{"store": {"store letters.db"}, "group": {"f1"}, name: {span}}), 400, name+" is", span, "more than 0")
			}
		}
		if len(r.store.redrives) > 0 {
			t.Errorf("%+v", r.store.redrives)
		}
	})
}

// A form that is sent twice, by a double click or a reload, is one redrive.
func TestAFormThatIsSentTwiceIsOneRedrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, nil)
		r.store.hold = make(chan struct{})
		form := url.Values{"store": {"store letters.db"}, "group": {"f1"}, "redrive": {"o-2"}}
		for range 3 {
			r.has(r.post("/send", form), 303)
		}
		close(r.store.hold)
		if len(r.store.redrives) != 1 {
			t.Errorf("%d redrives", len(r.store.redrives))
		}
	})
}

func TestThePersonWhoResumesIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, nil)
		redrive := `{"redrive":{"id":"o-3","action":"send","source":"store letters.db","by":{"who":"bob"},"created":"2026-11-11T02:26:58Z"}}` + "\n"
		r.write("redrives/o-3.jsonl", redrive)
		r.has(r.post("/resume", url.Values{"id": {"o-3"}}), 303)
		if redrive := r.store.redrives; len(redrive) != 1 || redrive[0].ID != "o-3" || redrive[0].By.Who != "ada" {
			t.Errorf("%+v", redrive)
		}
	})
}

// Letters in doubt stay until a person decides.
func TestAPersonDecidesAboutLettersInDoubt(t *testing.T) {
	for _, answer := range []desk.Doubt{"", desk.Delete, desk.Again} {
		synctest.Test(t, func(t *testing.T) {
			r := enter(t, nil)
			redrive := `{"redrive":{"id":"o-3","action":"send","source":"store letters.db","created":"2026-11-11T02:26:58Z"}}
{"progress":{"state":"done","matched":2,"done":2,"in_doubt":1,"note":"in doubt: m-7 stayed"}}
`
			r.write("redrives/o-3.jsonl", redrive)
			r.has(r.get("/redrive?id=o-3"), 200, "In doubt", "m-7 stayed", `name="in_doubt" value="delete"`, `name="in_doubt" value="again"`)
			r.has(r.post("/resume", url.Values{"id": {"o-3"}, "in_doubt": {string(answer)}}), 303)
			if redrive := r.store.redrives; len(redrive) != 1 || redrive[0].By.Who != "ada" || redrive[0].By.InDoubt != answer {
				t.Errorf("%+v, want the answer %q", redrive, answer)
			}
		})
	}
}

func TestLettersAreKeptAndEdited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, nil)
		r.has(r.post("/keep", url.Values{"store": {"store letters.db"}, "group": {"f1"}, "do": {"archive"}}), 303)
		r.has(r.post("/keep", url.Values{"store": {"store letters.db"}, "do": {"archive"}}), 400, "choose letters")
		r.has(r.post("/edit", url.Values{"store": {"store letters.db"}, "id": {"id1"}, "do": {"save"}, "body": {"{\r\n}"}, "set": {"tenant=a=b\r\n"}, "remove": {"debug"}}), 303)
		r.has(r.post("/edit", url.Values{"store": {"store letters.db"}, "id": {"id1"}, "do": {"save"}, "body": {`{"order":1}`}, "content_type": {"application/json"}}), 400, "nothing was changed")
		r.has(r.post("/export", url.Values{"store": {"store letters.db"}, "group": {"f1"}}), 200, "id1")
		want := []string{`archive fingerprint="f1"`, `edit id1 "{\n}" map[tenant:a=b] [debug]`, "export by ada"}
		if !slices.Equal(r.store.kept, want) {
			t.Errorf("%q, want %q", r.store.kept, want)
		}
		r.has(r.post("/keep", url.Values{"queue": {"orders.dlq"}, "group": {"f1"}, "do": {"park"}}), 400, "keeps no letters")
	})
}

func TestAReadOnlyDeskChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, func(c *Config) { c.ReadOnly = true })
		r.has(r.get("/groups?store=store+letters.db"), 200, "read-only")
		for _, page := range []string{"send", "edit", "keep"} {
			r.has(r.get("/"+page+"?store=store+letters.db&group=f1&id=id1&do=park"), 403, "read-only")
		}
		for _, action := range []string{"send", "edit", "keep", "stop", "resume"} {
			r.has(r.post("/"+action, url.Values{"store": {"store letters.db"}, "group": {"f1"}, "id": {"id1"}, "do": {"park"}}), 403, "read-only")
		}
		if len(r.store.redrives)+len(r.store.kept) > 0 {
			t.Error("letters were changed")
		}
		for _, page := range []string{"/groups?store=store+letters.db", "/letters?store=store+letters.db&group=f1", "/letter?store=store+letters.db&id=id1"} {
			if body := r.get(page).Body.String(); strings.Contains(body, `href="send`) || strings.Contains(body, `href="edit`) || strings.Contains(body, `href="keep`) {
				t.Errorf("%s offers a change", page)
			}
		}
		r.has(r.post("/look", url.Values{"queue": {"orders.dlq"}}), 303) // a look is no change
	})
}

func TestOtherOriginsAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, nil)
		for _, action := range []string{"look", "send", "edit", "keep", "stop", "resume", "export"} {
			for name, value := range map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"} {
				req := httptest.NewRequest(http.MethodPost, "/"+action, strings.NewReader("queue=orders.dlq&store=store+letters.db"))
				req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
				req.Header.Set(name, value)
				if w := r.ask(req); w.Code != http.StatusForbidden {
					t.Errorf("%s with %s: %d", action, name, w.Code)
				}
			}
			if w := r.get("/" + action); w.Code == 200 && action != "send" && action != "edit" && action != "keep" {
				t.Errorf("GET %s: %d", action, w.Code)
			}
		}
		if r.queue.looked > 0 || len(r.store.redrives) > 0 {
			t.Error("it was done")
		}
	})
}

var inline = regexp.MustCompile(`(?i)<script(?:[^>]*)>[^<]|<style|\sstyle=|\son[a-z]+=|javascript:`)

func TestEveryAnswerForbidsInlineScriptAndHasNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, nil)
		r.queue.looked = 1
		for _, page := range []string{"/", "/groups?queue=orders.dlq", "/letters?store=store+letters.db", "/letter?queue=orders.dlq&id=id1", "/send?queue=orders.dlq&id=id1",
			"/edit?queue=orders.dlq&id=id1", "/search?text=a", "/redrives", "/audit", "/none"} {
			w := r.get(page)
			csp := w.Header().Get("Content-Security-Policy")
			if !strings.HasPrefix(csp, "default-src 'none'; script-src 'self'; style-src 'self'") || strings.Contains(csp, "unsafe") || w.Header().Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("%s: %s", page, csp)
			}
			if found := inline.FindString(w.Body.String()); found != "" {
				t.Errorf("%s has %q", page, found)
			}
			if strings.Contains(strings.ReplaceAll(w.Body.String(), "http://user:password@host", ""), "http://") || strings.Contains(w.Body.String(), "https://") {
				t.Errorf("%s names another host", page)
			}
		}
		r.has(r.get("/static/desk.js"), 200)
		r.has(r.get("/static/../web.go"), 307)
	})
}

// fields are the values of fields, which are not drawn as text of the page.
var fields = regexp.MustCompile(`value="[^"]*"`)

const evil = `<script>window.pwned=1</script>"><img src=x onerror=alert(1)>` + "\u202e\x1b[31m\x00\xff'"

func TestAHostileLetterIsText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		deep := strings.Repeat(`[`, 9000) + strings.Repeat(`]`, 9000)
		bodies := map[string][]byte{
			"script": []byte(evil), "json": []byte(`{"a":"` + `<script>alert(1)</script>` + `"}`), "deep": []byte(deep), "deeper": []byte(strings.Repeat(deep, 20)),
			"large": []byte(strings.Repeat(evil, 10<<20/len(evil))), "bytes": {0xff, 0xfe, 0, 1, 2}, "empty": nil,
		}
		for name, body := range bodies {
			r := enter(t, nil)
			l := letter(1)
			l.ID, l.Error, l.ErrorType, l.Stack, l.Host, l.Queue, l.RoutingKey = evil, evil, evil, evil, evil, evil, evil
			l.Cause, l.Malformed = evil, evil
			l.Publishing.Body, l.Publishing.MessageId, l.Publishing.ContentType, l.Publishing.Type = body, evil, evil, evil
			table := amqp.Table{}
			inner := table
			for range 500 {
				next := amqp.Table{}
				inner[evil] = next
				inner = next
			}
			l.Publishing.Headers = amqp.Table{evil: evil, "list": []any{evil, []any{evil}}, "table": table, "bytes": []byte(evil), "long": strings.Repeat("x", 1<<20)}
			r.store.letters = []desk.Letter{l}
			r.queue.letters, r.queue.looked = []desk.Letter{l}, 1
			r.broker.queues[0].Name, r.broker.queues[0].Refusal = evil, evil
			r.h.sampleOnce(t.Context(), map[string]time.Time{})
			v := url.Values{"store": {"store letters.db"}, "id": {evil}, "text": {""}}
			for _, page := range []string{"/", "/groups?" + v.Encode(), "/letters?" + v.Encode(), "/letter?" + v.Encode(), "/letter?body=text&" + v.Encode(), "/letter?body=hex&" + v.Encode(),
				"/send?" + v.Encode(), "/edit?" + v.Encode(), "/keep?do=park&" + v.Encode(), "/search?text=" + url.QueryEscape(evil), "/groups?queue=" + url.QueryEscape(evil), "/groups?store=" + url.QueryEscape(evil)} {
				w := r.get(page)
				text := w.Body.String()
				if w.Code >= 500 || len(text) > 1<<20 {
					t.Errorf("%s %.40s: status %d, %d bytes", name, page, w.Code, len(text))
				}
				if strings.Contains(text, "<script>w") || strings.Contains(text, "<script>a") || strings.Contains(text, "<img") {
					t.Errorf("%s %.40s: the letter is not escaped", name, page)
				}
				if i := strings.IndexAny(fields.ReplaceAllString(text, ""), "\x00\x1b\u202e"); i >= 0 && !strings.HasPrefix(page, "/edit") {
					t.Errorf("%s %.40s: a control character at %d: %.80q", name, page, i, text[max(i-40, 0):])
				}
			}
			w := r.get("/body?" + v.Encode())
			if w.Header().Get("Content-Type") != "application/octet-stream" || !strings.HasPrefix(w.Header().Get("Content-Disposition"), "attachment") ||
				strings.ContainsAny(w.Header().Get("Content-Disposition"), "<>\n\x00") || w.Body.Len() != len(body) {
				t.Errorf("%s: the file: %v, %d bytes", name, w.Header(), w.Body.Len())
			}
		}
	})
}

func TestLanesNameTheDeadLetterQueueThatTheyShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, nil)
		r.broker.mu.Lock()
		r.broker.queues = []desk.Queue{
			{Name: "orders.dlq", Ready: 18, IsDeadLetters: true}, {Name: "orders.express", DeadLetters: "orders.dlq", Letters: 18},
			{Name: "orders.normal", DeadLetters: "orders.dlq", Letters: 18}, {Name: "mails", DeadLetters: "mails.dlq", Letters: 2},
		}
		r.broker.mu.Unlock()
		r.h.sampleOnce(t.Context(), map[string]time.Time{})
		w := r.get("/")
		r.has(w, 200, `18 <span class="dim small">in orders.dlq</span>`)
		if n := strings.Count(w.Body.String(), ">in orders.dlq<"); n != 2 || strings.Contains(w.Body.String(), "in mails.dlq") {
			t.Errorf("%d lanes name orders.dlq, want 2, and mails nothing", n)
		}
		if n := r.h.snapshot().Count; n != 18+3 { // of the store
			t.Errorf("%d letters in all, want 21", n)
		}
	})
}

func TestWhatLooksHaveCountedIsNoAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, nil)
		r.store.letters[0].Publishing.Headers = amqp.Table{"x-delivery-count": int64(2), "x-acquired-count": int64(8), "x-rehop-attempt": int64(4)}
		w := r.get("/letter?store=store+letters.db&id=id1")
		r.has(w, 200, "x-acquired-count")
		if n := strings.Count(w.Body.String(), "counted by the dead-letter queue: looks"); n != 2 {
			t.Errorf("%d headers are marked, want 2", n)
		}
	})
}

func TestAwayIsSaidWithWhatToDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, nil)
		r.broker.mu.Lock()
		r.broker.err = rehop.WithClass(errors.New("dial tcp 10.0.0.9:5672: connection refused"), rehop.ClassTransient)
		r.broker.mu.Unlock()
		r.queue.err = r.broker.err
		r.queue.looked = 1
		r.h.sampleOnce(t.Context(), map[string]time.Time{})
		r.has(r.get("/"), 200, "The broker is away", "rehop doctor", "orders.dlq", "<b>3</b>", "broker away")
		r.has(r.get("/groups?queue=orders.dlq"), 503, "The broker is away", "safe in their queues")
		r.has(r.get("/groups?store=store+letters.db"), 200, "no stock")
		r.broker.mu.Lock()
		r.broker.err = desk.ErrNoManagement
		r.broker.mu.Unlock()
		r.h.cfg.Queues = []string{"legacy_error"}
		r.h.sampleOnce(t.Context(), map[string]time.Time{})
		r.has(r.get("/"), 200, "AMQP cannot list queues", "legacy_error", "<b>7</b>")
		r.queue.err = &desk.RefusedError{Queue: "orders.dlq", Reason: "it is a stream", Advice: "read it with a consumer"}
		r.has(r.get("/groups?queue=orders.dlq"), 409, "could cost a letter", "it is a stream", "Read it with a consumer.")
	})
}

// The page says when the queues were counted, and why that is long ago.
func TestNumbersSayHowOldTheyAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, nil)
		is := func(texts ...string) {
			t.Helper()
			r.h.sampleOnce(t.Context(), map[string]time.Time{})
			r.has(r.get("/"), 200, texts...)
		}
		is("Queues counted <time", "lag by up to 10 s")
		if page := r.get("/").Body.String(); strings.Contains(page, "stale") || strings.Contains(page, `class="tag warn">counted`) {
			t.Error("fresh numbers are called stale")
		}
		r.has(r.get("/groups?store=store+letters.db"), 200, "<small>counted <time")
		r.broker.mu.Lock()
		r.broker.silent = errors.New("management API at http://broker:15672: connection refused")
		r.broker.mu.Unlock()
		is(`<span class="tag warn">stale</span> Queues counted <time`, "The management API does not answer", "http://broker:15672", "<b>3</b>")
		if page := r.get("/").Body.String(); strings.Contains(page, "broker away") || strings.Contains(page, "The broker is away") {
			t.Error("a management API that does not answer is taken for the broker")
		}
		r.broker.mu.Lock()
		r.broker.err = rehop.WithClass(errors.New("connection refused"), rehop.ClassTransient)
		r.broker.mu.Unlock()
		is("The broker is away", `<span class="tag warn">stale</span> Queues counted <time`, ": the broker is away.")
		r.h.sampled.mu.Lock()
		last := &r.h.sampled.last
		last.Err, last.Silent, last.Taken = nil, nil, time.Now().Add(-2*staleAfter)
		for i := range last.Letters {
			last.Letters[i].Taken = last.Taken
		}
		r.h.sampled.mu.Unlock()
		r.has(r.get("/"), 200, "stale", "the broker has not answered since then", `<span class="tag warn">counted <time`)
	})
}

// Nobody has counted where nobody has answered.
func TestAPlotHasNoPointThatNobodyCounted(t *testing.T) {
	var s series
	at := time.Now()
	for range 5 {
		s.add(point{at, 3})
	}
	if len(s.points) != 1 {
		t.Errorf("%d points of one count", len(s.points))
	}
}

// A browser is told of changes, and everybody of the same.
func TestBrowsersAreToldOfChanges(t *testing.T) {
	r := enter(t, nil)
	server := httptest.NewServer(r.h)
	defer server.Close()
	var lines [2]*bufio.Scanner
	for i := range lines {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/events?view=overview", nil)
		must(t, err)
		res, err := http.DefaultClient.Do(req)
		must(t, err)
		defer res.Body.Close()
		lines[i] = bufio.NewScanner(res.Body)
		lines[i].Buffer(nil, 1<<20)
		waitFor(t, lines[i], "live-overview")
	}
	r.broker.mu.Lock()
	r.broker.queues = []desk.Queue{{Name: "orders.dlq", Ready: 1234, IsDeadLetters: true}}
	r.broker.mu.Unlock()
	r.h.sampleOnce(t.Context(), map[string]time.Time{})
	r.h.changed.notify()
	for _, l := range lines {
		waitFor(t, l, "1,234")
	}
	http.DefaultClient.CloseIdleConnections()
}

func waitFor(t *testing.T, lines *bufio.Scanner, text string) {
	t.Helper()
	for lines.Scan() {
		if strings.Contains(lines.Text(), text) {
			return
		}
	}
	t.Fatalf("no event with %q: %v", text, lines.Err())
}

func TestFewQueuesAreOpenAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, nil)
		for i := range 50 {
			_, release, err := r.h.source(place{Queue: fmt.Sprint("q", i)})
			must(t, err)
			release()
		}
		if n := len(r.h.places.open); n != maxOpen {
			t.Errorf("%d queues are open", n)
		}
		before := r.broker.opens
		_, release, err := r.h.source(place{Queue: "q49"})
		must(t, err)
		release()
		if r.broker.opens != before {
			t.Error("a queue was opened again")
		}
	})
}

// The end of Run stops redrives, and takes no new ones.
func TestRedrivesEndWithRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		journal, err := desk.OpenJournal(t.TempDir())
		must(t, err)
		source := &fake{name: "store s", journal: journal, hold: make(chan struct{}), letters: []desk.Letter{letter(1)}}
		h, err := newHandler(Config{Journal: journal, Sources: []desk.Source{source}, Who: func(*http.Request) string { return "" }, Logger: quiet}, nil)
		must(t, err)
		if err := h.execute(place{Store: "store s"}, desk.Redrive{ID: "early", All: true}, nil); !errors.Is(err, errNotRunning) {
			t.Errorf("before Run: %v", err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		changed, _ := h.changed.next()
		go func() { ended <- h.Run(ctx) }()
		<-changed
		must(t, h.execute(place{Store: "store s"}, desk.Redrive{ID: "o", All: true}, nil))
		stop()
		must(t, <-ended)
		if len(h.redrives.running) != 0 {
			t.Error("a redrive runs on")
		}
		if err := h.execute(place{Store: "store s"}, desk.Redrive{ID: "late", All: true}, nil); !errors.Is(err, errNotRunning) {
			t.Errorf("after Run: %v", err)
		}
	})
}

func TestAFormHoldsABodyAsItIs(t *testing.T) {
	for _, body := range []string{"", "a", "{\n}\n", "a\r\nb\r\n", "\n\na", "ş"} {
		text, why := editable([]byte(body))
		browser := strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\n", "\r\n") // as browsers send a form
		if got := string(fromForm(browser, []byte(body))); why != "" || got != body {
			t.Errorf("%q comes back as %q (%s)", body, got, why)
		}
	}
	for _, body := range []string{"\xff", "a\x00", "a\rb", "a\r\nb\nc", strings.Repeat("a", maxEditable+1)} {
		if _, why := editable([]byte(body)); why == "" {
			t.Errorf("%.20q can be edited", body)
		}
	}
}

func TestJSONIsIndented(t *testing.T) {
	for body, want := range map[string]string{
		`{"a":1,"b":[1,2],"c":{},"d":[ ]}`: "{\n  \"a\": 1,\n  \"b\": [\n    1,\n    2\n  ],\n  \"c\": {},\n  \"d\": []\n}",
		`{"a":"\"{[,:"}`:                   "{\n  \"a\": \"\\\"{[,:\"\n}",
		`["\\", "x"]`:                      "[\n  \"\\\\\",\n  \"x\"\n]",
	} {
		if got := showBody([]byte(body), ""); got.Mode != "json" || got.Text != want {
			t.Errorf("%s: %s\n%s", body, got.Mode, got.Text)
		}
	}
	if got := showBody([]byte{0, 1, 2, 0xff}, ""); got.Mode != "hex" {
		t.Errorf("bytes are shown as %s", got.Mode)
	}
}

// What cannot work is an error at the start, and no panic of a request.
func TestNilsAreRefused(t *testing.T) {
	journal, err := desk.OpenJournal(t.TempDir())
	must(t, err)
	for want, cfg := range map[string]Config{
		"Config.Journal is nil":      {},
		"neither a Conn nor Sources": {Journal: journal},
		"Config.Sources[1] is nil":   {Journal: journal, Sources: []desk.Source{&fake{}, nil}},
	} {
		if _, err := New(cfg); rehop.ClassOf(err) != rehop.ClassBug || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if _, err := Guard(nil, Access{}); rehop.ClassOf(err) != rehop.ClassBug {
		t.Errorf("a Guard of nothing: %v", err)
	}
}
