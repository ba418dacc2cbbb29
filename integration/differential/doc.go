// Package differential runs random programs of AMQP operations on a RabbitMQ
// and on the broker of package rehoptest, and compares all that a client sees:
// deliveries with their headers, confirms, returns, errors and the lengths of
// queues.
//
// A program is made from a seed. The one in the process runs it first, in a
// bubble of testing/synctest; then the real one does, and what the first has
// answered is what is waited for. Where they differ the program is shrunk to
// the operations that still show the difference, and printed. What the page of
// rehoptest names as a known difference is not looked at. A program ends where the
// rest is of chance: where a message goes round for ever, or overtakes another.
//
// Mistakes that the programs do not make, at the login among others, are a table
// of their own.
//
// The programs of go test are the same in each run; -random makes others.
//
//	go test ./integration/differential -seed 17 -v
//	make differential
package differential
