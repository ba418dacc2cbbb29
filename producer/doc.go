// Package producer publishes messages. Each is confirmed by the broker, or safe
// elsewhere, or Publish returns an error that says why it may be neither.
//
//	publisher, err := producer.New(conn, producer.Config{})
//	receipt, err := publisher.Publish(ctx, producer.Message{Exchange: "shop", RoutingKey: "order.paid", Body: body})
//
// Every message is persistent, mandatory (one that no queue takes comes back)
// and confirmed, and has a message id. A nil error means that it is safe;
// [Receipt.Place] says where.
package producer
