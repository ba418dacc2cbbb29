package web

import (
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Of letters that are selected in a list one is edited, and the others stay selected: on the way there, after the edit
// was sent, and after it was cancelled.
func TestLettersStaySelectedWhileOneIsEdited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, nil)
		r.queue.looked = 1
		r.has(r.get("/letters?queue=orders.dlq"), 200, `<button class="quiet one" formaction="edit" name="edit" value="id2" aria-label="Edit the letter at place 2">`)
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
		r.has(r.get("/redrive?id=o-1&ids="+strings.Repeat(",", 61)), 200, "letters?id=") // a link that is followed
		r.has(r.get("/redrive?id=o-1&ids="+strings.Repeat(",", 62)), 400, "the address has 65 values, want 64 or fewer")
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

// A form with a fault is shown once more, with the texts of the person and with the fault, and the same redrive.
func TestAnEditWithAFaultIsShownAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, nil)
		r.queue.looked = 1
		r.queue.letters[0].Publishing.Headers = amqp.Table{"tenant": "acme", "debug": "yes"}
		for _, do := range []string{"review", "send"} {
			form := url.Values{
				"queue": {"orders.dlq"}, "id": {"id1", "id2"}, "redrive": {"o-1"}, "do": {do}, "body": {"{\r\n  \"order\": <2>\r\n}"}, "content_type": {"text/json"}, "why": {"a \"typo\""},
				"header_name": {"tenant", "debug", "new<"}, "header_value": {"other", "yes", "7"}, "remove": {"debug"},
			}
			r.has(r.post("/edit", form), 400, "<h1>Edit and send</h1>", `role="alert"`, "the body was JSON, and is none now: invalid character", ", at line 2, column 12</p>",
				"\n{\r\n  &#34;order&#34;: &lt;2&gt;\r\n}</textarea>", `value="text/json"`, `value="other"`, `value="debug" checked`, `value="new&lt;"`, `value="7"`, `value="a &#34;typo&#34;"`, `name="redrive" value="o-1"`, `name="id" value="id2"`, "Review the change")
			form.Set("body", `{"order":2}`)
			form["header_name"][2] = "x-death"
			r.has(r.post("/edit", form), 400, "<h1>Edit and send</h1>", "none that rehop or the broker writes", `value="x-death"`, "{&#34;order&#34;:2}</textarea>")
		}
		form := url.Values{"queue": {"orders.dlq"}, "id": {"id1", "id2"}, "redrive": {"o-1"}, "do": {"review"}, "body": {`{"order":2}`}, "why": {"a typo"}, "remove": {"debug"}}
		r.has(r.post("/edit", form), 200, "<h1>What changes</h1>", `sent to <b class="mono">queue orders</b>`, "Reason: a typo", `value="again"`)
		form.Set("do", "again")
		again := r.post("/edit", form)
		r.has(again, 200, "<h1>Edit and send</h1>", `sent to <b class="mono">queue orders</b>`, "{&#34;order&#34;:2}</textarea>", `value="a typo"`, `value="debug" checked`, `name="redrive" value="o-1"`, `name="id" value="id2"`)
		if strings.Contains(again.Body.String(), `class="note bad"`) {
			t.Error("a form that somebody wants to change once more has a fault")
		}
		if len(r.queue.redrives) > 0 {
			t.Errorf("sent: %+v", r.queue.redrives)
		}
		form.Set("body", strings.Repeat("1", maxEditable+1))
		r.has(r.post("/edit", form), 400, "bytes, want at most")
		r.has(r.post("/edit", url.Values{"queue": {"orders.dlq"}, "id": {"id1"}, "body": {"{" + strings.Repeat("a", maxEditable)}, "do": {"review"}}), 400, "is none now") // too large to be shown
		if body := r.get("/edit?queue=orders.dlq&id=id1").Body.String(); strings.Contains(body, `class="note bad"`) || strings.Contains(body, " checked") {
			t.Error("a form that nobody has sent has a fault")
		}
	})
}

// A browser that comes back to a list ticks boxes by their numbers, if the form has the same action. So the form of other
// rows is another one: else letters are ticked that nobody has selected.
func TestTheFormOfOtherRowsIsAnotherOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, nil)
		r.queue.looked = 1
		form := func() string {
			_, rest, _ := strings.Cut(r.get("/letters?queue=orders.dlq").Body.String(), `<form class="pick" action="send#`)
			rows, _, _ := strings.Cut(rest, `"`)
			return rows
		}
		first := form()
		if again := form(); first == "" || again != first {
			t.Errorf("the same rows: %q, then %q", first, again)
		}
		r.queue.letters = r.queue.letters[1:]
		if other := form(); other == first || other == "" {
			t.Errorf("other rows: %q, then %q", first, other)
		}
	})
}
