package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/internal/pause"
)

// endsTransactions reports whether statements other than COMMIT and ROLLBACK end a
// transaction of a database, while its session goes on. The sections "Statements That Cause an
// Implicit Commit" and "InnoDB Error Handling" of MySQL's reference manual say so of MySQL, and
// MariaDB has the same rules. SQLite and PostgreSQL undo DDL, and PostgreSQL refuses all
// statements after a failed one.
func (d Dialect) endsTransactions() bool { return d == MySQL }

// guardSession protects the work of handlers that end their transaction, and freeSession
// ends the protection. Without it the server commits each later statement by itself, that of
// noteDone included. With it the server begins another transaction after a rollback, and
// the end of beginWork undoes this one. After a commit the session is read-only: the server
// refuses writes, and even DDL, whose right to write it checks after the commit. A transaction
// that has begun stays as it is: the sections "SET TRANSACTION Statement" and "autocommit,
// Commit, and Rollback" of MySQL's reference manual say so. MariaDB and MySQL have different
// names for one variable, and each reads its own of the two comments.
const (
	readOnly     = "SESSION /*M! tx_read_only */ /*!80000 transaction_read_only */"
	guardSession = "SET SESSION autocommit = 0, " + readOnly + " = 1"
	freeSession  = "SET SESSION autocommit = 1, " + readOnly + " = 0"
)

// beginWork begins a transaction for handlers. end undoes it unless it is committed, also
// after a panic.
func (s *Store) beginWork(ctx context.Context) (tx *sql.Tx, end func(), err error) {
	if !s.dialect.endsTransactions() {
		if tx, err = s.db.BeginTx(ctx, nil); err != nil {
			return nil, nil, fmt.Errorf("store: %w", err)
		}
		return tx, func() { _ = tx.Rollback() }, nil
	}
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("store: %w", err)
	}
	if tx, err = conn.BeginTx(ctx, nil); err != nil {
		_ = conn.Close()
		return nil, nil, fmt.Errorf("store: %w", err)
	}
	end = func() {
		err := tx.Rollback()
		if ctx.Err() != nil {
			// The rollback may still be under way, and freeSession before it would be a
			// commit. A handler that is out of time does not wait for the network.
			go func() {
				discard(conn)
				_ = conn.Close()
			}()
			return
		}
		if err == nil || errors.Is(err, sql.ErrTxDone) {
			_, err = conn.ExecContext(ctx, freeSession)
		}
		if err != nil {
			discard(conn)
		}
		_ = conn.Close()
	}
	if _, err := tx.ExecContext(ctx, guardSession); err != nil {
		end()
		return nil, nil, fmt.Errorf("store: %w", err)
	}
	return tx, end, nil
}

// errNoteGone says that the note of a message is not there at the end of its handler.
var errNoteGone = errors.New("the note of the message is gone, with all that was written before it went: the transaction was rolled back")

// unavailable returns the outcome of a message or a batch after an error of the database:
// it has failed if its ctx has ended, because it would not be in time again.
func unavailable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", pause.Ended(ctx), err)
	}
	return consumer.Hold(err)
}

// notCommitted returns the outcome of a message or a batch after an error of the database at
// the end of its work: it has failed if the reason is in the work. If the work has been
// committed all the same, the next run will find the messages noted.
func notCommitted(ctx context.Context, what string, err error) error {
	failed := fmt.Errorf("store: %s: %w", what, withReason(err))
	if ctx.Err() == nil && hasEnded(err) {
		return failed
	}
	return unavailable(ctx, failed)
}

// withReason adds the likely reasons to an error for which hasEnded is true.
func withReason(err error) error {
	if !hasEnded(err) {
		return err
	}
	return fmt.Errorf("%w: a statement of the handler has ended the transaction, as DDL does on MySQL and MariaDB, or the database has refused a statement, as after a deadlock, and the handler went on", err)
}

// hasEnded reports whether the database has refused the end of a transaction because of the
// statements in it. The databases and their drivers say so in these words; the types of
// drivers are not known here.
func hasEnded(err error) bool {
	return errors.Is(err, sql.ErrTxDone) || errors.Is(err, errNoteGone) || slices.ContainsFunc([]string{
		"Error 1792",                                           // MySQL, in a session that is read-only
		"no transaction is active",                             // SQLite, after a statement that has rolled back
		"commit unexpectedly resulted in rollback",             // pgx, after a statement that has failed
		"Could not complete operation in a failed transaction", // lib/pq, likewise
		"SQLSTATE 23", "constraint",                            // of PostgreSQL and SQLite, one that waits for the commit
	}, func(words string) bool { return strings.Contains(err.Error(), words) })
}
