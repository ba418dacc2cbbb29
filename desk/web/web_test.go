package web

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/desk"
	"github.com/rehop/rehop/store"
	"github.com/rehop/rehop/store/sqlite"
)

var quiet = slog.New(slog.DiscardHandler)

func TestEachPageShowsWhatItIsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, nil)
		r.has(r.get("/"), 200, "orders.dlq", "store letters.db", "<b>3</b>", "RabbitMQ 4.3.6")
		r.has(r.get("/groups?store=store+letters.db"), 200, "no stock", "3 letters in 1 group", "Send back", `action="export"`)
		r.has(r.get("/letters?store=store+letters.db&text=order"), 200, "m-1", "m-3", "Send these 3 …", "Remove the condition text")
		r.has(r.get("/letter?store=store+letters.db&id=id2"), 200, "m-2", "queue orders", "&#34;order&#34;: 1", "Life")
		r.has(r.get("/send?store=store+letters.db&group=f1"), 200, "Send 3 letters", "queue orders", `name="canary"`)
		r.has(r.get("/edit?store=store+letters.db&id=id1"), 200, "{&#34;order&#34;:1}", "Review the change")
		r.has(r.get("/keep?do=park&store=store+letters.db&group=f1"), 200, "Park 3 letters", `name="ids" value="id1,id2,id3"`)
		r.has(r.get("/search?text=m-2"), 200, "m-2")
		r.has(r.get("/redrives"), 200, "No redrives yet")
		r.has(r.get("/audit"), 200, "Nothing was done yet")
		r.has(r.get("/nonsense"), 404, "no such page")
		r.has(r.get("/letter?store=store+letters.db&id=none"), 404, "not here any more")
		r.has(r.get("/groups?store=other"), 404, "Not here")
		r.has(r.get("/letters?store=store+letters.db&newer=soon"), 400, "want a span")
	})
}

// A letter that a store.Forwarder has tried says so, and when it is tried again.
func TestALetterSaysItsTriesAndItsOrderKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, nil)
		if page := r.get("/letter?store=store+letters.db&id=id1").Body.String(); strings.Contains(page, "next try") || strings.Contains(page, "tries in vain") {
			t.Error("a letter that nobody has tried says something else")
		}
		l := &r.store.letters[0]
		l.OrderKey, l.Tries, l.TryError, l.NextTry = "anna", 3, "no such exchange", time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
		r.has(r.get("/letter?store=store+letters.db&id=id1"), 200, "order key", "anna", "tries in vain", "3: no such exchange", "next try", "2030-01-02 03:04:05 UTC or later")
	})
}

// The name of a file is enough where no other store has it: the folder tells of the machine.
func TestPagesNameAStoreWithoutItsFolder(t *testing.T) {
	other := &fake{name: "store /srv/b/same.db"}
	cfg := Config{Sources: []desk.Source{&fake{name: "store /home/ada/letters.db"}, &fake{name: "store /srv/a/same.db"}, other, &fake{name: "store postgres://shop@db.example/letters"}, &fake{name: "store here/letters.db"}}}
	for source, want := range map[string]string{
		"store /home/ada/letters.db":               "store letters.db",
		"into store /home/ada/letters.db":          "into store letters.db",
		"store /srv/a/same.db":                     "store /srv/a/same.db",
		"store /srv/b/same.db":                     "store /srv/b/same.db",
		"into store /srv/c/same.db":                "into store /srv/c/same.db", // of the journal, and not here
		"store /mnt/old.db":                        "store old.db",
		"store /mnt/letters.db":                    "store /mnt/letters.db",
		"store here/letters.db":                    "store here/letters.db", // as somebody has typed it
		"store postgres://shop@db.example/letters": "store postgres://shop@db.example/letters",
		"queue orders.dlq":                         "queue orders.dlq",
		"my store /of/things":                      "my store /of/things",
	} {
		if got := cfg.named(source); got != want {
			t.Errorf("%s is shown as %s, want %s", source, got, want)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		const name = "store /home/ada/letters.db"
		r := newRoom(t, func(cfg *Config) { cfg.Sources[0].(*fake).name = name })
		synctest.Wait()
		r.write("audit.jsonl", `{"at":"2026-11-29T08:00:00Z","by":{},"action":"collect","source":"queue orders.dlq","which":"into `+name+`","count":1,"result":"done"}`+"\n")
		store := "store=" + url.QueryEscape(name)
		r.write("redrives/one.jsonl", `{"redrive":{"id":"one","action":"drop","filter":{},"all":true,"source":"`+name+`","created":"2026-11-29T08:00:00Z"}}`+"\n")
		for _, page := range []string{"/", "/groups?" + store, "/letters?" + store, "/letter?id=id1&" + store, "/send?group=f1&" + store, "/edit?id=id1&" + store, "/keep?do=park&" + store, "/search?text=m-2", "/redrives", "/redrive?id=one", "/audit"} {
			text := html.UnescapeString(regexp.MustCompile(` (href|value|data-events)="[^"]*"`).ReplaceAllString(r.get(page).Body.String(), ""))
			if strings.Contains(text, "/home/ada") || !strings.Contains(text, "letters.db") {
				t.Errorf("%s shows %s", page, text)
			}
		}
	})
}

// Groups have the order that their address says, and so have the pages that follow from it.
func TestGroupsAreSorted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, nil)
		r.store.letters = nil
		for i, one := range []struct {
			text string
			n    int
			age  time.Duration
		}{{"many", 3, 2 * time.Hour}, {"some", 2, time.Hour}, {"older", 1, 3 * time.Hour}, {"alike", 1, time.Hour}} {
			for range one.n {
				l := letter(i)
				l.Error, l.Fingerprint, l.Failed = one.text, one.text, time.Now().Add(-one.age)
				r.store.letters = append(r.store.letters, l)
			}
		}
		const page = "/groups?store=store+letters.db"
		for sort, want := range map[string]string{"": "many some older alike", "letters": "many some older alike", "last": "some alike many older", "first": "some alike many older"} {
			var names []string
			for _, m := range regexp.MustCompile(`<h2><a href="[^"]*">(\w+)</a></h2>`).FindAllStringSubmatch(r.get(page+"&sort="+sort).Body.String(), -1) {
				names = append(names, m[1])
			}
			if got := strings.Join(names, " "); got != want {
				t.Errorf("by %q: %s, want %s", sort, got, want)
			}
		}
		r.has(r.get(page), 200, `<a href="groups?sort=letters&amp;store=store&#43;letters.db" aria-current="true">letters</a>`, `<a href="groups?sort=last&amp;store=store&#43;letters.db">last failure</a>`, "of equal groups the one with more letters")
		r.has(r.get(page+"&sort=last&failed=orders"), 200, `<input type="hidden" name="sort" value="last">`, `href="groups?sort=last&amp;store=store&#43;letters.db" aria-label="Remove the condition queue that failed"`,
			`href="groups?failed=orders&amp;sort=first&amp;store=store&#43;letters.db"`, `href="letters?failed=orders&amp;group=some&amp;store=store&#43;letters.db"`)
		r.has(r.get(page+"&sort=size"), 400, "sort is", "size", "letters, last, first")
	})
}

// Letters of a queue and of a store are sorted by each heading, all of them and not those of a page.
func TestLettersAreSorted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, nil)
		var all []desk.Letter
		for i := range 2*pageOfLetters + 3 {
			l := letter(i + 1)
			l.Attempts, l.Redrives, l.Failed = i%7, i%3, l.Failed.Add(time.Duration(i*i%101)*time.Minute)
			l.Error, l.Cause = fmt.Sprint("error ", i%11), []rehop.Cause{rehop.CauseRejected, rehop.CauseExhausted}[i%2]
			l.Publishing.MessageId = fmt.Sprintf("m-%03d", i*37%103)
			all = append(all, l)
		}
		r.queue.letters, r.store.letters, r.queue.looked = all, all, 1
		place := regexp.MustCompile(`<td class="n dim place">(\d+)</td>`)
		next := regexp.MustCompile(`<a class="button" rel="next" href="([^"]*)">`)
		for _, c := range letterColumns {
			sorted := slices.Clone(all)
			slices.SortStableFunc(sorted, c.less)
			var want []string
			for _, l := range sorted {
				want = append(want, fmt.Sprint(l.Place))
			}
			for _, of := range []string{"queue=orders.dlq", "store=store+letters.db"} {
				var got []string
				pages := 0
				for page := "/letters?" + of + "&sort=" + c.Sort; page != ""; pages++ {
					text := r.get(page).Body.String()
					for _, m := range place.FindAllStringSubmatch(text, -1) {
						got = append(got, m[1])
					}
					page = ""
					if m := next.FindStringSubmatch(text); m != nil {
						page = "/" + html.UnescapeString(m[1])
					}
				}
				if !slices.Equal(got, want) || pages != 3 {
					t.Errorf("%s by %s in %d pages:\n%v, want\n%v", of, c.Sort, pages, got, want)
				}
			}
		}
		for _, behind := range []string{"after=103", "sort=place&after=103", "sort=message&from=103&behind=n"} { // all of the page have left
			body := r.get("/letters?store=store+letters.db&" + behind)
			r.has(body, 200, "No further letters", "To the beginning")
			if strings.Contains(body.Body.String(), "when they are collected") {
				t.Errorf("%s: the store has letters, and the page says that it waits for them", behind)
			}
		}
		const page = "/letters?queue=orders.dlq"
		r.has(r.get(page), 200, "103 letters, the oldest place first", `<th class="place n" aria-sort="ascending">`, `<a href="letters?queue=orders.dlq&amp;sort=failed">Failed</a>`)
		r.has(r.get(page+"&sort=failed&text=order"), 200, "103 letters. Sorted: all of this look", `<th class="failed" aria-sort="descending">`, `<input type="hidden" name="sort" value="failed">`,
			`href="letters?queue=orders.dlq&amp;sort=failed" aria-label="Remove the condition text"`, `value="letters?queue=orders.dlq&amp;sort=failed&amp;text=order"`)
		r.has(r.get("/letters?store=store+letters.db&sort=failed"), 200, "103 letters. Sorted: all of them")
		r.has(r.get(page+"&sort=size"), 400, "sort is", "size", "place, error, cause, message, attempts, redrives, failed")
		for _, both := range []string{"&sort=failed&after=3", "&from=50", "&sort=failed&from=-1", "&after=x", "&sort=failed&from=3&behind=yesterday", "&sort=attempts&from=3&behind=x"} {
			r.has(r.get(page+both), 400, "Something in the form is not right")
		}
	})
}

// Letters that come or go between two pages of an order move no other one to a page that was shown, or past one that is.
func TestASortedPageGoesOnBehindItsLastLetter(t *testing.T) {
	place := regexp.MustCompile(`<td class="n dim place">(\d+)</td>`)
	next := regexp.MustCompile(`<a class="button" rel="next" href="([^"]*)">`)
	for _, c := range letterColumns {
		synctest.Test(t, func(t *testing.T) {
			r := enter(t, nil)
			made := func(i int) desk.Letter {
				l := letter(i)
				l.Attempts, l.Redrives, l.Failed = i%7, i%3, l.Failed.Add(time.Duration(i%101)*time.Nanosecond)
				l.Error, l.Cause, l.Publishing.MessageId = fmt.Sprint("error & ü ", i%11), rehop.CauseRejected, fmt.Sprintf("m-%03d", i*37%103)
				return l
			}
			r.store.letters = nil
			for i := range 2*pageOfLetters + 3 {
				r.store.letters = append(r.store.letters, made(i+1))
			}
			left, seen := map[string]bool{}, map[string]int{}
			for page := "/letters?store=store+letters.db&sort=" + c.Sort; page != ""; {
				text := r.get(page).Body.String()
				shown := place.FindAllStringSubmatch(text, -1)
				for i, m := range shown {
					seen[m[1]]++
					left[m[1]] = i%2 == 1 || i == len(shown)-1 // and so leaves
				}
				r.store.letters = slices.DeleteFunc(r.store.letters, func(l desk.Letter) bool { return left[fmt.Sprint(l.Place)] })
				r.store.letters = append(r.store.letters, made(1000+len(seen)), made(1001+len(seen)))
				page = ""
				if m := next.FindStringSubmatch(text); m != nil && len(seen) < 300 {
					page = "/" + html.UnescapeString(m[1])
				}
			}
			for i := range 2*pageOfLetters + 3 {
				if n := seen[fmt.Sprint(i+1)]; n != 1 {
					t.Errorf("by %s, the letter at place %d is shown %d times", c.Sort, i+1, n)
				}
			}
		})
	}
}

// Of more letters than a page sorts it says which ones it has sorted, and it calls none empty that it has
// not read.
func TestLettersThatAreNotSortedAreNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, nil)
		r.store.letters = nil
		for i := range maxSorted + 5 {
			l := letter(i + 1)
			l.Attempts = i
			r.store.letters = append(r.store.letters, l)
		}
		page := r.get("/letters?store=store+letters.db&sort=attempts")
		r.has(page, 200, "10,005 letters. Sorted: the 10,000 letters up to number 10,000, and none behind these", `<td class="n dim place">10000</td>`)
		if strings.Contains(page.Body.String(), `place">10001<`) {
			t.Error("a letter behind these is among them")
		}
		far := r.store.letters[maxSorted:]
		r.store.letters = nil
		r.store.scanned = maxSorted / 10 // it reads so many for one page, and none of them fits
		r.has(r.get("/letters?store=store+letters.db&sort=attempts&text=order"), 200, "No letter yet", "Look further", `href="letters?after=10000&amp;store=store&#43;letters.db&amp;text=order"`)
		r.store.letters = far
		r.has(r.get("/letters?after=10000&store=store+letters.db&text=order"), 200, "m-10001")
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
			"these": {"3"}, "look": {"2000-01-01T00:00:00.5Z"},
		})
		if w.Code != 303 || w.Header().Get("Location") != "redrive?id=o-1" {
			t.Fatalf("%d %s: %s", w.Code, w.Header().Get("Location"), w.Body)
		}
		redrive := r.store.redrives[0]
		if redrive.ID != "o-1" || redrive.Filter.Fingerprint != "f1" || redrive.Rate != 40 || redrive.Limit != 2 || redrive.Canary != 2*time.Minute || redrive.By != (desk.By{Who: "ada", Why: "stock is back"}) ||
			redrive.To.Exchange != "shop" || redrive.To.RoutingKey != "order.again" || redrive.All || !redrive.Look.Equal(time.Date(2000, 1, 1, 0, 0, 0, 5e8, time.UTC)) {
			t.Errorf("%+v", redrive)
		}
		r.post("/send", url.Values{"store": {"store letters.db"}, "group": {"f1"}, "to": {"/eu/orders"}, "redrive": {"o-2"}, "there": {"3"}})
		if to := r.store.redrives[1].To; to.Exchange != "" || to.RoutingKey != "eu/orders" {
			t.Errorf("a queue with a slash in its name is %+v", to)
		}
		r.has(r.post("/send", url.Values{"store": {"store letters.db"}, "group": {"f1"}, "rate": {"fast"}}), 400, "want a number")
		r.post("/send", url.Values{"store": {"store letters.db"}, "group": {"f1"}, "rate": {"0.5"}, "redrive": {"o-4"}, "there": {"3"}})
		if rate := r.store.redrives[2].Rate; rate != 0.5 {
			t.Errorf("a rate of 0.5 is %v", rate)
		}
		r.has(r.post("/send", url.Values{"store": {"store letters.db"}, "there": {"3"}}), 500, ">Filter is empty")
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
		form := url.Values{"store": {"store letters.db"}, "group": {"f1"}, "redrive": {"o-2"}, "there": {"3"}}
		for range 3 {
			r.has(r.post("/send", form), 303)
		}
		close(r.store.hold)
		if len(r.store.redrives) != 1 {
			t.Errorf("%d redrives", len(r.store.redrives))
		}
	})
}

// The letter of the first form is gone, which is no reason to say that nothing was done.
func TestAnEditThatIsSentTwiceIsOneRedrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, nil)
		r.write("redrives/o-4.jsonl", `{"redrive":{"id":"o-4","action":"send","source":"queue orders.dlq","by":{"who":"bob"},"created":"2026-11-11T02:26:58Z"}}`+"\n")
		w := r.post("/edit", url.Values{"queue": {"orders.dlq"}, "id": {"gone"}, "body": {"x"}, "redrive": {"o-4"}, "do": {"send"}})
		if r.has(w, 303); w.Header().Get("Location") != "redrive?id=o-4" {
			t.Errorf("%q", w.Header().Get("Location"))
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

// A redrive that is asked for while the broker is away does not begin: it would be carried out when the
// broker is back, and nobody may expect it any more.
func TestNoRedriveWaitsForABrokerThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, nil)
		r.has(r.post("/look", url.Values{"queue": {"orders.dlq"}}), 303)
		r.write("redrives/o-3.jsonl", `{"redrive":{"id":"o-3","action":"send","source":"store letters.db","created":"2026-11-11T02:26:58Z"}}`+"\n")
		r.write("redrives/o-4.jsonl", `{"redrive":{"id":"o-4","action":"drop","source":"store letters.db","created":"2026-11-11T02:26:58Z"}}`+"\n")
		r.broker.mu.Lock()
		r.broker.err = rehop.WithClass(errors.New("connection refused"), rehop.ClassTransient)
		r.broker.mu.Unlock()
		for _, place := range []url.Values{{"queue": {"orders.dlq"}}, {"store": {"store letters.db"}}} {
			for _, more := range []url.Values{{"there": {"1"}}, {"there": {"1"}, "deed": {"move"}, "to": {"parked"}}} {
				form := url.Values{"id": {"id1"}}
				maps.Copy(form, place)
				maps.Copy(form, more)
				r.has(r.post("/send", form), 503, "The broker is away", "connection refused")
			}
		}
		r.has(r.post("/send", url.Values{"queue": {"orders.dlq"}, "id": {"id1"}, "there": {"1"}, "deed": {"drop"}}), 503, "The broker is away")
		r.has(r.post("/edit", url.Values{"queue": {"orders.dlq"}, "id": {"id1"}, "do": {"send"}, "body": {`{"order":2}`}}), 503, "The broker is away")
		r.has(r.post("/edit", url.Values{"store": {"store letters.db"}, "id": {"id1"}, "do": {"send"}, "body": {`{"order":2}`}}), 503, "The broker is away")
		r.has(r.post("/resume", url.Values{"id": {"o-3"}}), 503, "The broker is away")
		synctest.Wait()
		if n := len(r.queue.redrives) + len(r.store.redrives) + len(r.store.kept); n > 0 {
			t.Errorf("%d redrives and edits: %+v", n, append(r.queue.redrives, r.store.redrives...))
		}
		// A store needs no broker to delete letters.
		r.has(r.post("/send", url.Values{"store": {"store letters.db"}, "id": {"id1"}, "there": {"1"}, "deed": {"drop"}}), 303)
		r.has(r.post("/edit", url.Values{"store": {"store letters.db"}, "id": {"id1"}, "do": {"save"}, "body": {`{"order":2}`}}), 303)
		r.has(r.post("/resume", url.Values{"id": {"o-4"}}), 303)
	})
}

// The error of one letter is not told as that of all.
func TestARedriveSaysWhoseItsErrorIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, nil)
		for failed, text := range map[string]string{"1": ">nacked<", "2": ">last error: nacked<"} {
			id := "o-" + failed
			r.write("redrives/"+id+".jsonl", `{"redrive":{"id":"`+id+`","action":"send","source":"store letters.db","created":"2026-11-11T02:26:58Z"}}`+"\n"+`{"progress":{"state":"done","failed":`+failed+`,"error":"nacked"}}`+"\n")
			r.has(r.get("/redrive?id="+id), 200, text)
			r.has(r.get("/redrives"), 200, text)
		}
	})
}

// Each outcome of a redrive has words and a colour of its own: one that has sent nothing looks like no success.
func TestEachOutcomeOfARedriveHasWordsAndAColour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, nil)
		seen := map[string]string{}
		of := map[string]string{"delete · nothing deleted": "send · nothing sent", "move · nothing moved": "send · nothing sent"}
		for i, tt := range []struct{ action, state, words string }{
			{"send", `"done","done":3`, "send · done"}, {"send", `"done","done":2,"failed":1`, "send · done in part"}, {"send", `"done","done":2,"skipped":1`, "send · done in part"}, {"send", `"done","done":2,"maybe_sent":1`, "send · done in part"},
			{"send", `"done"`, "send · nothing sent"}, {"send", `"done","failed":3`, "send · nothing sent"}, {"send", `"done","skipped":3`, "send · nothing sent"}, {"move", `"done","skipped":3`, "move · nothing moved"}, {"drop", `"done"`, "delete · nothing deleted"},
			{"send", `"stopped"`, "send · stopped"}, {"send", `"failed"`, "send · failed"}, {"send", `"cut off"`, "send · cut off"},
		} {
			r.write("redrives/o-3.jsonl", fmt.Sprintf(`{"redrive":{"id":"o-3","action":%q,"source":"store letters.db","created":"2026-11-11T02:26:58Z"}}`+"\n"+`{"progress":{"state":%s}}`+"\n%[3]*s", tt.action, tt.state, i, ""))
			_, rest, _ := strings.Cut(r.get("/redrive?id=o-3").Body.String(), `<div class="card-top"><div><span class="tag `)
			colour, rest, _ := strings.Cut(rest, `">`)
			words, _, _ := strings.Cut(rest, "<")
			if words != tt.words {
				t.Errorf("%s of %s is called %q, want %q", tt.state, tt.action, words, tt.words)
			}
			words = cmp.Or(of[words], words)
			if other := seen[colour]; colour == "" || other != "" && other != words {
				t.Errorf("%s has the colour %q of %s", words, colour, other)
			}
			seen[colour] = words
		}
		if seen["run"] != "" {
			t.Errorf("%s has the colour of a redrive that runs", seen["run"])
		}
	})
}

// A resume that is refused says why: the page of the redrive does not, because nothing has begun.
func TestAResumeThatIsRefusedSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, nil)
		r.write("redrives/o-3.jsonl", `{"redrive":{"id":"o-3","action":"send","source":"store letters.db","created":"2026-11-11T02:26:58Z"}}`+"\n")
		r.store.refuse = rehop.WithClass(errors.New(`desk: redrive o-3 is about cluster "staging"`), rehop.ClassBug)
		r.has(r.post("/resume", url.Values{"id": {"o-3"}}), 400, "This cannot be done", "redrive o-3 is about cluster")
	})
}

// Of two desks that go on with one redrive the second is told who has it, and how to stop that.
func TestARedriveThatAnotherDeskHasIsAConflict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var source desk.Keeper
		r := enter(t, func(cfg *Config) {
			source = collected(t, cfg.Journal, 3)
			cfg.Sources = []desk.Source{source}
		})
		time.Sleep(time.Second) // a redrive is about letters that were stored before it
		begun, ended := make(chan struct{}), make(chan error, 1)
		once := sync.OnceFunc(func() { close(begun) })
		go func() { // as another process does
			slow := desk.Redrive{ID: "o-1", Action: desk.Drop, All: true, Rate: 0.001, CopyTo: filepath.Join(r.folder, "dropped.jsonl"), By: desk.By{Who: "ben"}}
			_, err := source.Execute(t.Context(), slow, func(desk.Progress) { once() })
			ended <- err
		}()
		<-begun
		r.has(r.post("/resume", url.Values{"id": {"o-1"}}), 409, "Another process works on this redrive", fmt.Sprintf("ben, in process %d on ", os.Getpid()), " UTC.",
			"stop it, and resume it here when it has ended", `href="redrive?id=o-1"`, `action="stop"`)
		r.has(r.get("/redrive?id=o-1"), 200, "delete · running", `action="stop"`)
		r.has(r.post("/stop", url.Values{"id": {"o-1"}}), 303)
		if err := <-ended; !errors.Is(err, desk.ErrRedriveStopped) {
			t.Errorf("the other desk: %v, want it stopped", err)
		}
		r.has(r.get("/redrive?id=o-1"), 200, "delete · stopped", `action="resume"`)
	})
}

// collected is a store of n letters.
func collected(t *testing.T, journal *desk.Journal, n int) desk.Keeper {
	t.Helper()
	db, err := sqlite.Open(filepath.Join(t.TempDir(), "letters.db"))
	must(t, err)
	t.Cleanup(func() { must(t, db.Close()) })
	letters, err := store.Open(t.Context(), db, store.SQLite, store.Config{})
	must(t, err)
	for i := range n {
		must(t, letters.Collect(t.Context(), &consumer.Delivery{ID: fmt.Sprint("m-", i), RoutingKey: "orders"}))
	}
	keeper, err := desk.NewCollected(letters, nil, desk.CollectedConfig{Journal: journal, Name: "store letters.db"})
	must(t, err)
	return keeper
}

func TestAnAnswerThatIsNoneIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, nil)
		r.write("redrives/o-3.jsonl", `{"redrive":{"id":"o-3","action":"send","source":"store letters.db","created":"2026-11-11T02:26:58Z"}}`+"\n")
		r.has(r.post("/resume", url.Values{"id": {"o-3"}, "maybe_sent": {"nuke"}}), 400, "maybe_sent is", "want delete or again")
		if len(r.store.redrives) > 0 {
			t.Error("it was resumed")
		}
	})
}

// Letters that may have been sent stay until a person decides.
func TestAPersonDecidesAboutLettersMaybeSent(t *testing.T) {
	for _, answer := range []desk.Answer{"", desk.Delete, desk.Again} {
		synctest.Test(t, func(t *testing.T) {
			r := enter(t, nil)
			redrive := `{"redrive":{"id":"o-3","action":"send","source":"store letters.db","created":"2026-11-11T02:26:58Z"}}
{"progress":{"state":"done","matched":2,"done":2,"maybe_sent":1,"note":"perhaps sent: m-7 stayed"}}
`
			r.write("redrives/o-3.jsonl", redrive)
			r.has(r.get("/redrive?id=o-3"), 200, "Perhaps sent", "m-7 stayed", `name="maybe_sent" value="delete"`, `name="maybe_sent" value="again"`)
			r.has(r.post("/resume", url.Values{"id": {"o-3"}, "maybe_sent": {string(answer)}}), 303)
			if redrive := r.store.redrives; len(redrive) != 1 || redrive[0].By.Who != "ada" || redrive[0].By.MaybeSent != answer {
				t.Errorf("%+v, want the answer %q", redrive, answer)
			}
			r.write("redrives/o-4.jsonl", strings.Replace(strings.Replace(redrive, "o-3", "o-4", 1), `"action"`, `"limit":2,"action"`, 1))
			full := r.get("/redrive?id=o-4")
			r.has(full, 200, `name="maybe_sent" value="delete"`, "another redrive takes them, because this one is about no more than 2 letters")
			if strings.Contains(full.Body.String(), `value="again"`) {
				t.Error("a redrive that has reached its limit offers to send more")
			}
		})
	}
}

func TestLettersAreKeptAndEdited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, nil)
		r.has(r.post("/keep", url.Values{"store": {"store letters.db"}, "group": {"f1"}, "do": {"archive"}}), 303)
		r.has(r.post("/keep", url.Values{"store": {"store letters.db"}, "do": {"archive"}}), 400, "choose letters")
		r.has(r.get("/keep?do=release&store=store+letters.db&id=id1"), 200, "Release 1 letter", "The forwarder of a service publishes")
		r.has(r.post("/keep", url.Values{"store": {"store letters.db"}, "id": {"id1"}, "do": {"release"}}), 303)
		r.has(r.post("/edit", url.Values{"store": {"store letters.db"}, "id": {"id1"}, "do": {"save"}, "body": {"{\r\n}"}, "header_name": {"tenant", ""}, "header_value": {"a=b", ""}, "remove": {"debug"}}), 303)
		r.has(r.post("/edit", url.Values{"store": {"store letters.db"}, "id": {"id1"}, "do": {"save"}, "body": {`{"order":1}`}, "content_type": {"application/json"}}), 400, "nothing was changed")
		r.has(r.post("/edit", url.Values{"store": {"store letters.db"}, "id": {"id1"}, "do": {"save"}, "body": {`{"order":1`}}), 400, "was JSON, and is none now: unexpected end")
		r.has(r.post("/export", url.Values{"store": {"store letters.db"}, "group": {"f1"}}), 200, "id1")
		want := []string{`archive fingerprint="f1"`, `release id="id1"`, `edit id1 "{\n}" map[tenant:a=b] [debug]`, "export by ada"}
		if !slices.Equal(r.store.kept, want) {
			t.Errorf("%q, want %q", r.store.kept, want)
		}
		r.has(r.post("/keep", url.Values{"queue": {"orders.dlq"}, "group": {"f1"}, "do": {"park"}}), 400, "keeps no letters")
	})
}

// A button that parks, archives or releases is about the letters that its page has counted, or says that it
// is about all.
func TestAButtonThatKeepsSaysItsBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, nil)
		const of = "store=store+letters.db&do=release&failed=orders&newer=24h"
		page := r.get("/keep?" + of)
		r.has(page, 200, "Release 3 letters", `name="ids" value="id1,id2,id3"`)
		if strings.Contains(page.Body.String(), `name="newer" value="24h"`) {
			t.Error("the span ends when the form is sent")
		}
		r.store.letters = append(r.store.letters, letter(4))
		form := url.Values{"store": {"store letters.db"}, "do": {"release"}, "failed": {"orders"}, "ids": {"id1,id2,id3"}}
		r.has(r.post("/keep", form), 303)
		if got := r.store.kept; len(got) != 1 || !strings.Contains(got[0], "id1") || strings.Contains(got[0], "id4") {
			t.Errorf("%q, want the letters of the page", got)
		}
		form.Set("id", "id4")
		r.has(r.post("/keep", form), 400, "ids and id")
		r.store.letters = nil
		r.has(r.get("/keep?"+of), 200, "Release all that match", "No letter matches now", "also those that come until then")
		for i := range maxNamed + 1 {
			r.store.letters = append(r.store.letters, letter(i+1))
		}
		r.has(r.get("/keep?"+of), 200, "Release all that match", "also those that come until then")
		r.store.letters = r.store.letters[:maxNamed]
		page = r.get("/keep?" + of)
		r.has(page, 200, "Release 4,000 letters")
		form.Del("id")
		form.Set("ids", regexp.MustCompile(`name="ids" value="([^"]*)"`).FindStringSubmatch(page.Body.String())[1])
		r.has(r.post("/keep", form), 303)
		if got := r.store.kept; len(got) != 2 {
			t.Errorf("%d actions, want that of 4,000 letters", len(got))
		}
	})
}

// A store keeps those letters that a form names, and no other.
func TestAStoreKeepsTheLettersOfAForm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 1100
		var source desk.Keeper
		r := enter(t, func(cfg *Config) {
			source = collected(t, cfg.Journal, n)
			cfg.Sources = []desk.Source{source}
		})
		page := r.get("/keep?store=store+letters.db&do=park&key=orders")
		r.has(page, 200, "Park 1,100 letters")
		ids := regexp.MustCompile(`name="ids" value="([^"]*)"`).FindStringSubmatch(page.Body.String())
		if ids == nil || strings.Count(ids[1], ",") != n-1 {
			t.Fatalf("the form names %.80q", ids)
		}
		_, but, _ := strings.Cut(ids[1], ",") // the first one came later
		r.has(r.post("/keep", url.Values{"store": {"store letters.db"}, "do": {"park"}, "key": {"orders"}, "ids": {but}}), 303)
		for state, want := range map[string]int{"parked": n - 1, "held": 1} {
			list, err := source.List(t.Context(), desk.Filter{States: []string{state}}, desk.Page{Limit: 1, CountAll: true})
			if err != nil || list.Matched != want {
				t.Errorf("%s: %d letters: %v, want %d", state, list.Matched, err, want)
			}
		}
	})
}

// All letters of a page may be selected.
func TestAPageOfLettersIsPicked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, nil)
		r.store.letters = nil
		v := url.Values{"picked": {"1"}, "store": {"store letters.db"}}
		for i := range pageOfLetters {
			r.store.letters = append(r.store.letters, letter(i+1))
			v.Add("id", fmt.Sprint("id", i+1))
		}
		for _, page := range []string{"send?deed=send", "send?deed=move", "send?deed=drop", "keep?do=park"} {
			r.has(r.get("/"+page+"&"+v.Encode()), 200, "50 letters")
		}
		form := url.Values{"store": {"store letters.db"}, "id": v["id"], "there": {"50"}, "redrive": {"all"}}
		r.has(r.post("/send", form), 303)
		synctest.Wait()
		if did := r.store.redrives; len(did) != 1 || len(did[0].Filter.IDs) != pageOfLetters {
			t.Errorf("%+v, want all of the page", did)
		}
		r.has(r.post("/keep", url.Values{"store": {"store letters.db"}, "id": v["id"], "do": {"park"}}), 303)
	})
}

// Letters are picked one by one, sent, moved and deleted.
func TestLettersArePickedMovedAndDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, nil)
		r.has(r.get("/letters?store=store+letters.db"), 200, `name="id" value="id1"`, `name="picked"`, `formaction="keep"`)
		for page, says := range map[string]string{
			"send?picked=1&":                          "no letter is selected",
			"send?deed=drop&picked=1&":                "no letter is selected",
			"keep?do=park&picked=1&":                  "no letter is selected",
			"send?picked=1&id=id1&id=id2&":            "Send 2 letters",
			"send?deed=send&picked=1&id=id1&id=id2&":  "Send 2 letters back",
			"send?deed=move&picked=1&id=id1&id=id2&":  "Move 2 letters",
			"send?deed=drop&picked=1&id=id1&id=id2&":  "Delete 2 letters",
			"send?deed=drop&id=id1&":                  "dropped/",
			"send?deed=destroy&id=id1&":               "no such page",
			"keep?do=archive&picked=1&id=id1&id=id2&": "Archive 2 letters",
		} {
			r.has(r.get("/"+page+"store=store+letters.db"), cmp.Or(map[string]int{"no letter is selected": 400, "no such page": 404}[says], 200), says)
		}
		if body := r.get("/send?deed=drop&store=store+letters.db&id=id1").Body.String(); strings.Contains(body, `name="to"`) || strings.Contains(body, `name="canary"`) {
			t.Error("a form that deletes asks where to")
		}
		for deed, says := range map[string]string{"send": "No more letters are sent than the button says. Letters that come meanwhile are left, also messages that fail again.<", "move": "moved than the button says. Letters that come meanwhile are left.<", "drop": "deleted than the button says. Letters that come meanwhile are left.<"} {
			page := r.get("/send?deed=" + deed + "&store=store+letters.db&id=id1&id=id2")
			r.has(page, 200, says)
			if tries := strings.Contains(page.Body.String(), "letters to try"); tries != (deed != "drop") {
				t.Errorf("the form to %s is about letters to try: %t", deed, tries)
			}
		}
		form := func(deed string, more ...string) url.Values {
			v := url.Values{"store": {"store letters.db"}, "id": {"id1", "id2"}, "deed": {deed}, "there": {"2"}, "why": {"old"}, "redrive": {"d-" + deed}}
			for i := 0; i < len(more); i += 2 {
				v.Set(more[i], more[i+1])
			}
			return v
		}
		r.has(r.post("/send", form("move")), 400, "name the place")
		r.has(r.post("/send", form("move", "to", "amqp://bob:secret@host/orders")), 400, "is a URL, which is not shown")
		r.has(r.post("/send", form("destroy")), 404)
		if len(r.store.redrives) > 0 {
			t.Fatalf("%+v", r.store.redrives)
		}
		r.has(r.post("/send", form("move", "to", "parked")), 303)
		r.has(r.post("/send", form("drop")), 303)
		r.has(r.post("/send", form("drop", "redrive", "")), 303)
		synctest.Wait()
		if len(r.store.redrives) != 3 {
			t.Fatalf("%+v", r.store.redrives)
		}
		for i, want := range []desk.Action{desk.Move, desk.Drop, desk.Drop} {
			did := r.store.redrives[i]
			if did.Action != want || !slices.Equal(did.Filter.IDs, []string{"id1", "id2"}) || did.Limit != 2 || did.By.Why != "old" || did.ID == "" {
				t.Errorf("%+v, want to %s", did, want)
			}
			if want == desk.Move && did.To.RoutingKey != "parked" || want == desk.Drop && (did.To != nil || did.CopyTo != r.store.journal.DroppedTo(did.ID)) {
				t.Errorf("%s to %v and %q", want, did.To, did.CopyTo)
			}
		}
	})
}

// Somebody who has deleted letters by a slip reads on the same page how they come back.
func TestADeleteAndAnEditNameTheirCopies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, nil)
		for id, begins := range map[string]string{"gone": `"drop"`, "sent": `"send"`, "edited": `"send","edit":{"body":"YQ=="}`} {
			r.write("redrives/"+id+".jsonl", `{"redrive":{"id":"`+id+`","action":`+begins+`,"source":"queue orders.dlq","copy_to":"/var/copies.jsonl","created":"2026-11-11T02:26:58Z"}}`+"\n"+`{"progress":{"state":"done","done":2}}`+"\n")
		}
		const line, where = "<code>rehop dlq import orders.dlq /var/copies.jsonl</code>", "on the machine of the desk, with the <code>AMQP_URL</code> and the <code>REHOP_JOURNAL</code> that the desk has"
		for id, text := range map[string]string{"gone": "Copies are in a file. All letters of the file go back with ", "edited": "The original is in a file. It goes back as a letter with "} {
			page := r.get("/redrive?id=" + id)
			r.has(page, 200, text+line, where)
			if n := strings.Count(page.Body.String(), "copies.jsonl"); n != 1 || strings.Contains(page.Body.String(), "The audit has an import") {
				t.Errorf("%s: the page has the file %d times, want it once, and not imported", id, n)
			}
		}
		if strings.Contains(r.get("/redrive?id=sent").Body.String(), line) {
			t.Error("letters that were sent are to be imported")
		}
		record := `{"at":"2026-11-12T08:00:00Z","by":{"who":"ada"},"action":"import","source":"queue orders.dlq","file":"/var/%s.jsonl","count":%d,"result":"done"}` + "\n"
		r.write("audit.jsonl", fmt.Sprintf(record+record, "others", 3, "copies", 0))
		if strings.Contains(r.get("/redrive?id=gone").Body.String(), "The audit has an import") {
			t.Error("another file, or nothing of it, was imported")
		}
		r.write("audit.jsonl", fmt.Sprintf(record, "copies", 2))
		r.has(r.get("/redrive?id=gone"), 200, "The audit has an import of this file: 2 letters into <span class=\"mono\">queue orders.dlq</span>, ", " by ada")
	})
}

// The pages call a delete by one word, wherever they tell of one, and ask nothing that has no meaning for it.
func TestADeleteIsCalledADelete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, nil)
		r.write("redrives/gone.jsonl", `{"redrive":{"id":"gone","action":"drop","all":true,"source":"queue orders.dlq","copy_to":"/var/copies.jsonl","created":"2026-11-11T02:26:58Z"}}`+"\n"+`{"progress":{"state":"done","matched":2,"done":2}}`+"\n")
		for i, result := range []string{"done: 2 dropped", "running: 2 of at most 9 dropped", "done: 2 dropped, 1 failed: \"3 dropped\""} {
			r.write("audit.jsonl", fmt.Sprintf(`{"at":"2026-11-12T08:00:00Z","action":"drop","source":"queue orders.dlq","redrive":"gone-%d","count":2,"result":%q}`+"\n", i, result))
			r.has(r.get("/audit"), 200, `<span class="tag">delete</span>`, strings.ReplaceAll(strings.Replace(result, "dropped", "deleted", 1), `"`, "&#34;"))
		}
		for _, page := range []string{"/redrive?id=gone", "/redrives", "/"} {
			w := r.get(page)
			r.has(w, 200, "delete · done")
			for _, not := range []string{"drop ·", "dropped", "drop from", "Perhaps twice"} {
				if strings.Contains(w.Body.String(), not) {
					t.Errorf("%s has %q", page, not)
				}
			}
		}
		r.write("redrives/gone.jsonl", `{"redrive":{"id":"gone","action":"drop","all":true,"source":"queue orders.dlq","copy_to":"/var/copies.jsonl","created":"2026-11-11T02:26:58Z"}}`+"\n"+`{"progress":{"state":"done","matched":2,"done":2,"maybe_duplicate":1,"maybe_sent":1}}`+"\n")
		r.has(r.get("/redrive?id=gone"), 200, "Perhaps twice", "Perhaps copied", "/var/copies.jsonl", "The file has them: delete them", "It has not: copy and delete them too")
		form := r.get("/send?deed=drop&store=store+letters.db&group=f1").Body.String()
		if strings.Contains(form, "broker confirms") || strings.Count(form, "file") != 1 || strings.Count(form, "dropped/") != 1 {
			t.Errorf("the form of a delete: %s", form)
		}
	})
}

// A redrive's page says where the letters went, and leads back to the letters that are left of those it was about.
func TestARedriveSaysWhereItsLettersWentAndLeadsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, nil)
		for _, tt := range []struct{ redrive, to, back string }{
			{`"action":"send","filter":{"fingerprint":"f1","error":"stock","headers":{"tenant":"acme"},"before":"2026-11-11T02:00:00Z"}`, "<dd>the queue that each failed in, or the exchange of one that no queue had</dd>", "letters?error=stock&amp;group=f1&amp;header=tenant%3Dacme&amp;older=2026-11-11T02%3A00%3A00Z&amp;queue=orders.dlq"},
			{`"action":"send","filter":{"ids":["a1"]},"to":{"RoutingKey":"orders.v2"}`, `<dd class="mono">queue orders.v2</dd>`, "letters?queue=orders.dlq"},
			{`"action":"move","all":true,"to":{"Exchange":"shop","RoutingKey":"late"}`, `<dd class="mono">exchange shop with key late</dd>`, "letters?queue=orders.dlq"},
			{`"action":"drop","all":true,"filter":{"cause":"exhausted"}`, "", "letters?cause=exhausted&amp;queue=orders.dlq"},
		} {
			r.write("redrives/one.jsonl", `{"redrive":{"id":"one",`+tt.redrive+`,"source":"queue orders.dlq","created":"2026-11-11T02:26:58Z"}}`+"\n"+`{"progress":{"state":"done","done":2}}`+"\n")
			w := r.get("/redrive?id=one")
			r.has(w, 200, tt.to, `<a class="button" href="`+tt.back+`">The letters that are left</a>`, `<a class="mono" href="groups?queue=orders.dlq">queue orders.dlq</a> <span aria-hidden="true">/</span></div>`)
			if has := strings.Contains(w.Body.String(), "<dt>to</dt>"); has != (tt.to != "") {
				t.Errorf("%s: the page names a target: %t", tt.redrive, has)
			}
			v, err := url.ParseQuery(strings.TrimPrefix(strings.ReplaceAll(tt.back, "&amp;", "&"), "letters?"))
			must(t, err)
			if _, err := filterOf(v, time.Now()); err != nil {
				t.Errorf("%s: %v", tt.back, err)
			}
		}
	})
}

// What an edit changes is shown before anything does: lines of the body, and headers with their types.
func TestAnEditIsReviewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, nil)
		l := &r.store.letters[0]
		l.Publishing.Headers = amqp.Table{"tries": int64(3), "tenant": "acme", "vip": true, "tags": []any{"a"}, "odd": "a\nb", "x-rehop-cause": "exhausted"}
		l.Publishing.Body = []byte(`{"a":1,"b":2,"c":3,"d":4,"e":5,"f":6}`)
		r.has(r.get("/edit?store=store+letters.db&id=id1"), 200, `name="header_name" value="tries"`, `name="header_value" class="mono" value="3"`, `value="true"`, "Review the change")
		if body := r.get("/edit?store=store+letters.db&id=id1").Body.String(); strings.Contains(body, `name="header_name" value="tags"`) || strings.Contains(body, `name="header_name" value="odd"`) || strings.Contains(body, "x-rehop-cause\"") {
			t.Error("a header that no field can hold has one")
		}
		form := url.Values{
			"store": {"store letters.db"}, "id": {"id1"}, "do": {"review"}, "body": {`{"a":1,"b":2,"c":3,"d":4,"e":5,"f":7}`}, "content_type": {l.Publishing.ContentType}, "why": {"a typo"},
			"header_name": {"tenant", "tries", "vip", "new"}, "header_value": {"acme", "many", "false", "7"}, "remove": {"tags"}, "redrive": {"e-1"},
		}
		w := r.post("/edit", form)
		r.has(w, 200, "What changes", `bad">-   &#34;f&#34;: 6`, `good">&#43;   &#34;f&#34;: 7`, `warn small">text`, "false", "removed", `name="header_name" value="new"`, `name="why" value="a typo"`, `name="redrive" value="e-1"`, "&#34;f&#34;:7}</textarea>", "Save and send")
		if body := w.Body.String(); strings.Contains(body, `&#34;a&#34;: 1`) || strings.Contains(body, `>acme<`) {
			t.Error("the review shows what stays")
		}
		if len(r.store.kept)+len(r.store.redrives) > 0 {
			t.Error("the review has changed a letter")
		}
		form.Set("do", "save")
		r.has(r.post("/edit", form), 303)
		if want := []string{`edit id1 "{\"a\":1,\"b\":2,\"c\":3,\"d\":4,\"e\":5,\"f\":7}" map[new:7 tries:many vip:false] [tags]`}; !slices.Equal(r.store.kept, want) {
			t.Errorf("%q, want %q", r.store.kept, want)
		}
		r.has(r.post("/look", url.Values{"queue": {"orders.dlq"}}), 303)
		for _, name := range []string{"x-death", "x-first-death-queue", "x-delivery-count", "x-rehop-queue", strings.Repeat("n", 256)} {
			for _, place := range []url.Values{{"store": {"store letters.db"}}, {"queue": {"orders.dlq"}}} {
				for _, do := range []string{"review", "save", "send"} {
					for _, field := range []string{"header_name", "remove"} {
						bad := url.Values{"id": {"id1"}, "do": {do}, "redrive": {"e-9"}, field: {name}}
						if field == "header_name" {
							bad["header_value"] = []string{"other"}
						}
						maps.Copy(bad, place)
						r.has(r.post("/edit", bad), 400, fmt.Sprintf("header &#34;%.40s&#34;, want 1 to 255 bytes, and none that rehop or the broker writes", name))
					}
				}
			}
		}
		if len(r.store.kept) != 1 || len(r.store.redrives)+len(r.queue.redrives) > 0 {
			t.Errorf("a header of the broker was changed: %q", r.store.kept)
		}
		form["header_value"] = form["header_value"][1:]
		r.has(r.post("/edit", form), 400, "4 names of headers and 3 values")
		form["header_name"], form["header_value"] = []string{"a", "a"}, []string{"1", "2"}
		r.has(r.post("/edit", form), 400, "is set twice")
		form["header_name"], form["header_value"] = []string{""}, []string{"1"}
		r.has(r.post("/edit", form), 400, "has no name")
		r.has(r.post("/edit", url.Values{"store": {"store letters.db"}, "id": {"id1"}, "do": {"review"}}), 200, "Nothing changes")
	})
}

// A broker counts the deliveries of a letter, and each look is one. That is no edit.
func TestALetterOfAQueueThatIsLookedAtAgainIsTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, nil)
		r.has(r.post("/look", url.Values{"queue": {"orders.dlq"}}), 303)
		l := &r.queue.letters[0]
		l.Publishing.Headers = amqp.Table{"x-delivery-count": int64(1)}
		page := r.get("/edit?queue=orders.dlq&id=" + l.ID).Body.String()
		_, rest, found := strings.Cut(page, `name="was" value="`)
		if !found {
			t.Fatal("the form does not have the field")
		}
		was, _, _ := strings.Cut(rest, `"`)
		l.Publishing.Headers = amqp.Table{"x-delivery-count": int64(2)}
		r.has(r.post("/edit", url.Values{"queue": {"orders.dlq"}, "id": {l.ID}, "do": {"review"}, "body": {`{"order":2}`}, "was": {was}}), 200, "What changes")
	})
}

// Of two people who edit a letter of a store the second is told, and takes nothing back.
func TestAnEditOfWhatSomebodyHasEditedIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, nil)
		_, rest, _ := strings.Cut(r.get("/edit?store=store+letters.db&id=id1").Body.String(), `name="was" value="`)
		was, _, _ := strings.Cut(rest, `"`)
		form := url.Values{"store": {"store letters.db"}, "id": {"id1"}, "do": {"review"}, "body": {`{"order":2}`}, "was": {was}}
		r.has(r.post("/edit", form), 200, "What changes", `name="was" value="`+was+`"`)
		l := &r.store.letters[0]
		before := l.Publishing
		for _, change := range []func(){
			func() { l.Publishing.Body = []byte(`{"order":3}`) },
			func() { l.Publishing.Headers = amqp.Table{"tenant": "acme"} },
			func() { l.Publishing.ContentType = "text/plain" },
		} {
			change()
			for _, do := range []string{"review", "save", "send"} {
				form.Set("do", do)
				r.has(r.post("/edit", form), 409, "This letter is another one now")
			}
			l.Publishing = before
		}
		if len(r.store.kept)+len(r.store.redrives) > 0 {
			t.Errorf("%q, %+v", r.store.kept, r.store.redrives)
		}
		form.Set("do", "save")
		r.has(r.post("/edit", form), 303)
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
			if body := r.get(page).Body.String(); strings.Contains(body, `href="send`) || strings.Contains(body, `href="edit`) || strings.Contains(body, `href="keep`) || strings.Contains(body, `name="id"`) && page[1:8] == "letters" {
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
		if n := strings.Count(w.Body.String(), `<td class="letters n"><b>18</b>`); n != 1 {
			t.Errorf("the letters of all lanes are counted %d times, want once", n)
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
		if page := r.get("/events?view=place&queue=legacy_error").Body.String(); strings.Contains(page, "10 s before") || !strings.Contains(page, "letters") {
			t.Errorf("a count that AMQP gave is not exact: %s", page)
		}
		r.queue.mu.Lock() // the page may still weigh its look
		r.queue.err = &desk.RefusedError{Queue: "orders.dlq", Reason: "it is a stream", Advice: "read it with a consumer"}
		r.queue.mu.Unlock()
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
		r.has(r.post("/look", url.Values{"queue": {"orders.dlq"}}), 303)
		for _, page := range []string{"/groups?queue=orders.dlq", "/events?view=place&queue=orders.dlq"} {
			if w := r.get(page); !strings.Contains(w.Body.String(), "or up to 10 s before") {
				t.Errorf("%s does not say that the count may be older: %s", page, w.Body)
			}
		}
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

// The form counts every target, not those of the letters that it shows.
func TestAFormCountsEveryTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, nil)
		for i := 4; i <= 40; i++ {
			l := letter(i)
			switch {
			case i == 20:
				l.Queue = "payments"
			case i == 21:
				l.Queue, l.Doubt = "payments", `its headers name queue "payments", and x-death, which the broker writes, names "shopq"`
			case i == 22:
				l.Queue = ""
			case i > 22:
				l.Queue = fmt.Sprint("queue-", i)
			}
			r.store.letters = append(r.store.letters, l)
		}
		r.has(r.get("/send?store=store+letters.db"), 200, "<b>19 letters</b> to", "queue orders", "<b>1 letter</b> to", "queue payments", "queue-23</span>", "queue-40</span>",
			"1 letter of them is in doubt", `its headers name a queue`)
		r.has(r.get("/letter?store=store+letters.db&id=id21"), 200, "In doubt: its headers name queue", "Without a target it is not sent back", "unknown: name a target")
		r.has(r.get("/letters?store=store+letters.db"), 200, `title="its headers name queue`)
		l := letter(41)
		l.Queue = "queue-41"
		r.store.letters = append(r.store.letters, l)
		page := r.get("/send?store=store+letters.db")
		r.has(page, 200, "21 targets", "queue-23</span>", "queue-40</span>", "queue-41</span>")
		if text := page.Body.String(); strings.Index(text, "queue payments") > strings.Index(text, "queue orders") {
			t.Error("a target of one letter is behind that of many")
		}
	})
}

// A person reads first where letters go.
func TestTheTargetsAreTheLargestTextOfTheirForm(t *testing.T) {
	css, err := static.ReadFile("static/desk.css")
	must(t, err)
	sizes := map[string]float64{}
	for _, m := range regexp.MustCompile(`(?m)^(\S+) \{[^}]*font-size: ([0-9.]+)rem`).FindAllStringSubmatch(string(css), -1) {
		sizes[m[1]], err = strconv.ParseFloat(m[2], 64)
		must(t, err)
	}
	if sizes[".targets"] <= sizes["h1"] || sizes["h1"] == 0 {
		t.Errorf("targets have %g rem, and headings %g", sizes[".targets"], sizes["h1"])
	}
}

// A tick and a green pill are for a broker that has answered just now.
func TestNothingIsGreenWhileNobodyAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, func(cfg *Config) { cfg.Sources = nil })
		r.broker.mu.Lock()
		r.broker.queues[0].Ready = 0
		r.broker.mu.Unlock()
		r.h.sampleOnce(t.Context(), map[string]time.Time{})
		r.has(r.get("/"), 200, "<h2>No dead letters</h2>", `<span class="pill good">`)
		for _, fault := range []string{"AMQP and API", "API"} {
			r.broker.mu.Lock()
			r.broker.silent = errors.New("management API at http://broker:15672: no answer within 5s")
			r.broker.err = nil
			if fault == "AMQP and API" {
				r.broker.err = rehop.WithClass(errors.New("no answer"), rehop.ClassTransient)
			}
			r.broker.mu.Unlock()
			<-time.After(time.Minute)
			r.h.sampleOnce(t.Context(), map[string]time.Time{})
			page := r.get("/").Body.String()
			if strings.Contains(page, "<h2>No dead letters</h2>") || !strings.Contains(page, "No dead letters when they were counted") || !strings.Contains(page, " min ago") {
				t.Errorf("%s away: %s", fault, page)
			}
			if green := strings.Contains(page, `<span class="pill good">`); green != (fault == "API") {
				t.Errorf("%s away: a green pill is %v", fault, green)
			}
			if claim := strings.Contains(page, "The broker itself does"); claim != (fault == "API") {
				t.Errorf("%s away: the page says that the broker answers: %v", fault, claim)
			}
		}
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

// A depth that stays costs two points, and the plot begins an hour ago with the depth of then.
func TestAPlotKeepsWhatHasChanged(t *testing.T) {
	var s series
	begin := time.Now()
	for i := range 3000 { // more than four hours
		n := 3
		if i >= 2900 {
			n = i
		}
		s.add(point{begin.Add(time.Duration(i) * sampleEvery), n})
		if i < 2900 && len(s.points) > 2 {
			t.Fatalf("%d points of one depth", len(s.points))
		}
	}
	last := begin.Add(2999 * sampleEvery)
	if first := s.points[0]; first.N != 3 || !first.At.Equal(last.Add(-plotFor)) || s.points[len(s.points)-1] != (point{last, 2999}) {
		t.Errorf("the plot is from %v to %v", first, s.points[len(s.points)-1])
	}
	for i := range 3000 {
		s.add(point{last.Add(time.Duration(i+1) * sampleEvery), i})
	}
	if most := int(plotFor/(plotEvery-sampleEvery)) + 2; len(s.points) > most {
		t.Errorf("%d points, want %d at most", len(s.points), most)
	}
	at := last.Add(5 * time.Hour)
	if p := s.until(at); p[len(p)-1] != (point{at, 2999}) {
		t.Errorf("the last point is %v", p[len(p)-1])
	}
}

// An open page asks for its parts, and gets those that have changed.
func TestAnOpenPageIsToldOfChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, nil)
		ask := func(view, tag string) *httptest.ResponseRecorder {
			req := httptest.NewRequest(http.MethodGet, "/events?"+view, nil)
			req.Header.Set("If-None-Match", tag)
			return r.ask(req)
		}
		for view, parts := range map[string][]string{
			"view=status": {"live-status"}, "view=overview": {"live-status", "live-taken", "live-overview"}, "view=place&queue=orders.dlq": {"live-status", "live-depth"},
			"view=redrives": {"live-status", "live-redrives"}, "view=redrive&id=none": {"live-status"}, "": {"live-status"},
		} {
			var got []part
			w := ask(view, "")
			must(t, json.Unmarshal(w.Body.Bytes(), &got))
			var ids []string
			for _, p := range got {
				ids = append(ids, p.ID)
				if !strings.Contains(p.HTML, `id="`+p.ID+`"`) {
					t.Errorf("%s: %s", p.ID, p.HTML)
				}
			}
			if !slices.Equal(ids, parts) {
				t.Errorf("%s has %q, want %q", view, ids, parts)
			}
			if w := ask(view, w.Header().Get("ETag")); w.Code != http.StatusNotModified || w.Body.Len() > 0 {
				t.Errorf("%s, unchanged: %d, %d bytes", view, w.Code, w.Body.Len())
			}
		}
		tag := ask("view=overview", "").Header().Get("ETag")
		r.broker.mu.Lock()
		r.broker.queues = []desk.Queue{{Name: "orders.dlq", Ready: 1234, IsDeadLetters: true}}
		r.broker.mu.Unlock()
		r.h.sampleOnce(t.Context(), map[string]time.Time{})
		r.has(ask("view=overview", tag), 200, "1,234")
	})
}

// A queue is kept with its look, and looks within a bound of memory. Nothing but a look
// takes a look away.
func TestLooksAreKeptWithinABoundOfMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, nil)
		r.broker.each = map[string]*fake{}
		look := func(queue string, bytes int) {
			r.broker.each[queue] = &fake{name: "queue " + queue, live: true, journal: r.queue.journal, letters: []desk.Letter{letter(1)}, bytes: bytes}
			r.has(r.post("/look", url.Values{"queue": {queue}}), 303)
			synctest.Wait()
		}
		kept := func() (names []string) {
			for _, o := range r.h.places.open {
				names = append(names, o.queue)
			}
			return names
		}
		for i := range 50 {
			look(fmt.Sprint("small", i), 1<<20)
		}
		for i := range 200 {
			r.get("/letters?queue=other" + fmt.Sprint(i))
		}
		synctest.Wait()
		if n := len(kept()); n != 50 {
			t.Errorf("%d looks of 1 MiB are kept, want 50: %q", n, kept())
		}
		r.has(r.get("/letters?queue=small0"), 200, "m-1") // used last
		synctest.Wait()
		for i := range 4 {
			look(fmt.Sprint("large", i), 60<<20)
		}
		if got := kept(); len(got) != 4+16 || !slices.Contains(got, "small0") || !slices.Contains(got, "small49") || slices.Contains(got, "small34") {
			t.Errorf("kept: %q, want the 4 large ones, and the 16 small ones that were used last", got)
		}
	})
}

// A search names what it did not search.
func TestASearchNamesWhatItLeavesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, nil)
		r.has(r.get("/search?text=m-9"), 200, "Not searched", "orders.dlq", "3 letters")
		r.queue.bound = "the first 3 of 13 letters: one look takes no more"
		r.has(r.post("/look", url.Values{"queue": {"orders.dlq"}}), 303)
		synctest.Wait()
		found := r.get("/search?text=m-9")
		r.has(found, 200, "Nothing among the first 3 of 13 letters")
		if strings.Contains(found.Body.String(), "Not searched") {
			t.Error("the queue that was searched is called not searched")
		}
		r.has(r.get("/search?text=m-2"), 200, "m-2", "the first 3 of 13 letters")
		r.has(r.get("/letters?queue=orders.dlq&text=m-9"), 200, "the first 3 of 13 letters", "No letter fits the conditions among those that were looked at")
		r.has(r.get("/groups?queue=orders.dlq&text=m-9"), 200, "the first 3 of 13 letters", "No letter fits the conditions among those that were looked at")
	})
}

// A search says which letters in other states it would have found.
func TestASearchNamesLettersInOtherStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, nil)
		r.store.aside = []desk.Letter{letter(9)}
		for _, text := range []string{"m-9", "stock"} { // the id alone is in no text of the letter
			by := map[bool]string{true: "mid=m-9", false: "text=stock"}[text == "m-9"]
			found := r.get("/search?text=" + text)
			r.has(found, 200, "In other states", "1 archived", "state=archived&amp;state=ready&amp;store=store&#43;letters.db", by)
			if strings.Contains(found.Body.String(), "Nothing here") {
				t.Errorf("%s: the page says that nothing is there", text)
			}
		}
		r.has(r.get("/letters?store=store+letters.db&text=stock"), 200, "nor in a download: 1 archived")
		r.has(r.get("/search?text=none"), 200, "Nothing here")
	})
}

// A look that is cut off may change the order of the letters.
func TestNoBrowserThatLeavesEndsALook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, nil)
		ctx, leave := context.WithCancel(t.Context())
		r.queue.looking = func(ctx context.Context) {
			leave()
			time.Sleep(2 * askTimeout)
			if err := ctx.Err(); err != nil {
				t.Errorf("the look was ended: %v", err)
			}
		}
		req := httptest.NewRequestWithContext(ctx, http.MethodPost, "/look", strings.NewReader("queue=orders.dlq"))
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.ask(req)
		synctest.Wait()
		r.has(r.get("/letters?queue=orders.dlq"), 200, "m-1")
	})
}

func TestADownloadIsWholeOrNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, nil)
		r.queue.err = fmt.Errorf("desk: %w: a look reaches the first 3 of 13 letters", desk.ErrNotWhole)
		w := r.post("/export", url.Values{"queue": {"orders.dlq"}})
		r.has(w, 409, "would leave letters out", "the first 3 of 13 letters", "collect")
		if name := w.Header().Get("Content-Disposition"); name != "" {
			t.Errorf("the refusal is a file: %s", name)
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
		go func() { ended <- h.Run(ctx) }()
		synctest.Wait()
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

// An old redrive leaves the journal, a young one stays, and the audit says so.
func TestTheJournalIsPrunedByAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const age = 24 * time.Hour
		r := enter(t, func(c *Config) { c.PruneAfter = age })
		for id, ended := range map[string]time.Time{"old": time.Now().Add(-25 * time.Hour), "young": time.Now().Add(-time.Hour)} {
			name := "redrives/" + id + ".jsonl"
			r.write(name, fmt.Sprintf(`{"redrive":{"id":%q,"action":"send","source":"store letters.db"}}
{"progress":{"state":"done","matched":1,"done":1,"updated":%q}}
`, id, ended.Format(time.RFC3339)))
			must(t, os.Chtimes(filepath.Join(r.folder, name), ended, ended))
		}
		is := func(young int) {
			t.Helper()
			synctest.Wait()
			r.has(r.get("/redrive?id=old"), 404)
			r.has(r.get("/redrive?id=young"), young)
		}
		time.Sleep(pruneEvery)
		is(200)
		time.Sleep(age)
		is(404)
		r.has(r.get("/audit"), 200, "prune", "1 redrive that ended before", "older than 24h0m0s")
	})
	if _, err := New(Config{PruneAfter: time.Minute}); err == nil || !strings.Contains(err.Error(), "Config.PruneAfter is 1m0s") {
		t.Errorf("an age below an hour: %v", err)
	}
}

// The errors of package desk begin with its name for programs, and the page shows them without it.
func TestErrorsOfThePageAreForPeople(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, nil)
		r.write("audit.jsonl", `{"at":"2026-11-22T10:00:00Z","id":"a","action":"send","result":"failed: desk: the target takes no messages"}`+"\n")
		for page, says := range map[string]string{
			"/letter?queue=orders.dlq&id=gone": "Look into", "/letter?store=store+letters.db&id=gone": ">there is no such letter<", "/redrive?id=gone": ">there is no such redrive: ",
			"/audit": "failed: the target takes no messages",
		} {
			w := r.get(page)
			if !strings.Contains(w.Body.String(), says) || strings.Contains(w.Body.String(), "desk: ") {
				t.Errorf("%s, want %q, and no prefix: %s", page, says, w.Body)
			}
		}
		r.broker.mu.Lock()
		r.broker.silent = errors.New("desk: the API is mute")
		r.broker.mu.Unlock()
		r.h.sampleOnce(t.Context(), map[string]time.Time{})
		r.has(r.get("/"), 200, ">the API is mute<")
	})
}

func TestABodyOfJSONStaysJSON(t *testing.T) {
	const anyJSON, text = "application/json", "text/plain"
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, nil)
		r.store.letters[0].Publishing.Body = []byte(`"paid"`)
		form := url.Values{"store": {"store letters.db"}, "id": {"id1"}, "do": {"save"}, "body": {`"paid`}, "content_type": {anyJSON}}
		r.has(r.post("/edit", form), 400, "was JSON, and is none now: unexpected end")
		form.Set("content_type", text)
		r.has(r.post("/edit", form), 303)
	})
}

// Message ids of one service differ at their ends, so that a long one is cut in its middle.
func TestALongMessageIDShowsItsEnd(t *testing.T) {
	for s, want := range map[string]string{"": "", "0123456789": "0123456789", "0123456789a": "01234…6789a", "ééééééé": "éé…éé", "0123456789\x00": "01234…6789␀"} {
		if got := ends(10, s); got != want {
			t.Errorf("%q is shown as %q, want %q", s, got, want)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, nil)
		r.store.letters[0].Publishing.MessageId = "shop-orders-" + strings.Repeat("0", 300) + "-4711"
		for _, page := range []string{"letters?", "letter?id=id1&", "send?id=id1&", "edit?id=id1&", "search?text=stock&"} {
			r.has(r.get("/"+page+"store=store+letters.db"), 200, "shop-orders-000", "000-4711")
		}
	})
}
