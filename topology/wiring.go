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

// The exchanges of a work queue. What a message finds no binding for goes on to
// the alternate exchange: dead and retry to rest, ladder to first, first to rest.
func (w WorkQueue) deadExchange() string   { return w.Name + ".dead" }
func (w WorkQueue) ladderExchange() string { return w.Name + ".ladder" }
func (w WorkQueue) firstExchange() string  { return w.Name + ".first" }
func (w WorkQueue) retryExchange() string  { return w.Name + ".retry" }
func (w WorkQueue) restExchange() string   { return w.Name + ".rest" }

// rungKey is the routing key with which a message leaves the wait of a rung.
func (w WorkQueue) rungKey(rung int) string { return route.Key(w.Name, rung) }

func (w WorkQueue) exchanges(climbs bool) []PlannedExchange {
	alternate := func(name string) amqp.Table { return amqp.Table{"alternate-exchange": name} }
	list := []PlannedExchange{
		{Name: w.restExchange(), Kind: amqp.ExchangeFanout},
		{Name: w.retryExchange(), Kind: amqp.ExchangeHeaders, Args: alternate(w.restExchange())},
	}
	if !w.Existing {
		list = append(list, PlannedExchange{Name: w.deadExchange(), Kind: amqp.ExchangeHeaders, Args: alternate(w.restExchange())})
	}
	if climbs {
		list = append(list,
			PlannedExchange{Name: w.firstExchange(), Kind: amqp.ExchangeFanout, Args: alternate(w.restExchange())},
			PlannedExchange{Name: w.ladderExchange(), Kind: amqp.ExchangeDirect, Args: alternate(w.firstExchange())})
	}
	for i := range list {
		list[i].Owner = w.Name
	}
	return list
}

// wiring returns the bindings between the parts of w. They are only ever added,
// and each leads to the same place for ever, whatever schedule, engine or broker
// version it was planned for: so any number of processes may declare any number
// of versions of w, at the same time and in any order, and what one relies on is
// never taken away by another.
//
// A rung that Nack is false for has no binding: its queue is reached by its name.
func (w WorkQueue) wiring(climbs bool, rungs []route.Rung) []PlannedBinding {
	list := []PlannedBinding{
		{Exchange: w.restExchange(), Queue: w.DeadLetterQueue().Name},
		{Exchange: w.retryExchange(), Queue: w.Name, Args: matchAny},
	}
	if climbs {
		for i, r := range rungs {
			switch {
			case !r.Nack:
			case i == 0:
				list = append(list, PlannedBinding{Exchange: w.firstExchange(), Queue: r.Queue})
			default:
				list = append(list, PlannedBinding{Exchange: w.ladderExchange(), Key: w.rungKey(i), Queue: r.Queue})
			}
		}
		// Last: until then every death leads to the dead-letter queue.
		list = append(list, PlannedBinding{Exchange: w.deadExchange(), ToExchange: w.ladderExchange(), Args: matchRej})
	}
	for i := range list {
		list[i].Owner = w.Name
	}
	return list
}
