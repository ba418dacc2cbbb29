package web

import (
	"github.com/rehop/rehop/desk"
)

// look looks into a queue.
func (h *Handler) look(r *request) error {
	source, p, err := r.source()
	if err != nil {
		return err
	}
	list, err := source.List(r.ctx, desk.Filter{}, desk.Page{Limit: 1, Look: true})
	if err != nil {
		return err
	}
	h.changed.notify()
	to, values := backTo(r.form.Get("back"), p)
	return r.redirect(to, values, "Looked at "+letters(list.Seen.Seen)+".")
}
