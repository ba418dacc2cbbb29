package web

import (
	"maps"
	"slices"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/desk"
	"github.com/rehop/rehop/desk/internal/typed"
)

// reviewData is what an edit changes, before anything does.
type reviewData struct {
	editData
	Lines   []line
	Changes []change
	Fields  []hiddenField // the form once more, without its body
	Sent    *string       // the body of the form
}

// change is what an edit does to a header or a property. An empty type: there was or will be none.
type change struct {
	Name                 string
	Was, WasType, Is, To string
}

// line is a line of a body: " " stays, "-" goes, "+" comes, and "…" stands for lines that stay.
type line struct{ Mark, Text string }

// review shows what an edit changes, and asks once more.
func (r *request) review(source desk.Source, p place, l desk.Letter, e desk.Edit) error {
	d := reviewData{editData: r.editData(source, p, l)}
	d.Redrive = r.form.Get("redrive")
	if e.Body != nil {
		d.Lines = linesOf(showBody(l.Publishing.Body, "").Text, showBody(*e.Body, "").Text)
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

// maxLines is how many lines of a body a review shows.
const maxLines = 400

// linesOf returns the lines that differ between two bodies as they are shown, with some of those
// around them: all between the first and the last difference.
func linesOf(was, is string) (lines []line) {
	const around = 3
	if was == is {
		return []line{{"…", "the body differs in white space, or behind what a page shows of it"}}
	}
	a, b := strings.Split(was, "\n"), strings.Split(is, "\n")
	head, tail := 0, 0
	for head < min(len(a), len(b)) && a[head] == b[head] {
		head++
	}
	for tail < min(len(a), len(b))-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	add := func(mark string, texts []string) {
		for _, text := range texts {
			lines = append(lines, line{mark, text})
		}
	}
	if head > around {
		lines = append(lines, line{"…", ""})
	}
	add(" ", a[max(head-around, 0):head])
	add("-", a[head:len(a)-tail])
	add("+", b[head:len(b)-tail])
	add(" ", a[len(a)-tail:min(len(a)-tail+around, len(a))])
	if tail > around {
		lines = append(lines, line{"…", ""})
	}
	if len(lines) > maxLines {
		lines = append(lines[:maxLines], line{"…", ""})
	}
	return lines
}
