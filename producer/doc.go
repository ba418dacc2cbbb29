// Package producer publishes messages. The broker confirms each, or a fallback keeps it,
// or Publish returns an error with the reason.
//
//	             +-- every queue that it reaches has confirmed it --------> nil, PlaceQueue
//	Publish(m) --+-- not confirmed; a sink of Config.Fallback takes it ---> nil, PlaceFallback
//	             +-- not confirmed, and no sink takes it -----------------> ErrReturned, ErrUnconfirmed, ...
//
// A producer needs a connection:
//
//	publisher, err := producer.New(conn, producer.Config{})
//	receipt, err := publisher.Publish(ctx, producer.Message{Exchange: "shop", RoutingKey: "order.paid", Body: body})
//
// Every message is persistent, mandatory (the broker returns it if no queue takes it)
// and confirmed, and has a message id. A nil error means that the message is safe;
// [Receipt.Place] says where.
//
// [Producer.PublishAll] and [Producer.PublishAsync] keep many messages on their way at a
// time. Package [github.com/rehop/rehop/store] has a sink that publishes when the broker is
// back. The pages [Outages] and [Delays] have more examples.
//
// [Outages]: https://github.com/rehop/rehop/blob/main/docs/outages.md
// [Delays]: https://github.com/rehop/rehop/blob/main/docs/delays.md
package producer
