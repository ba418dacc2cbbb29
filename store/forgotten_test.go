package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// silent is a database that begins and ends transactions, and fails a test that sends it
// anything else.
type silent struct{ *testing.T }

func (s silent) Connect(context.Context) (driver.Conn, error) { return s, nil }
func (s silent) Driver() driver.Driver                        { return nil }
func (s silent) Begin() (driver.Tx, error)                    { return s, nil }
func (s silent) Commit() error                                { return nil }
func (s silent) Rollback() error                              { return nil }
func (s silent) Close() error                                 { return nil }
func (s silent) Prepare(query string) (driver.Stmt, error) {
	s.Errorf("sent %q", query)
	return nil, errors.New("no statements")
}

func TestATransactionWhoseCommitIsForgottenIsToldOfOnce(t *testing.T) {
	db := sql.OpenDB(silent{t})
	defer db.Close()
	begin := func() *sql.Tx {
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		return tx
	}
	var log strings.Builder
	logger := slog.New(slog.NewTextHandler(&log, nil))
	var o openTxs
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	forgotten := begin()
	defer forgotten.Rollback()
	o.note(forgotten, now, logger)
	for i := range 300 {
		tx := begin()
		o.note(tx, now.Add(time.Duration(i)*time.Second), logger)
		if err := []func() error{tx.Commit, tx.Rollback}[i%2](); err != nil {
			t.Fatal(err)
		}
		if told, want := strings.Count(log.String(), "Commit forgotten"), min(1, i/60); told != want {
			t.Fatalf("after %d s: told %d times, want %d: %s", i, told, want, log.String())
		}
		if len(o.since) > 3 {
			t.Fatalf("%d transactions are remembered", len(o.since))
		}
	}
}

func TestFewTransactionsAreRemembered(t *testing.T) {
	db := sql.OpenDB(silent{t})
	defer db.Close()
	var o openTxs
	for range 2 * mostOpen {
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		o.note(tx, time.Now(), slog.New(slog.DiscardHandler))
	}
	if len(o.since) != mostOpen {
		t.Errorf("%d are remembered, want %d", len(o.since), mostOpen)
	}
}

// wild is a slog.Handler that panics.
type wild struct{ slog.Handler }

func (wild) Handle(context.Context, slog.Record) error { panic("no disk") }

func TestALoggerThatPanicsHarmsNobody(t *testing.T) {
	Config{Logger: slog.New(wild{slog.NewTextHandler(io.Discard, nil)})}.withDefaults().Logger.Error("nobody hears this")
}
