// Package topology describes what exists on the broker. A specification becomes
// a plan, and the plan is declared.
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
// A [WorkQueue] named orders with four waits owns five more queues and five
// exchanges:
//
//	producer -> shop -> [orders] --DLX--> orders.dead (headers)   reason = rejected --> orders.ladder
//	                                        alternate: orders.rest
//	orders.ladder (direct)   orders@1 --> [orders.wait.2]  ...  orders@3 --> [orders.wait.4]
//	                                        alternate: orders.first
//	orders.first (fanout) --> [orders.wait.1]                     alternate: orders.rest
//	[orders.wait.k] --TTL, key orders@k--> orders.retry --> [orders]
//	                                        alternate: orders.rest
//	orders.rest (fanout) --> [orders.dlq]
//
// Every quorum queue of broker 4.0 or later has this wiring, whether its consumers
// nack (the engine [Ladder]) or send copies ([Republish]). On a classic queue, on
// a broker of 3.x and under [Carry] orders.dead has no binding, and every dead
// letter of the broker ends in orders.dlq. Under Carry the waits have no TTL, and
// the consumers publish what is due to orders.retry.
//
// # Several versions of a work queue
//
// Processes may declare one work queue with different waits, engines or bindings,
// at the same time and in any order. [Declare] only adds, and what it adds never
// changes where it leads. A wait queue keeps the wait with which it was declared
// first. A version with another wait in that rung gets a queue of its own beside
// it (orders.wait.2.3m), which its consumers reach by name. So the process in
// which a message failed decides how long the message waits. Under [Carry] the
// queues of a rung are numbered (orders.wait.2, orders.wait.2.2), and the consumers
// of every version look for all of them; delete the one with the highest number
// first.
//
// # Plans
//
// [NewPlan] and the Plan methods do no I/O, so every part can be printed before
// anything is declared. [Declare] carries out a plan, and may be repeated at every
// start.
package topology
