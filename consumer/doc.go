// Package consumer hands messages to a handler and settles them by the error that
// the handler returns.
//
//	[orders] --> handler --+-- nil, Discard -----------------> acked
//	                       +-- an error, RetryAfter ---------> waits in the broker --> [orders], the next attempt
//	                       +-- Snooze -----------------------> waits in the broker --> [orders], the same attempt
//	                       +-- Hold, HoldFor ----------------> held here, then handled again, the same attempt
//	                       +-- the last error, DeadLetter ---> [orders.dlq], with the reason in the headers
//
// A consumer needs a connection, a queue and a handler:
//
//	worker, err := consumer.New(conn, orders, func(ctx context.Context, d *consumer.Delivery) error {
//		return sendTicket(ctx, d.Body)
//	}, consumer.Config{Concurrency: 16})
//	err = worker.Run(ctx)
//
// A panic counts as an error. If the handler returns nil, its message is acked, even
// after the handler's timeout. [NewBatch] hands a handler several messages at once, and
// [Delivery.Fail] gives one of them an error of its own.
//
// The queue is a value of package [github.com/rehop/rehop/topology]. The pages [Retries],
// [Priorities], [Order] and [Batches] have more examples.
//
// # What is promised
//
// If a message fails, the consumer acks it only after the broker has confirmed its copy
// in the next place. Where the broker itself moves the message to the next place, the
// consumer nacks it. An ack before the confirm would lose messages. An ack after it can
// duplicate them: if the process or the connection dies between confirm and ack, the
// broker delivers the message again while its copy waits. Both have the same message id,
// so a handler must expect the same id twice.
//
// Where the broker would return messages from their waits without a confirm, the
// consumers return them (topology.EngineCarry). One consumer of each queue holds the
// messages that are due next, publishes each when it is due, and acks it in its wait
// queue after the confirm. If its process dies between confirm and ack, the message
// comes twice; if it dies earlier, another consumer takes over. Due times are compared
// with the local clock, so a difference between the clocks of two machines makes a wait
// longer or shorter by as much. While no consumer runs, nothing comes back.
//
// A delivery must be settled on the channel that it came from. If that channel closes,
// the broker delivers the message again.
//
// [Retries]: https://github.com/rehop/rehop/blob/main/docs/retries.md
// [Priorities]: https://github.com/rehop/rehop/blob/main/docs/priorities.md
// [Order]: https://github.com/rehop/rehop/blob/main/docs/order.md
// [Batches]: https://github.com/rehop/rehop/blob/main/docs/batches.md
package consumer
