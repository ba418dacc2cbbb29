// Package conformance holds the tests that hold the SDK to its rules on real
// brokers: 3.10, 4.0 and 4.3, classic and quorum queues.
//
//	cd integration/conformance && go test            # all brokers, in Docker
//	AMQP_URL=amqp://... go test                      # one broker that runs already
//
// A rule about RabbitMQ is tested on every version and queue type, a rule about
// a decision of the SDK once with each engine, and a rule that acts before the
// broker in one column. The helpers everywhere, onEveryEngine and onNewest say
// which, and so do the exceptions of the rules. At the end a table tells which
// rule was tested where; a cell that failed or is missing fails the run, unless
// -run chose the tests.
//
// Nearly all of the time of a test is waiting, so many tests run at a time: the
// gate of each broker bounds those that use it, and lets the long ones begin.
//
// The waits of the schedules under test are some hundred milliseconds. What is
// asserted about time is the contract and no speed: a wait is never shorter
// than promised, and half a minute late only if it was forgotten.
package conformance
