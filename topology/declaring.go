package topology

import (
	"errors"
	"fmt"
	"slices"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/ask"
	"github.com/rehop/rehop/internal/management"
)

// learnForms finds out the forms of the queues and exchanges of a plan by AMQP alone: it declares each that
// exists once more, in the form that is planned, and the refusals of the broker tell what differs.
func (c *caller) learnForms(d *declaration, have *observed) error {
	have.queues, have.exchanges, have.vhost = map[string]management.Form{}, map[string]management.Exchange{}, d.have.vhost
	asked := map[part]bool{}
	for {
		plan, _, err := settled(d.version, d.specs, *have)
		if err != nil {
			return err
		}
		at := slices.IndexFunc(plan.parts(), func(at part) bool { return !asked[at] })
		if at < 0 {
			have.unseen = append(have.unseen, plan.unseenTargets(have.parts)...)
			return nil
		}
		one := plan.parts()[at]
		asked[one] = true
		if _, looked := have.parts[one]; !looked { // a declaration would end with it, and not begin
			more, err := c.look([]part{one})
			if err != nil {
				return err
			}
			have.parts[one] = more.parts[one]
			have.unseen = append(have.unseen, more.unseen...)
		}
		if have.parts[one] {
			if err := c.learnForm(plan, one, have); err != nil {
				return err
			}
		}
	}
}

// unseenTargets says that queues which messages are delayed to may refuse them.
func (p Plan) unseenTargets(exist map[part]bool) (unseen []string) {
	for _, d := range p.delays {
		for _, name := range d.others {
			line := fmt.Sprintf("arguments of queue %q, which messages are delayed to: others declare it", name)
			if exist[part{"queue", name}] && !slices.Contains(unseen, line) {
				unseen = append(unseen, line)
			}
		}
	}
	return unseen
}

// learnForm finds out the form of a part, unless others declare it.
func (c *caller) learnForm(p Plan, at part, have *observed) error {
	for _, q := range p.queues {
		if at == (part{"queue", q.Name}) {
			return c.learnQueue(q, have)
		}
	}
	for _, e := range p.exchanges {
		if at == (part{"exchange", e.Name}) {
			return c.learnExchange(e, have)
		}
	}
	return nil
}

func (c *caller) learnQueue(q plannedQueue, have *observed) error {
	at := part{"queue", q.Name}
	refused, err := c.declareOnceMore(lookForQueue(q.Name, ""), declareQueue(q))
	form := management.Form{Name: q.Name, Durable: true}
	args := q.Args
	switch {
	case err != nil:
		return err
	case refused == nil:
	case ask.IsGone(refused):
		have.lose(at)
		return nil
	case refused.Code == amqp.ResourceLocked:
		form.Exclusive = true
	case refused.Code == amqp.PreconditionFailed:
		switch argument, _ := flagIn(refused); argument {
		case "durable":
			form.Durable = false
		case "auto_delete":
			form.AutoDelete = true
		default:
			var why *amqp.Error
			switch args, err = c.argumentsOf(q, refused); {
			case err == nil:
			case errors.Is(err, connection.ErrSessionLost), !errors.As(err, &why):
				return err
			case ask.IsGone(why):
				have.lose(at)
				return nil
			default:
				have.unseen = append(have.unseen, fmt.Sprintf("arguments of %s: %s", at, why.Reason))
				return nil
			}
		}
	default:
		have.unseen = append(have.unseen, fmt.Sprintf("arguments of %s: %s", at, refused.Reason))
		return nil
	}
	form.Arguments = asAnswer(args)
	form.Type, _ = args["x-queue-type"].(string)
	have.queues[q.Name] = form
	return nil
}

// learnExchange finds out the form of an exchange. The broker names one difference, and one is enough: its
// form is that which is planned otherwise.
func (c *caller) learnExchange(e plannedExchange, have *observed) error {
	at := part{"exchange", e.Name}
	if !slices.Contains([]string{amqp.ExchangeTopic, amqp.ExchangeDirect, amqp.ExchangeFanout, amqp.ExchangeHeaders}, e.Kind) {
		have.unseen = append(have.unseen, fmt.Sprintf("form of %s: its kind %s is that of a plugin, and a broker of 3.x without it would end the connection", at, e.Kind))
		return nil
	}
	refused, err := c.declareOnceMore(lookForExchange(e.Name, ""), declareExchange(e))
	form := management.Exchange{Name: e.Name, Type: e.Kind, Durable: true, Arguments: asAnswer(e.Args)}
	switch {
	case err != nil:
		return err
	case refused == nil:
	case ask.IsGone(refused):
		have.lose(at)
		return nil
	case refused.Code == amqp.PreconditionFailed:
		switch argument, value := flagIn(refused); argument {
		case "type":
			form.Type = value
		case "durable":
			form.Durable = false
		case "auto_delete":
			form.AutoDelete = true
		case "internal":
			form.Internal = true
		case "alternate-exchange":
			form.Arguments = map[string]any{}
			if value != none {
				form.Arguments["alternate-exchange"] = value
			}
		default:
			have.unseen = append(have.unseen, fmt.Sprintf("form of %s: %s", at, refused.Reason))
			return nil
		}
	default:
		have.unseen = append(have.unseen, fmt.Sprintf("form of %s: %s", at, refused.Reason))
		return nil
	}
	have.exchanges[e.Name] = form
	return nil
}

// declareOnceMore declares a part that exists. Behind the look, on one channel, nothing is made of a part that is
// gone; somebody else may delete it between the two, and then it is made.
func (c *caller) declareOnceMore(look, declare step) (*amqp.Error, error) {
	refused, err := c.do(func(ch *amqp.Channel) error {
		if err := look.call(ch, true); err != nil {
			return err
		}
		return declare.call(ch, false)
	})
	if err != nil {
		err = fmt.Errorf("topology: %s: %w", declare.what, err)
	}
	return refused, err
}

// flagIn returns what the text of a 406 says: the argument that differs, and its value.
func flagIn(refused *amqp.Error) (argument, value string) {
	m := inequivalent.FindStringSubmatch(refused.Reason)
	if m == nil {
		return "", ""
	}
	return m[1], plainValue(m[4])
}
