package web

import (
	"bytes"
	"errors"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rehop/rehop/desk"
)

// fieldsOf returns the fields of the form that a page sends, and its buttons.
func fieldsOf(page string) (fields url.Values, buttons []string) {
	fields = url.Values{}
	for _, m := range regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)">`).FindAllStringSubmatch(page[strings.Index(page, `action="send"`):], -1) {
		fields.Add(m[1], m[2])
	}
	for _, m := range regexp.MustCompile(`<button class="[^"]*" type="submit" name="([^"]*)" value="([^"]*)">([^<]*)</button>`).FindAllStringSubmatch(page, -1) {
		buttons = append(buttons, m[1]+" "+m[2]+": "+m[3])
	}
	return fields, buttons
}

// A number on a button is the bound of what the button does.
func TestAButtonSaysTheBoundOfItsRedrive(t *testing.T) {
	for _, tt := range []struct {
		rule, address string
		total         int
		buttons       []string
	}{
		{"a look at all", "queue=orders.dlq&text=order", 0, []string{"these 3: Send 3 letters"}},
		{"a look at a part, with a condition", "queue=orders.dlq&text=order", 13_000, []string{"these 3: Send these 3", "there 13000: Send all that match, at most 13,000"}},
		{"a look at a part, without one", "queue=orders.dlq", 150_000, []string{"these 3: Send these 3", "there 150000: Send all 150,000"}},
		{"a look at a part, with none that fits", "queue=orders.dlq&text=none", 13_000, []string{"there 13000: Send all that match, at most 13,000"}},
		{"one letter", "queue=orders.dlq&id=id1", 0, []string{"these 1: Send 1 letter"}},
		{"a store", "store=store+letters.db&newer=24h", 0, []string{"these 3: Send 3 letters"}},
		{"a store that cannot count them", "store=store+letters.db&error=stock", 40_000, []string{"these 40000: Send all that match, at most 40,000"}},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := enter(t, nil)
				r.queue.looked, r.queue.total, r.store.total = 1, tt.total, tt.total
				page := r.get("/send?" + tt.address)
				r.has(page, 200)
				form, buttons := fieldsOf(page.Body.String())
				const later = "a later one may go in the place of one"
				if says := strings.Contains(page.Body.String(), later); says != strings.Contains(strings.Join(tt.buttons, "; "), "there ") {
					t.Errorf("the page says that %s: %t", later, says)
				}
				if strings.Join(buttons, "; ") != strings.Join(tt.buttons, "; ") {
					t.Fatalf("buttons are %q, want %q", buttons, tt.buttons)
				}
				shown := time.Now()
				time.Sleep(time.Minute)
				for _, button := range buttons {
					name, rest, _ := strings.Cut(button, " ")
					n, _, _ := strings.Cut(rest, ":")
					pressed, _ := url.ParseQuery(form.Encode())
					pressed.Set(name, n)
					pressed.Set("redrive", "of-"+name)
					r.has(r.post("/send", pressed), 303)
					of := append(r.queue.redrives, r.store.redrives...)
					sent := of[len(of)-1]
					if number(sent.Limit) != regexp.MustCompile(`[0-9][0-9,]*`).FindString(button[strings.Index(button, "Send"):]) || sent.Look.IsZero() != (name == "there") || !sent.Look.IsZero() && !sent.Look.Equal(shown) {
						t.Errorf("%s: at most %d, of the look at %v, want that of the page, %v", button, sent.Limit, sent.Look, shown)
					}
					if from := sent.Filter.From; !from.IsZero() && !from.Equal(shown.Add(-24*time.Hour)) {
						t.Errorf("%s: from %v: the span has moved since the page was shown, %v", button, from, shown)
					}
					pressed.Set("limit", "2")
					pressed.Set("redrive", "fewer-of-"+name)
					r.has(r.post("/send", pressed), 303)
					if of = append(r.queue.redrives, r.store.redrives...); of[len(of)-1].Limit > 2 {
						t.Errorf("%s, at most 2: at most %d", button, of[len(of)-1].Limit)
					}
				}
			})
		})
	}
}

// No form that says less than the page's own sends anything.
func TestAFormThatLeavesSomethingOutSendsNothing(t *testing.T) {
	for rule, change := range map[string]func(url.Values){
		"a text of a space":                   func(v url.Values) { v.Set("text", " ") },
		"an error of a tab":                   func(v url.Values) { v.Set("error", "\t") },
		"a message id of spaces":              func(v url.Values) { v.Set("mid", "  ") },
		"a header of a space":                 func(v url.Values) { v.Set("header", " ") },
		"a span of a space":                   func(v url.Values) { v.Set("group", "f1"); v.Set("newer", " ") },
		"a blank beside another id":           func(v url.Values) { v["id"] = []string{"id1", " "} },
		"a condition that is not known":       func(v url.Values) { v.Set("group", "f1"); v.Set("message_id", "m-1") },
		"a condition in capitals":             func(v url.Values) { v.Set("group", "f1"); v.Set("Text", "order") },
		"a text twice":                        func(v url.Values) { v["text"] = []string{"order", "stock"} },
		"a text twice, first without a value": func(v url.Values) { v["text"] = []string{"", "order"} },
		"a header with two values":            func(v url.Values) { v["header"] = []string{"tenant=a", "tenant=b"} },
		"two places":                          func(v url.Values) { v.Set("group", "f1"); v.Set("queue", "orders.dlq") },
		"no button":                           func(v url.Values) { v.Set("group", "f1"); v.Del("there") },
		"two buttons":                         func(v url.Values) { v.Set("group", "f1"); v.Set("these", "3") },
		"a button without a number":           func(v url.Values) { v.Set("group", "f1"); v.Set("there", "all") },
		"a button of 0, which is no bound":    func(v url.Values) { v.Set("group", "f1"); v.Set("there", "0") },
		"a look that is none":                 func(v url.Values) { v.Set("group", "f1"); v.Del("there"); v.Set("these", "3") },
		"all, without the word":               func(v url.Values) { v.Set("all", "0") },
		"a limit below 0":                     func(v url.Values) { v.Set("group", "f1"); v.Set("limit", "-1") },
	} {
		t.Run(rule, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := enter(t, nil)
				form := url.Values{"store": {"store letters.db"}, "there": {"418"}, "redrive": {"o-1"}}
				change(form)
				w := r.post("/send", form)
				if rule == "a limit below 0" { // the library's check, which a fake has not
					if len(r.store.redrives) != 1 || r.store.redrives[0].Limit != -1 {
						t.Errorf("%d: %+v", w.Code, r.store.redrives)
					}
					return
				}
				r.has(w, 400, "the form is not valid")
				if len(r.store.redrives)+len(r.queue.redrives) > 0 {
					t.Errorf("sent: %+v %+v", r.store.redrives, r.queue.redrives)
				}
			})
		})
	}
}

// What a page shows and what its links lead to are the same letters.
func TestATextIsTakenAsItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, nil)
		r.has(r.get("/letters?store=store+letters.db&text=+stock"), 200, "text=&#43;stock")
		form, _ := fieldsOf(r.get("/send?store=store+letters.db&text=+stock").Body.String())
		if form.Get("text") != " stock" {
			t.Errorf("the form has the text %q, want that of the page", form.Get("text"))
		}
	})
}

// Of a look that another one has taken the place of, nothing is sent, and the page says so.
func TestALookThatIsOverIsAskedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, nil)
		r.queue.looked = 1
		r.queue.refuse = errors.Join(desk.ErrNotLooked)
		w := r.post("/send", url.Values{"queue": {"orders.dlq"}, "text": {"order"}, "these": {"3"}, "look": {"2000-01-01T00:00:00Z"}, "redrive": {"o-1"}})
		r.has(w, 409, "Nothing was done", `name="back" value="send?queue=orders.dlq&amp;text=order"`)
	})
}

// Progress counts against the bound of a redrive, and says so where it is not known.
func TestProgressCountsAgainstTheBound(t *testing.T) {
	p, err := readPages(Config{}.named)
	must(t, err)
	for want, progress := range map[string]desk.Progress{
		"<b>90,056</b> of 150,000":         {State: desk.Running, Bound: 150_000, Matched: 99_099, Done: 90_056},
		"<b>90,056</b> of at least 99,099": {State: desk.Running, Matched: 99_099, Done: 90_056},
		"<b>5</b> of at most 100":          {State: desk.Running, Matched: 7, Done: 5, Redrive: desk.Redrive{Limit: 100}},
	} {
		var b bytes.Buffer
		must(t, p.live.ExecuteTemplate(&b, "live-redrive", view{Data: redriveData{P: progress}}))
		must(t, p.live.ExecuteTemplate(&b, "redrives-table", []desk.Progress{progress}))
		for _, text := range []string{want, strings.NewReplacer("<b>", `<td class="n count">`, "</b>", "").Replace(want)} {
			if !strings.Contains(b.String(), text) {
				t.Errorf("the pages do not say %q", text)
			}
		}
	}
}

// A look that has not reached all letters says how all of them can be seen.
func TestALookThatLeavesLettersOutSaysHowToSeeThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, nil)
		const command = "rehop dlq collect orders.dlq --store letters.db"
		r.queue.looked, r.queue.total, r.queue.bound = 1, 13_000, "the first 3 of 13000 letters"
		for _, page := range []string{"/letters?queue=orders.dlq", "/groups?queue=orders.dlq"} {
			r.has(r.get(page), 200, "Shown: the first", command)
		}
		r.store.total = 13_000
		r.queue.total, r.queue.bound = 0, ""
		for _, page := range []string{"/letters?queue=orders.dlq", "/groups?queue=orders.dlq", "/letters?store=store+letters.db"} {
			if w := r.get(page); w.Code != 200 || strings.Contains(w.Body.String(), "rehop dlq collect") {
				t.Errorf("%s speaks of letters that it does not leave out: %s", page, w.Body)
			}
		}
	})
}
