// Package rehop is the page to begin with; it holds no code. The SDK gives
// services on RabbitMQ retries, delays and dead letters that are right on
// every broker from 3.10 to 4.3.
//
// # What a service writes
//
// It opens a connection, declares its topology, publishes through a producer
// and handles through a consumer; the example of this package, example_test.go,
// is the whole of it. A service that needs only half uses only that package.
//
// # What is promised
//
//   - A message that a producer was told is safe is not lost by the SDK: it is
//     confirmed by its queues, or in a fallback, before Publish returns nil.
//   - A failure of a handler does not lose the message: it is acked only after
//     its next place has confirmed it, or the broker itself moves it. Excepted
//     are a broker that is killed and queues where it moves messages without a
//     confirm of its own, that is classic queues, and all queues on 3.x: what has
//     just come back from a wait, or went to the dead-letter queue out of a crash
//     loop or by a nack as the last resort, is not safe on disk at once.
//   - Attempts are counted alike on 3.10, 4.0 and 4.3, whatever way the message
//     took. A crash or a lost connection spends none.
//   - A wait is never cut short, whatever waits beside it.
//   - Delivery is at-least-once. A duplicate carries the message id of its
//     original; package consumer says where they come from.
//
// Not promised: exactly-once, the order of messages across a retry, anything on
// transient queues.
//
// # Where to read on
//
//   - [github.com/rehop/rehop/topology]: what exists on the broker, and the
//     drawing of it
//   - [github.com/rehop/rehop/delay]: how long until the next attempt
//   - [github.com/rehop/rehop/producer] and
//     [github.com/rehop/rehop/consumer]: publish and handle
//   - [github.com/rehop/rehop/connection]: stays connected
//   - [github.com/rehop/rehop/xdeath]: what the headers say of a message's past
package rehop
