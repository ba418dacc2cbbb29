// Package rehoptest provides a RabbitMQ in the process, for tests, as
// net/http/httptest provides a web server.
//
// A [Broker] speaks AMQP 0-9-1 as RabbitMQ 3.10, 4.0 or 4.3 does. Give its Dial to a
// connection.Config. Producers, consumers and topologies then run against it
// without a port and without Docker. In a bubble of testing/synctest they run
// without waiting: minutes between attempts pass in milliseconds. Create the broker
// in the bubble, and close it there.
//
//	synctest.Test(t, func(t *testing.T) {
//		broker, err := rehoptest.NewBroker(rehoptest.Config{Version: "4.3"})
//		// ...
//		defer broker.Close()
//		conn, err := connection.Open(ctx, connection.Config{
//			URLs: []string{"amqp://guest:guest@broker"},
//			Dial: broker.Dial,
//		})
//		// ... declare, publish, consume
//		time.Sleep(36 * time.Minute) // of the bubble
//		letters, _ := broker.Queue("orders.dlq")
//	})
//
// Story tells a failing test what has become of a message. Listen opens a port, for
// other programs and other client libraries.
//
// # Tests to copy
//
// The file example_test.go has the test above in full, and these. While the broker
// is away, a producer's fallback takes over:
//
//	broker.Kill(rehoptest.LoseMost)
//	receipt, err := shop.Publish(ctx, order) // of a producer with Timeout and Fallback
//	if err != nil || receipt.Place != producer.PlaceFallback {
//		t.Errorf("while the broker is away: %v in %v", err, receipt.Place)
//	}
//	broker.Start()
//	time.Sleep(time.Minute) // it is found again
//	receipt, err = shop.Publish(ctx, order)
//	if err != nil || receipt.Place != producer.PlaceQueue {
//		t.Errorf("when it is back: %v in %v", err, receipt.Place)
//	}
//
// A roll-out in the middle of a wait counts attempts on:
//
//	stop := consume(t, conn, orders, alwaysFails)
//	time.Sleep(3 * time.Minute) // failed at 0 and 1 min; waits for 5 min more
//	stop()
//	consume(t, conn, orders, newVersion)
//	time.Sleep(4 * time.Minute)
//	synctest.Wait()
//	if attempt != 3 {
//		t.Errorf("the new version saw attempt %d, want 3:\n%s", attempt, broker.Story(id))
//	}
//
// # What it does
//
// It has logins by PLAIN and EXTERNAL, heartbeats, the errors of the protocol with
// RabbitMQ's codes and texts; direct, fanout, topic and headers exchanges,
// bindings between exchanges, alternate exchanges; classic and quorum queues
// with times to live, dead-lettering at-most-once and at-least-once, length
// limits, delivery limits, delayed retry, priorities, single active consumers,
// exclusive, auto-delete and expiring queues; confirms, returns, prefetch,
// consumer priorities, consumer timeouts and cancellations by the broker. Counts
// and histories (x-death and its family, x-delivery-count, x-acquired-count) are
// those of the version.
//
// # What it does not do
//
// Clusters, streams, policies, transactions and permissions beyond user and
// virtual host do not exist. A client that asks for one gets an error. There is no
// direct reply-to. A client may log in by EXTERNAL without a certificate,
// as Config.External says.
//
// # Known differences
//
// The broker answers at once: confirms come in order unless a queue refuses,
// and a message is in its queues when its confirm is sent. What a real broker
// leaves to chance, the order of independent events above all, has one outcome
// here. Names of queues and consumers that the broker makes look different.
// Random programs of operations run beside real brokers of the three versions
// (integration/differential); known to differ are:
//   - On 4.0 and later: Redelivered, x-delivery-count and x-acquired-count of the
//     first delivery of a dead letter from a classic queue.
//   - On 4.0: the order of what is given back to a quorum queue whose
//     x-delivery-limit is -1.
//   - On 4.0: which consumer is handed what the active one of a single active
//     consumer gives back while another has a higher priority.
//   - That a killed broker wipes a quorum queue that was declared within the last
//     seconds is not imitated.
package rehoptest
