package consumer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/consumer/internal/durations"
	"github.com/rehop/rehop/consumer/internal/hand"
	"github.com/rehop/rehop/consumer/internal/plural"
)

// ErrHandlerTimeout is the cause of a handler's ctx that ended at
// Config.HandlerTimeout. See [Handler] for the errors that wrap it.
var ErrHandlerTimeout = rehop.WithClass(errors.New("consumer: handler timeout"), rehop.ClassTransient)

// ErrConsumerTimeout says that a handler has had a message for about as long as the
// broker's consumer timeout allows, which is 30 minutes by default. If
// topology.WorkQueue.ConsumerTimeout is set, the ctx of the handler ends at four fifths
// of it, with this cause.
//
// If it is not set, AMQP does not tell a client the timeout. A broker before 4.3 names
// the timeout when it takes a message away, and from then on the ctx of a handler ends
// as above. A broker of 4.3 does not name it, so the ctx ends only when the broker has
// taken the message away.
//
// If the broker's error or its counters say that it took a message away from a handler,
// the message spends an attempt without a run of the handler when it comes again to the
// same call of Run. The consumer recognises such a message by its message id, exchange,
// routing key and body, and does not recognise a message without an id. The other
// messages of the session come again too, and spend no attempt.
var ErrConsumerTimeout = rehop.WithClass(errors.New("consumer: the broker's consumer timeout"), rehop.ClassTransient)

// timedOut is ErrHandlerTimeout for a limit.
func timedOut(limit time.Duration) error {
	return fmt.Errorf("%w: Config.HandlerTimeout, which is %v, has ended the handler's ctx", ErrHandlerTimeout, limit)
}

// cutError is the error of a handler whose ctx had ended, with the cause of that end.
type cutError struct{ err, cause error }

func (e *cutError) Error() string        { return e.err.Error() + ": " + e.cause.Error() }
func (e *cutError) Unwrap() error        { return e.err }
func (e *cutError) Is(target error) bool { return errors.Is(e.cause, target) }

// explained returns the error of a handler that had ctx, with the cause of the end of ctx if
// err is about that end. The error of a ctx tells its cause to nobody, and most drivers return
// the error.
func explained(ctx context.Context, err error) (out error) {
	end := ctx.Err()
	if err == nil || end == nil {
		return err
	}
	if _, panicked := err.(*PanicError); panicked { // the callers look for the same value
		return err
	}
	defer func() { // the methods of an error are the user's code
		if recover() != nil {
			out = err
		}
	}()
	cause := context.Cause(ctx)
	if errors.Is(err, cause) || !errors.Is(err, end) && !strings.Contains(err.Error(), end.Error()) {
		return err
	}
	return &cutError{err, cause}
}

// withTimeouts returns the ctx of the handler for messages. The ctx ends at
// Config.HandlerTimeout, and before the broker would take a message away. Nothing is settled
// before the handler has returned; a handler that is durations.HandlerGrace past its timeout counts as
// overdue, and the log says which messages it has. With a timeout, one is that handler.
func (r *run) withTimeouts(from context.Context, ms []*hand.Message) (ctx context.Context, one *overdueHandler, end func()) {
	ctx = from
	limit, consumerLimit := r.cfg.HandlerTimeout, r.timeout.HandlerLimit()
	if limit == 0 && consumerLimit == 0 {
		return ctx, nil, func() {}
	}
	var ends []func()
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, r.timedOut)
		one = &overdueHandler{queue: r.queue}
		one.isWith(ms) // a hook may hold its first run up
		late := time.AfterFunc(limit+durations.HandlerGrace, func() {
			r.overdue.add(one)
			all := *one.has.Load()
			about := []any{"queue", r.queue, "message", all[0].Raw.MessageId, "messages", len(all), "timeout", limit}
			if len(all) > 1 {
				about = append(about, "ids", named(all))
			}
			r.log.Error("handler is past its timeout and has not returned: its message stays unsettled", about...)
		})
		ends = append(ends, cancel, func() {
			if !late.Stop() {
				r.overdue.remove(one)
			}
		})
	}
	if consumerLimit > 0 {
		var cancel context.CancelFunc
		oldest := slices.MinFunc(ms, func(a, b *hand.Message) int { return a.Received.Compare(b.Received) })
		ctx, cancel = context.WithDeadlineCause(ctx, oldest.Received.Add(consumerLimit), ErrConsumerTimeout)
		ends = append(ends, cancel)
	}
	return ctx, one, func() {
		for _, end := range ends {
			end()
		}
	}
}

// overdue are the handlers of a Consumer that are past their timeout and have not
// returned. It is safe for concurrent use.
type overdue struct {
	timeout time.Duration
	workers int // of all lanes

	mu       sync.Mutex
	handlers map[*overdueHandler]time.Time // since when
}

type overdueHandler struct {
	queue    string
	has      atomic.Pointer[[]*hand.Message]
	returned bool
}

// isWith notes which messages the handler has. It is called for nil where there is no timeout.
func (h *overdueHandler) isWith(ms []*hand.Message) {
	if h != nil {
		ms = slices.Clone(ms) // the caller reorders them
		h.has.Store(&ms)
	}
}

func (o *overdue) add(h *overdueHandler) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !h.returned {
		o.handlers[h] = time.Now()
	}
}

func (o *overdue) remove(h *overdueHandler) {
	o.mu.Lock()
	defer o.mu.Unlock()
	h.returned = true
	delete(o.handlers, h)
}

// check returns that handlers are overdue of a queue that has so many slots, as unhealthy
// if none is left to handle a message, and nil if none are. The queues of lanes share the
// workers: the handlers of others may leave none.
func (o *overdue) check(queue string, slots int) *rehop.HealthError {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := len(o.handlers) >= o.workers
	if all {
		slots = o.workers
	}
	n, since := 0, time.Time{}
	var unsettled []*hand.Message
	for h, at := range o.handlers {
		if h.queue != queue && !all {
			continue
		}
		if n++; since.IsZero() || at.Before(since) {
			since = at
		}
		unsettled = append(unsettled, *h.has.Load()...)
	}
	if n == 0 {
		return nil
	}
	return &rehop.HealthError{Degraded: n < slots, Since: since,
		Cause: fmt.Errorf("consumer: queue %q: %s of %d did not return within %v after their ctx had ended at Config.HandlerTimeout, which is %v: a handler must return when its ctx ends; unsettled: %s",
			queue, plural.Of(n, "handler"), slots, durations.HandlerGrace, o.timeout, named(unsettled))}
}
