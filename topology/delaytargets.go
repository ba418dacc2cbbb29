package topology

import (
	"fmt"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/internal/ask"
)

// checkTargets looks at the foreign queues that messages are to be delayed to,
// before anything is declared.
func (d *declaration) checkTargets(c *caller) error {
	for _, planned := range d.plan.delays {
		for _, name := range planned.others {
			if err := c.checkTarget(name); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkTarget returns an error if the queue does not exist, or may refuse what is
// delivered to it. A policy that limits it cannot be seen, and neither can the
// arguments without permission to configure the queue.
func (c *caller) checkTarget(name string) error {
	q := plannedQueue{Name: name, Args: amqp.Table{"x-queue-type": string(Quorum)}}
	look := lookForQueue(name, targetAdvice)
	refused, err := c.do(func(ch *amqp.Channel) error { return look.call(ch, false) })
	switch {
	case err != nil:
		return fmt.Errorf("topology: %s: %w", look.what, err)
	case refused != nil && ask.IsGone(refused):
		return look.explain(refused)
	case refused != nil:
		return nil // its node is down, or the user may not look
	}
	refused, err = c.do(func(ch *amqp.Channel) error { return declareQueue(q).call(ch, false) })
	if err != nil {
		return fmt.Errorf("topology: look at queue %q: %w", name, err)
	}
	if refused == nil {
		return nil
	}
	if difference, ok := differenceIn(refused); !ok || !strings.HasPrefix(difference.argument, "x-") {
		return nil
	}
	args, err := c.argumentsOf(q, refused)
	if err != nil {
		return err
	}
	return targetRefusal(name, args)
}

// targetAdvice is for a target that is missing, targetRemedy for one that may refuse
// messages, and targetHarm is what such a target does.
const (
	targetAdvice = "declare it before messages are delayed to it"
	targetRemedy = "leave it out of the targets, or declare it without a limit or with overflow drop-head"
	targetHarm   = "when it is full it would hold up the delayed messages of all other targets"
)

// targetRefusal returns an error if a queue with these arguments may refuse what
// is delivered to it.
func targetRefusal(name string, args amqp.Table) error {
	limit, overflow, refuses := refusesTarget(args)
	if !refuses {
		return nil
	}
	return rehop.WithClass(fmt.Errorf("topology: Delays: queue %q has %s and overflow %s: %s; %s", name, limit, overflow, targetHarm, targetRemedy), rehop.ClassConfiguration)
}

// refusesTarget reports whether a queue with these arguments may refuse what is delivered
// to it. The broker then keeps what it cannot deliver at the end of the level, and with 32
// such messages delivers nothing more out of it.
func refusesTarget(args amqp.Table) (limit, overflow string, refuses bool) {
	overflow, _ = args["x-overflow"].(string)
	for _, name := range []string{"x-max-length", "x-max-length-bytes"} {
		if n, limited := args[name]; limited && strings.HasPrefix(overflow, rejectPublish) {
			return fmt.Sprintf("%s %v", name, n), overflow, true
		}
	}
	return "", overflow, false
}
