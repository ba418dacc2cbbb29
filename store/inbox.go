package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/internal/letter"
)

// Once notes in a transaction of the caller, on the database of the Store, that the
// message with this id from this queue is handled, and reports whether nobody has noted
// it before. If first is false, the work of the message is done already: the caller
// rolls back and returns nil from its handler. So the writes of the transaction happen
// once for each message, however often it is delivered.
//
// Once must be the first statement of the transaction on SQLite, which refuses a
// transaction that reads first and then writes while another one writes. Of two
// transactions with one message the second waits until the first has ended. If the
// first rolls back, first is true for the second. Once also returns an error if queue
// or id is empty or longer than 255 bytes.
//
// A message is remembered for Config.KeepInbox. The table is Config.Table with "_inbox"
// behind it.
//
// Effects outside the database, such as a call of another service, are not undone by a
// rollback. Do them with the message id as their idempotency key, or publish them as
// messages by PutTx in the same transaction.
func (s *Store) Once(ctx context.Context, tx Tx, queue, id string) (first bool, err error) {
	faults := onceFaults(queue, id)
	if tx == nil {
		faults = errors.Join(errors.New("store: Once: tx is nil"), faults)
	}
	if faults != nil {
		return false, rehop.WithClass(faults, rehop.ClassBug)
	}
	now := s.now()
	s.lastTx.Store(now.UnixNano())
	result, err := tx.ExecContext(ctx, s.sql(s.dialect.insertUnlessThere("{letters}_inbox (queue, message_id, handled) VALUES (?, ?, ?)")),
		letter.Armour(queue), letter.Armour(id), now.UnixMilli())
	if err != nil {
		return false, fmt.Errorf("store: noting message %q of queue %q: %w", id, queue, err)
	}
	rows, err := result.RowsAffected()
	if err != nil {
		return false, fmt.Errorf("store: noting message %q of queue %q: %w", id, queue, err)
	}
	if s.inbox.isDue(now) {
		go s.cleanInbox(context.WithoutCancel(ctx), now.Add(-s.cfg.KeepInbox))
	}
	return rows == 1, nil
}

// OnceHandler is a wrapper, for consumer.Wrap, that runs a handler in a transaction and
// once for each message. [TxFrom] returns the transaction to the handler. OnceHandler
// commits it if the handler returns nil, and rolls it back if the handler returns an
// error or has given the message one by [consumer.Delivery.Fail].
//
//	handler := consumer.Wrap(consumer.JSON(func(ctx context.Context, d *consumer.Delivery, o Order) error {
//		_, err := store.TxFrom(ctx).ExecContext(ctx, "INSERT INTO orders (id) VALUES (?)", o.ID)
//		return err
//	}), letters.OnceHandler)
//
// A message that was handled before is acked without a run of the handler, and logged;
// at level Warn if it came out of a store or a person has sent it back. An error of the
// database before or after the handler's run holds the message, as
// [consumer.Hold]. After a timeout of the handler it is a failed attempt, because the
// transaction ends with ctx. A message without an id is a dead letter, and so is a Delivery
// of a test without a Queue.
func (s *Store) OnceHandler(next consumer.Handler) consumer.Handler {
	return func(ctx context.Context, d *consumer.Delivery) error {
		tx, err := s.db.BeginTx(ctx, nil)
		if err != nil {
			return unavailable(ctx, fmt.Errorf("store: %w", err))
		}
		defer func() { _ = tx.Rollback() }() // also of a panic; after a commit it does nothing
		first, err := s.Once(ctx, tx, d.Queue, d.ID)
		switch {
		case err != nil && rehop.ClassOf(err) == rehop.ClassBug:
			return consumer.DeadLetter(err)
		case err != nil:
			return unavailable(ctx, err)
		case !first:
			s.logRepeated(d)
			return nil
		}
		if err := next(context.WithValue(ctx, txKey{}, tx), d); err != nil || d.Err() != nil {
			return err
		}
		if err := tx.Commit(); err != nil {
			// If it has been committed all the same, the next run will find it noted.
			return unavailable(ctx, fmt.Errorf("store: committing the work of message %q: %w", d.ID, err))
		}
		return nil
	}
}

type txKey struct{}

// TxFrom returns the transaction in which [Store.OnceHandler] or [Store.OnceBatch] runs
// a handler, from the handler's ctx. The wrapper commits or rolls back the transaction; the
// handler must not. TxFrom panics if ctx is not that of such a handler.
func TxFrom(ctx context.Context) *sql.Tx {
	var tx *sql.Tx
	if ctx != nil {
		tx, _ = ctx.Value(txKey{}).(*sql.Tx)
	}
	if tx == nil {
		panic("store: TxFrom: this ctx has no transaction: wrap the handler by Store.OnceHandler or Store.OnceBatch, and give TxFrom the ctx with which they call it")
	}
	return tx
}

func (s *Store) logRepeated(d *consumer.Delivery) {
	about := []any{"queue", d.Queue, "message", d.ID, "attempt", d.Attempt}
	if h := d.History; h.Replays > 0 || h.Redrives > 0 {
		s.cfg.Logger.Warn("store: a message that was sent once more has been handled before, and is skipped", append(about, "replays", h.Replays, "redrives", h.Redrives)...)
		return
	}
	s.cfg.Logger.Info("store: a message that was handled before is skipped", about...)
}

// inbox says when the table of handled messages is cleaned.
type inbox struct {
	mu     sync.Mutex
	next   time.Time
	failed int // cleanings, in a row
}

const (
	// cleanEvery is how often a process looks for notes that are too old.
	cleanEvery = time.Minute

	// cleanFor bounds a cleaning, and cleanTogether the rows of one of its transactions:
	// they must not hold up writers.
	cleanFor      = 30 * time.Second
	cleanTogether = 500

	// cleanFailures in a row are worth a warning: the table grows. One is no news on SQLite,
	// where transactions of handlers may keep all others out for seconds.
	cleanFailures = 5
)

// isDue reports, once for each interval, whether it is time to clean.
func (i *inbox) isDue(now time.Time) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if now.Before(i.next) {
		return false
	}
	i.next = now.Add(cleanEvery)
	return true
}

// cleanInbox forgets the messages that were handled before a time, in transactions of
// its own.
func (s *Store) cleanInbox(ctx context.Context, before time.Time) {
	ctx, cancel := context.WithTimeout(ctx, cleanFor)
	defer cancel()
	for {
		began := time.Now()
		n, err := s.forgetOldest(ctx, before.UnixMilli())
		if failed := s.inbox.cleaned(err); failed >= cleanFailures {
			s.cfg.Logger.Warn("store: messages that were handled long ago cannot be forgotten, and their table grows", "failures", failed, "error", err)
		}
		if err != nil || n < cleanTogether {
			return
		}
		select { // leaves writers half of the time: SQLite has no queue for them
		case <-time.After(time.Since(began)):
		case <-ctx.Done():
			return
		}
	}
}

// forgetOldest deletes some of the notes from before a time. It looks without a lock
// first: mostly there are none.
func (s *Store) forgetOldest(ctx context.Context, before int64) (n int, err error) {
	var old bool
	err = s.db.QueryRowContext(ctx, s.sql("SELECT EXISTS (SELECT 1 FROM {letters}_inbox WHERE handled < ?)"), before).Scan(&old)
	if err != nil || !old {
		return 0, err
	}
	return s.exec(ctx, s.dialect.deleteOldest("{letters}_inbox", "queue, message_id", "handled < ?", "handled", cleanTogether), before)
}

// cleaned notes the end of a cleaning, and returns how many have failed in a row.
func (i *inbox) cleaned(err error) (failed int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.failed++; err == nil {
		i.failed = 0
	}
	return i.failed
}

// inboxSchema are the statements that make the table of handled messages. collation is
// for MySQL.
func inboxSchema(d Dialect, table, collation string) []string {
	statement := "CREATE TABLE IF NOT EXISTS {inbox} (queue {name} NOT NULL, message_id {name} NOT NULL, handled {number} NOT NULL, PRIMARY KEY (queue, message_id){index}){options}"
	index := "CREATE INDEX IF NOT EXISTS {inbox}_handled ON {inbox} (handled)"
	fill := func(statement, name, number, index, options string) string {
		return strings.NewReplacer("{inbox}", table+"_inbox", "{name}", name, "{number}", number, "{index}", index, "{options}", options).Replace(statement)
	}
	switch d {
	case MySQL: // which has no CREATE INDEX IF NOT EXISTS
		return []string{fill(statement, "VARCHAR(360)", "BIGINT", ", INDEX "+table+"_inbox_handled (handled)", " ENGINE=InnoDB CHARACTER SET utf8mb4 COLLATE "+collation)}
	case PostgreSQL:
		return []string{fill(statement, "TEXT", "BIGINT", "", ""), fill(index, "", "", "", "")}
	}
	return []string{fill(statement, "TEXT", "INTEGER", "", " WITHOUT ROWID"), fill(index, "", "", "", "")}
}

// insertUnlessThere is an INSERT that does nothing if a row with its primary key is
// there.
func (d Dialect) insertUnlessThere(into string) string {
	if d == MySQL {
		return "INSERT IGNORE INTO " + into
	}
	return "INSERT INTO " + into + " ON CONFLICT DO NOTHING"
}

// deleteOldest is a DELETE of the first rows, by one column, for which a condition holds.
// Rows that others have locked are left out where the dialect knows how.
func (d Dialect) deleteOldest(table, key, where, by string, limit int) string {
	rows := fmt.Sprintf("WHERE %s ORDER BY %s LIMIT %d", where, by, limit)
	switch d {
	case MySQL:
		return "DELETE FROM " + table + " " + rows
	case PostgreSQL:
		return "DELETE FROM " + table + " WHERE ctid IN (SELECT ctid FROM " + table + " " + rows + " FOR UPDATE SKIP LOCKED)"
	}
	return "DELETE FROM " + table + " WHERE (" + key + ") IN (SELECT " + key + " FROM " + table + " " + rows + ")"
}
