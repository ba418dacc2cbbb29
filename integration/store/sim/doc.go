// Package sim runs services that work on a database through faults, in bubbles of
// testing/synctest: the broker is that of package rehoptest, and the database is a real
// SQLite in memory. It shows that the effect of each message in the database happens
// once, although the message may be delivered more often.
//
// # The model
//
//	published --> queue "single" --> OnceHandler: effect + PutTx --+
//	    |                                                          +--> Forward --> queue "out" --> OnceHandler: effect
//	    +-------> queue "batch" ---> OnceBatch: effect + PutTx ----+
//
// Both queues have the same ids, and some messages are published twice. Processes run the
// three handlers and Forward, each with a connection, a Store and a pool of its own on
// the one database. A handler may fail before its work and after it, say Hold,
// or panic.
//
// What must be true when the faults have ended and nothing moves any more:
//
//	once      Each message has one effect for each queue.
//	whole     The run of the handler that made the effect has returned nil.
//	end       The queues are empty, there are no dead letters, and the store has no letters.
//
// # The faults
//
// A process is killed at a statement: before it reaches the database, or after it and
// before its answer, a COMMIT among them. Its connections to the broker end, its
// transactions are rolled back, and nothing that its goroutines do afterwards has an
// effect. Connections are cut, the broker is killed or stalls, the database fails for a
// while, a COMMIT fails and undoes its transaction, and processes stop in order.
//
// # The database
//
// SQLite waits for a lock by a system call, which holds up the clock of a bubble: five
// seconds of real time, in which no virtual time passes. So all processes share one
// connection, and [database] gives it to one transaction at a time. A transaction waits
// for it on a channel, as one that writes first waits for SQLite's lock. What a
// transaction does, keeps and undoes is SQLite's own work.
package sim
