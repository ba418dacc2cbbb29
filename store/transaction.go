package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/producer"
)

// Tx is a transaction of the caller, on the database of the Store: a *sql.Tx, or a type
// that wraps one.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// transact runs do in a transaction, which is committed if do returns nil.
func (s *Store) transact(ctx context.Context, do func(context.Context, Tx) error) error {
	err := s.begin(ctx, do)
	if err != nil {
		err = explained(err, s.dialect, s.db)
	}
	return err
}

// transactLightly is transact for what a power cut may undo. Only the writer of SQLite
// needs it.
func (s *Store) transactLightly(ctx context.Context, do func(context.Context, Tx) error) error {
	err := s.immediate(ctx, true, do)
	if err != nil {
		err = explained(err, s.dialect, s.db)
	}
	return err
}

func (s *Store) begin(ctx context.Context, do func(context.Context, Tx) error) error {
	if s.dialect == SQLite {
		return s.immediate(ctx, false, do)
	}
	// Rows that others have taken are skipped, so nothing is read twice; the
	// stricter default of MySQL locks gaps that nobody needs.
	tx, err := s.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	if err = do(ctx, tx); err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = tx.Rollback() // err says more
		return err
	}
	if err := tx.Commit(); err != nil {
		return &commitError{err}
	}
	return nil
}

// commitError says that COMMIT was sent and not answered with success. Which
// errors are the server's word that it has rolled back only the driver knows.
type commitError struct{ err error }

func (e *commitError) Error() string {
	return fmt.Sprintf("the answer to COMMIT is missing, it may have happened: %v", e.err)
}

// Is reports whether target is [producer.ErrUnconfirmed].
func (e *commitError) Is(target error) bool { return target == producer.ErrUnconfirmed }

// Unwrap returns what the driver said.
func (e *commitError) Unwrap() error { return e.err }

// Class returns rehop.ClassTransient.
func (e *commitError) Class() rehop.Class { return rehop.ClassTransient }

// immediate runs do in a transaction that is the writer from its beginning:
// SQLite refuses one that becomes it later while another process writes.
func (s *Store) immediate(ctx context.Context, light bool, do func(context.Context, Tx) error) error {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if light {
		defer lighten(ctx, conn)()
	}
	_, err = conn.ExecContext(ctx, "BEGIN IMMEDIATE")
	if err == nil {
		err = do(ctx, conn)
	}
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		// SQLite is in this process, and its error is the truth, unless it was
		// interrupted.
		if _, err = conn.ExecContext(ctx, "COMMIT"); err != nil && ctx.Err() != nil {
			err = &commitError{err}
		}
	}
	if err != nil {
		rollBack(ctx, conn)
	}
	return err
}

// lighten has the commits of a connection of SQLite not wait for the disk, until restore
// is called. The WAL is in the order of the commits: what is lost in a power cut are the
// last of them, up to the next commit that waits. Without a WAL it does nothing: there a
// power cut could damage the file.
func lighten(ctx context.Context, conn *sql.Conn) (restore func()) {
	var journal string
	var level int
	const full, normal = 2, 1
	if conn.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&journal) != nil || journal != "wal" ||
		conn.QueryRowContext(ctx, "PRAGMA synchronous").Scan(&level) != nil || level < full {
		return func() {}
	}
	set := func(level int) {
		if _, err := conn.ExecContext(context.WithoutCancel(ctx), fmt.Sprintf("PRAGMA synchronous = %d", level)); err != nil {
			discard(conn)
		}
	}
	set(normal)
	return func() { set(level) }
}

// discard ends a connection instead of giving it back to the pool.
func discard(conn *sql.Conn) { _ = conn.Raw(func(any) error { return driver.ErrBadConn }) }

// rollBack ends the transaction of a connection, or the connection: one that
// went back to the pool in the middle of a transaction would keep the lock.
// ROLLBACK also fails where the database has rolled back by itself, which
// costs no more than a connection.
func rollBack(ctx context.Context, conn *sql.Conn) {
	if _, err := conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK"); err != nil {
		discard(conn)
	}
}

// explained adds to an error of a transaction what its caller can do about it.
func explained(err error, d Dialect, db *sql.DB) error {
	stats := db.Stats()
	switch {
	case errors.Is(err, producer.ErrUnconfirmed):
		return err
	case errors.Is(err, context.DeadlineExceeded) && stats.MaxOpenConnections > 0 && stats.InUse >= stats.MaxOpenConnections:
		return fmt.Errorf("%w: all %d connections that SetMaxOpenConns allows are in use: a call of the Store within a transaction of the same database waits for that transaction (use PutTx there), and so does every call if a Commit is forgotten", err, stats.MaxOpenConnections)
	case d == SQLite && strings.Contains(err.Error(), "locked"):
		return fmt.Errorf("%w: another transaction is writing to the file: SQLite has one writer at a time, and one whose Commit is forgotten, such as after PutTx, keeps out all others", err)
	}
	return err
}

// sql fills in the name of the table and the placeholders of the dialect. Two names
// say which index a statement needs, where the database may choose a worse one:
// "{letters by number}" the primary key, "{letters by turn}" that of the entries which
// wait for the Forwarder. A scan in another order would touch, on MySQL, rows that a
// transaction of somebody else has locked.
func (s *Store) sql(statement string) string {
	var byNumber, byTurn string
	if s.dialect == MySQL { // whose DELETE takes a hint only so
		statement = strings.ReplaceAll(statement, "DELETE FROM {letters by number}", "DELETE {letters} FROM {letters by number}")
	}
	switch s.dialect {
	case SQLite: // which has no statistics
		byNumber, byTurn = " NOT INDEXED", " INDEXED BY "+s.cfg.Table+"_next"
	case MySQL:
		byNumber, byTurn = " FORCE INDEX (PRIMARY)", " FORCE INDEX ("+s.cfg.Table+"_next)"
	}
	return s.dialect.bind(strings.NewReplacer("{letters}", s.cfg.Table, "{letters by number}", s.cfg.Table+byNumber,
		"{letters by turn}", s.cfg.Table+byTurn, "{letters as l by turn}", s.cfg.Table+" AS l"+byTurn).Replace(statement))
}

// write runs do in a transaction: on SQLite together with what else is being written,
// because it has one writer at a time and waits for the disk at each commit; on a
// server in one of its own, so that a Put does not wait for it. do may run more than
// once, of which one is committed.
func (s *Store) write(ctx context.Context, do func(context.Context, Tx) error) error {
	return s.writeAs(ctx, false, do)
}

// writeAs is write; a power cut may undo what is light.
func (s *Store) writeAs(ctx context.Context, light bool, do func(context.Context, Tx) error) error {
	if s.dialect == SQLite {
		return s.writer.do(ctx, light, do)
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	return retryDeadlock(ctx, func() error { return s.transact(ctx, do) })
}

// exec runs one statement in a transaction, and returns the number of rows it changed.
func (s *Store) exec(ctx context.Context, statement string, args ...any) (int, error) {
	var changed int64
	err := s.write(ctx, func(ctx context.Context, tx Tx) error {
		result, err := tx.ExecContext(ctx, s.sql(statement), args...)
		if err == nil {
			changed, err = result.RowsAffected()
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("store: %w", err)
	}
	return int(changed), nil
}
