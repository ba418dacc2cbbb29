// Package producer publishes messages that are confirmed by the broker, or
// safe elsewhere, or come back as an error that says what is known.
//
//	shop, err := producer.New(conn, producer.Config{})
//	receipt, err := shop.Publish(ctx, producer.Message{Exchange: "shop", Key: "order.paid", Body: body})
//
// Every message is persistent, mandatory (one that no queue takes comes back)
// and confirmed, and has a message id. A nil error means that it is safe;
// [Receipt.Place] says where.
package producer
