package xdeath

import amqp "github.com/rabbitmq/amqp091-go"

// CC returns the further routing keys that the producer gave the message. A
// broker of 3.10 to 3.12 removes the header when it dead-letters with a
// dead-letter routing key (measured on 3.10.8). Later brokers leave it in place.
func CC(headers amqp.Table) []string { return texts(headers[HeaderCC]) }
