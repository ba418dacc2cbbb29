package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/rehop/rehop/desk"
)

// lookTimeout bounds a look. One that is cut off may change the order of the letters, so
// neither the time for a page nor a browser that leaves does it.
const lookTimeout = 2 * time.Minute

// busyError says that a look would wait for a redrive of this desk.
type busyError struct{ redrive string }

func (e *busyError) Error() string {
	return fmt.Sprintf("redrive %s works on this queue, or waits for its turn there", e.redrive)
}

// mayLook returns an error if a redrive of this desk is at a source: a look would wait for its end.
func (r *request) mayLook(source desk.Source) error {
	if id := r.h.redrives.at(source.About().Name); id != "" {
		return &busyError{id}
	}
	return nil
}

// long gives the place for a page back, and takes one for an answer that may last. release ends it.
func (r *request) long() (release func(), err error) {
	select {
	case r.h.streams <- struct{}{}:
		r.release()
		return func() { <-r.h.streams }, nil
	default:
		return nil, errBusy
	}
}

// looking calls do, which looks into a live source. It does not if the broker gives no answer, or a
// redrive would keep the look waiting. The server gives the answer its time, however little a page gets.
func (r *request) looking(source desk.Source, do func(context.Context) error) error {
	err := r.mayLook(source)
	if err == nil {
		err = r.h.broker.answers(r.ctx, askTimeout)
	}
	if err != nil {
		return err
	}
	_ = http.NewResponseController(r.w).SetWriteDeadline(time.Now().Add(lookTimeout + writeTimeout)) // where there is none, none is needed
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), lookTimeout)                    // r.ctx says who looks
	defer cancel()
	if err = do(ctx); errors.Is(err, context.DeadlineExceeded) {
		return cmp.Or(r.mayLook(source), err) // one may have begun meanwhile
	}
	return err
}

// look looks into a queue.
func (h *Handler) look(r *request) error {
	p := placeOf(r.form)
	source, release, err := h.source(p)
	if err != nil {
		return err
	}
	defer release()
	end, err := r.long()
	if err != nil {
		return err
	}
	defer end()
	var list desk.List
	look := func(ctx context.Context) (err error) {
		list, err = source.List(ctx, desk.Filter{}, desk.Page{Limit: 1, Look: true})
		return err
	}
	if source.About().Live {
		err = r.looking(source, look)
	} else {
		err = look(r.ctx)
	}
	if err != nil {
		return err
	}
	to, values := backTo(r.form.Get("back"), p)
	return r.redirect(to, values, "Looked at "+letters(list.Seen.Seen)+".")
}
