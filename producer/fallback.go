package producer

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/internal/pause"
)

// receipt returns the Receipt of a message, after its fallback if it was not
// confirmed.
func (p *Producer) receipt(ctx context.Context, m *Message, maybeDuplicate bool, err error) Receipt {
	receipt := Receipt{ID: m.ID, MaybeDuplicate: maybeDuplicate || errors.Is(err, ErrUnconfirmed)}
	if err == nil {
		receipt.Place = PlaceQueue
		return receipt
	}
	receipt.Cause = CauseOf(err)
	receipt.Err = fmt.Errorf("producer: message %q: %w", m.ID, err)
	switch {
	case len(p.cfg.Fallback) == 0:
	case ctx.Err() != nil && p.taken(receipt.Cause):
		receipt.Err = withEnd(ctx, receipt.Err)
	case p.sinks.Err() == nil:
		p.fallBack(ctx, *m, &receipt)
	}
	return receipt
}

// errEnded is the error of a message whose sink has ended the goroutine.
var errEnded = rehop.WithClass(errors.New("a sink or a hook has ended its goroutine (runtime.Goexit): the message may be in the sink"), rehop.ClassBug)

// endedReceipt is the receipt of a message whose goroutine ends before it has one.
func endedReceipt(id string, err error) Receipt {
	err = fmt.Errorf("producer: message %q: %w: %w: %w", id, ErrUnconfirmed, errEnded, err)
	return Receipt{ID: id, MaybeDuplicate: true, Cause: CauseOf(err), Err: err}
}

// fallBack gives the message to the first sink that takes it.
func (p *Producer) fallBack(ctx context.Context, m Message, r *Receipt) {
	errs := []error{r.Err}
	takers := p.takers(r.Cause)
	for i, sink := range takers {
		if ctx.Err() != nil || p.sinks.Err() != nil {
			errs = append(errs, withEnd(ctx, errors.New("not all sinks of the Fallback were asked")))
			break
		}
		cause := r.Err
		err := p.sharing(ctx, len(takers)-i, sink, func(ctx context.Context) error { return sink.Put(ctx, m, cause) })
		if err == nil {
			p.repeats.WarnOf(nameOf(sink)+" "+string(r.Cause), "message went to the fallback", "message", m.ID, "sink", nameOf(sink), "cause", string(r.Cause), "error", r.Err)
			r.Place, r.Sink = PlaceFallback, nameOf(sink)
			return
		}
		r.MaybeDuplicate = r.MaybeDuplicate || errors.Is(err, ErrUnconfirmed)
		errs = append(errs, err)
	}
	if len(takers) == 0 {
		errs = append(errs, fmt.Errorf("no sink of the Fallback takes messages with the cause %q", r.Cause))
	}
	r.Err = errors.Join(errs...)
}

// takers returns the sinks that take messages with this cause.
func (p *Producer) takers(cause rehop.Cause) (sinks []Sink) {
	for _, sink := range p.cfg.Fallback {
		if p.takes(sink, cause) {
			sinks = append(sinks, sink)
		}
	}
	return sinks
}

// taken reports whether some sink takes messages with this cause.
func (p *Producer) taken(cause rehop.Cause) bool { return len(p.takers(cause)) > 0 }

// takes reports whether a sink is for messages with this cause. One that panics
// is for none.
func (p *Producer) takes(sink Sink, cause rehop.Cause) (takes bool) {
	defer func() {
		if r := recover(); r != nil {
			p.cfg.Logger.Error("Takes of a sink panicked", "panic", r, "stack", string(debug.Stack()))
			takes = false
		}
	}()
	if s, ok := as[onConn](sink); ok && cause.Passes() && s.publishesOn(p.conn) {
		return false // the sink's broker is the one that cannot be reached
	}
	if s, ok := as[selectiveSink](sink); ok {
		return s.Takes(cause)
	}
	return true
}

// sharing calls the first of n sinks. Of the time until ctx ends it leaves an equal
// share to each of the others.
func (p *Producer) sharing(ctx context.Context, n int, sink Sink, call func(context.Context) error) error {
	if deadline, bounded := ctx.Deadline(); bounded && n > 1 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, time.Until(deadline)/time.Duration(n), errShareOver)
		defer cancel()
	}
	return p.guarded(ctx, sink, call)
}

// guarded calls a sink that is to keep a message. Its error matches ErrUnconfirmed
// unless it is known that the sink does not have the message.
func (p *Producer) guarded(ctx context.Context, sink Sink, call func(context.Context) error) (err error) {
	ctx, cancel := context.WithTimeoutCause(context.WithValue(ctx, producerKey{}, p), p.cfg.Timeout, errSinkLate)
	defer cancel()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer context.AfterFunc(p.sinks, func() { end(context.Cause(p.sinks)) })()
	began := time.Now()
	defer func() {
		if r := recover(); r != nil {
			err = &sinkError{nameOf(sink), fmt.Errorf("panic: %v", r)}
		}
	}()
	err = call(ctx)
	switch {
	case err == nil:
		p.sinkTime.note(time.Since(began))
		return nil
	case errors.Is(err, ErrUnconfirmed), ctx.Err() != nil && !errors.As(err, new(*exactError)):
		if end := pause.Ended(ctx); (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) && !errors.Is(end, ctx.Err()) {
			err = &limitError{err, end}
		}
		return &sinkError{nameOf(sink), err}
	}
	return fmt.Errorf("fallback %q: %w", nameOf(sink), err)
}
