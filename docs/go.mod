module github.com/rehop/rehop/docs

go 1.26.0

replace (
	github.com/rehop/rehop => ../
	github.com/rehop/rehop/otel => ../otel
	github.com/rehop/rehop/store/elastic => ../store/elastic
	github.com/rehop/rehop/store/sqlite => ../store/sqlite
)

require github.com/rehop/rehop v0.0.0-00010101000000-000000000000

require (
	github.com/cenkalti/backoff/v4 v4.3.0 // indirect
	github.com/rabbitmq/amqp091-go v1.16.0 // indirect
)
