package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/rehop/rehop/consumer"
)

// A call of TxFrom in the wrong place says which function it is, and where it belongs.
func TestTxFromOutsideOfAHandler(t *testing.T) {
	for rule, ctx := range map[string]context.Context{"another ctx": t.Context(), "no ctx": nil} {
		func() {
			defer func() {
				said := fmt.Sprint(recover())
				for _, word := range []string{"store: TxFrom", "OnceHandler", "OnceBatch", "ctx"} {
					if !strings.Contains(said, word) {
						t.Errorf("%s: TxFrom panics with %q, want the word %q in it", rule, said, word)
					}
				}
			}()
			TxFrom(ctx)
		}()
	}
}

// An attempt fails if its own work is the reason why the work was not committed. If not, the
// message is held.
func TestNotCommitted(t *testing.T) {
	for _, tt := range []struct {
		rule string
		err  error
		want string
	}{
		{"the connection is lost", errors.New("invalid connection"), "hold"},
		{"the server stops", errors.New("FATAL: terminating connection due to administrator command (SQLSTATE 57P01)"), "hold"},
		{"a deadlock at the commit", errors.New("Error 1213 (40001): Deadlock found when trying to get lock; try restarting transaction"), "hold"},
		{"the handler has ended the transaction", sql.ErrTxDone, "retry"},
		{"MySQL has ended it", errors.New("Error 1792 (25006): Cannot execute statement in a READ ONLY transaction"), "retry"},
		{"the note is gone", errNoteGone, "retry"},
		{"SQLite has ended it", errors.New("SQL logic error: cannot commit - no transaction is active (1)"), "retry"},
		{"PostgreSQL has refused a statement, by pgx", errors.New("commit unexpectedly resulted in rollback"), "retry"},
		{"PostgreSQL has refused a statement, by lib/pq", errors.New("pq: Could not complete operation in a failed transaction"), "retry"},
		{"a constraint that waits for the commit", errors.New(`ERROR: insert or update on table "parts" violates foreign key constraint "parts_article_fkey" (SQLSTATE 23503)`), "retry"},
	} {
		err := notCommitted(t.Context(), `committing the work of message "constraint"`, tt.err)
		if got := consumer.OutcomeOf(err).String(); got != tt.want || !errors.Is(err, tt.err) {
			t.Errorf("%s: %s by %v, want %s", tt.rule, got, err, tt.want)
		}
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := notCommitted(over, "committing", sql.ErrTxDone); !errors.Is(err, context.Canceled) || consumer.OutcomeOf(err).Action != consumer.ActionRetry {
		t.Errorf("after the time of the handler: %v, want a failed attempt, and why", err)
	}
}
