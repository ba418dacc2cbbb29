// Package store keeps messages in a SQL database: messages that could not be
// published while the broker was away, dead letters, and messages that are due
// later.
//
//	Publish, while the broker is away -----> Put ------+
//	a transaction of yours (outbox) -------> PutTx ----+--> [ready] ------ Forwarder -> the broker
//	a message that is due later -----------> PutAt ----+       ^
//	                                                           | Release
//	                                                           |
//	a dead-letter queue, by a consumer ----> Collect --+--> [held] ------- Replay ---> the work queue
//	a message that no queue takes ---------> Put ------+
//
// A [Forwarder] publishes by itself, once the broker is back. [Store.Replay] publishes
// entries that a person has looked at. A message leaves the store after its next place has
// confirmed it.
//
// A store is the fallback of a producer:
//
//	outbox, err := store.Open(ctx, db, store.SQLite, store.Config{})
//	publisher, err := producer.New(conn, producer.Config{Fallback: []producer.Sink{outbox}})
//	plain, err := producer.New(conn, producer.Config{}) // without a Fallback
//	forwarder, err := outbox.NewForwarder(plain, store.ForwardConfig{})
//	go forwarder.Run(ctx)
//
// Package [github.com/rehop/rehop/desk] shows letters to a person. The pages [Outages],
// [Once], [Outbox] and [Letters] have more examples.
//
// # The database
//
// The caller supplies the database and its driver. Package store/sqlite, a module
// of its own, opens a file for programs without a database server. MySQL takes a
// message only if max_allowed_packet is larger than the message. While the disk is
// full nothing is stored and nothing is forwarded, because forwarding writes too.
// Stored entries stay, and are forwarded when there is room.
//
// # Once
//
// A message can be delivered twice. [Store.OnceHandler] runs a handler in a
// transaction that also notes the message, so that the handler's writes in it happen
// once for each message. With [Store.PutTx] in the same transaction the messages that the
// handler publishes are stored once, too. [Store.Once] does the same in a transaction
// of the caller's own.
//
//	handler := consumer.Wrap(func(ctx context.Context, d *consumer.Delivery) error {
//		tx := store.TxFrom(ctx)
//		if _, err := tx.ExecContext(ctx, "UPDATE stock SET left = left - 1 WHERE article = ?", d.Type); err != nil {
//			return err
//		}
//		_, err := outbox.PutTx(ctx, tx, producer.Message{Exchange: "shop", RoutingKey: "order.packed", Body: d.Body})
//		return err
//	}, outbox.OnceHandler)
//
// # The table
//
// One row of rehop_letters is one [Entry]. Times are Unix milliseconds; 0 means
// none. Text that is not UTF-8 is kept as "$base64:..." .
//
//	seq           the order of storing
//	id            a hash of message id, exchange, key, queue, body, texts and own headers
//	message_id    the message's own
//	state         ready, held, parked or archived
//	line          entries with the same number are forwarded in their order; 0: in any
//	due           when the message is wanted; 0: at once
//	next_try      not published before; of a leased entry the end of the lease
//	exchange, routing_key   where it was published to, and goes unless it has a queue
//	order_key     Message.OrderKey
//	queue         of a dead letter: the work queue that gave it up
//	properties    JSON: content_type, correlation_id, timestamp, priority, origin, ...
//	headers       JSON that gives back every type, such as {"n": {"$int32": 3}}
//	body          bytes
//	size          the entry's approximate size in memory
//	cause, error, error_type, fingerprint   why it is here
//	attempts      of the handlers
//	redrives, redrive_id   times that a person has sent it back, and the id of the last redrive
//	tries, try_error   of forwarding that failed because of the message or its address
//	alone         1: the broker has refused it, so it goes on a channel of its own
//	unconfirmed   publishes whose answer is unknown: it may be in its queue
//	first_failed, failed, stored   when
//	lease         the process that is publishing it
//
// This query, in SQLite's dialect, counts the entries:
//
//	SELECT state, exchange, cause, count(*), datetime(min(stored)/1000, 'unixepoch')
//	FROM rehop_letters GROUP BY 1, 2, 3;
//
// The table rehop_letters_inbox has the queue, the message_id and the time (handled)
// of each message that Once has noted. On MySQL the time is negative from the beginning of
// a handler of OnceHandler or OnceBatch to its end: if the database commits the note
// meanwhile, the message is not handled yet.
//
// Names and ids are equal if their bytes are, in every database.
//
// The table rehop_letters_schema holds the version of the schema. A program that knows
// only earlier versions refuses to open the table.
//
// # Transactions of the caller
//
// [Store.PutTx], [Store.CancelTx] and Once write in a transaction of the caller. On a
// server such a transaction may stay open for any time: the Forwarder and the Put of other
// messages wait for no row that it has locked. SQLite has one writer at a time, so
// while such a transaction is open nothing else is written to the file.
//
// # Looking for entries
//
// Entries that are not Ready have an index for each name that a [Query] may give:
// Queue, Exchange, RoutingKey, Cause, ErrorType and Fingerprint. On MySQL these are
// indices of columns whose names begin with desk_ and which are NULL for entries that
// are Ready. Entries that are Ready are found fast by message id. For any other name
// the database reads them one by one.
//
// [Store.Find], [Store.Groups], [Store.Trend] and [Store.CountUpTo] answer fast enough
// for a person, even over a million entries: where no index has the answer they look
// at 20,000 entries, and say that there may be more. They look for a Text in the same
// way. [Store.Count] and the calls that change entries are exact, however long that
// takes.
//
// [Outages]: https://github.com/rehop/rehop/blob/main/docs/outages.md
// [Once]: https://github.com/rehop/rehop/blob/main/docs/once.md
// [Outbox]: https://github.com/rehop/rehop/blob/main/docs/outbox.md
// [Letters]: https://github.com/rehop/rehop/blob/main/docs/letters.md
package store
