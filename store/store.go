package store

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"sync/atomic"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/hooks"
	"github.com/rehop/rehop/internal/letter"
	"github.com/rehop/rehop/internal/transport"
	"github.com/rehop/rehop/producer"
)

// Config of a Store. Its zero value is usable.
type Config struct {
	// Table holds the entries, and Table with "_schema" behind it the version
	// of the schema. Lower-case letters, digits and underscores, up to 40.
	// Defaults to "rehop_letters".
	Table string

	// Existing says that the tables are there already: Open makes none, and writes nothing.
	// It fails if the database has no store, or one that another version of this package
	// has made. For programs that only look, and for a database that a person has named.
	Existing bool

	// Name of the Store as a [producer.Sink], as it appears in a Receipt.
	// Defaults to "store".
	Name string

	// Timeout bounds each transaction of the Store. The ctx of a call bounds
	// the call. Defaults to 10 s.
	Timeout time.Duration

	// KeepOrder keeps the messages of each line in order. A line is all messages with
	// one OrderKey. Messages without an OrderKey form a line for each exchange and
	// routing key. Set KeepOrder in all processes that share the table: only entries
	// that were stored with it are in order.
	//
	// The Forwarder publishes the entries of a line in the order of storing, each after the
	// confirm of the one before. An entry that fails holds up the entries behind it. If
	// the broker returns, nacks or refuses it, that ends when it is parked, after
	// ForwardConfig.Tries: about an hour with the default of 20, a minute with 7. If no
	// answer comes, the entry may be in its queue, and is tried without end.
	// Forwarder.Health names the entry; Park, Edit or Delete lets the line go on. While a line has entries of Put or PutTx, a Producer that has
	// the Store in its Fallback stores each new message of the line behind them, even
	// if it can reach the broker.
	//
	// Two messages are in order if the first one was safe when the call of Publish, Put or
	// PutTx for the second one began. A message of Publish or Put is safe when the call
	// has returned, and a message of PutTx when its transaction has been committed.
	//
	// KeepOrder does not keep the order in these cases:
	//   - Dead letters, entries of PutAt, and messages with a Delay are in no line.
	//   - A Producer knows the entries of its own process, and those that were in the
	//     table when its process opened the Store. Its new messages may overtake
	//     entries that another process has stored since.
	//   - Transactions with PutTx that are open at the same time are in no order. The
	//     entries of the first call of PutTx may go first, whichever transaction is
	//     committed first.
	//   - Replay knows no lines. Its entries may overtake entries of their lines that
	//     the Forwarder is publishing, or that stand before them.
	//   - A transaction with PutTx keeps its place for ten minutes. If it is open for
	//     longer, new messages may overtake its entries.
	//   - If somebody parks or deletes the last entry of a line, new messages
	//     overtake the entries before it.
	//
	// A line is as fast as its confirms, which come one by one. If new messages come
	// faster, the line is never empty again, and each of its messages is stored first.
	// Many short lines, such as an OrderKey for each customer, avoid this. While the
	// database is away, Publish fails for lines that have entries.
	KeepOrder bool

	// KeepArchived is how long the Forwarder keeps entries in state Archived,
	// counted from when they were stored. If zero, it keeps them for ever.
	KeepArchived time.Duration

	// KeepInbox is how long [Store.Once] remembers a message. It must be longer than a
	// message can be under way: in waits, in a dead-letter queue until somebody sends it
	// back, in a store. Defaults to 7 days.
	KeepInbox time.Duration

	// Conn gives the Store the Logger and the Telemetry of the service, where Logger and
	// Traces are nil. The Store uses the Conn for nothing else.
	Conn *connection.Conn

	// Logger gets a record of entries that the Forwarder cannot deliver, with the reason, of
	// faults of the database, and of messages that Once skips. If nil, it is the Logger of
	// Conn; without a Conn nothing is logged.
	Logger *slog.Logger

	// Traces are sets of hooks. The hooks of one kind are called in the order of the
	// slice; a hook that panics is logged and keeps no other from being called. If nil,
	// they are those of the Telemetry of Conn.
	Traces []Trace
}

// Trace has hooks that are called while messages are stored. They must not block. Nil
// ones are not called.
type Trace struct {
	// Storing: a message of PutTx or PutAt has its ID and is about to be checked and
	// stored. The hook may change the message, but not the map and the bytes that its
	// Headers and Body refer to: it adds a header to a copy of the map. It is not
	// called for messages of Put, because a Producer has called its own hooks for them,
	// nor for dead letters.
	Storing func(ctx context.Context, m *producer.Message)
}

func (c Config) withDefaults() Config {
	log, telemetry := transport.Inherited(c.Conn)
	if t, ok := telemetry.(interface{ Store() Trace }); ok && c.Traces == nil {
		c.Traces = []Trace{t.Store()}
	}
	c.Logger = cmp.Or(c.Logger, log)
	c.Table = cmp.Or(c.Table, "rehop_letters")
	c.Name = cmp.Or(c.Name, "store")
	c.Timeout = cmp.Or(c.Timeout, 10*time.Second)
	c.KeepInbox = cmp.Or(c.KeepInbox, 7*24*time.Hour)
	c.Logger = hooks.Logger(c.Logger)
	return c
}

var tableName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,39}$`)

func (c Config) validate() error {
	var errs []error
	if !tableName.MatchString(c.Table) {
		errs = append(errs, fmt.Errorf("store: Config.Table is %q, want up to 40 lower-case letters, digits and underscores, not beginning with a digit", c.Table))
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

// Store keeps entries in one table of a database. It is safe for concurrent use,
// also by several processes. It runs goroutines while something is written: one for SQLite,
// up to four for a server, and one more while it deletes old notes of Once. The
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
	running     running      // Forwarders
	inbox       inbox
	openTxs     openTxs
	storing     func(context.Context, *producer.Message) // the hooks of Config.Traces, or nil
}

// Open returns a Store in db. It creates the tables unless they are there, or
// Config.Existing is set. Of several
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
		return nil, rehop.WithClass(err, rehop.ClassBug)
	}
	ready := prepare
	if cfg.Existing {
		ready = examine
	}
	if err := ready(ctx, db, dialect, cfg.Table); err != nil {
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

// nudge tells the Forwarder that something became ready.
func (s *Store) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}
