// Package topology says what exists on the broker: a specification becomes a
// plan, and a plan is declared.
//
//	orders := topology.WorkQueue{
//		Name:     "orders",
//		Bindings: []topology.Binding{{Exchange: "shop", Key: "order.#"}},
//		Waits:    delay.Default(),
//	}
//	err := topology.Declare(ctx, conn, topology.Exchange{Name: "shop"}, orders)
//
// # What a work queue consists of
//
// A [WorkQueue] named orders with four waits owns five more queues and four
// exchanges:
//
//	producer -> shop -> [orders] --DLX--> orders.dead (headers)   reason = rejected --> orders.ladder
//	                                        alternate: orders.rest
//	orders.ladder (direct)   orders@1 --> [orders.wait.2]  ...  orders@4 --> [orders.dlq]
//	                                        alternate: orders.retry
//	[orders.wait.k] --TTL, key orders@k--> orders.retry (headers) reason = expired  --> [orders]
//	                                        alternate: orders.rest reason = rejected --> [orders.wait.1]
//	orders.rest (fanout) --> [orders.dlq]
//
// That is the wiring of the [Ladder] engine. Under [Republish] the same queues
// and exchanges exist, orders.dead has no binding, so that every death ends in
// orders.dlq, and orders.retry hands everything to orders.
//
// [NewPlan] and the Plan methods do no I/O: every part can be printed before
// anything is declared. [Declare] makes a plan true and may be repeated at
// every start.
package topology
