// Package topology declares queues, exchanges and bindings on the broker: a work queue with
// its waits and its dead-letter queue, lanes, shards, and exact delays.
//
//	producer --> shop --> [orders] --> consumer --+-- done
//	                         ^                    +-- given up --> [orders.dlq]
//	                         |                    +-- failed ----> [orders.wait.1] ... [orders.wait.4] --+
//	                         |                                                                           |
//	                         +-------------------------- when the wait is over --------------------------+
//
// A program declares its queues at each start:
//
//	orders := topology.WorkQueue{
//		Name:     "orders",
//		Bindings: []topology.Binding{{Exchange: "shop", RoutingKey: "order.#"}},
//		Waits:    delay.Default(),
//	}
//	err := topology.Declare(ctx, conn, topology.Exchange{Name: "shop"}, orders)
//
// [Lanes] are a work queue for each class of messages. [Shards] spread a work queue over several
// queues by the OrderKey of its messages. [Delays] declare exact delays, by
// which a message reaches its queue at a later time. A consumer takes the same value: see package
// [github.com/rehop/rehop/consumer]. The waits are a value of package
// [github.com/rehop/rehop/delay]. The pages [Retries], [Priorities], [Delays of
// messages] and [Changes] have more examples.
//
// # The parts of a work queue
//
// A [WorkQueue] named orders with four waits owns five more queues and seven
// exchanges. A name in brackets is a queue:
//
//	producer -> shop -> [orders] --DLX--> orders.rehop.dlx (headers)   reason = rejected --> orders.rehop.delay
//	                                        alternate: orders.rehop.delay.spare
//	orders.rehop.delay (direct)   orders@1 --> [orders.wait.2]  ...  orders@3 --> [orders.wait.4]
//	                                        alternate: orders.rehop.delay.first
//	orders.rehop.delay.first (fanout) --> [orders.wait.1]                     alternate: orders.rehop.delay.spare
//	orders.rehop.delay.spare (headers)   reason = rejected --> [orders.wait.1]   alternate: orders.rehop.unrouted
//	[orders.wait.k] --TTL, key orders@k--> orders.rehop.return --> [orders]
//	                                        alternate: orders.rehop.return.spare
//	orders.rehop.return.spare (fanout) --> [orders]                           alternate: orders.rehop.unrouted
//	orders.rehop.unrouted (fanout) --> [orders.dlq]
//
// Every quorum queue of broker 4.0 or later has this wiring, whether its consumers nack
// (the engine [EngineNack]) or send copies ([EngineRepublish]). On a classic queue, on a
// broker of 3.x and under [EngineCarry], orders.rehop.dlx and orders.rehop.delay.spare
// have no binding, and every dead letter of the broker ends in orders.dlq. Under
// EngineCarry the waits have no TTL, and the consumers publish messages that are due to
// orders.rehop.return.
//
// The two spare exchanges take the messages that come while an exchange has no binding,
// because somebody has deleted it and [Declare] is about to bind it again. A message with
// attempts left then goes on to its work queue, or to the first wait, and never to
// orders.dlq. If the work queue is gone, messages whose wait is over go to orders.dlq.
//
// # Several versions of a work queue
//
// Processes may declare one work queue with different waits, engines or bindings, at
// the same time and in any order. [Declare] only adds parts, and each part leads to the
// same place for ever. A wait queue keeps the wait with which it was declared first. A
// version with another wait for that number gets a wait queue of its own
// (orders.wait.2.3m), which its consumers reach by name. So the process in which a
// message failed decides how long the message waits. Under [EngineCarry] the queues for
// the waits of one number are numbered (orders.wait.2, orders.wait.2.2), and the
// consumers of every version look for all of them; delete the one with the highest
// number first.
//
// # Plans
//
// [NewPlan] does no I/O, so every part can be printed before anything is declared.
// [Declare] carries out a plan, and may be repeated at every start. [Verify] compares the
// plan with the broker, and changes nothing: see the page [Verification].
//
// [Verification]: https://github.com/rehop/rehop/blob/main/docs/verify.md
// [Retries]: https://github.com/rehop/rehop/blob/main/docs/retries.md
// [Priorities]: https://github.com/rehop/rehop/blob/main/docs/priorities.md
// [Delays of messages]: https://github.com/rehop/rehop/blob/main/docs/delays.md
// [Changes]: https://github.com/rehop/rehop/blob/main/docs/changes.md
package topology
