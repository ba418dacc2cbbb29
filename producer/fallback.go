package producer

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/xdeath"
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
	if ctx.Err() == nil && p.sinks.Err() == nil && len(p.cfg.Fallback) > 0 {
		p.fallBack(ctx, *m, &receipt)
	}
	return receipt
}

// errEnded is the error of a message whose sink has ended the goroutine.
var errEnded = connection.WithClass(errors.New("a sink or a hook has ended its goroutine (runtime.Goexit): the message may be in the sink"), connection.Bug)

// endedReceipt is the receipt of a message whose goroutine ends before it has one.
func endedReceipt(id string, err error) Receipt {
	err = fmt.Errorf("producer: message %q: %w: %w: %w", id, ErrUnconfirmed, errEnded, err)
	return Receipt{ID: id, MaybeDuplicate: true, Cause: CauseOf(err), Err: err}
}

// fallBack gives the message to the first sink that takes it.
func (p *Producer) fallBack(ctx context.Context, m Message, r *Receipt) {
	errs := []error{r.Err}
	for _, sink := range p.cfg.Fallback {
		if !p.takes(sink, r.Cause) {
			continue
		}
		if ctx.Err() != nil || p.sinks.Err() != nil {
			break
		}
		cause := r.Err
		err := p.guarded(ctx, sink, func(ctx context.Context) error { return sink.Put(ctx, m, cause) })
		if err == nil {
			p.repeats.WarnOf(sink.Name()+" "+string(r.Cause), "message went to the fallback", "message", m.ID, "sink", sink.Name(), "cause", string(r.Cause), "error", r.Err)
			r.Place, r.Sink = PlaceFallback, sink.Name()
			return
		}
		r.MaybeDuplicate = r.MaybeDuplicate || errors.Is(err, ErrUnconfirmed)
		errs = append(errs, err)
	}
	if len(errs) == 1 && ctx.Err() == nil {
		errs = append(errs, fmt.Errorf("no sink of the Fallback takes messages with the cause %q", r.Cause))
	}
	r.Err = errors.Join(errs...)
}

// taken reports whether some sink takes messages with this cause.
func (p *Producer) taken(cause xdeath.Cause) bool {
	for _, sink := range p.cfg.Fallback {
		if p.takes(sink, cause) {
			return true
		}
	}
	return false
}

// takes reports whether a sink is for messages with this cause. One that panics
// is for none.
func (p *Producer) takes(sink Sink, cause xdeath.Cause) (takes bool) {
	defer func() {
		if r := recover(); r != nil {
			p.cfg.Logger.Error("Takes of a sink panicked", "panic", r, "stack", string(debug.Stack()))
			takes = false
		}
	}()
	if s, ok := as[onConn](sink); ok && cause.Passes() && s.publishesOn(p.conn) {
		return false // the sink's broker is the one that cannot be reached
	}
	if s, ok := as[SelectiveSink](sink); ok {
		return s.Takes(cause)
	}
	return true
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
			err = &sinkError{sink.Name(), fmt.Errorf("panic: %v", r)}
		}
	}()
	err = call(ctx)
	switch {
	case err == nil:
		p.sinkTime.note(time.Since(began))
		return nil
	case errors.Is(err, ErrUnconfirmed), ctx.Err() != nil && !errors.As(err, new(*exactError)):
		return &sinkError{sink.Name(), err}
	}
	return fmt.Errorf("fallback %q: %w", sink.Name(), err)
}
