package topology

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
)

// Repair implements route.Broker: what others declare is theirs to put back.
func (foreign) Repair(context.Context, *connection.Conn) ([]string, error) { return nil, nil }

// Repair implements route.Broker: a consumer of a queue that is gone is told by the
// broker.
func (letters) Repair(context.Context, *connection.Conn) ([]string, error) { return nil, nil }

// Repair implements route.Broker.
func (w work) Repair(ctx context.Context, conn *connection.Conn) (missing []string, err error) {
	if err := usable(ctx, conn); err != nil {
		return nil, err
	}
	return again(ctx, func() ([]string, error) {
		c := caller{ctx: ctx, conn: conn}
		defer c.close()
		return w.plan.repair(&c, w.unseen)
	})
}

// repair puts back the parts of a plan for one work queue. A user who may not look at
// the queues may not bind either.
func (p Plan) repair(c *caller, unseen bool) (missing []string, err error) {
	at, refused, err := c.all(p.signs(unseen))
	if err != nil || refused == nil {
		return nil, err
	}
	have, err := c.look(p.own())
	if err != nil {
		return nil, err
	}
	lost := p.missing(have)
	if len(lost) == 0 {
		if refused.Code == amqp.NotFound {
			return nil, nil // it has come back meanwhile
		}
		return nil, at.explain(refused)
	}
	for _, part := range lost {
		missing = append(missing, part.String())
	}
	owner := p.Engines[0].Queue
	if slices.Contains(lost, part{"queue", owner}) {
		return missing, rehop.WithClass(fmt.Errorf("topology: queue %q does not exist: declare its work queue again", owner), rehop.ClassConfiguration)
	}
	at, refused, err = c.all(p.restoring(lost, ownFormsOn(c.conn)))
	if refused != nil {
		err = at.explain(refused)
	}
	if errors.Is(err, errNoPermission) {
		err = fmt.Errorf("%w; or declare work queue %q again", err, owner)
	}
	return missing, err
}

// signs returns the steps that are refused if a part is missing: looks at the
// exchanges, and bindings, which need both of their ends.
func (p Plan) signs(unseen bool) (steps []step) {
	for _, e := range p.exchanges {
		steps = append(steps, lookForExchange(e.Name, "declare its work queue again"))
	}
	for _, b := range p.bindings {
		if !b.users && !unseen {
			steps = append(steps, bind(b))
		}
	}
	return steps
}

// restoring returns the steps that put parts back, with all bindings between the parts
// of the plan, and without the user's own. A dead-letter queue that is known to have a
// form of its own is put back in that form, with all bindings that were declared for it.
func (p Plan) restoring(lost []part, known *sync.Map) (steps []step) {
	var letters []step
	for _, q := range p.queues {
		if !slices.Contains(lost, part{"queue", q.Name}) {
			continue
		}
		if own, ok := known.Load(q.Name); ok && q.role == letterRole {
			q = own.(ownForm).queue
			for _, b := range own.(ownForm).bindings {
				letters = append(letters, bind(b))
			}
		}
		steps = append(steps, declareQueue(q))
	}
	for _, s := range p.wiringSteps(p.Engines[0].Queue) {
		switch {
		case s.exchange != nil && slices.Contains(lost, part{"exchange", s.exchange.Name}),
			s.binding != nil && !s.binding.users:
			steps = append(steps, s)
		}
	}
	return append(steps, letters...) // last: a refusal ends all steps behind it
}
