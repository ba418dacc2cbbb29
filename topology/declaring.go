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
			if err := c.learnForm(d, plan, one, have); err != nil {
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

// learnForm finds out the form of a part, unless others declare it. A part that is gone by then is missing, and
// one that the user may not declare is unseen. A refusal of its form that cannot be read is an error: the part
// differs, and nothing tells in what.
func (c *caller) learnForm(d *declaration, p Plan, at part, have *observed) error {
	var err error
	for _, q := range p.queues {
		if at == (part{"queue", q.Name}) {
			have.queues[q.Name], err = c.formOfQueue(q)
		}
	}
	for _, e := range p.exchanges {
		if at == (part{"exchange", e.Name}) {
			have.exchanges[e.Name], err = c.formOfExchange(d.version, e, have)
		}
	}
	if err == nil {
		return nil
	}
	have.lose(at)
	var why *amqp.Error
	switch isRefusal := errors.As(err, &why) && why.Server && why.Recover; {
	case !isRefusal, why.Code == amqp.PreconditionFailed:
		return err
	case !ask.IsGone(why):
		have.parts[at] = true
		have.unseen = append(have.unseen, fmt.Sprintf("form of %s: %s", at, why.Reason))
	}
	return nil
}

// formOfQueue returns the form that a queue has, which the broker's refusals tell.
func (c *caller) formOfQueue(q plannedQueue) (management.Form, error) {
	form, args := management.Form{Name: q.Name, Durable: true}, q.Args
	refused, err := c.declareOnceMore(lookForQueue(q.Name, ""), declareQueue(q))
	switch {
	case err != nil:
		return form, err
	case refused == nil:
	case refused.Code == amqp.ResourceLocked:
		form.Exclusive = true
	case refused.Code == amqp.PreconditionFailed:
		switch argument, _ := flagIn(refused); argument {
		case "durable":
			form.Durable = false
		case "auto_delete":
			form.AutoDelete = true
		default:
			if args, err = c.argumentsOf(q, refused); err != nil {
				return form, err
			}
		}
	default:
		return form, refused
	}
	form.Arguments = asAnswer(args)
	form.Type, _ = args["x-queue-type"].(string)
	return form, nil
}

// formOfExchange returns the form that an exchange has. The broker names one difference, and one is enough: its
// form is that which is planned otherwise.
func (c *caller) formOfExchange(v connection.Version, e plannedExchange, have *observed) (management.Exchange, error) {
	form := management.Exchange{Name: e.Name, Type: e.Kind, Durable: true, Arguments: asAnswer(e.Args)}
	if !isKindOfAMQP(e.Kind) {
		var err error
		if form.Type, err = c.kindOf(e); err != nil || form.Type != e.Kind {
			return form, err
		}
		if !v.AtLeast(4, 0) {
			have.unseen = append(have.unseen, fmt.Sprintf("lifetime and alternate of exchange %q: its kind %s is that of a plugin, and a broker of 3.x that has it no longer would end the connection", e.Name, e.Kind))
			return form, nil
		}
	}
	declare := declareExchange(e)
	refused, err := c.declareOnceMore(lookForExchange(e.Name, ""), declare)
	switch {
	case err != nil:
		return form, err
	case refused == nil:
		return form, nil
	case refused.Code != amqp.PreconditionFailed:
		return form, refused
	}
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
		return form, declare.explain(refused)
	}
	return form, nil
}

func isKindOfAMQP(kind string) bool {
	return slices.Contains([]string{amqp.ExchangeTopic, amqp.ExchangeDirect, amqp.ExchangeFanout, amqp.ExchangeHeaders}, kind)
}

// kindOf returns the kind of an exchange that is planned as one of a plugin's kind. A broker of 3.x without that plugin
// ends the connection of whoever declares it, so it is declared as a fanout, which it is not: the refusal names the kind that it
// has. Of an exchange that has gone since the look nothing is made either, because the alternate is no name: the
// broker compares an exchange that exists, the kind first, and checks only a new one
// (3.10, 4.0, 4.3: TestKindsOfPlugins).
func (c *caller) kindOf(e plannedExchange) (string, error) {
	look := lookForExchange(e.Name, "")
	refused, err := c.declareOnceMore(look, declareExchange(plannedExchange{Name: e.Name, Kind: amqp.ExchangeFanout, Args: amqp.Table{"alternate-exchange": int32(0)}}))
	switch {
	case err != nil:
		return "", err
	case refused == nil:
		return amqp.ExchangeFanout, nil
	case refused.Code != amqp.PreconditionFailed:
		return "", refused
	}
	switch argument, value := flagIn(refused); argument {
	case "type":
		return value, nil
	case "":
		gone, err := c.do(func(ch *amqp.Channel) error { return look.call(ch, false) })
		if err == nil && gone == nil {
			err = refusal("exchange", e.Name, refused)
		} else if err == nil {
			err = gone
		}
		return "", err
	}
	return amqp.ExchangeFanout, nil // it differs in less
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
