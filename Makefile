# Each target is a line or two that work without make as well.

GOLANGCI = go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

.PHONY: demo test bench soak lint images

# The main job on a real broker, with a table at the end.
demo:
	go run ./integration/withbroker -- go run ./examples/tickets

# Every test of every module; the integration ones on RabbitMQ 3.10, 4.0 and 4.3.
test:
	go run ./integration/withbroker -- go test -race ./...
	go run ./integration/withbroker -- env GOWORK=off go test ./...
	go test -race ./examples/...
	go test -race ./integration/bench/...
	go test -race -count=1 -p 2 ./integration/auth/... ./integration/broker/... ./integration/faultproxy/... ./integration/images/... ./integration/matrix/... ./integration/soak/... ./integration/withbroker/...
	cd integration/connection && go test -race -timeout 10m
	cd integration/conformance && go test -race -timeout 10m
	cd integration/faults && go test -race -timeout 10m
	cd integration/cluster && go test -race -timeout 10m

# rehop beside a plain amqp091-go program, in one run on one broker.
bench:
	go run ./integration/withbroker -- go run ./integration/bench -json bench.json

# Ten minutes of work while connections and broker are broken every other second.
soak:
	go run ./integration/soak

# Formatting, vet, and the rules of .golangci.yml, the import rules among them.
lint:
	test -z "$$(gofmt -l . | tee /dev/stderr)"
	go vet ./... ./examples/... ./integration/... ./integration/bench/...
	$(GOLANGCI) run ./... ./examples/... ./integration/... ./integration/bench/...

# The broker images, built from Debian packages where they are missing.
images:
	./integration/images/build
