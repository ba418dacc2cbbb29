package web

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/rehop/rehop"
)

// vary gives each letter of a source an error with a value of its own.
func (f *fake) vary() {
	for i := range f.letters {
		f.letters[i].Error = fmt.Sprintf("%q: not a phone number", fmt.Sprintf("030/23 45-6%d", i))
	}
}

// A group has one name, whichever of its letters are left, and its name is that of no letter alone.
func TestTheNameOfAGroupIsThatOfAllItsLetters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, nil)
		r.queue.vary()
		r.store.vary()
		r.has(r.post("/look", url.Values{"queue": {"orders.dlq"}}), 303)
		const group, letters = "/groups?queue=orders.dlq", "/letters?queue=orders.dlq&group=f1"
		r.has(r.get(group), 200, `>…: not a phone number</a>`, "for example: &#34;030/23 45-60&#34;: not a phone number")
		r.has(r.get(letters), 200, `<span class="dim">group</span> …: not a phone number <a`)
		r.has(r.get(letters+"&sort=error"), 200, `<span class="dim">group</span> …: not a phone number <a`)
		r.has(r.get("/groups?queue=orders.dlq&group=f1"), 200, `<span class="dim">group</span> …: not a phone number <a`)
		r.has(r.get(letters+"&after=1000"), 200, `<span class="dim">group</span> …: not a phone number <a`)
		r.has(r.get("/send?store=store+letters.db&group=f1"), 200, `<span class="dim">group</span> …: not a phone number`)
		r.has(r.get("/keep?store=store+letters.db&group=f1&do=park"), 200, `<span class="dim">group</span> …: not a phone number`)
		r.has(r.get("/"), 200, "</b> …: not a phone number</a>")
		r.queue.mu.Lock()
		r.queue.letters = r.queue.letters[len(r.queue.letters)-1:]
		r.queue.mu.Unlock()
		r.has(r.get(group), 200, `>…: not a phone number</a>`, "its error: &#34;030/23 45-62&#34;: not a phone number")
		r.queue.mu.Lock()
		r.queue.letters = nil
		r.queue.mu.Unlock()
		r.has(r.get(letters), 200, `<span class="dim">group</span> none here <a`)
	})
}

// Letters that fail with one and the same error are no examples of it.
func TestAGroupOfOneErrorIsCalledByIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, nil)
		r.store.letters[0].Error, r.store.letters[0].Fingerprint = "", "f2"
		r.store.letters[0].Cause = rehop.CauseExpired
		page := r.get("/groups?store=store+letters.db")
		r.has(page, 200, ">no stock</a>", ">no error text</a>")
		if text := page.Body.String(); strings.Contains(text, "for example") || strings.Contains(text, "its error") {
			t.Error("an error is an example of itself")
		}
		r.has(r.get("/letters?store=store+letters.db&group=f2"), 200, `<span class="dim">group</span> no error text <a`)
	})
}

// Letters that have left since a look were seen then, and are not here now: the page says both numbers.
func TestTheGroupsSayHowManyLettersHaveLeftSinceTheLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, nil)
		r.has(r.post("/look", url.Values{"queue": {"orders.dlq"}}), 303)
		r.has(r.get("/groups?queue=orders.dlq"), 200, "3 letters in 1 group, as seen <time")
		change := func(gone int) {
			r.queue.mu.Lock()
			defer r.queue.mu.Unlock()
			r.queue.gone, r.queue.letters = gone, r.queue.letters[:3-gone]
		}
		change(1)
		page := r.get("/groups?queue=orders.dlq")
		r.has(page, 200, "2 letters in 1 group, of the 3 that were seen <time", ": redrives have taken 1 since")
		if strings.Contains(page.Body.String(), "as seen") {
			t.Error("the page says that only those were seen that are left")
		}
		r.has(r.get("/groups?queue=orders.dlq&text=stock"), 200, "2 letters in 1 group. 3 letters were seen <time", ", and redrives have taken 1 since")
		change(3)
		for _, page := range []string{"/groups", "/letters"} {
			r.has(r.get(page+"?queue=orders.dlq"), 200, "look again: 3 letters were here", ", and redrives have taken 3 since.")
		}
	})
}
