package web

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/desk"
	"github.com/rehop/rehop/desk/internal/typed"
)

type editData struct {
	placeView
	Letter  desk.Letter
	Target  string // where the changed message goes; empty: not known
	Body    string
	Why     string // the body is not in the form
	Keeper  bool
	Redrive string
	Was     string // the letter of a store that the form was made from; that of a queue has another ID if it is another
	Headers []editedHeader
	Cancel  string // address

	// Of a form that was sent, and is shown once more.
	Fault string
	Type  string        // the content type
	New   []hiddenField // headers that the letter does not have
	Given string        // the reason
}

// stateOf is another one for a letter of a store that somebody has edited.
func stateOf(l desk.Letter) string {
	h := sha256.New()
	fmt.Fprintf(h, "%q %v ", l.Publishing.ContentType, l.Publishing.Headers)
	h.Write(l.Publishing.Body)
	return hex.EncodeToString(h.Sum(nil)[:12])
}

// editedHeader is a row of the form.
type editedHeader struct {
	shownHeader
	Text    string // in a field; else the value cannot be written in one
	IsField bool
	Removed bool
}

// rowsOf returns a row of the form for each of the message's own headers.
func rowsOf(t amqp.Table) (rows []editedHeader) {
	own, _, _ := showHeaders(t)
	for _, h := range own {
		row := editedHeader{shownHeader: h}
		row.Text, row.IsField = fieldOf(t[h.Raw])
		rows = append(rows, row)
	}
	return rows
}

// fieldOf returns the value of a header as a field of a form has it, and false if it cannot.
func fieldOf(v any) (text string, is bool) {
	switch v := v.(type) {
	case string:
		text = v
	case time.Time:
		text = v.UTC().Format(time.RFC3339)
	case bool, int8, byte, int16, int32, int64, int, float32, float64:
		text = fmt.Sprint(v)
	default:
		return "", false
	}
	return text, len(text) <= maxHeader && text == visible(text) && !strings.ContainsAny(text, "\n\t")
}

func (h *Handler) askEdit(r *request) error {
	if h.cfg.ReadOnly {
		return errReadOnly
	}
	if one := r.form.Get("edit"); one != "" {
		r.form["id"] = append([]string{one}, slices.DeleteFunc(r.form["id"], func(id string) bool { return id == one })...)
	}
	source, p, l, err := r.letter()
	if err != nil {
		return err
	}
	return r.show("edit", view{Title: "Edit", Nav: "place", Events: p.events(), Data: r.editData(source, p, l)})
}

// others are the letters that are selected beside the one that is edited. They stay so.
func (r *request) others() []string { return r.form["id"][min(1, len(r.form["id"])):] }

// pickedOf returns the conditions of a list of letters that shows them as selected.
func pickedOf(ids []string) url.Values { return url.Values{"id": ids, "picked": {"1"}} }

func (r *request) editData(source desk.Source, p place, l desk.Letter) editData {
	ids := append([]string{l.ID}, r.others()...)
	d := editData{placeView: placeViewOf(r.h, "edit", source, p, url.Values{"id": ids}), Letter: l, Target: target(l), Redrive: newRedriveID()}
	if d.Cancel = address("letter", p, nil, "id", l.ID); len(ids) > 1 {
		d.Cancel = address("letters", p, pickedOf(ids))
	}
	if _, d.Keeper = source.(desk.Keeper); d.Keeper {
		d.Was = stateOf(l)
	}
	d.Body, d.Why = editable(l.Publishing.Body)
	d.Headers = rowsOf(l.Publishing.Headers)
	d.Type, d.New = l.Publishing.ContentType, []hiddenField{{}}
	return d
}

// editAgain shows a form once more as the person has filled it in: it has a fault, or nil if the person wants to
// change it after the review.
func (r *request) editAgain(source desk.Source, p place, l desk.Letter, fault error) error {
	body, given := r.form["body"]
	if given && len(body[0]) > maxEditable {
		return cmp.Or(fault, fmt.Errorf("%w: the body has %d bytes, want at most %d", errForm, len(body[0]), maxEditable))
	}
	d, status := r.editData(source, p, l), http.StatusOK
	if fault != nil {
		d.Fault, status = fault.Error(), http.StatusBadRequest
	}
	d.Redrive, d.Given = r.form.Get("redrive"), r.form.Get("why")
	if given {
		d.Body = body[0]
	}
	if ct, ok := r.form["content_type"]; ok {
		d.Type = ct[0]
	}
	rows := map[string]*editedHeader{}
	for i := range d.Headers {
		row := &d.Headers[i]
		rows[row.Raw], row.Removed = row, slices.Contains(r.form["remove"], row.Raw)
	}
	names, values := r.form["header_name"], r.form["header_value"]
	var added []hiddenField
	for i := range min(len(names), len(values)) {
		if row := rows[names[i]]; row != nil && row.IsField {
			row.Text = values[i]
		} else if names[i] != "" || values[i] != "" {
			added = append(added, hiddenField{names[i], values[i]})
		}
	}
	if added != nil {
		d.New = added
	}
	return r.showStatus(status, "edit", view{Title: "Edit", Nav: "place", Events: p.events(), Data: d})
}

// edit changes a letter, and sends it if that was asked for.
func (h *Handler) edit(r *request) error {
	if h.cfg.ReadOnly {
		return errReadOnly
	}
	watch := func(redrive string) error {
		v := url.Values{"id": {redrive}}
		if others := r.others(); len(others) > 0 {
			v.Set("ids", strings.Join(others, ","))
		}
		return r.redirect("redrive", v, "")
	}
	if sent := r.form.Get("redrive"); sent != "" {
		if _, err := h.progressOf(sent); err == nil { // the form was sent twice
			return watch(sent)
		}
	}
	source, p, l, err := r.letter()
	if err != nil {
		return err
	}
	keeper, keeps := source.(desk.Keeper)
	if was := r.form.Get("was"); keeps && was != "" && was != stateOf(l) {
		return errEdited
	}
	id := r.form.Get("id")
	e, err := r.editOf(l)
	if err != nil || r.form.Get("do") == "again" {
		return r.editAgain(source, p, l, err)
	}
	if r.form.Get("do") == "review" {
		return r.review(source, p, l, e)
	}
	what, err := r.redrive()
	if err != nil {
		return err
	}
	what.Filter, what.Limit = desk.Filter{IDs: []string{id}}, 1
	if !keeps || r.form.Get("do") == "send" {
		if err := r.mayBegin(p, what.Action); err != nil {
			return err
		}
	}
	if keeps {
		if err := keeper.Edit(r.ctx, id, e, r.by()); err != nil {
			return err
		}
		if r.form.Get("do") != "send" {
			const said = "Saved. The journal keeps the original."
			if len(r.others()) > 0 {
				v := pickedOf(r.form["id"])
				maps.Copy(v, p.values())
				return r.redirect("letters", v, said)
			}
			return r.redirect("letter", withID(p, id), said)
		}
	} else {
		what.ID = cmp.Or(what.ID, newRedriveID())
		what.Edit, what.CopyTo = &e, h.cfg.Journal.DroppedTo(what.ID)
	}
	if err := h.execute(p, what, nil); err != nil {
		return err
	}
	return watch(what.ID)
}

func withID(p place, id string) url.Values {
	v := p.values()
	v.Set("id", id)
	return v
}

// editOf reads an edit from a form. Fields that are unchanged are left out.
func (r *request) editOf(l desk.Letter) (e desk.Edit, err error) {
	m := l.Publishing
	if _, ok := r.form["body"]; ok {
		body := fromForm(r.form.Get("body"), m.Body)
		if string(body) != string(m.Body) {
			e.Body = &body
		}
	}
	if ct, ok := r.form["content_type"]; ok && ct[0] != m.ContentType {
		e.ContentType = &ct[0]
	}
	if e.Body != nil {
		if err := typed.Body(m.Body, *e.Body, *cmp.Or(e.ContentType, &m.ContentType)); err != nil {
			return e, fmt.Errorf("%w: %w", errForm, err)
		}
	}
	for _, name := range filled(r.form["remove"]) {
		if err := typed.Name(name); err != nil {
			return e, fmt.Errorf("%w: %w", errForm, err)
		}
		e.Remove = append(e.Remove, name)
	}
	names, values := r.form["header_name"], r.form["header_value"]
	if len(names) != len(values) {
		return e, fmt.Errorf("%w: %d names of headers and %d values, want as many", errForm, len(names), len(values))
	}
	for i, name := range names {
		was, isField := fieldOf(m.Headers[name])
		_, is := m.Headers[name]
		switch {
		case is && isField && values[i] == was, slices.Contains(e.Remove, name), name == "" && values[i] == "":
			continue
		case strings.TrimSpace(name) == "":
			return e, fmt.Errorf("%w: the header with the value %.60q has no name", errForm, values[i])
		}
		if err := typed.Name(name); err != nil {
			return e, fmt.Errorf("%w: %w", errForm, err)
		}
		if e.Set == nil {
			e.Set = map[string]string{}
		}
		if _, twice := e.Set[name]; twice {
			return e, fmt.Errorf("%w: header %.60q is set twice", errForm, name)
		}
		e.Set[name] = values[i]
	}
	if e.Body == nil && e.ContentType == nil && e.Set == nil && e.Remove == nil && r.form.Get("do") == "save" {
		return e, fmt.Errorf("%w: nothing was changed", errForm)
	}
	return e, nil
}
