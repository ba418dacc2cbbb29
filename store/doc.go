// Package store keeps messages in a SQL database: messages that could not be
// published while the broker was away, dead letters, and messages that are due
// later. [Store.Forward] publishes by itself what needs nobody's attention, once
// the broker is back. [Store.Replay] publishes what a person has looked at.
//
//	letters, err := store.Open(ctx, db, store.SQLite, store.Config{})
//	shop, err := producer.New(conn, producer.Config{Fallback: []producer.Sink{letters}})
//	forwarder, err := producer.New(conn, producer.Config{}) // without a Fallback
//	go letters.Forward(ctx, forwarder, store.ForwardConfig{})
//
// A message leaves the store after its next place has confirmed it.
//
// The caller supplies the database and its driver. Package store/sqlite, a module
// of its own, opens a file for programs without a database server. MySQL takes a
// message only if its max_allowed_packet is larger. While the disk is full nothing
// is stored and nothing is forwarded, because forwarding writes too. What is stored
// stays, and is forwarded when there is room.
//
// # The table
//
// One row of rehop_letters is one [Letter]. Times are Unix milliseconds; 0 means
// none. Text that is not UTF-8 is kept as "$base64:..." .
//
//	seq           the order of storing
//	id            a hash of message id, exchange, key, queue and body
//	message_id    the message's own
//	state         ready, held, parked or archived
//	due           when the message is wanted; 0: at once
//	next_try      not published before; of a leased letter the end of the lease
//	exchange, routing_key   where it goes
//	queue         of a dead letter: the work queue that gave it up
//	properties    JSON: content_type, correlation_id, timestamp, priority, ...
//	headers       JSON that gives back every type, such as {"n": {"$int32": 3}}
//	body          bytes
//	size          about what the letter takes in memory
//	cause, error, error_type, fingerprint   why it is here
//	attempts      of the handlers
//	tries, try_error   of forwarding that failed because of message or target
//	unconfirmed   publishes without an answer: it may be in its queue
//	first_failed, failed, stored   when
//	lease         the process that is publishing it
//
// This query, in SQLite's dialect, shows what is stored:
//
//	SELECT state, exchange, cause, count(*), datetime(min(stored)/1000, 'unixepoch')
//	FROM rehop_letters GROUP BY 1, 2, 3;
//
// The table rehop_letters_schema holds the version of the schema. A later
// version of this package brings it up to date; an earlier one then refuses to
// open it.
package store
