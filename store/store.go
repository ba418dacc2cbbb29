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
	"github.com/rehop/rehop/internal/hooks"
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

	// KeepOrder gives letters a place in a line: all messages with one OrderKey, or
	// without one all with the same exchange and routing key. Forward publishes the
	// letters of a line in the order of storing, each after the confirm of the one
	// before; a letter that fails holds up those behind it until it is parked. While a
	// line has letters of Put or PutTx, a Producer that has the Store in its Fallback stores
	// fresh messages of the line too, behind them, although the broker is there.
	//
	// Two messages are in order if the second call (of Publish or Put, or the commit
	// after a PutTx) began after the first had returned. Only letters that were stored
	// with KeepOrder are in order: set it in all processes that share the table. Fresh
	// messages stay behind letters of this process, and behind letters that were in the
	// table when it was opened. Dead letters, letters of PutAt and messages with a
	// Delay have no place in a line. A transaction with PutTx keeps its place for ten
	// minutes: if it is open for longer, fresh messages may be published before its
	// letters. If somebody parks or deletes the last letter of a line, fresh messages
	// overtake the letters before it.
	//
	// Forward publishes the letters of one line one by one, as fast as the broker
	// confirms them. If fresh messages of a line keep coming faster, the line is never
	// empty again, and every message of it is stored first. Many short lines, such as
	// an OrderKey for each customer, avoid this. While the database is away Publish
	// fails for lines that have letters.
	KeepOrder bool

	// KeepArchived is how long Forward keeps letters in state Archived,
	// counted from when they were stored. If zero, it keeps them for ever.
	KeepArchived time.Duration

	// KeepInbox is how long [Store.Once] remembers a message. It must be longer than a
	// message can be under way: in waits, in a dead-letter queue until somebody sends it
	// back, in a store. Defaults to 7 days.
	KeepInbox time.Duration

	// Logger gets a record of letters that Forward cannot deliver, with the reason, of
	// faults of the database, and of messages that Once skips. If nil, nothing is
	// logged.
	Logger *slog.Logger

	// Traces are sets of hooks. The hooks of one kind are called in the order of the
	// slice; a hook that panics is logged and keeps no other from being called.
	Traces []Trace
}

// Trace has hooks that are called while messages are stored. They must not block. Nil
// ones are not called.
type Trace struct {
	// Storing: a message of PutTx or PutAt has its ID and is about to be checked and
	// stored. The hook may change the message, but not what its Headers and Body refer
	// to: it adds a header to a copy of them. It is not called for messages of Put,
	// because a Producer has called its own hooks for them, nor for dead letters.
	Storing func(ctx context.Context, m *producer.Message)
}

func (c Config) withDefaults() Config {
	c.Table = cmp.Or(c.Table, "rehop_letters")
	c.Name = cmp.Or(c.Name, "store")
	c.Timeout = cmp.Or(c.Timeout, 10*time.Second)
	c.KeepInbox = cmp.Or(c.KeepInbox, 7*24*time.Hour)
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
	if c.KeepInbox < 0 {
		errs = append(errs, fmt.Errorf("store: Config.KeepInbox is %v, want more than 0", c.KeepInbox))
	}
	return errors.Join(errs...)
}

// Store keeps letters in one table of a database. It is safe for concurrent use,
// also by several processes. It runs one goroutine while something is written. The
// database belongs to the caller, who closes it when the Store is no longer used.
type Store struct {
	db          *sql.DB
	dialect     Dialect
	cfg         Config
	writer      *writer
	owner       string        // begins each lease
	leases      atomic.Uint64 // counts them
	wake        chan struct{} // has an element when something became ready
	now         func() time.Time
	waiting     waiting // with Config.KeepOrder
	uncommitted uncommitted
	lastTx      atomic.Int64 // when a transaction of a caller was last seen, in Unix nanoseconds
	forwarding  atomic.Int64 // calls of Forward that are running
	inbox       inbox
	openTxs     openTxs
	storing     func(context.Context, *producer.Message) // the hooks of Config.Traces, or nil
}

// Open returns a Store in db. It creates the tables unless they are there. Of several
// processes that start at once, one does so and the others wait. Open fails if db is
// of another dialect, and if a later version of this package has
// changed the tables. ctx bounds the opening.
func Open(ctx context.Context, db *sql.DB, dialect Dialect, cfg Config) (*Store, error) {
	cfg = cfg.withDefaults()
	errs := []error{cfg.validate(), dialect.validate()}
	if db == nil {
		errs = append(errs, errors.New("store: db is nil"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, connection.WithClass(err, connection.Bug)
	}
	if err := prepare(ctx, db, dialect, cfg.Table); err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	s := &Store{
		db: db, dialect: dialect, cfg: cfg,
		owner:       fmt.Sprintf("%.24s/%d/%s", letter.Readable(host, 24), os.Getpid(), rand.Text()[:8]),
		wake:        make(chan struct{}, 1),
		now:         time.Now,
		uncommitted: uncommitted{added: make(chan struct{}, 1)},
		storing: hooks.Two(hooks.Of(cfg.Traces, cfg.Logger, "store.Trace"), "Storing",
			func(t Trace) func(context.Context, *producer.Message) { return t.Storing }),
	}
	s.writer = &writer{transact: s.transact, lightly: s.transactLightly, timeout: cfg.Timeout, rows: dialect.rowsPerInsert(), abreast: dialect.writers(), insert: s.insert}
	if cfg.KeepOrder {
		if err := s.noteWaiting(ctx); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Name returns Config.Name.
func (s *Store) Name() string { return s.cfg.Name }

// Tx is a transaction of the caller, on the database of the Store: a *sql.Tx, or what
// wraps one.
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

// Class returns connection.Transient.
func (e *commitError) Class() connection.Class { return connection.Transient }

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
// "{letters by number}" the primary key, "{letters by turn}" that of the letters which
// wait for Forward. A scan in another order would touch, on MySQL, rows that a
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

// nudge tells Forward that something became ready.
func (s *Store) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}
