package web

import (
	"context"
	"time"

	"github.com/rehop/rehop/desk"
)

// lookTimeout bounds a look. One that is cut off may change the order of the letters, so
// neither the time for a page nor a browser that leaves does it.
const lookTimeout = 2 * time.Minute

// forLook returns the context of a look, or why there is none: a look that the broker does not
// answer has taken no letter, and waits no longer than a page.
func (r *request) forLook() (context.Context, context.CancelFunc, error) {
	if err := r.h.broker.answers(r.ctx, askTimeout); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), lookTimeout) // r.ctx says who looks
	return ctx, cancel, nil
}

// look looks into a queue.
func (h *Handler) look(r *request) error {
	p := placeOf(r.form)
	source, release, err := h.source(p)
	if err != nil {
		return err
	}
	defer release()
	ctx, cancel := r.ctx, func() {}
	if source.About().Live {
		if ctx, cancel, err = r.forLook(); err != nil {
			return err
		}
	}
	defer cancel()
	list, err := source.List(ctx, desk.Filter{}, desk.Page{Limit: 1, Look: true})
	if err != nil {
		return err
	}
	to, values := backTo(r.form.Get("back"), p)
	return r.redirect(to, values, "Looked at "+letters(list.Seen.Seen)+".")
}
