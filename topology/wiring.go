package topology

import (
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/internal/route"
)

// Binding arguments of the headers exchanges. all-with-x is what looks at
// headers that begin with "x-"; x-last-death-reason exists from 3.13 on.
var (
	matchAny = amqp.Table{"x-match": "all"}
	matchRej = amqp.Table{"x-match": "all-with-x", "x-last-death-reason": "rejected"}
)

// The exchanges of a work queue. The table of [WorkQueue.wiring] says where each
// leads.
func (w WorkQueue) dlxExchange() string         { return w.Name + ".rehop.dlx" }
func (w WorkQueue) delayExchange() string       { return w.Name + ".rehop.delay" }
func (w WorkQueue) firstDelayExchange() string  { return w.Name + ".rehop.delay.first" }
func (w WorkQueue) spareDelayExchange() string  { return w.Name + ".rehop.delay.spare" }
func (w WorkQueue) returnExchange() string      { return w.Name + ".rehop.return" }
func (w WorkQueue) spareReturnExchange() string { return w.Name + ".rehop.return.spare" }
func (w WorkQueue) unroutedExchange() string    { return w.Name + ".rehop.unrouted" }

// exchanges are all that a work queue of this name has, whatever its engine.
func (w WorkQueue) exchanges() []string {
	return []string{w.dlxExchange(), w.delayExchange(), w.firstDelayExchange(), w.spareDelayExchange(), w.returnExchange(), w.spareReturnExchange(), w.unroutedExchange()}
}

// waitKey is the routing key with which a message leaves a wait.
func (w WorkQueue) waitKey(waitNumber int) string { return route.Key(w.Name, waitNumber) }

// wiring adds the exchanges between the parts of w, each with its bindings, to a
// plan. They are only ever added, and each binding leads to the same place for
// ever, whatever schedule, engine or broker version it was planned for: so any number
// of processes may declare any number of versions of w, at the same time and in any
// order, and what one relies on is never taken away by another.
//
// An exchange without bindings leaves its messages to its alternate:
//
//	exchange      leads to                                  alternate      comes from
//	return        the work queue                            return.spare   waits
//	return.spare  the work queue                            unrouted
//	dlx           delay, what was rejected                  delay.spare    the work queue
//	delay         wait k+1, what comes with the key of k    delay.first
//	delay.first   wait 1                                    delay.spare
//	delay.spare   wait 1, what was rejected                 unrouted
//	unrouted      the dead-letter queue
//
// Each exchange comes before its alternate, so that an exchange leads on by its own
// bindings before there is an alternate that a message could come to. A message that
// meets an exchange which leads nowhere yet is kept where it is, as while the exchange
// was missing. So no message with attempts left meets one that leads to the dead-letter
// queue because it was only just made: not in a first declaration, and not in one that
// puts back whatever parts somebody has deleted. A message that finds no way to its own
// wait goes to wait 1, and the consumer sees then that it has waited too little.
//
// Where the consumers send copies to the waits, dlx and delay.spare have no
// bindings, and delay and delay.first are not needed. A wait that a nack does not
// lead to has no binding: its queue is reached by its name.
func (w WorkQueue) wiring(b *builder, nacks bool, e PlannedEngine) {
	exchange := func(name, kind, alternate string, bindings ...plannedBinding) {
		x := plannedExchange{Name: name, Kind: kind, Owner: w.Name}
		if alternate != "" {
			x.Args = amqp.Table{"alternate-exchange": alternate}
		}
		b.exchange(x)
		for _, bound := range bindings {
			bound.Exchange, bound.Owner = name, w.Name
			b.bind(bound)
		}
	}
	exchange(w.returnExchange(), amqp.ExchangeHeaders, w.spareReturnExchange(), plannedBinding{Queue: w.Name, Args: matchAny})
	exchange(w.spareReturnExchange(), amqp.ExchangeFanout, w.unroutedExchange(), plannedBinding{Queue: w.Name})
	if !w.Existing {
		w.wayToWaits(exchange, nacks, e)
	}
	exchange(w.unroutedExchange(), amqp.ExchangeFanout, "", plannedBinding{Queue: w.DeadLetterQueue().Name})
}

// wayToWaits adds the exchanges between w and its waits.
func (w WorkQueue) wayToWaits(exchange func(name, kind, alternate string, bindings ...plannedBinding), nacks bool, e PlannedEngine) {
	var spare, first, later, rejected []plannedBinding
	if nacks {
		for i, queue := range e.Waits {
			switch {
			case !e.nacks[i]:
			case i == 0:
				spare = append(spare, plannedBinding{Queue: queue, Args: matchRej})
				first = append(first, plannedBinding{Queue: queue})
			default:
				later = append(later, plannedBinding{RoutingKey: w.waitKey(i), Queue: queue})
			}
		}
		rejected = append(rejected, plannedBinding{ToExchange: w.delayExchange(), Args: matchRej})
	}
	if nacks { // the exchange that dlx is bound to comes before the binding
		exchange(w.delayExchange(), amqp.ExchangeDirect, w.firstDelayExchange(), later...)
		exchange(w.firstDelayExchange(), amqp.ExchangeFanout, w.spareDelayExchange(), first...)
	}
	exchange(w.dlxExchange(), amqp.ExchangeHeaders, w.spareDelayExchange(), rejected...)
	exchange(w.spareDelayExchange(), amqp.ExchangeHeaders, w.unroutedExchange(), spare...)
}
