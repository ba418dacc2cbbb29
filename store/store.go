package store

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/letter"
	"github.com/rehop/rehop/producer"
)

// Config of a Store. Its zero value is usable.
type Config struct {
	// Table holds the letters, and Table with "_schema" behind it the version
	// of the schema. Lower-case letters, digits and underscores, up to 40.
	// Defaults to "rehop_letters".
	Table string

	// Name of the Store as a [producer.Sink], as it appears in a Receipt.
	// Defaults to "store".
	Name string

	// Timeout bounds each transaction of the Store. The ctx of a call bounds
	// the call. Defaults to 10 s.
	Timeout time.Duration

	// KeepOrder keeps fresh messages from overtaking stored ones: while a message
	// of Put with the same exchange and key is in the table, a Producer that has the
	// Store in its Fallback stores fresh ones too, behind it, although the broker
	// is there. For use with ForwardConfig.KeepOrder. The order is that of calls of
	// Publish each of which began when the one before had returned. It holds for
	// messages of this process, and for those that were in the table when it was
	// opened. Letters of PutTx, PutAt and Release hold up nothing, and messages with
	// a Delay have no place in the order. If somebody
	// parks, edits or deletes the last letter of an exchange and key, fresh
	// messages overtake those before it.
	//
	// It costs a look at the last letter and a transaction for each message until
	// the letters of its exchange and key are gone, and then nothing. If messages
	// come faster than Forward can publish them one by one, they are stored for
	// ever; an exchange and key for each customer, say, keeps that from happening.
	// While the database is away Publish fails for such an exchange and key.
	KeepOrder bool

	// KeepArchived is how long Forward keeps letters in state Archived,
	// counted from when they were stored. If zero, it keeps them for ever.
	KeepArchived time.Duration

	// Logger receives what Forward cannot deliver, and why. If nil, nothing is
	// logged.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	c.Table = cmp.Or(c.Table, "rehop_letters")
	c.Name = cmp.Or(c.Name, "store")
	c.Timeout = cmp.Or(c.Timeout, 10*time.Second)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

var tableName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,39}$`)

func (c Config) validate() error {
	var errs []error
	if !tableName.MatchString(c.Table) {
		errs = append(errs, fmt.Errorf("store: Config.Table is %q, want up to 40 lower-case letters, digits and underscores", c.Table))
	}
	if c.Timeout < 0 {
		errs = append(errs, fmt.Errorf("store: Config.Timeout is %v, want more than 0", c.Timeout))
	}
	if c.KeepArchived < 0 {
		errs = append(errs, fmt.Errorf("store: Config.KeepArchived is %v, want 0 or more", c.KeepArchived))
	}
	return errors.Join(errs...)
}

// Store keeps letters in one table of a database. It is safe for concurrent use,
// also by several processes. It runs one goroutine while something is written. The
// database belongs to the caller, who closes it when the Store is no longer used.
type Store struct {
	db      *sql.DB
	dialect Dialect
	cfg     Config
	writer  *writer
	owner   string        // begins each lease
	leases  atomic.Uint64 // counts them
	wake    chan struct{} // has an element when something became ready
	now     func() time.Time
	tails   tails // with Config.KeepOrder
}

// Open returns a Store in db. It creates the tables or brings them up to date. Of
// several processes that start at once, one does so and the others wait. Open
// fails with a [*SchemaError] if a later version of this package has changed
// the tables. ctx bounds the opening.
func Open(ctx context.Context, db *sql.DB, dialect Dialect, cfg Config) (*Store, error) {
	cfg = cfg.withDefaults()
	errs := []error{cfg.validate(), dialect.validate()}
	if db == nil {
		errs = append(errs, errors.New("store: db is nil"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, connection.WithClass(err, connection.Bug)
	}
	if err := migrate(ctx, db, dialect, cfg.Table, migrations); err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	s := &Store{
		db: db, dialect: dialect, cfg: cfg,
		owner: fmt.Sprintf("%.24s/%d/%s", letter.Readable(host, 24), os.Getpid(), rand.Text()[:8]),
		wake:  make(chan struct{}, 1),
		now:   time.Now,
	}
	s.writer = &writer{transact: s.transact, timeout: cfg.Timeout, rows: dialect.rowsPerInsert(), insert: s.insert}
	if cfg.KeepOrder {
		if err := s.loadTails(ctx); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Name returns Config.Name.
func (s *Store) Name() string { return s.cfg.Name }

// querier is what a transaction and a connection have in common.
type querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// transact runs do in a transaction, which is committed if do returns nil.
func (s *Store) transact(ctx context.Context, do func(context.Context, querier) error) error {
	if s.dialect == SQLite {
		return s.immediate(ctx, do)
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

// Class returns connection.Transient.
func (e *commitError) Class() connection.Class { return connection.Transient }

// immediate runs do in a transaction that is the writer from its beginning:
// SQLite refuses one that becomes it later while another process writes.
func (s *Store) immediate(ctx context.Context, do func(context.Context, querier) error) error {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
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

// rollBack ends the transaction of a connection, or the connection: one that
// went back to the pool in the middle of a transaction would keep the lock.
// ROLLBACK also fails where the database has rolled back by itself, which
// costs no more than a connection.
func rollBack(ctx context.Context, conn *sql.Conn) {
	if _, err := conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK"); err != nil {
		_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	}
}

// sql fills in the name of the table and the placeholders of the dialect. "{letters by
// number}" is for conditions that name numbers: SQLite, which has no statistics, would
// rather look through an index for a state.
func (s *Store) sql(statement string) string {
	byNumber := s.cfg.Table
	if s.dialect == SQLite {
		byNumber += " NOT INDEXED"
	}
	return s.dialect.bind(strings.NewReplacer("{letters}", s.cfg.Table, "{letters by number}", byNumber).Replace(statement))
}

// exec runs one statement together with what else is being written, and
// returns the number of rows it changed.
func (s *Store) exec(ctx context.Context, statement string, args ...any) (int, error) {
	var changed int64
	err := s.writer.do(ctx, func(ctx context.Context, q querier) error {
		result, err := q.ExecContext(ctx, s.sql(statement), args...)
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

// nudge tells Forward that something became ready.
func (s *Store) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}
