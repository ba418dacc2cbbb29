package web

import (
	"maps"
	"slices"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/desk"
	"github.com/rehop/rehop/desk/internal/said"
	"github.com/rehop/rehop/desk/internal/typed"
)

// reviewData is what an edit changes, before anything does.
type reviewData struct {
	editData
	Lines   []said.Line
	Changes []change
	Fields  []hiddenField // the form once more, without its body
	Sent    *string       // the body of the form
	Copy    string        // the file that the original is written to first; empty: another place keeps it
}

// change is what an edit does to a header or a property. An empty type: there was or will be none.
type change struct {
	Name                 string
	Was, WasType, Is, To string
}

// review shows what an edit changes, and asks once more.
func (r *request) review(source desk.Source, p place, l desk.Letter, e desk.Edit) error {
	d := reviewData{editData: r.editData(source, p, l)}
	d.Given = r.form.Get("why")
	if d.Redrive = r.form.Get("redrive"); !d.Keeper && d.Redrive != "" {
		d.Copy = r.h.cfg.Journal.DroppedTo(d.Redrive)
	}
	if e.Body != nil {
		d.Lines = said.Lines(showBody(l.Publishing.Body, "").Text, showBody(*e.Body, "").Text, "the body differs in white space, or behind what a page shows of it")
	}
	if e.ContentType != nil {
		d.Changes = append(d.Changes, change{"content type", visible(l.Publishing.ContentType), "text", visible(*e.ContentType), "text"})
	}
	d.Changes = append(d.Changes, changesOf(l.Publishing.Headers, e)...)
	for _, name := range []string{"content_type", "header_name", "header_value", "remove", "why"} {
		for _, value := range r.form[name] {
			d.Fields = append(d.Fields, hiddenField{name, value})
		}
	}
	if body, ok := r.form["body"]; ok {
		d.Sent = &body[0]
	}
	return r.show("review", view{Title: "Review an edit", Nav: "place", Events: p.events(), Data: d})
}

// changesOf returns the changes of headers.
func changesOf(t amqp.Table, e desk.Edit) (changes []change) {
	text := func(v any) string {
		var b strings.Builder
		writeValue(&b, v, 0)
		return visible(cut(b.String(), 300))
	}
	removed := map[string]bool{}
	for _, name := range e.Remove {
		removed[name] = true
	}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(append(slices.Collect(maps.Keys(e.Set)), e.Remove...)))) {
		c := change{Name: visible(cut(name, 256))}
		was, is := t[name]
		if is {
			c.Was, c.WasType = text(was), typeName(was)
		}
		if removed[name] {
			was = nil
		}
		if value, set := e.Set[name]; set {
			v := typed.Like(was, value)
			c.Is, c.To = text(v), typeName(v)
		}
		changes = append(changes, c)
	}
	return changes
}
