package web

import (
	"context"
	"time"

	"github.com/rehop/rehop/desk"
)

// lookTimeout bounds a look. One that is cut off may change the order of the letters, so
// neither the time for a page nor a browser that leaves does it.
const lookTimeout = 2 * time.Minute

func (r *request) forLook() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(r.ctx), lookTimeout) // r.ctx says who looks
}

// look looks into a queue.
func (h *Handler) look(r *request) error {
	p := placeOf(r.form)
	source, release, err := h.source(p)
	if err != nil {
		return err
	}
	defer release()
	ctx, cancel := r.forLook()
	defer cancel()
	list, err := source.List(ctx, desk.Filter{}, desk.Page{Limit: 1, Look: true})
	if err != nil {
		return err
	}
	h.changed.notify()
	to, values := backTo(r.form.Get("back"), p)
	return r.redirect(to, values, "Looked at "+letters(list.Seen.Seen)+".")
}
