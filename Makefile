# Each target is a line or two that work without make as well.

GOLANGCI = go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

.PHONY: demo reminders outage test test-all lateness bench bench-store differential sim mutants soak proof lint images

# The main job on a real broker, with a table at the end.
demo:
	go run ./integration/withbroker -- go run ./examples/tickets

reminders:
	go run ./integration/withbroker -- go run ./examples/reminders

# A shop that takes orders while its broker is stopped for 20 s, with a table at the end.
outage:
	go run ./integration/withbroker -outage 5s,20s -- go run ./examples/outage

# What a change must pass, in about a quarter of an hour on two cores: all rules on
# RabbitMQ 3.10, 4.0 and 4.3, and what breaks brokers on the newest of them.
# The SDK's own module is tested as its users get it, without go.work.
test:
	go run ./integration/withbroker -- env GOWORK=off go test -race -timeout 15m ./...
	cd integration/conformance && go test -race -timeout 15m
	go test -p 1 -timeout 15m ./integration/differential ./integration/sim
	RABBITMQ_VERSIONS=4.3 go test -race -p 3 -timeout 15m ./integration/connection ./integration/faults ./integration/delays \
		./integration/carry ./integration/auth ./integration/elastic ./integration/store ./integration/orders ./integration/proof \
		./integration/account/... ./integration/faultproxy/... ./integration/images/... ./integration/matrix/... \
		./integration/roundtrips/... ./integration/soak/... ./integration/withbroker/... ./integration/store/bench/... \
		./integration/bench/... ./examples/... ./store/sqlite/... ./store/elastic/...

# Every test on every version, those that measure times one after the other: about an hour.
test-all: test
	go test -race -p 1 -timeout 20m ./integration/cluster ./integration/broker ./integration/connection ./integration/faults \
		./integration/carry ./integration/delays ./integration/store/... ./integration/elastic ./integration/auth \
		./integration/orders ./integration/proof
	cd integration/connection && go test -race -timeout 20m -run 'TestFaults/.*/closed' -args -closes 100

# How late exact delays are, by the rate of their messages: about five minutes.
lateness:
	cd integration/delays && go test -timeout 30m -v -run TestLatenessByRate -args -rates 10,100,500,1000

# rehop beside a plain amqp091-go program, in one run on one broker.
bench:
	go run ./integration/withbroker -- go run ./integration/bench -json bench.json

# Storing and forwarding a million messages, beside what disk, SQLite and broker do at
# best, and 64 callers through an outage of 30 s.
bench-store:
	go run ./integration/store/bench

# Ten minutes of work while connections and broker are broken every other second.
soak:
	go run ./integration/soak

# A million random operations for each version and queue type, on RabbitMQ and on
# rehoptest; what differs is printed as a short program. About ten hours.
differential:
	cd integration/differential && go test -timeout 0 -v -random -operations 1000000

# Ten minutes of random services with random faults, on rehoptest in virtual time,
# from a random seed on. What goes wrong is printed as the shortest run that shows
# it; go test -run TestSim -seed N, in integration/sim, runs one again.
sim:
	cd integration/sim && go test -timeout 0 -v -run TestSim -for 10m -first $$(date +%s)

# Defects put into copies of the tree, each of which the simulation has to find.
mutants:
	go run ./integration/sim/mutants -for 1m

# Thousands of messages in waits through restarts and kills of the broker, on
# every version and queue type, and a service that is rolled out meanwhile: about an hour.
proof:
	go run ./integration/proof
	for v in 3.10 4.0 4.3; do for t in quorum classic; do go run ./integration/orders -version $$v -type $$t || exit 1; done; done
	cd integration/cluster && go test -timeout 40m -run 'TestOrderly|TestMany' -args -orderly 3.10,4.0,4.3

# Formatting, vet, and the rules of .golangci.yml, the import rules among them.
lint:
	test -z "$$(gofmt -l . | tee /dev/stderr)"
	go vet ./... ./examples/... ./integration/... ./integration/bench/... ./integration/elastic ./integration/store/... ./store/sqlite/... ./store/elastic/...
	cd integration/elastic/server && GOWORK=off go vet .
	$(GOLANGCI) run ./... ./examples/... ./integration/... ./integration/bench/... ./integration/elastic ./integration/store/... ./store/sqlite/... ./store/elastic/...

# The broker images, built from Debian packages where they are missing.
images:
	./integration/images/build
