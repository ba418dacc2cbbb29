# Each target is a line or two that work without make as well.

GOLANGCI = go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

# SQLite is C, translated to Go, and takes ten times as long under the race detector. So
# the detector watches rehop, the drivers and the tests, and not this C. It would hold each
# test binary for a second at its end.
export GORACE = atexit_sleep_ms=0
RACE = -race -gcflags=modernc.org/sqlite/lib=-race=false -gcflags=modernc.org/libc=-race=false

# The suites beside the gate; see integration/suites/table.txt.
SUITES = faults connection delays drift stores desk otel cluster differential tools

.PHONY: quickstart demo desk reminders outage service grow observe test gate-units gate-brokers test-all $(SUITES:%=test-%) suites prove test-loop \
	lateness bench bench-store bench-otel growth differential sim mutants soak proof lint images api licences sbom release-check release-files oldest cross

# The first program of the pages.
quickstart:
	go run ./integration/withbroker -- go run ./examples/quickstart

# The main job on a real broker, with a table at the end.
demo:
	go run ./integration/withbroker -- go run ./examples/tickets
	@echo 'why the orders of such a run died, and sending them back, in a browser: make desk'

# The same, but the dead letters are left for the desk, which opens on them until Ctrl-C. A
# worker beside it handles what is sent back. The broker is run by a built program, because
# go run fails after every Ctrl-C, and so does a shell without the trap.
desk:
	go build -o bin/ ./examples/tickets ./desk/cmd/rehop ./integration/withbroker
	bin/withbroker -- sh -c 'export REHOP_JOURNAL=$$(mktemp -d) && trap "rm -r $$REHOP_JOURNAL" EXIT && trap : INT && bin/tickets -keep && \
		echo "in another terminal: AMQP_URL=$$AMQP_URL AMQP_MANAGEMENT_URL=$$AMQP_MANAGEMENT_URL REHOP_JOURNAL=$$REHOP_JOURNAL bin/rehop dlq groups tickets.sms.dlq" && \
		echo "commands that the desk shows run there, too: with these variables, and bin/rehop instead of rehop" && \
		echo "copies of letters that you delete are in $$REHOP_JOURNAL/dropped; the demo removes them when it ends" && \
		{ bin/tickets -work & worker=$$!; bin/rehop desk; ended=$$?; kill -INT $$worker 2>/dev/null; wait $$worker; exit $$ended; }'

reminders:
	go run ./integration/withbroker -- go run ./examples/reminders

# A shop that takes orders while its broker is stopped for 20 s, with a table at the end.
# The program is built before the outage is planned: on a cold cache that takes longer than 5 s.
outage:
	go build -o bin/outage ./examples/outage
	go run ./integration/withbroker -outage 5s,20s -- bin/outage -svg bin/outage.svg

# A shop and an office, through a SIGKILL of the office and of the broker and an outage of the
# gateway, with an account at the end.
service:
	go build -o bin/service/ ./examples/service/...
	go run ./integration/withbroker -kill 25s,3s -- bin/service/try -for 50s bin/service

# Bills in order by customer, while shards and processes are added and processes are killed,
# with a line for each event, and a table and an account at the end: about a minute and a half.
grow:
	go run ./integration/withbroker -- go run ./examples/grow

# A shop beside a Prometheus of its own, through an outage of 15 s: every query of the
# dashboard and the alerts must have data. bin/observability.svg is a drawing of it.
observe:
	./integration/setup prometheus
	go build -o bin/ ./examples/observe
	go build -o bin/observer ./integration/otel/observe
	go run ./integration/withbroker -outage 25s,15s -- bin/observer -svg bin/observability.svg bin/observe -for 80s

# How cost grows, as tables and plots in docs/growth: about ten minutes.
growth:
	go run ./integration/withbroker -- go run ./integration/growth -out docs/growth

# What telemetry costs: with and without, in turns on one broker.
bench-otel:
	go run ./integration/withbroker -- go run ./integration/otel/cost

# What a change must pass: the gate, in about a quarter of an hour on two fast cores and up to half
# an hour on slow ones. It has two halves that run side by side, because one computes and the other
# waits for brokers. Each prints its output when it has ended.
test:
	./integration/setup race
	@echo 'the tests run in two halves, about a quarter of an hour, on slow cores half an hour; each half prints its output at its end'
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target gate-units gate-brokers

# The SDK's own module is tested as its users get it, without go.work. With the race detector the tests of package
# consumer run on one version and queue type each, and without it on all that they are for (consumer/fixture_test.go).
gate-units:
	go run ./integration/withbroker -- go run ./integration/racecheck env GOWORK=off go test -race -timeout 25m ./...
	GOWORK=off go test -timeout 25m ./consumer
	STORE_DATABASES=sqlite RABBITMQ_VERSIONS=4.3 go run ./integration/racecheck go test $(RACE) -timeout 25m -skip '^TestFaults' ./integration/store
	RABBITMQ_VERSIONS=4.3 go run ./integration/racecheck go test $(RACE) -timeout 25m ./store/sqlite/... ./store/elastic/... ./desk/... ./otel/... ./docs/... ./examples/... \
		./examples/outage ./examples/service/...

# Every rule on RabbitMQ 3.10, 4.0 and 4.3, and samples of what random programs and faults show.
gate-brokers:
	cd integration/conformance && go run ../racecheck go test -race -timeout 25m
	cd integration/drift && RABBITMQ_VERSIONS=4.3 go test -timeout 25m -run 'TestDamages/.*/orders|TestPoliciesOfEachQueue/.*/orders|TestRollOut|TestUsers'
	cd integration/differential && go test -timeout 25m -args -operations 2000
	go test -timeout 25m ./integration/sim ./integration/store/sim
	go test -count=1 ./integration/sim/mutants # the cache of go test sees no files of another module

# The other suites, each under 20 minutes on two cores: integration/suites/table.txt says
# which one a change needs.
SUITE_TEST = go run ./integration/racecheck go test $(RACE) -timeout 30m

test-faults:
	./integration/setup race
	$(SUITE_TEST) -p 1 ./integration/faults ./integration/carry

test-connection:
	./integration/setup race
	$(SUITE_TEST) -p 1 ./integration/connection ./integration/auth
	cd integration/connection && go test -race -timeout 20m -run 'TestFaults/.*/closed' -args -closes 100

test-delays:
	./integration/setup race
	$(SUITE_TEST) -p 1 ./integration/delays ./integration/orders ./integration/proof ./integration/compat

# It prints how many damages were tried and found.
# The damages are done one after the other. The race detector would take most of their time, and has nothing to find.
DAMAGES = TestDamages|TestFormsWithoutTheManagementAPI
test-drift:
	./integration/setup race
	cd integration/drift && go test -timeout 30m -run '$(DAMAGES)'
	cd integration/drift && go run ../racecheck go test -race -timeout 30m -skip '$(DAMAGES)'

test-stores:
	./integration/setup race databases
	$(SUITE_TEST) -p 2 ./integration/store/... ./integration/elastic

test-desk:
	./integration/setup race browser
	$(SUITE_TEST) -p 1 ./integration/desk/... ./desk/...

test-otel:
	./integration/setup race prometheus
	$(SUITE_TEST) -p 1 ./integration/otel/... ./examples/observe
	$(MAKE) observe

test-cluster:
	./integration/setup race
	$(SUITE_TEST) -p 1 ./integration/cluster

test-differential:
	cd integration/differential && go test -timeout 30m

# The programs that the tests and the repository use.
test-tools:
	./integration/setup race
	RABBITMQ_VERSIONS=4.3 $(SUITE_TEST) ./integration/broker ./integration/racecheck ./integration/account/... ./integration/faultproxy/... ./integration/images/... \
		./integration/matrix/... ./integration/roundtrips/... ./integration/soak/... ./integration/suites ./integration/testloop ./integration/withbroker/... \
		./integration/bench/... ./integration/sim/mutants ./release/...

# Every test on every version: the gate and all suites, one after the other, in about three hours.
test-all: test $(SUITES:%=test-%)

# Which suites are due, and which a change needs: make suites FOR="consumer store"
suites:
	@go run ./integration/suites $(if $(FOR),-for $(FOR))

# Runs a suite, and notes in integration/suites/proved.txt that it passed: make prove SUITE=stores
# What it proves must be committed.
prove:
	go run ./integration/suites -prove '$(SUITE)'

# The tests of packages twenty times, beside a busy loop for each core:
# make test-loop PKG=./consumer, or some of them: RUN=TestName. Those of the consumer run on all versions and queue types.
PKG = ./connection ./consumer/... ./desk/... ./internal/... ./producer ./rehoptest/... ./store ./topology
TIMES = 20
test-loop:
	CONSUMER_COLUMNS=all go run ./integration/testloop -times $(TIMES) $(if $(RUN),-run '$(RUN)') $(PKG)

# How late exact delays are, by the rate of their messages: about five minutes.
lateness:
	cd integration/delays && go test -timeout 30m -v -run TestLatenessByRate -args -rates 10,100,500,1000

# rehop beside a plain amqp091-go program, in one run on one broker.
bench:
	go run ./integration/withbroker -- go run ./integration/bench -json bench.json

# Storing and forwarding a million messages, beside what disk, SQLite and broker do at
# best, and 64 callers through an outage of 30 s.
bench-store:
	./integration/setup databases
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
# it; go test -run TestSim -seed N, in integration/sim, runs one again. Then two minutes
# of services that work on a database.
sim:
	cd integration/sim && go test -tags rehopsim -timeout 0 -v -run TestSim -for 10m -first $$(date +%s)
	cd integration/store/sim && go test -tags rehopsim -timeout 0 -v -run TestSim -for 2m -first $$(date +%s)

# Defects put into copies of the tree, each of which the simulation has to find.
mutants:
	go run ./integration/sim/mutants -for 1m

# Thousands of messages in waits through restarts and kills of the broker, on every version
# and queue type, a service that is rolled out meanwhile, a thousand looks at dead letters,
# and the account of ten thousand messages: an hour and a half.
proof:
	go run ./integration/proof
	for v in 3.10 4.0 4.3; do for t in quorum classic; do go run ./integration/orders -version $$v -type $$t || exit 1; done; done
	cd integration/cluster && go test -timeout 40m -run 'TestOrderly|TestMany' -args -orderly 3.10,4.0,4.3
	cd integration/desk && go test -timeout 30m -run TestNothingIsLostByLooking -args -looks 1000
	cd integration/otel && go test -timeout 30m -run TestTheNumbers -args -messages 10000

# Formatting, vet, and the rules of .golangci.yml, the import rules among them; the API and
# the licences of dependencies as the files in release/ have them.
lint:
	test -z "$$(gofmt -l . | tee /dev/stderr)"
	go vet ./... ./examples/... ./integration/... ./integration/bench/... ./integration/elastic ./integration/growth ./integration/store/... ./store/sqlite/... ./store/elastic/... ./otel/... ./integration/otel/... ./examples/observe ./examples/outage ./examples/service/... ./desk/... ./integration/desk/... ./release/... ./docs/...
	cd integration/elastic/server && GOWORK=off go vet .
	$(GOLANGCI) run ./... ./examples/... ./integration/... ./integration/bench/... ./integration/elastic ./integration/growth ./integration/store/... ./store/sqlite/... ./store/elastic/... ./otel/... ./integration/otel/... ./examples/observe ./examples/outage ./examples/service/... ./desk/... ./integration/desk/... ./release/... ./docs/...
	go run ./release/api
	go run ./release/licences
	cd otel && go run ./internal/table -check

# The broker images, built from Debian packages where they are missing.
images:
	./integration/images/build

# The files that lint compares with: the exported API, and the licences of dependencies.
api:
	go run ./release/api -update
licences:
	go run ./release/licences -update

# What a program outside the tree gets: make release-check VERSION=v0.1.0-rc.1
release-check:
	go run ./release/check -upgrade $(VERSION)

# The go.mod and go.sum files and the API of the release commit.
release-files:
	go run ./release/check -commit $(VERSION)
	go run ./release/api -release

# The SDK's packages whose tests need no broker.
LIGHT = ./connection ./consumer/... ./delay ./internal/... ./producer ./rehoptest/... ./service ./store ./topology ./xdeath

PUBLISHED = . store/sqlite store/elastic otel desk

# A bill of materials for each published module: bin/sbom/*.json, in the form of CycloneDX.
sbom:
	mkdir -p bin/sbom
	for m in $(PUBLISHED); do \
		GOWORK=off go run github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0 mod -json -type library \
			-output bin/sbom/$$(echo $$m | sed 's|^\.$$|rehop|; s|/|-|g').json $$m || exit 1; \
	done

# Each published module with the oldest Go that its go.mod allows, which go downloads. The
# tests run on go1.25.3: testing/synctest of go1.25.0 takes a WaitGroup for one of another
# bubble that was at the same place in memory.
oldest:
	for m in $(PUBLISHED); do \
		( cd $$m && export GOWORK=off && export GOTOOLCHAIN=go$$(go list -m -f '{{.GoVersion}}') && \
			go version && go build -o /dev/null ./... && go test -run NONE ./... >/dev/null ) || exit 1; \
	done
	GOWORK=off GOTOOLCHAIN=go1.25.3 go test $(LIGHT)

# Every published module on the systems that it is for, and the SDK on 32 bits, with its
# tests that need neither a broker nor the race detector. Compiled for the first time it takes
# long: the standard library and SQLite are compiled for each.
cross:
	for t in linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64; do \
		for m in $(PUBLISHED); do \
			echo $$t $$m && ( cd $$m && GOWORK=off CGO_ENABLED=0 GOOS=$${t%/*} GOARCH=$${t#*/} go build -o /dev/null ./... ) || exit 1; \
		done; \
	done
	GOWORK=off CGO_ENABLED=0 GOOS=linux GOARCH=386 go vet ./...
	GOWORK=off CGO_ENABLED=0 GOOS=linux GOARCH=386 go test -timeout 10m $(LIGHT)
