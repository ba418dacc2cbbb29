// Package rehop is the overview of an SDK for services on RabbitMQ. It holds no
// code. The SDK gives services retries, delays and dead letters that work on
// every broker from 3.10 to 4.3.
//
// # What a service writes
//
// A service opens a connection, declares its topology, publishes through a
// producer and handles through a consumer. The example of this package is a
// complete one. A service that only publishes, or only consumes, uses only that
// package.
//
// # What is promised
//
//   - A message is safe when Publish returns nil: its queues have confirmed it,
//     or a fallback has it.
//   - A message whose handler fails is not lost. It is acked after its next place
//     has confirmed it, or the broker moves it at-least-once. The exception is
//     what a broker moves without a confirm of its own, if the broker is killed at
//     that moment: on 3.x and on classic queues, messages that expire in the work
//     queue or pass its delivery limit; on 3.x, messages in waits with a TTL, which
//     the default there does without.
//   - Attempts are counted in the same way on 3.10, 4.0 and 4.3, whatever way the
//     message took. A crash or a lost connection spends no attempt.
//   - A wait is never cut short, whatever waits beside it.
//   - Delivery is at-least-once. A duplicate has the message id of its original.
//     Package consumer says where duplicates come from.
//
// rehop does not promise exactly-once delivery, the order of messages across a
// retry, or anything about transient queues.
//
// # Where to read on
//
//   - [github.com/rehop/rehop/topology]: what exists on the broker, and the
//     drawing of it
//   - [github.com/rehop/rehop/delay]: how long until the next attempt
//   - [github.com/rehop/rehop/producer] and
//     [github.com/rehop/rehop/consumer]: publish and handle
//   - [github.com/rehop/rehop/connection]: stays connected
//   - [github.com/rehop/rehop/store]: keeps messages in a SQL database, while
//     the broker is away or until a person has looked at them
//   - [github.com/rehop/rehop/rehoptest]: a broker in the process, for tests
//   - [github.com/rehop/rehop/xdeath]: what the headers say about a message's past
package rehop
