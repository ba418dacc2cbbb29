package consumer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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
// before the handler has returned; of a handler that is durations.HandlerGrace past its timeout the
// log says which messages it has.
func (r *run) withTimeouts(from context.Context, ms []*hand.Message) (ctx context.Context, end func()) {
	ctx = from
	limit, consumerLimit := r.cfg.HandlerTimeout, r.timeout.HandlerLimit()
	if limit == 0 && consumerLimit == 0 {
		return ctx, func() {}
	}
	var ends []func()
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, r.timedOut)
		all := slices.Clone(ms) // they are reordered, and their grant is used again
		late := time.AfterFunc(limit+durations.HandlerGrace, func() { r.logLate(r.hand.Running(all...)) })
		ends = append(ends, cancel, func() { late.Stop() })
	}
	if consumerLimit > 0 {
		var cancel context.CancelFunc
		oldest := slices.MinFunc(ms, func(a, b *hand.Message) int { return a.Received.Compare(b.Received) })
		ctx, cancel = context.WithDeadlineCause(ctx, oldest.Received.Add(consumerLimit), ErrConsumerTimeout)
		ends = append(ends, cancel)
	}
	return ctx, func() {
		for _, end := range ends {
			end()
		}
	}
}

// logLate says which messages a handler has that is past its timeout. It may have returned by now.
func (r *run) logLate(ms []*hand.Message) {
	if len(ms) == 0 {
		return
	}
	about := []any{"queue", r.queue, "message", ms[0].Raw.MessageId, "messages", len(ms), "timeout", r.cfg.HandlerTimeout}
	if len(ms) > 1 {
		about = append(about, "ids", named(ms))
	}
	r.log.Error("handler is past its timeout and has not returned: its message stays unsettled", about...)
}

// lateHealth returns that handlers are past their timeout and have not returned, as unhealthy
// if none is left to handle a message, and nil if none are. The queues of lanes share the
// workers: the handlers of others may leave none.
func (r *run) lateHealth(now time.Time) *rehop.HealthError {
	limit := r.cfg.HandlerTimeout
	if limit == 0 {
		return nil
	}
	late := r.hand.Handlers(now.Add(-limit - durations.HandlerGrace))
	slots, workers := r.cfg.Concurrency, r.Consumer.cfg.Concurrency
	if len(late) >= workers {
		slots = workers
	} else {
		late = slices.DeleteFunc(late, func(one hand.Handler) bool { return one.Lane != r.lane })
	}
	if len(late) == 0 {
		return nil
	}
	var unsettled []*hand.Message
	for _, one := range late {
		unsettled = append(unsettled, one.Of...)
	}
	began := slices.MinFunc(late, func(a, b hand.Handler) int { return a.Began.Compare(b.Began) }).Began
	return &rehop.HealthError{Degraded: len(late) < slots, Since: began.Add(limit + durations.HandlerGrace),
		Cause: fmt.Errorf("consumer: queue %q: %s of %d did not return within %v after their ctx had ended at Config.HandlerTimeout, which is %v: a handler must return when its ctx ends; unsettled: %s",
			r.queue, plural.Of(len(late), "handler"), slots, durations.HandlerGrace, limit, named(unsettled))}
}
