module github.com/rehop/rehop/integration/bench

go 1.25.0

replace github.com/rehop/rehop => ../../

require (
	github.com/rabbitmq/amqp091-go v1.16.0
	github.com/rehop/rehop v0.0.0
)

require github.com/cenkalti/backoff/v4 v4.3.0 // indirect
