// Package consumer hands messages to a handler and settles them by what it
// returns.
//
//	worker, err := consumer.New(conn, orders, func(ctx context.Context, d *consumer.Delivery) error {
//		return sendTicket(ctx, d.Body)
//	}, consumer.Config{Concurrency: 16})
//	err = worker.Run(ctx)
//
// nil acks, also after the handler's timeout. An error or a panic is a failed
// attempt: the message waits and comes back, and when no attempt is left it goes to
// the dead-letter queue, with the reason and the error in its headers. An error that
// [DeadLetter], [RetryAfter], [Unavailable] or [Discard] has made says otherwise.
// [NewBatch] hands a handler several messages at once.
//
// # What is promised
//
// A message that failed is acked only after the broker has confirmed its copy
// in the next place, or it is nacked where the broker itself brings it there.
// The other order would lose messages; this one can double them: when the
// process or the connection dies between confirm and ack, the message is
// delivered again while its copy waits. Both carry the same message id. A
// handler must therefore be able to meet the same id twice.
//
// Where the broker would bring a message back from its wait unconfirmed, the
// consumers do (topology.EngineCarry): one of all that run for a queue holds what is due
// next, publishes it when it is due, and acks it in the wait when that is
// confirmed. When its process dies in between, the message comes twice; when it
// dies before, another one takes over. Due times are compared with the local
// clock: clocks of two machines that are apart make a wait longer or shorter by as
// much. While no consumer runs, nothing comes back.
//
// A delivery is settled on the session it came from or not at all.
package consumer
