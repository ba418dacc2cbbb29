// Package rehop is the overview of an SDK for services on RabbitMQ, and has the words that
// all its packages share: a [Cause] says why a message was given up, a [Class] says how an
// error can go away, and a [HealthError] says what does not work. The SDK gives services
// retries, delays and dead letters that work on every broker from 3.10 to 4.3.
//
//	producer --> exchange --> [orders] --> consumer: your handler
//	                             ^              |
//	                             |              +-- an error -------> waits 1, 5, 10, 20 minutes --+
//	                             |              +-- the last error -> [orders.dlq]                 |
//	                             |                                                                 |
//	                             +-----------------------------------------------------------------+
//
//	conn, err := connection.Open(ctx, connection.Config{URLs: []string{"amqp://guest:guest@localhost"}})
//	orders := topology.WorkQueue{Name: "orders", Waits: delay.Default()}
//	err = topology.Declare(ctx, conn, orders)
//	worker, err := consumer.New(conn, orders, handle, consumer.Config{})
//	err = worker.Run(ctx)
//
// # The parts of a service
//
// A service opens a connection, declares its topology, publishes through a
// producer and handles messages in a consumer. The example of this package is a
// complete service. A service that only publishes needs no consumer, and one
// that only consumes needs no producer.
//
// # The promises
//
//   - A message is safe when Publish returns nil: its queues have confirmed it,
//     or a fallback has it.
//   - A message whose handler fails is not lost. The consumer acks it after its
//     next place has confirmed it, or the broker moves it at-least-once. A broker
//     moves some messages without waiting for a confirm, and can lose them if it is
//     killed at that moment: on 3.x and on classic queues, messages that expire in
//     the work queue or pass its delivery limit; on 3.x, messages in waits with a
//     TTL, which are not the default there.
//   - Attempts are counted in the same way on 3.10, 4.0 and 4.3, whichever path a
//     message takes. A crash or a lost connection spends no attempt.
//   - An attempt does not start before its wait has ended, except by the difference
//     between the clocks of two machines. Messages with longer waits do not delay it.
//   - Delivery is at-least-once. A duplicate has the message id of its original.
//     Package consumer says where duplicates come from.
//
// rehop does not promise exactly-once delivery, the order of messages across a
// retry, or anything about transient queues.
//
// # Where to read on
//
//   - [github.com/rehop/rehop/topology]: the exchanges and queues on the broker,
//     with a drawing
//   - [github.com/rehop/rehop/delay]: how long until the next attempt
//   - [github.com/rehop/rehop/producer] and
//     [github.com/rehop/rehop/consumer]: publish and handle
//   - [github.com/rehop/rehop/connection]: stays connected
//   - [github.com/rehop/rehop/service]: runs and stops the parts of a program together
//   - [github.com/rehop/rehop/store]: keeps messages in a SQL database, while
//     the broker is away or until a person has looked at them
//   - [github.com/rehop/rehop/desk] and [github.com/rehop/rehop/desk/web]: show dead
//     letters to a person, and send them back; a module of its own
//   - [github.com/rehop/rehop/otel]: metrics and traces
//   - [github.com/rehop/rehop/rehoptest]: a broker in the process, for tests
//   - [github.com/rehop/rehop/xdeath]: reads the past of a message from its headers
//
// The page [Start] leads to a first program.
//
// [Start]: https://github.com/rehop/rehop/blob/main/docs/start.md
package rehop
