package topology

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/internal/ask"
	"github.com/rehop/rehop/internal/declared"
	"github.com/rehop/rehop/internal/exchange"
	"github.com/rehop/rehop/internal/levels"
	"github.com/rehop/rehop/internal/pause"
	"github.com/rehop/rehop/internal/route"
	"github.com/rehop/rehop/internal/transport"
)

// ErrInUse is wrapped by the error of [Delete] when a queue holds messages or has
// consumers, or an exchange has bindings.
var ErrInUse = errors.New("in use")

// Delete deletes the queues and exchanges of the specifications. It also deletes the wait
// queues that a longer or changed schedule has left, as far as their names are known. It
// ignores missing ones. A queue that others declare ([WorkQueue.Existing]) stays.
//
// If a queue holds messages or has consumers, Delete deletes nothing, and the
// error names each such queue and wraps [ErrInUse]. Nor does it delete anything while the
// leader of a quorum queue is away, because a broker says of such a queue that it is empty
// (3.10 to 4.3). So Delete consumes from each queue that seems to be empty, for a moment, on
// a socket of its own, and needs permission to read it. A message that it gets by doing so goes
// back: before 4.3, in a queue without a delivery limit, behind later ones. An [Exchange] that others still
// bind to stays, and the error names it too. The exchanges of work queues and [Lanes],
// [Lanes.Exchange] among them, are deleted with all their bindings.
//
// Of [Lanes] and [Shards] it can delete single work queues, such as the last ones of [Shards.WorkQueues]
// when Count is to be smaller. What the work queues have in common, such as one dead-letter queue, stays then: it is deleted with the
// whole specification only.
//
// [Delays] belong to all services of the virtual host. All their queues are deleted, for
// any Max, when no message is in any of them.
//
// [Lanes] are deleted with the exchanges through which delayed messages reach the lanes,
// also where the specifications have no Delays. If a Delays.Grain does not divide 1s,
// these exchanges are found only if conn has declared the Delays, or if the
// specifications have them. Otherwise two exchanges are left, Name + ".lanes.due." and
// the grain, such as "30ms", and the same with ".unrouted". They lead messages to
// [Delays.Stranded].
//
// A producer on conn refuses from then on a message with a Delay to a queue or an exchange that
// Delete has deleted, until it is declared again with [Delays]. Another Conn does not learn of
// the deletion: a message that is delayed there ends in [Delays.Stranded].
//
// Stop publishers and consumers first. A message that arrives during Delete is
// deleted with its queue. So is a message that the broker is moving out of a
// quorum queue, because no count shows it.
func Delete(ctx context.Context, conn *connection.Conn, specs ...Spec) error {
	return remove(ctx, conn, specs, false)
}

// DeleteAll is like [Delete], but also deletes queues and exchanges that are in
// use, with all messages in them. It needs no permission to read.
func DeleteAll(ctx context.Context, conn *connection.Conn, specs ...Spec) error {
	return remove(ctx, conn, specs, true)
}

func remove(ctx context.Context, conn *connection.Conn, specs []Spec, inUse bool) error {
	if err := usable(ctx, conn); err != nil {
		return err
	}
	_, err := again(ctx, func() (struct{}, error) {
		c := caller{ctx: ctx, conn: conn}
		defer c.close()
		d, err := newDeclaration(&c, wholes(specs))
		if err != nil {
			return struct{}{}, err
		}
		look := c.passive
		if !inUse {
			v := c.visitor()
			defer v.close()
			look = v.counted
		}
		queues, err := d.existingQueues(look)
		if err == nil && !inUse {
			err = usedQueues(queues)
		}
		if err != nil {
			return struct{}{}, err
		}
		return struct{}{}, c.delete(queues, d.plan, inUse)
	})
	return err
}

// wholes returns the specifications with all that other processes may have declared
// under the same names.
func wholes(specs []Spec) []Spec {
	specs = slices.Clone(specs)
	for i, s := range specs {
		if s = value(s); s != nil {
			specs[i] = s.whole()
		}
	}
	return specs
}

// existingQueues returns the queues that are to be deleted and exist.
func (d *declaration) existingQueues(at func(name string) (depth, bool, error)) (queues []depth, err error) {
	look := func(name string) (exists bool, err error) {
		q, exists, err := at(name)
		if exists {
			queues = append(queues, q)
		}
		return exists, err
	}
	all := func(w WorkQueue, waitNumber, first int) (n int, err error) { // of the waits without a TTL
		for exists := true; exists && err == nil; n++ {
			exists, err = look(route.CarriedQueue(w.Name, waitNumber, first+n))
		}
		return n - 1, err
	}
	for _, q := range d.plan.queues {
		if d.ofOthersToo(q) {
			continue
		}
		if _, err := look(q.Name); err != nil {
			return nil, err
		}
		if w := d.workQueue(q.Owner); w != nil && (q.role == waitRole && q.waitNumber == len(w.Waits) || q.role == workRole && len(w.Waits) == 0) {
			for i := range w.Waits {
				if _, err := look(w.otherWaitQueue(i + 1)); err != nil {
					return nil, err
				}
				if _, err := all(*w, i+1, 2); err != nil {
					return nil, err
				}
			}
			for waitNumber := len(w.Waits) + 1; waitNumber <= delay.MaxWaits; waitNumber++ {
				if n, err := all(*w, waitNumber, 1); err != nil {
					return nil, err
				} else if n == 0 {
					break
				}
			}
		}
	}
	return queues, nil
}

// ofOthersToo reports whether a queue is the dead-letter queue of all lanes or shards of a specification, of
// which only some work queues are to be deleted.
func (d *declaration) ofOthersToo(q plannedQueue) bool {
	w := d.workQueue(q.Owner)
	if q.role != letterRole || w == nil || w.letters == "" {
		return false
	}
	return !slices.Contains(d.plan.lanes, w.lane.lanes) && !slices.ContainsFunc(d.plan.shards, func(s Shards) bool { return s.Name == w.shards })
}

// depth is how much is in a queue.
type depth struct {
	queue string
	ask.Depth
}

// passive returns the answer to a look at a queue, and whether it exists. The depth may be
// unknown, and that of a queue whose leader is down is that of an empty one; see visitor.
func (c *caller) passive(name string) (d depth, exists bool, err error) {
	if err = c.open(); err != nil {
		return d, false, fmt.Errorf("topology: look at queue %q: %w", name, err)
	}
	d.queue = name
	d.Depth, err = ask.DepthOf(c.ctx, c.session, name)
	refused, err := c.result(err)
	switch {
	case err != nil:
		return d, false, fmt.Errorf("topology: look at queue %q: %w", name, err)
	case refused == nil:
		return d, true, nil
	case ask.IsGone(refused):
		return d, false, nil
	}
	return d, false, fmt.Errorf("topology: look at queue %q: %w", name, refused)
}

// visitor looks into queues that seem to be empty. A queue without a leader ends the socket of a
// consumer (541) or answers it never, so the visitor has a socket of its own.
type visitor struct {
	*caller
	apart *connection.Conn
}

func (c *caller) visitor() *visitor {
	apart := transport.Inside.Conn(c.conn).Apart("delete").(*connection.Conn)
	return &visitor{&caller{ctx: c.ctx, conn: apart}, apart}
}

func (v *visitor) close() {
	v.caller.close()
	_ = v.apart.Close() // nothing is in flight on it
}

// visitTimeout is for a node that is cut off from its cluster: it answers no consumer.
const visitTimeout = 15 * time.Second

// counted is passive for what is deleted where it is empty. A queue that seems to be empty is
// visited, which takes a leader, and then looked at again. An unknown depth is an error.
func (v *visitor) counted(name string) (d depth, exists bool, err error) {
	d, exists, err = v.known(name)
	if err != nil || !exists || d.Ready > 0 || d.Consumers > 0 {
		return d, exists, err
	}
	ctx, cancel := context.WithTimeout(v.ctx, visitTimeout)
	defer cancel()
	took, err := ask.Visit(ctx, v.session, name, "rehop-delete")
	switch refused, err := v.result(err); {
	case v.ctx.Err() != nil:
		return d, false, fmt.Errorf("topology: look into queue %q: %w", name, pause.Ended(v.ctx))
	case err != nil: // not wrapped: there is no sense in another try at once
		return d, false, rehop.WithClass(fmt.Errorf("topology: queue %q seems to be empty and does not answer a consumer, so nobody knows what it holds: %s", name, err.Error()), rehop.ClassTransient)
	case refused != nil && ask.IsGone(refused):
		return d, false, nil
	case refused != nil && refused.Code == amqp.AccessRefused:
		return d, false, fmt.Errorf("topology: %w to look into queue %q, which seems to be empty: give the user read on it: %w", errNoPermission, name, refused)
	case refused != nil:
		return d, false, fmt.Errorf("topology: look into queue %q, which seems to be empty: %w", name, refused)
	case took: // and given back
		d.Ready = 1
		return d, true, nil
	}
	return v.known(name)
}

func (v *visitor) known(name string) (d depth, exists bool, err error) {
	d, exists, err = v.passive(name)
	if err == nil && exists && d.Unknown {
		err = rehop.WithClass(fmt.Errorf("topology: look at queue %q: its leader does not answer, so nobody knows what it holds", name), rehop.ClassTransient)
	}
	return d, exists, err
}

func usedQueues(queues []depth) error {
	var errs []error
	for _, q := range queues {
		if q.Ready > 0 || q.Consumers > 0 {
			errs = append(errs, fmt.Errorf("topology: queue %q is %w: it holds %d messages and has %d consumers", q.queue, ErrInUse, q.Ready, q.Consumers))
		}
	}
	return errors.Join(errs...)
}

// delete deletes the queues and then the exchanges: the exchanges of work queues before
// the exchanges of the user, which they may be bound to.
func (c *caller) delete(queues []depth, p Plan, inUse bool) error {
	var gone, goneExchanges []string
	defer func() { declared.ForgetTargets(c.conn, gone, goneExchanges) }()
	for _, q := range queues {
		// Not if-unused and if-empty: asked of a quorum queue, they end the connection.
		refused, err := c.do(func(ch *amqp.Channel) error {
			_, err := ch.QueueDelete(q.queue, false, false, false)
			return err
		})
		if err != nil {
			return fmt.Errorf("topology: delete queue %q: %w", q.queue, err)
		}
		if refused != nil {
			return deleteRefusal("queue", q.queue, refused)
		}
		ownFormsOn(c.conn).Delete(q.queue)
		gone = append(gone, q.queue)
	}
	for _, q := range p.queues {
		if q.role == workRole { // another process may have deleted it before
			gone = append(gone, q.Name)
		}
	}
	exchanges := slices.Clone(p.exchanges)
	slices.SortStableFunc(exchanges, func(a, b plannedExchange) int {
		return boolInt(a.Owner == "") - boolInt(b.Owner == "")
	})
	var errs []error
	for _, e := range exchanges {
		// The exchanges of delays are bound to each other.
		ifUnused := e.Owner == "" && !inUse && !levels.Is(e.Name)
		refused, err := c.do(func(ch *amqp.Channel) error { return ch.ExchangeDelete(e.Name, ifUnused, false) })
		switch {
		case err != nil:
			return fmt.Errorf("topology: delete exchange %q: %w", e.Name, err)
		case refused != nil && refused.Code == amqp.PreconditionFailed:
			errs = append(errs, fmt.Errorf("topology: exchange %q is %w: others bind to it: %w", e.Name, ErrInUse, refused))
		case refused != nil:
			errs = append(errs, deleteRefusal("exchange", e.Name, refused))
		default:
			exchange.Deleted(c.conn, e.Name)
			goneExchanges = append(goneExchanges, e.Name)
		}
	}
	if err := c.deleteDue(p); err != nil {
		errs = append(errs, err)
	}
	for _, d := range p.delays {
		declared.Forget(c.conn, d.Levels.Grain)
	}
	declared.ForgetBindings(c.conn, slices.Concat(p.owners(), p.lanes)...)
	return errors.Join(errs...)
}

// deleteDue deletes the exchanges that lead delayed messages to lanes. Which of them
// exist only other calls know, those that declared the delays.
func (c *caller) deleteDue(p Plan) error {
	var names []string
	for _, lanes := range p.lanes {
		for _, grain := range dueGrains(c.conn, p) {
			due, rest := Lanes{Name: lanes}.dueExchanges(grain)
			names = append(names, due, rest)
		}
	}
	var steps []step
	for _, name := range names {
		steps = append(steps, step{
			what:    fmt.Sprintf("delete exchange %q", name),
			call:    func(ch *amqp.Channel, noWait bool) error { return ch.ExchangeDelete(name, false, noWait) },
			explain: func(cause *amqp.Error) error { return deleteRefusal("exchange", name, cause) },
		})
	}
	at, refused, err := c.all(steps)
	switch {
	case err != nil:
		return err
	case refused != nil && refused.Code == amqp.AccessRefused:
		err = c.deletePermitted(steps, names)
	case refused != nil:
		err = at.explain(refused)
	}
	for _, name := range names {
		exchange.Deleted(c.conn, name)
	}
	return err
}

// deletePermitted does the steps that delete exchanges one by one. A refusal is an
// error if the exchange can be seen to exist.
func (c *caller) deletePermitted(steps []step, names []string) error {
	var errs []error
	for i, s := range steps {
		refused, err := c.do(func(ch *amqp.Channel) error { return s.call(ch, false) })
		if err != nil {
			return err
		}
		if refused == nil {
			continue
		}
		unseen, err := c.do(func(ch *amqp.Channel) error {
			return ch.ExchangeDeclarePassive(names[i], amqp.ExchangeTopic, true, false, false, false, nil)
		})
		if err != nil {
			return err
		}
		if unseen == nil {
			errs = append(errs, s.explain(refused))
		}
	}
	return errors.Join(errs...)
}

// dueGrains returns the grains of delays to lanes that are worth a try. To try all
// that are possible would take a thousand deletions, and each of them, also of what
// does not exist, writes to the broker's metadata.
func dueGrains(conn *connection.Conn, p Plan) (grains []time.Duration) {
	for grain := levels.MinGrain; grain <= levels.MaxGrain; grain += time.Millisecond {
		if time.Second%grain == 0 {
			grains = append(grains, grain)
		}
	}
	for _, d := range declared.On(conn) {
		grains = append(grains, d.Levels.Grain)
	}
	for _, d := range p.delays {
		grains = append(grains, d.Levels.Grain)
	}
	slices.Sort(grains)
	return slices.Compact(grains)
}

func deleteRefusal(kind, name string, cause *amqp.Error) error {
	if cause.Code == amqp.AccessRefused {
		return fmt.Errorf("topology: %w to delete %s %q: give the user configure on it: %w", errNoPermission, kind, name, cause)
	}
	return fmt.Errorf("topology: delete %s %q: %w", kind, name, cause)
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
