// Package consumer hands messages to a handler and settles them by the error that it
// returns.
//
//	worker, err := consumer.New(conn, orders, func(ctx context.Context, d *consumer.Delivery) error {
//		return sendTicket(ctx, d.Body)
//	}, consumer.Config{Concurrency: 16})
//	err = worker.Run(ctx)
//
// nil acks, also after the handler's timeout. An error or a panic is a failed attempt:
// the message waits and comes back, and when no attempt is left it goes to the
// dead-letter queue, with the reason and the error in its headers. An error of
// [DeadLetter], [RetryAfter], [Unavailable], [Snooze] or [Discard] has another outcome.
// [NewBatch] hands a handler several messages at once.
//
// # What is promised
//
// The consumer acks a message that failed only after the broker has confirmed its copy
// in the next place. Where the broker itself moves the message to the next place, the
// consumer nacks it. To ack before the confirm would lose messages. To ack after it can
// double them: when the process or the connection dies between confirm and ack, the
// message is delivered again while its copy waits. Both carry the same message id, so a
// handler must be able to meet the same id twice.
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
package consumer
