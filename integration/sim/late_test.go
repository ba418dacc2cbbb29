package sim

import (
	"context"
	"errors"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
)

// fetching is what one process fetches of a queue.
type fetching struct {
	since, until time.Time // of the latest session; until is zero while it lasts
	late         []late    // since then
}

// late is a handler that began when the session of its message was lost.
type late struct {
	id string
	at time.Time
}

// How long after the end of a session a worker may still take one of its messages: a
// moment; and how long the end of a session may take.
const (
	aMoment = time.Second
	ending  = time.Minute
)

// lateness returns the hook that notes when sessions of a process begin and end.
func (w *trial) lateness(name string) consumer.Trace {
	return consumer.Trace{Fetching: func(fetching consumer.Fetching) {
		queue, prefetch := fetching.Queue, fetching.Prefetch
		w.mu.Lock()
		w.slowly[queue] = w.slowly[queue] || prefetch == 1
		f := w.fetch(name, queue)
		now := time.Now()
		var wrong []late
		switch {
		case prefetch == 0:
			for _, l := range f.late {
				if l.at.Before(now.Add(-ending)) { // it was not this session that was about to end
					wrong = append(wrong, l)
				}
			}
			f.until, f.late = now, nil
		case !f.until.IsZero() || f.since.IsZero():
			f.since, f.until = now, time.Time{}
		}
		w.mu.Unlock()
		for _, l := range wrong {
			w.violate("%s: message %s was given to a handler at %v, when its session had ended before %v", name, l.id, l.at.Sub(w.began), f.since.Sub(w.began))
		}
	}}
}

// fetch needs w.mu held.
func (w *trial) fetch(name, queue string) *fetching {
	f := w.fetches[name+" "+queue]
	if f == nil {
		f = &fetching{}
		w.fetches[name+" "+queue] = f
	}
	return f
}

// inTime notes that a handler begins. What is left of a session that is lost belongs to
// the broker again, and is given to no handler.
func (w *trial) inTime(ctx context.Context, d *consumer.Delivery, name string) {
	if !errors.Is(context.Cause(ctx), connection.ErrSessionLost) {
		return
	}
	w.mu.Lock()
	f := w.fetch(name, d.Queue)
	now := time.Now()
	wrong := !f.until.IsZero() && now.Sub(f.until) > aMoment
	if f.until.IsZero() && now.Sub(f.since) > aMoment {
		f.late = append(f.late, late{d.ID, now}) // of this session, which is about to end, or of one before
	}
	w.mu.Unlock()
	if wrong {
		w.violate("%s: message %s is given to a handler %v after its session has ended", name, d.ID, now.Sub(f.until))
	}
}
