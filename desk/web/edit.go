package web

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"

	"github.com/rehop/rehop/desk"
)

type editData struct {
	placeView
	Letter  desk.Letter
	Body    string
	Why     string // the body is not in the form
	Keeper  bool
	Redrive string
	Headers []shownHeader
}

func (h *Handler) askEdit(r *request) error {
	if h.cfg.ReadOnly {
		return errReadOnly
	}
	source, p, l, err := r.letter()
	if err != nil {
		return err
	}
	d := editData{placeView: placeViewOf(h, "edit", source, p, url.Values{"id": {l.ID}}), Letter: l, Redrive: newRedriveID()}
	_, d.Keeper = source.(desk.Keeper)
	d.Body, d.Why = editable(l.Publishing.Body)
	d.Headers, _, _ = showHeaders(l.Publishing.Headers)
	return r.show("edit", view{Title: "Edit", Nav: "place", Events: p.events(), Data: d})
}

// edit changes a letter, and sends it if that was asked for.
func (h *Handler) edit(r *request) error {
	if h.cfg.ReadOnly {
		return errReadOnly
	}
	if sent := r.form.Get("redrive"); sent != "" {
		if _, err := h.progressOf(sent); err == nil { // the form was sent twice
			return r.redirect("redrive", url.Values{"id": {sent}}, "")
		}
	}
	source, p, l, err := r.letter()
	if err != nil {
		return err
	}
	id := r.form.Get("id")
	e, err := r.editOf(l)
	if err != nil {
		return err
	}
	what, err := r.redrive()
	if err != nil {
		return err
	}
	what.Filter, what.Limit = desk.Filter{IDs: []string{id}}, 1
	keeper, keeps := source.(desk.Keeper)
	if keeps {
		if err := keeper.Edit(r.ctx, id, e, r.by()); err != nil {
			return err
		}
		if r.form.Get("do") != "send" {
			return r.redirect("letter", withID(p, id), "Saved. The journal keeps the original.")
		}
	} else {
		what.Edit = &e
	}
	if err := h.execute(p, what, nil); err != nil {
		return err
	}
	return r.redirect("redrive", url.Values{"id": {what.ID}}, "")
}

func withID(p place, id string) url.Values {
	v := p.values()
	v.Set("id", id)
	return v
}

// stillJSON returns an error if a body that was JSON is none after an edit: a slip that would make
// another letter.
func stillJSON(was, is []byte) error {
	var one json.RawMessage
	if !looksLikeJSON(was) || !json.Valid(was) {
		return nil
	}
	if err := json.Unmarshal(is, &one); err != nil {
		return fmt.Errorf("%w: the body was JSON, and is none now: %w; rehop dlq edit --body FILE takes any body", errForm, err)
	}
	return nil
}

// editOf reads an edit from a form. Fields that are unchanged are left out.
func (r *request) editOf(l desk.Letter) (e desk.Edit, err error) {
	m := l.Publishing
	if _, ok := r.form["body"]; ok {
		body := fromForm(r.form.Get("body"), m.Body)
		if string(body) != string(m.Body) {
			e.Body = &body
			if err := stillJSON(m.Body, body); err != nil {
				return e, err
			}
		}
	}
	if ct, ok := r.form["content_type"]; ok && ct[0] != m.ContentType {
		e.ContentType = &ct[0]
	}
	for line := range strings.Lines(r.form.Get("set")) {
		line = strings.TrimRight(line, "\r\n")
		if strings.TrimSpace(line) == "" {
			continue
		}
		name, value, found := strings.Cut(line, "=")
		if name = strings.TrimSpace(name); !found || name == "" {
			return e, fmt.Errorf("%w: header %.60q, want name=value", errForm, line)
		}
		if e.Set == nil {
			e.Set = map[string]string{}
		}
		e.Set[name] = value
	}
	e.Remove = filled(r.form["remove"])
	if e.Body == nil && e.ContentType == nil && e.Set == nil && e.Remove == nil && r.form.Get("do") != "send" {
		return e, fmt.Errorf("%w: nothing was changed", errForm)
	}
	return e, nil
}
