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
// On MySQL and MariaDB a statement that commits implicitly, such as DDL, commits the note although
// the caller's work is not finished. OnceHandler and OnceBatch notice this, and Once cannot.
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
	return s.note(ctx, tx, queue, id, false)
}

// note notes a message as handled, or as begun: then noteDone must follow. It reports whether
// nobody has noted it as handled before.
func (s *Store) note(ctx context.Context, tx Tx, queue, id string, begun bool) (first bool, err error) {
	now := s.now()
	s.lastTx.Store(now.UnixNano())
	handled := now.UnixMilli()
	if begun {
		handled = -handled
	}
	first, err = s.changesNote(ctx, tx, s.dialect.insertUnlessThere("{letters}_inbox (queue, message_id, handled) VALUES (?, ?, ?)"),
		letter.Armour(queue), letter.Armour(id), handled)
	if err == nil && !first && s.dialect.endsTransactions() {
		if first, err = s.wasBegun(ctx, tx, queue, id); first && !begun {
			err = s.noteDone(ctx, tx, queue, id)
		}
	}
	if err != nil {
		return false, fmt.Errorf("store: noting message %q of queue %q: %w", id, queue, err)
	}
	if s.inbox.isDue(now) {
		go s.cleanInbox(context.WithoutCancel(ctx), now.Add(-s.cfg.KeepInbox))
	}
	return first, nil
}

// noteDone notes that the handler of a message that was noted as begun has ended.
func (s *Store) noteDone(ctx context.Context, tx Tx, queue, id string) error {
	is, err := s.changesNote(ctx, tx, "UPDATE {letters}_inbox SET handled = ? WHERE queue = ? AND message_id = ? AND handled < 0",
		s.now().UnixMilli(), letter.Armour(queue), letter.Armour(id))
	if err == nil && !is {
		err = errNoteGone
	}
	return err
}

// changesNote reports whether a statement has changed a row.
func (s *Store) changesNote(ctx context.Context, tx Tx, statement string, args ...any) (bool, error) {
	statement, args = s.dialect.inline(statement, args)
	result, err := tx.ExecContext(ctx, s.sql(statement), args...)
	if err != nil {
		return false, err
	}
	rows, err := result.RowsAffected()
	return rows == 1, err
}

// wasBegun reports whether the note of a message is there because the database has
// committed it under its handler. It looks with the lock first that the INSERT has got:
// two that ask for a stricter one would be a deadlock.
func (s *Store) wasBegun(ctx context.Context, tx Tx, queue, id string) (bool, error) {
	for _, lock := range []string{" LOCK IN SHARE MODE", " FOR UPDATE"} {
		var handled int64
		err := tx.QueryRowContext(ctx, s.sql("SELECT handled FROM {letters}_inbox WHERE queue = ? AND message_id = ?"+lock),
			letter.Armour(queue), letter.Armour(id)).Scan(&handled)
		if err != nil || handled >= 0 {
			return false, err
		}
	}
	s.cfg.Logger.Warn("store: work of an earlier run of this message's handler, which failed, is committed: DDL and the like end a transaction", "queue", queue, "message", id)
	return true, nil
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
//
// The attempt also fails, although the handler returns nil, if the transaction has ended
// before, or if the database refuses to commit it because of a failed statement or a constraint.
// A deadlock ends a transaction; later writes of the handler are undone, too. On MySQL and
// MariaDB, DDL, TRUNCATE, LOCK TABLES and the like commit the work before them, which stays. The
// server refuses the statement itself and later writes with error 1792, and the handler runs
// again when the message comes again. On SQLite, after a statement that rolls back, such as INSERT OR
// ROLLBACK, later writes stay.
func (s *Store) OnceHandler(next consumer.Handler) consumer.Handler {
	return func(ctx context.Context, d *consumer.Delivery) error {
		if err := onceFaults(d.Queue, d.ID); err != nil {
			return consumer.DeadLetter(err)
		}
		tx, end, err := s.beginWork(ctx)
		if err != nil {
			return unavailable(ctx, err)
		}
		defer end()
		canEnd := s.dialect.endsTransactions()
		first, err := s.note(ctx, tx, d.Queue, d.ID, canEnd)
		switch {
		case err != nil:
			return unavailable(ctx, err)
		case !first:
			s.logRepeated(d)
			return nil
		}
		if err := next(context.WithValue(ctx, txKey{}, tx), d); err != nil || d.Err() != nil {
			return err
		}
		if canEnd {
			err = s.noteDone(ctx, tx, d.Queue, d.ID)
		}
		if err == nil {
			err = tx.Commit()
		}
		if err != nil {
			return notCommitted(ctx, fmt.Sprintf("committing the work of message %q", d.ID), err)
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
	// Of a message that was begun the time is negative. What handlers have in hand is at that
	// end of the index, outside of the range.
	const where = "handled > ? AND handled < ?"
	err = s.db.QueryRowContext(ctx, s.sql("SELECT EXISTS (SELECT 1 FROM {letters}_inbox WHERE "+where+")"), -before, before).Scan(&old)
	if err != nil || !old {
		return 0, err
	}
	return s.exec(ctx, s.dialect.deleteOldest("{letters}_inbox", "queue, message_id", where, "handled", cleanTogether), -before, before)
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
