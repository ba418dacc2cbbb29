package topology

import (
	"context"
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/route"
)

// Resolve returns the route of a source of one queue.
func Resolve(ctx context.Context, conn *connection.Conn, source any) (route.Facts, error) {
	s, err := route.Of(source)
	if err != nil {
		return route.Facts{}, err
	}
	if len(s.Routes) != 1 {
		return route.Facts{}, fmt.Errorf("%d routes", len(s.Routes))
	}
	return s.Routes[0].Broker.Resolve(ctx, conn)
}

// WaitsAt returns the queues that the waits of a route are in.
func WaitsAt(r route.Facts) (queues []string) {
	for _, w := range r.Waits {
		queues = append(queues, w.At.RoutingKey)
	}
	return queues
}

// The parts of a plan.
func PlannedQueues(p Plan) []plannedQueue       { return p.queues }
func PlannedExchanges(p Plan) []plannedExchange { return p.exchanges }
func PlannedBindings(p Plan) []plannedBinding   { return p.bindings }

// Calls returns what a declaration of the plan calls, in its order.
func Calls(p Plan) (calls []func(*amqp.Channel) error, what []string) {
	for _, s := range p.steps() {
		calls, what = append(calls, func(ch *amqp.Channel) error { return s.call(ch, false) }), append(what, s.what)
	}
	return calls, what
}
