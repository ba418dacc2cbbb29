package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/store"
)

func deliveries(ids ...string) (batch []*consumer.Delivery) {
	for _, id := range ids {
		batch = append(batch, &consumer.Delivery{Queue: "orders", ID: id, Attempt: 1})
	}
	return batch
}

// outcomesOf runs a handler and returns the outcome of each message. One that the returned error
// is about is marked by a star.
func outcomesOf(ctx context.Context, handler consumer.BatchHandler, ids ...string) string {
	batch := deliveries(ids...)
	returned := handler(ctx, batch)
	var all []string
	for _, d := range batch {
		switch {
		case d.Err() == nil && returned != nil:
			all = append(all, consumer.OutcomeOf(returned).String()+"*")
		default:
			all = append(all, consumer.OutcomeOf(d.Err()).String())
		}
	}
	return strings.Join(all, ", ")
}

// What each message has written is kept or undone by its own outcome, in one transaction,
// and once.
func TestOnceBatch(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		s, db := p.store(t, store.Config{}), p.open(t)
		_, err := db.ExecContext(t.Context(), "CREATE TABLE effects (message VARCHAR(100) NOT NULL)")
		must(t, err)
		effects := func() (all []string) {
			rows, err := db.QueryContext(t.Context(), "SELECT message FROM effects ORDER BY message")
			must(t, err)
			defer func() { _ = rows.Close() }()
			for rows.Next() {
				var message string
				must(t, rows.Scan(&message))
				all = append(all, message)
			}
			must(t, rows.Err())
			return all
		}
		insert := "INSERT INTO effects (message) VALUES ('%s')"
		handler := func(ctx context.Context, d *consumer.Delivery) error {
			tx := store.TxFrom(ctx)
			if _, err := tx.ExecContext(ctx, fmt.Sprintf(insert, d.ID)); err != nil {
				return err
			}
			switch what, _, _ := strings.Cut(d.ID, "-"); what {
			case "fails":
				return errors.New("no paper")
			case "letter":
				return consumer.DeadLetter(errors.New("no such customer"))
			case "away":
				return consumer.Hold(errors.New("the gateway is away"))
			case "wrong":
				_, err := tx.ExecContext(ctx, "INSERT INTO no_such_table (x) VALUES (1)")
				return err
			case "ends":
				_ = tx.Rollback() // as a database does after a deadlock
				return errors.New("deadlock")
			case "own":
				d.Fail(consumer.DeadLetter(errors.New("no such customer")))
			case "ownends":
				_ = tx.Rollback()
				d.Fail(fmt.Errorf("deadlock: %w", consumer.Snooze(time.Minute, "later")))
			case "letterends":
				_ = tx.Rollback()
				return fmt.Errorf("deadlock: %w", consumer.DeadLetter(errors.New("no such customer")))
			case "panics":
				panic("no paper")
			}
			return nil
		}
		run := s.OnceBatch(handler)
		check := func(rule, outcomes string, want ...string) {
			t.Helper()
			if got := effects(); !slices.Equal(got, want) {
				t.Errorf("%s: the table has %v, want %v", rule, got, want)
			}
			if outcomes == "" {
				t.Errorf("%s: no outcomes", rule)
			}
		}
		for _, tt := range []struct {
			rule string
			ids  []string
			want string
			has  []string
		}{
			{"all are done", []string{"a", "b"}, "done, done", []string{"a", "b"}},
			{"handled before", []string{"b", "c", "a"}, "done, done, done", []string{"a", "b", "c"}},
			{"one comes twice in a batch", []string{"d", "d"}, "done, done", []string{"a", "b", "c", "d"}},
			{"outcomes of their own", []string{"e", "fails-1", "letter-1", "away-1", "f"}, "done, retry, dead-letter, hold, done", []string{"a", "b", "c", "d", "e", "f"}},
			{"a statement that the database refuses", []string{"wrong-1", "g"}, "retry, done", []string{"a", "b", "c", "d", "e", "f", "g"}},
			{"no id", []string{"", "h"}, "dead-letter, done", []string{"a", "b", "c", "d", "e", "f", "g", "h"}},
			{"a transaction that the database has ended", []string{"i", "ends-1", "j"}, "retry*, retry*, retry*", []string{"a", "b", "c", "d", "e", "f", "g", "h"}},
			{"a transaction that has ended, by a message that says its outcome", []string{"i", "ownends-1", "j"}, "retry*, snooze 1m0s (later), retry*", []string{"a", "b", "c", "d", "e", "f", "g", "h"}},
			{"or returns it", []string{"i", "letterends-1", "j"}, "retry*, dead-letter, retry*", []string{"a", "b", "c", "d", "e", "f", "g", "h"}},
			{"a failure is not noted", []string{"fails-1", "i", "j"}, "retry, done, done", []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"}},
			{"an error that Fail gives undoes the work too", []string{"own-1", "own-2", "i"}, "dead-letter, dead-letter, done", []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"}},
		} {
			got := outcomesOf(t.Context(), run, tt.ids...)
			if got != tt.want {
				t.Errorf("%s: outcomes %s, want %s", tt.rule, got, tt.want)
			}
			check(tt.rule, got, tt.has...)
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic of a handler is lost")
				}
			}()
			_ = run(t.Context(), deliveries("k", "panics-1"))
		}()
		check("a panic undoes all", "panic", "a", "b", "c", "d", "e", "f", "g", "h", "i", "j")

		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		slow := s.OnceBatch(func(ctx context.Context, d *consumer.Delivery) error {
			<-ctx.Done()
			return nil // although its time is over
		})
		if got := outcomesOf(ctx, slow, "l", "m"); got != "retry*, retry*" {
			t.Errorf("a batch that is not in time: %s, want a failed attempt of all", got)
		}
	})
}
