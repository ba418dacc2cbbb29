package web

import (
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
)

// Of letters that are selected in a list one is edited, and the others stay selected: on the way there, after the edit
// was sent, and after it was cancelled.
func TestLettersStaySelectedWhileOneIsEdited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, nil)
		r.queue.looked = 1
		r.has(r.get("/letters?queue=orders.dlq"), 200, `<button class="quiet one" formaction="edit" name="edit" value="id2">`)
		all := `href="letters?id=id2&amp;id=id1&amp;id=id3&amp;picked=1&amp;queue=orders.dlq">Cancel`
		hidden := `name="id" value="id2"><input type="hidden" name="id" value="id1"><input type="hidden" name="id" value="id3">`
		r.has(r.get("/edit?picked=1&queue=orders.dlq&id=id1&id=id2&id=id3&edit=id2"), 200, hidden, all)
		form := url.Values{"queue": {"orders.dlq"}, "id": {"id2", "id1", "id3"}, "redrive": {"o-1"}, "do": {"review"}, "body": {`{"order":2}`}}
		r.has(r.post("/edit", form), 200, hidden, all, "The original is written to", r.queue.journal.DroppedTo("o-1"))
		form.Set("do", "send")
		r.queue.hold = make(chan struct{})
		for range 2 { // also of a form that is sent twice
			w := r.post("/edit", form)
			if r.has(w, 303); w.Header().Get("Location") != "redrive?id=o-1&ids=id1%2Cid3" {
				t.Errorf("%q", w.Header().Get("Location"))
			}
		}
		if len(r.queue.redrives) != 1 || !slices.Equal(r.queue.redrives[0].Filter.IDs, []string{"id2"}) || r.queue.redrives[0].Limit != 1 || r.queue.redrives[0].CopyTo != r.queue.journal.DroppedTo("o-1") {
			t.Errorf("redrives: %+v", r.queue.redrives)
		}
		list := "letters?id=id1&amp;id=id3&amp;picked=1&amp;queue=orders.dlq"
		r.has(r.get("/redrive?id=o-1&ids=id1%2Cid3"), 200, `href="`+list+`">Go on with 2 letters`)
		r.has(r.get("/redrive?id=o-1&ids="+strings.Repeat(",", 64)), 400, "ids has 65 values, want 64 or fewer")
		close(r.queue.hold)
		w := r.get("/" + strings.ReplaceAll(list, "&amp;", "&"))
		r.has(w, 200, `value="id1" checked`, `value="id3" checked`)
		if strings.Contains(w.Body.String(), `value="id2"`) {
			t.Error("the list has the letter that was edited")
		}
		if strings.Contains(r.get("/letters?queue=orders.dlq&id=id1").Body.String(), "checked") {
			t.Error("letters are selected that nobody has selected")
		}

		// A letter of a store is edited where it is, and stays selected too.
		form = url.Values{"store": {"store letters.db"}, "id": {"id2", "id1"}, "do": {"save"}, "body": {`{"order":2}`}}
		w = r.post("/edit", form)
		if r.has(w, 303); !strings.HasPrefix(w.Header().Get("Location"), "letters?id=id2&id=id1&picked=1&said=") {
			t.Errorf("%q", w.Header().Get("Location"))
		}
	})
}
