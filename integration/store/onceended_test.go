package store_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/integration/poll"
	"github.com/rehop/rehop/store"
)

// stock makes the tables of the tests: a handler takes articles out of the stock, and adds
// effects. Other transactions have a reason to wait for its rows.
func stock(t *testing.T, db *sql.DB, dialect store.Dialect) {
	t.Helper()
	must(t, createEffects(t.Context(), db))
	statements := []string{
		"CREATE TABLE stock (article VARCHAR(64) PRIMARY KEY, n INTEGER NOT NULL)",
		"INSERT INTO stock (article, n) VALUES ('a', 100), ('b', 100), ('c', 100)",
		"CREATE TABLE visits (article VARCHAR(64))",
	}
	if dialect == store.SQLite {
		statements = append(statements, "PRAGMA foreign_keys = ON") // of the one connection
	}
	if dialect != store.MySQL { // whose constraints cannot wait for the commit
		statements = append(statements, "CREATE TABLE parts (article VARCHAR(64) REFERENCES stock (article) DEFERRABLE INITIALLY DEFERRED)")
	}
	for _, statement := range statements {
		_, err := db.ExecContext(t.Context(), statement)
		must(t, err)
	}
}

// heavy is a transaction that has locked article b and then asks for article a. A deadlock
// ends the other one: MySQL chooses the one that has changed fewer rows, and PostgreSQL the first
// that has waited for deadlock_timeout.
func heavy(t *testing.T, db *sql.DB, dialect store.Dialect) (ask, end func()) {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	must(t, err)
	statements := []string{
		"INSERT INTO visits (article) VALUES ('x')" + strings.Repeat(", ('x')", 500),
		"UPDATE stock SET n = n - 1 WHERE article = 'b'",
	}
	if dialect == store.PostgreSQL {
		statements = append(statements, "SET LOCAL deadlock_timeout = '10min'")
	}
	for _, statement := range statements {
		_, err = tx.ExecContext(t.Context(), statement)
		must(t, err)
	}
	var asking sync.WaitGroup
	ask = func() {
		asking.Go(func() {
			if _, err := tx.ExecContext(t.Context(), "UPDATE stock SET n = n - 1 WHERE article = 'a'"); err != nil {
				t.Errorf("the heavy transaction: %v", err)
			}
		})
		if dialect == store.PostgreSQL { // which looks for a deadlock once, when it has waited
			poll.Until(t, patience, "the heavy transaction waits", func() (waits bool) {
				must(t, db.QueryRowContext(t.Context(), "SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')").Scan(&waits))
				return waits
			})
		}
	}
	return ask, func() {
		asking.Wait()
		must(t, tx.Rollback())
	}
}

// TestATransactionThatEndsUnderItsHandler: the attempt fails, whatever the handler
// returns, and the message is handled when it comes again. Nothing that the handler
// does after the end of its transaction has an effect.
func TestATransactionThatEndsUnderItsHandler(t *testing.T) {
	const (
		failed = "retry" // the outcome of a failed attempt
		done   = "done"
	)
	broken := errors.New("broken")
	exec := func(statement string) func(context.Context, *sql.Tx) error {
		return func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, statement)
			return err
		}
	}
	for _, tt := range []struct {
		rule    string
		on      []store.Dialect
		does    func(context.Context, *sql.Tx) error // after the handler's effect
		returns error
		want    string
		kept    int // effects of the first run that the database has committed
	}{
		{"DDL, and then an error", []store.Dialect{store.MySQL}, exec("CREATE TABLE more (n INTEGER)"), broken, failed, 1},
		{"DDL, and then an error", []store.Dialect{store.SQLite, store.PostgreSQL}, exec("CREATE TABLE more (n INTEGER)"), broken, failed, 0},
		{"DDL, and then nil", []store.Dialect{store.MySQL}, exec("CREATE TABLE more (n INTEGER)"), nil, failed, 1},
		{"DDL, and then nil", []store.Dialect{store.SQLite, store.PostgreSQL}, exec("CREATE TABLE more (n INTEGER)"), nil, done, 1},
		{"TRUNCATE", []store.Dialect{store.MySQL}, exec("TRUNCATE TABLE visits"), nil, failed, 1},
		{"LOCK TABLES", []store.Dialect{store.MySQL}, exec("LOCK TABLES visits WRITE"), nil, failed, 1},
		{"ANALYZE TABLE", []store.Dialect{store.MySQL}, exec("ANALYZE TABLE visits"), nil, failed, 1},
		{"COMMIT in SQL, and then an error", []store.Dialect{store.MySQL}, exec("COMMIT"), broken, failed, 1},
		{"COMMIT in SQL, and then nil", []store.Dialect{store.MySQL}, exec("COMMIT"), nil, failed, 1},
		{"ROLLBACK in SQL", []store.Dialect{store.MySQL}, exec("ROLLBACK"), nil, failed, 0},
		{"START TRANSACTION in SQL", []store.Dialect{store.MySQL}, exec("START TRANSACTION"), nil, failed, 1},
		{"Commit", []store.Dialect{store.MySQL}, func(_ context.Context, tx *sql.Tx) error { return tx.Commit() }, nil, failed, 1},
		{"Rollback", []store.Dialect{store.SQLite, store.MySQL, store.PostgreSQL}, func(_ context.Context, tx *sql.Tx) error { return tx.Rollback() }, nil, failed, 0},
		{"a temporary table", []store.Dialect{store.SQLite, store.MySQL, store.PostgreSQL}, exec("CREATE TEMPORARY TABLE scratch (n INTEGER)"), nil, done, 1},
		{"a temporary table, and then an error", []store.Dialect{store.SQLite, store.MySQL, store.PostgreSQL}, exec("CREATE TEMPORARY TABLE scratch (n INTEGER)"), broken, failed, 0},
		{"a statement that the database refuses", []store.Dialect{store.SQLite, store.MySQL}, exec("INSERT INTO stock (article, n) VALUES ('a', 1)"), nil, done, 1},
		{"a statement that the database refuses", []store.Dialect{store.PostgreSQL}, exec("INSERT INTO stock (article, n) VALUES ('a', 1)"), nil, failed, 0},
		{"a statement that rolls back", []store.Dialect{store.SQLite}, exec("INSERT OR ROLLBACK INTO stock (article, n) VALUES ('a', 1)"), nil, failed, 0},
		{"a constraint that waits for the commit", []store.Dialect{store.SQLite, store.PostgreSQL}, exec("INSERT INTO parts (article) VALUES ('z')"), nil, failed, 0},
		{"a savepoint of its own", []store.Dialect{store.SQLite, store.MySQL, store.PostgreSQL}, exec("SAVEPOINT mine"), nil, done, 1},
	} {
		for _, dialect := range each(t) {
			for _, batch := range []bool{false, true} {
				if !strings.Contains(fmt.Sprint(tt.on), string(dialect)) {
					continue
				}
				t.Run(fmt.Sprintf("%s, %v, batch %v", tt.rule, dialect, batch), func(t *testing.T) {
					t.Parallel()
					p := newPlace(t, dialect)
					db := p.open(t)
					db.SetMaxOpenConns(1) // so that what a handler leaves on a connection is seen
					stock(t, db, dialect)
					s, err := store.Open(t.Context(), db, dialect, store.Config{Logger: slog.New(slog.DiscardHandler)})
					must(t, err)
					work, runs := effect(dialect), 0
					handler := func(ctx context.Context, d *consumer.Delivery) error {
						runs++
						if err := work(ctx, d); err != nil || runs > 1 {
							return err
						}
						tx := store.TxFrom(ctx)
						if err := tt.does(ctx, tx); tt.want == done && err != nil && !strings.Contains(tt.rule, "refuses") {
							t.Error(err)
						}
						_, _ = tx.ExecContext(ctx, "UPDATE stock SET n = n - 1 WHERE article = 'c'") // whatever has become of it
						return tt.returns
					}
					run := func() string {
						if batch {
							return strings.TrimSuffix(outcomesOf(t.Context(), s.OnceBatch(handler), "m"), "*")
						}
						return consumer.OutcomeOf(s.OnceHandler(handler)(t.Context(), deliveries("m")[0])).String()
					}
					has := func(rule string, all, sold int) {
						t.Helper()
						if n, _ := effects(t, db); n != all {
							t.Errorf("%s: %d effects, want %d", rule, n, all)
						}
						var left int
						must(t, db.QueryRowContext(t.Context(), "SELECT n FROM stock WHERE article = 'c'").Scan(&left))
						if left != 100-sold {
							t.Errorf("%s: %d are sold, want %d", rule, 100-left, sold)
						}
					}
					if got := run(); got != tt.want {
						t.Errorf("outcome %s, want %s", got, tt.want)
					}
					want, sold, outcomes := tt.kept, 0, 1
					if tt.want == done {
						sold = 1
					} else if tt.rule == "a statement that rolls back" {
						sold = 1 // SQLite commits what a handler does afterwards
					}
					has("the first delivery", want, sold)
					if tt.want != done {
						want, outcomes = want+1, 2
					}
					if got := run(); got != done {
						t.Errorf("the second delivery: %s, want that it is done", got)
					}
					if got := run(); got != done || runs != outcomes {
						t.Errorf("the third delivery: %s after %d runs, want that it is skipped after %d", got, runs, outcomes)
					}
					has("in the end", want, sold)
					if _, err := db.ExecContext(t.Context(), "UPDATE stock SET n = n - 1 WHERE article = 'c'"); err != nil {
						t.Errorf("a write with the connection afterwards: %v", err)
					}
					has("a write afterwards", want, sold+1)
				})
			}
		}
	}
}

// TestADeadlockUnderAHandlerThatGoesOn: the server has rolled back the work of the handler,
// which takes no notice. The attempt fails, and nothing of it is kept.
func TestADeadlockUnderAHandlerThatGoesOn(t *testing.T) {
	t.Parallel()
	for _, dialect := range eachServer(t) {
		for _, batch := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v, batch %v", dialect, batch), func(t *testing.T) {
				t.Parallel()
				p := newPlace(t, dialect)
				db := p.open(t)
				stock(t, db, dialect)
				s := p.store(t, store.Config{})
				ask, end := heavy(t, p.open(t), dialect)
				work, runs := effect(dialect), 0
				var refused error
				handler := func(ctx context.Context, d *consumer.Delivery) error {
					tx := store.TxFrom(ctx)
					if err := work(ctx, d); err != nil {
						return err
					}
					if runs++; runs == 1 {
						_, err := tx.ExecContext(ctx, "UPDATE stock SET n = n - 1 WHERE article = 'a'")
						must(t, err)
						ask()
						_, refused = tx.ExecContext(ctx, "UPDATE stock SET n = n - 1 WHERE article = 'b'")
					}
					_, err := tx.ExecContext(ctx, "UPDATE stock SET n = n - 1 WHERE article = 'c'")
					if runs > 1 {
						return err
					}
					return nil
				}
				run := func() string {
					if batch {
						return outcomesOf(t.Context(), s.OnceBatch(handler), "m")
					}
					return consumer.OutcomeOf(s.OnceHandler(handler)(t.Context(), deliveries("m")[0])).String()
				}
				if got := strings.TrimSuffix(run(), "*"); got != "retry" {
					t.Errorf("outcome %s, want a failed attempt", got)
				}
				if refused == nil || !strings.Contains(strings.ToLower(refused.Error()), "deadlock") {
					t.Fatalf("the handler's statement: %v, want a deadlock", refused)
				}
				end()
				left := func(want int) {
					t.Helper()
					var n int
					must(t, db.QueryRowContext(t.Context(), "SELECT n FROM stock WHERE article = 'c'").Scan(&n))
					if all, _ := effects(t, db); n != want || all != 100-want {
						t.Errorf("%d effects and %d in stock, want %d and %d", all, n, 100-want, want)
					}
				}
				left(100)
				if got := run(); got != "done" {
					t.Errorf("the next delivery: %s", got)
				}
				left(99)
			})
		}
	}
}

// TestTheConnectionOfAHandlerThatDoesNotReturn: a handler that is out of time, or panics,
// leaves nothing behind on its connection, and nothing in the database.
func TestTheConnectionOfAHandlerThatDoesNotReturn(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		db := p.open(t)
		db.SetMaxOpenConns(1)
		must(t, createEffects(t.Context(), db))
		s, err := store.Open(t.Context(), db, p.dialect, store.Config{})
		must(t, err)
		work := effect(p.dialect)
		for _, batch := range []bool{false, true} {
			for rule, does := range map[string]func(end context.CancelFunc){
				"out of time": func(end context.CancelFunc) { end() },
				"panics":      func(context.CancelFunc) { panic("no paper") },
			} {
				ctx, end := context.WithCancel(t.Context())
				handler := func(ctx context.Context, d *consumer.Delivery) error {
					must(t, work(ctx, d))
					does(end)
					return ctx.Err()
				}
				func() {
					defer func() { _ = recover() }()
					if batch {
						outcomesOf(ctx, s.OnceBatch(handler), "m")
					} else if err := s.OnceHandler(handler)(ctx, deliveries("m")[0]); !errors.Is(err, context.Canceled) {
						t.Errorf("%s: %v", rule, err)
					}
				}()
				end()
				if all, _ := effects(t, db); all != 0 {
					t.Errorf("%s, batch %v: %d effects, want none", rule, batch, all)
				}
				if _, err := db.ExecContext(t.Context(), "INSERT INTO effects (message, run) VALUES ('plain', '1')"); err != nil {
					t.Errorf("%s, batch %v: a write with the connection afterwards: %v", rule, batch, err)
				}
				other := p.open(t) // sees what is committed
				if all, _ := effects(t, other); all != 1 {
					t.Errorf("%s, batch %v: %d rows are committed, want the one of the plain write", rule, batch, all)
				}
				_, err := db.ExecContext(t.Context(), "DELETE FROM effects")
				must(t, err)
			}
		}
	})
}

// TestAMessageOfABatchEndsTheTransaction: the work of the messages before it is
// committed together with their notes, so it happens once. All are handled when they come again.
func TestAMessageOfABatchEndsTheTransaction(t *testing.T) {
	onOnly(t, store.MySQL, func(t *testing.T, p place) {
		db := p.open(t)
		must(t, createEffects(t.Context(), db))
		log := &lines{}
		s := p.store(t, store.Config{Logger: slog.New(slog.NewTextHandler(log, nil))})
		work, first := effect(store.MySQL), true
		handler := s.OnceBatch(func(ctx context.Context, d *consumer.Delivery) error {
			if d.ID == "ddl" && first {
				first = false
				_, _ = store.TxFrom(ctx).ExecContext(ctx, "CREATE TABLE more (n INTEGER)")
				return nil
			}
			return work(ctx, d)
		})
		ids := []string{"a", "ddl", "b"}
		if got := outcomesOf(t.Context(), handler, ids...); got != "retry*, retry*, retry*" {
			t.Errorf("outcomes %s, want that the run fails", got)
		}
		if all, _ := effects(t, db); all != 1 {
			t.Errorf("%d effects, want that of the message before", all)
		}
		if got := outcomesOf(t.Context(), handler, ids...); got != "done, done, done" {
			t.Errorf("the second run: %s", got)
		}
		if all, of := effects(t, db); all != 3 || of != 3 {
			t.Errorf("%d effects of %d messages, want one of each of 3", all, of)
		}
		if log.count("level=WARN") != 1 || log.count("message=ddl") != 1 {
			t.Errorf("log: %q, want a warning about the message", log.all)
		}
	})
}

// TestOnceOfAMessageWhoseHandlerDidNotEnd: its note does not say that it is handled.
func TestOnceOfAMessageWhoseHandlerDidNotEnd(t *testing.T) {
	onOnly(t, store.MySQL, func(t *testing.T, p place) {
		db := p.open(t)
		s := p.store(t, store.Config{Logger: slog.New(slog.DiscardHandler)})
		_, err := db.ExecContext(t.Context(), "INSERT INTO rehop_letters_inbox (queue, message_id, handled) VALUES ('orders', 'm', ?)", -time.Now().UnixMilli())
		must(t, err)
		for _, want := range []bool{true, false} {
			inTx(t, db, func(tx *sql.Tx) bool {
				if first, err := s.Once(t.Context(), tx, "orders", "m"); first != want || err != nil {
					t.Errorf("first is %v, %v, want %v", first, err, want)
				}
				return true
			})
		}
	})
}
