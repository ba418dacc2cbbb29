// Package conformance holds the tests that hold the SDK to its rules on real
// brokers: 3.10, 4.0 and 4.3, classic and quorum queues.
//
//	cd integration/conformance && go test            # all brokers, in Docker
//	AMQP_URL=amqp://... go test                      # one broker that runs already
//
// Nearly all of the time is waiting, so 16 tests run at a time unless
// -parallel says otherwise. At the end a table tells which rule was tested
// where; a cell that failed or is missing fails the run, unless -run chose the
// tests.
//
// The waits of the schedules under test are some hundred milliseconds. What is
// asserted about time is the contract and no speed: a wait is never shorter
// than promised, and late by far less than what would mean another wait.
package conformance
