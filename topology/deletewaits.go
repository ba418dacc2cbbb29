package topology

import (
	"context"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/route"
)

// DeleteWaits deletes the wait queues of a work queue that a former schedule uses and
// the current schedule does not. Call it when no process has the former schedule any
// more and its longest wait has passed since. It ignores missing queues.
//
// DeleteWaits then declares the current work queue, whose wait queues take the names that
// have become free. The dead-letter queue stays as it is. Each consumer stops using the
// replacement queues at its next session. After that, DeleteWaits(ctx, conn, current,
// current) deletes the replacement queues. A consumer that still uses such a queue when it
// is deleted holds the messages that fail. After some 20 s it begins another session, and
// handles them once more.
//
// If one of these queues holds messages or has consumers, DeleteWaits deletes nothing,
// and the error names each such queue and wraps [ErrInUse]. It looks at them as [Delete]
// does. Under [EngineCarry] every
// consumer of the work queue consumes its wait queues too, so stop the consumers first.
// If one wait number has several queues without a TTL, only the last of them can be
// deleted, because consumers find the queues by counting.
//
// No count shows a message that the broker is moving out of a quorum queue, such as
// one that the work queue refuses: it is deleted with its queue.
func DeleteWaits(ctx context.Context, conn *connection.Conn, former, current WorkQueue) error {
	if err := usable(ctx, conn); err != nil {
		return err
	}
	if former.Name != current.Name {
		return rehop.WithClass(fmt.Errorf("topology: DeleteWaits: the former work queue is %q and the current one %q, want one name", former.Name, current.Name), rehop.ClassBug)
	}
	if err := errors.Join(former.validate(), current.validate()); err != nil {
		return rehop.WithClass(err, rehop.ClassBug)
	}
	now, err := work{w: current}.Resolve(ctx, conn)
	if err != nil {
		return err
	}
	used := map[string]bool{}
	for _, w := range now.Waits {
		used[w.At.RoutingKey] = true
	}
	_, err = again(ctx, func() (struct{}, error) {
		c := caller{ctx: ctx, conn: conn}
		defer c.close()
		v := c.visitor()
		defer v.close()
		queues, err := former.unusedWaits(&c, v, used)
		if err == nil {
			err = usedQueues(queues)
		}
		if err != nil {
			return struct{}{}, err
		}
		return struct{}{}, c.delete(queues, Plan{}, false)
	})
	if err != nil {
		return err
	}
	current.anyLetters = true // Resolve has found it, and another call may have declared it in its own form
	return Declare(ctx, conn, current)
}

// unusedWaits returns the wait queues for the waits of w that are not in use.
func (w WorkQueue) unusedWaits(c *caller, v *visitor, used map[string]bool) (queues []depth, err error) {
	if err := c.open(); err != nil {
		return nil, err
	}
	version := c.session.Server().Version
	for i, wait := range w.Waits {
		waitNumber := i + 1
		var after []string // numbered queues that stay
		var carried []string
		for nth := 1; ; nth++ {
			name := route.CarriedQueue(w.Name, waitNumber, nth)
			args, exists, err := c.argumentsIfAny(w.carriedWait(name, waitNumber, version))
			if err != nil {
				return nil, err
			}
			if !exists {
				break
			}
			switch {
			case used[name] || waitIn(args) != wait:
				after = append(after, carried...)
				carried = nil
			default:
				carried = append(carried, name)
			}
			if !isCarriedForm(args) {
				break // the other queues are named after their waits
			}
		}
		if len(after) > 0 {
			return nil, fmt.Errorf("topology: wait queues %q are %w: queues of the same wait with higher numbers are", after, ErrInUse)
		}
		names := carried
		if other := w.otherWaitQueue(waitNumber); !used[other] {
			names = append(names, other)
		}
		for _, name := range names {
			q, exists, err := v.counted(name)
			if err != nil {
				return nil, err
			}
			if exists {
				queues = append(queues, q)
			}
		}
	}
	return queues, nil
}

// waitIn returns the wait of a wait queue with these arguments, of either form.
func waitIn(args amqp.Table) time.Duration {
	if ms, ok := args["x-message-ttl"].(int64); ok {
		return time.Duration(ms) * time.Millisecond
	}
	return waitOf(args)
}
