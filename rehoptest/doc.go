// Package rehoptest provides an in-process RabbitMQ for tests, as
// net/http/httptest provides a web server.
//
//	a bubble of testing/synctest, which Test makes
//	+-------------------------------------------------------------------+
//	|  your producers and consumers --- Conn --- Broker.Dial --- Broker |
//	|                                                                   |
//	|  time.Sleep(36 * time.Minute) takes milliseconds                  |
//	+-------------------------------------------------------------------+
//
// A [Broker] speaks AMQP 0-9-1 as RabbitMQ 3.10, 4.0 or 4.3 does. Give its Dial to a
// connection.Config. Producers, consumers and topologies then run against it
// without a port and without Docker. In a bubble of testing/synctest they run
// without waiting: minutes between attempts pass in milliseconds. [Test] makes such
// a bubble with a broker, and [Run] runs a consumer in it until the test ends:
//
//	rehoptest.Test(t, rehoptest.Config{Version: "4.3"}, func(t *testing.T, broker *rehoptest.Broker) {
//		conn, err := connection.Open(ctx, connection.Config{
//			URLs: []string{"amqp://guest:guest@broker"},
//			Dial: broker.Dial,
//		})
//		// ... declare, publish
//		rehoptest.Run(t, worker.Run)
//		time.Sleep(36*time.Minute + time.Second) // of the bubble
//		synctest.Wait()
//		letters, _ := broker.Queue("orders.dlq")
//	})
//
// Story returns the path of a message through the broker, for a failing test to print.
// Listen opens a port, for other programs and other client libraries. The page [Testing]
// has more examples.
//
// # Tests to copy
//
// The file example_test.go has such tests in full. While the broker is away, a producer's
// fallback takes over:
//
//	broker.Kill()
//	receipt, err := publisher.Publish(ctx, order) // of a producer with Timeout and Fallback
//	if err != nil || receipt.Place != producer.PlaceFallback {
//		t.Errorf("while the broker is away: %v in %v", err, receipt.Place)
//	}
//	broker.Start()
//	time.Sleep(time.Minute) // it is found again
//	receipt, err = publisher.Publish(ctx, order)
//	if err != nil || receipt.Place != producer.PlaceQueue {
//		t.Errorf("when it is back: %v in %v", err, receipt.Place)
//	}
//
// A roll-out in the middle of a wait counts attempts on:
//
//	stop := rehoptest.Run(t, old.Run)
//	time.Sleep(3 * time.Minute) // failed at 0 and 1 min; waits for 5 min more
//	stop()
//	rehoptest.Run(t, newVersion.Run)
//	time.Sleep(4 * time.Minute)
//	synctest.Wait()
//	if attempt != 3 {
//		t.Errorf("the new version saw attempt %d, want 3:\n%s", attempt, broker.Story(id))
//	}
//
// # Features
//
// A Broker has logins by PLAIN and EXTERNAL, heartbeats, the errors of the protocol
// with RabbitMQ's codes and texts; direct, fanout, topic and headers exchanges,
// bindings between exchanges, alternate exchanges; classic and quorum queues with
// times to live, dead-lettering at-most-once and at-least-once, length limits,
// delivery limits, delayed retry, priorities, single active consumers, exclusive,
// auto-delete and expiring queues; confirms, returns, prefetch, consumer priorities,
// consumer timeouts and cancellations by the broker. Counts and histories (x-death and
// its family, x-delivery-count, x-acquired-count) differ by version as on RabbitMQ.
//
// # Left out
//
// Clusters, streams, exchanges of other types, policies, transactions and permissions beyond user and
// virtual host do not exist. A client that asks for one gets an error. There is no
// direct reply-to. A client may log in by EXTERNAL without a certificate,
// as Config.External says.
//
// # Known differences
//
// The broker answers at once: confirms come in order unless a queue refuses,
// and a message is in its queues when its confirm is sent. Where a real broker leaves
// something to chance, above all the order of independent events, there is one outcome
// here. Names of queues and consumers that the broker makes look different.
// Random programs of operations run beside real brokers of the three versions
// (integration/differential). These differences are known:
//   - On 4.0: the order of messages that are given back to a quorum queue whose
//     x-delivery-limit is -1.
//   - On 4.0: a message that the active consumer of a queue with a single active
//     consumer has given back, when that consumer had nothing else and another one has a
//     higher priority. RabbitMQ keeps it until a consumer comes or goes. Here the other
//     consumer gets it at once.
//   - On 4.3: a quorum queue with a single active consumer keeps for good the messages of
//     that consumer when its channel closes, if it had taken over from one of lower
//     priority whose channel closed with messages in hand. Here the messages come back.
//   - On 3.10: a classic queue with a single active consumer crashes if it gets a message
//     after that consumer was cancelled, while other messages are ready for the next one.
//     Here the next one gets them.
//   - On 3.10: a channel that has used a classic queue ends its connection when it uses a
//     quorum queue of the same name that was declared since. On 4.0 and 4.3 one that has used
//     a quorum queue does so when it uses a classic queue.
//   - On 3.10: a channel ends its connection when it consumes again from a quorum queue under
//     the name of a consumer that it has cancelled and that has messages in hand. Here it
//     is a new consumer. Since 4.0 RabbitMQ takes both for one, and so does rehoptest.
//   - On 3.10: how much room is left in a queue with a length limit that sends dead letters
//     to itself, at-least-once.
//   - On 3.10: an old rejection in x-death hides a cycle. Between queues without room or
//     with a time to live of 0, RabbitMQ sends such a message round for ever, thousands of
//     times a second. Here it is dropped after 1,000 dead letters of one publish at one
//     moment, and Story tells so.
//   - Tables in headers with several fields: RabbitMQ also compares their order.
//   - The text about an exchange type that does not exist says unknown, and never
//     invalid; of several faults in one declaration another may be named.
//   - A killed RabbitMQ may wipe a quorum queue that was declared within the last
//     seconds. Here it never does.
//
// [Testing]: https://github.com/rehop/rehop/blob/main/docs/testing.md
package rehoptest
