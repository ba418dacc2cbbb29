package topology

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/pause"
)

// step is one call to the broker.
type step struct {
	what string // for errors: `declare queue "orders"`

	// Of what the step declares with its arguments, one is set; none if it only looks.
	queue    *plannedQueue
	exchange *plannedExchange
	binding  *plannedBinding

	// mayBeAway says that it is enough if the queue exists, on a node that is down.
	mayBeAway bool

	// call does it. With noWait it only sends the request: the broker answers a
	// refusal alone, by closing the channel, and ignores what follows.
	call func(ch *amqp.Channel, noWait bool) error

	// explain turns a refusal into an error that says what to do.
	explain func(*amqp.Error) error
}

// queueSteps declares the queues of an owner.
func (p Plan) queueSteps(owner string) (steps []step) {
	for _, q := range p.needs {
		if q.Owner == owner {
			look := lookForQueue(q.Name, q.needAdvice())
			for _, b := range p.bindings {
				if b.Queue == q.Name {
					look = look.before(bind(b))
				}
			}
			steps = append(steps, look)
		}
	}
	for _, q := range p.queues {
		if q.Owner == owner {
			steps = append(steps, declareQueue(q))
		}
	}
	return steps
}

// needAdvice says what to do about a queue of others that is missing.
func (q plannedQueue) needAdvice() string {
	if q.role == letterRole {
		return "declare it, or its work queue, first"
	}
	return "declare it first, or leave Existing false"
}

// wiringSteps declares the exchanges of an owner, each with its bindings, and then
// binds what others declare. An exchange is there for messages as soon as it is
// declared, and before it is bound: so the one that it leaves them to then, its
// alternate, comes before it.
func (p Plan) wiringSteps(owner string) (steps []step) {
	own := map[string]bool{}
	for _, e := range p.exchanges {
		if e.Owner != owner {
			continue
		}
		own[e.Name] = true
		steps = append(steps, declareExchange(e))
		for _, b := range p.bindings {
			if b.Owner == owner && b.Exchange == e.Name {
				steps = append(steps, bind(b))
			}
		}
	}
	for _, b := range p.bindings {
		if b.Owner == owner && !own[b.Exchange] {
			steps = append(steps, bind(b))
		}
	}
	return steps
}

func declareExchange(e plannedExchange) step {
	return step{
		what:     fmt.Sprintf("declare exchange %q", e.Name),
		exchange: &e,
		call: func(ch *amqp.Channel, noWait bool) error {
			return ch.ExchangeDeclare(e.Name, e.Kind, true, false, false, noWait, e.Args)
		},
		explain: func(cause *amqp.Error) error { return refusal("exchange", e.Name, cause) },
	}
}

func declareQueue(q plannedQueue) step {
	return step{
		what:  fmt.Sprintf("declare queue %q", q.Name),
		queue: &q,
		call: func(ch *amqp.Channel, noWait bool) error {
			_, err := ch.QueueDeclare(q.Name, true, false, false, noWait, q.Args)
			return err
		},
		explain: func(cause *amqp.Error) error { return refusal("queue", q.Name, cause) },
	}
}

func lookForQueue(name, advice string) step {
	return step{
		what: fmt.Sprintf("look at queue %q", name),
		call: func(ch *amqp.Channel, noWait bool) error {
			_, err := ch.QueueDeclarePassive(name, true, false, false, noWait, nil)
			return err
		},
		explain: func(cause *amqp.Error) error { return missing("queue", name, advice, cause) },
	}
}

func lookForExchange(name, advice string) step {
	return step{
		what: fmt.Sprintf("look at exchange %q", name),
		call: func(ch *amqp.Channel, noWait bool) error {
			return ch.ExchangeDeclarePassive(name, amqp.ExchangeTopic, true, false, false, noWait, nil)
		},
		explain: func(cause *amqp.Error) error { return missing("exchange", name, advice, cause) },
	}
}

// before returns a look at what another step is for. The look needs any permission, and the other
// step a certain one.
func (s step) before(other step) step {
	explain := s.explain
	s.explain = func(cause *amqp.Error) error {
		if cause.Code == amqp.AccessRefused {
			return other.explain(cause)
		}
		return explain(cause)
	}
	return s
}

// boundExchanges looks for the exchanges that are bound to and not declared
// here, before anything is.
func (p Plan) boundExchanges() (steps []step) {
	for _, n := range p.boundTo() {
		steps = append(steps, lookForExchange(n.name, n.advice))
	}
	return steps
}

// boundTo returns the exchanges that are bound to and not declared here.
func (p Plan) boundTo() (list []need) {
	known := map[string]bool{}
	for _, e := range p.exchanges {
		known[e.Name] = true
	}
	for _, b := range p.bindings {
		if !known[b.Exchange] {
			known[b.Exchange] = true
			who := fmt.Sprintf("queue %q binds", b.Queue)
			if b.ToExchange != "" {
				who = fmt.Sprintf("%q is bound", b.Owner)
			}
			list = append(list, need{part{"exchange", b.Exchange},
				fmt.Sprintf("%s to it: declare it before, or in the same call (topology.Exchange{Name: %q})", who, b.Exchange)})
		}
	}
	return list
}

func bind(b plannedBinding) step {
	return step{
		what:    "bind " + b.describe(),
		binding: &b,
		call: func(ch *amqp.Channel, noWait bool) error {
			if b.ToExchange != "" {
				return ch.ExchangeBind(b.ToExchange, b.RoutingKey, b.Exchange, noWait, b.Args)
			}
			return ch.QueueBind(b.Queue, b.RoutingKey, b.Exchange, noWait, b.Args)
		},
		explain: func(cause *amqp.Error) error { return bindingRefusal(b, cause) },
	}
}

// caller does steps on one session, and on a new one after a refusal, which
// closes the channel.
type caller struct {
	ctx     context.Context
	conn    *connection.Conn
	session *connection.Session
}

func (c *caller) open() (err error) {
	if c.session == nil {
		c.session, err = c.conn.Session(c.ctx, connection.Consume)
	}
	return err
}

func (c *caller) close() {
	if c.session != nil {
		_ = c.session.Close() // nothing is in flight on it
		c.session = nil
	}
}

// pause waits, no longer than ctx.
func (c *caller) pause(d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-c.ctx.Done():
		return pause.Ended(c.ctx)
	}
}

// do runs a call and returns the broker's refusal apart from other errors.
func (c *caller) do(call func(*amqp.Channel) error) (refused *amqp.Error, err error) {
	if err := c.open(); err != nil {
		return nil, err
	}
	return c.result(c.session.Do(c.ctx, call))
}

// result returns what a call of the session has returned as do does.
func (c *caller) result(err error) (refused *amqp.Error, _ error) {
	if errors.Is(err, connection.ErrSessionLost) {
		// The refusal may have come while more was being sent.
		select {
		case <-c.session.Done():
			err = c.session.Err()
		case <-c.ctx.Done():
		}
	}
	if errors.As(err, &refused) && refused.Server && refused.Recover {
		c.close()
		return refused, nil
	}
	return nil, err
}

// all does the steps in one round trip. After a refusal it returns the step
// that was refused; those before it are done, and none after it.
func (c *caller) all(steps []step) (at step, refused *amqp.Error, err error) {
	if len(steps) == 0 {
		return step{}, nil, nil
	}
	refused, err = c.do(func(ch *amqp.Channel) error {
		for _, s := range steps {
			if err := s.call(ch, true); err != nil {
				return err
			}
		}
		return ch.Qos(1, 0, false) // its answer says that all before it is done
	})
	switch {
	case isUnknownKind(err):
		return step{}, nil, fmt.Errorf("topology: an Exchange.Kind is one that this broker does not have, want %q, %q, %q, %q or that of a plugin: %w",
			amqp.ExchangeTopic, amqp.ExchangeDirect, amqp.ExchangeFanout, amqp.ExchangeHeaders, err)
	case err != nil:
		return step{}, nil, fmt.Errorf("topology: %s and %d more: %w", steps[0].what, len(steps)-1, err)
	}
	if refused == nil {
		return step{}, nil, nil
	}
	if name, ok := refusedQueue(refused); ok {
		for _, s := range steps {
			if s.queue != nil && s.queue.Name == name {
				return s, refused, nil
			}
		}
	}
	return c.oneByOne(steps)
}

// isUnknownKind reports whether the broker ended the connection because of the kind
// of an exchange, as those of 3.x do: "unknown exchange type", and "invalid exchange type" once its plugin is disabled.
func isUnknownKind(err error) bool {
	var reason *amqp.Error
	return errors.As(err, &reason) && reason.Server && reason.Code == amqp.CommandInvalid && strings.Contains(reason.Reason, "exchange type")
}

// oneByOne does the steps one after the other, and so finds out which of them is
// refused.
func (c *caller) oneByOne(steps []step) (at step, refused *amqp.Error, err error) {
	for _, s := range steps {
		refused, err = c.do(func(ch *amqp.Channel) error { return s.call(ch, false) })
		if err != nil {
			return s, nil, fmt.Errorf("topology: %s: %w", s.what, err)
		}
		if refused != nil && s.mayBeAway && rehop.ClassOf(refused) == rehop.ClassTransient {
			continue
		}
		if refused != nil {
			return s, refused, nil
		}
	}
	return step{}, nil, nil
}
