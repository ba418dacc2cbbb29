package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rehop/rehop/integration/store/database"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/store"
)

// indices measures what the indices and columns for people who look for letters cost Put:
// with them and without, in turns, on each database.
func (b *bench) indices(ctx context.Context) error {
	if strings.Contains(b.on, string(store.SQLite)) {
		db, s, err := b.open(ctx, "indices.db")
		if err != nil {
			return err
		}
		if err := errors.Join(putInTurns(ctx, store.SQLite, db, s, cpu), db.Close()); err != nil {
			return err
		}
	}
	return b.onServers(ctx, func(dialect store.Dialect, server *database.Server, db *sql.DB, s *store.Store) error {
		return putInTurns(ctx, dialect, db, s, server.CPU)
	})
}

// putInTurns compares a Store with one whose table is bare. The ratios are medians of
// those within a turn: of the time of a Put, and of the processor's time for it in the
// database.
func putInTurns(ctx context.Context, dialect store.Dialect, db *sql.DB, full *store.Store, spent func() time.Duration) error {
	const table = "bare"
	bare, err := store.Open(ctx, db, dialect, store.Config{Table: table})
	if err != nil {
		return err
	}
	if err := strip(ctx, dialect, db, table); err != nil {
		return err
	}
	const turns, long = 9, 500 * time.Millisecond
	body := make([]byte, 256)
	for _, of := range []struct {
		letters string
		cause   error
	}{{"letters that are Ready", errAway}, {"letters that are Held", producer.ErrReturned}} {
		var took, processor []float64
		for turn := range turns {
			stores := []*store.Store{bare, full}
			var each, used [2]float64
			for i := range stores {
				which := (i + turn) % 2 // each goes first in every other turn
				before := spent()
				rate, err := together(long, func(c, n int) error {
					m := producer.Message{Exchange: "shop", RoutingKey: fmt.Sprint("order.", n%10), ID: fmt.Sprint(of.letters, turn, " ", c, "-", n), Body: body}
					return stores[which].Put(ctx, m, of.cause)
				})
				if err != nil {
					return err
				}
				each[which] = 1 / rate
				used[which] = float64(spent()-before) / rate
			}
			took, processor = append(took, each[1]/each[0]), append(processor, used[1]/used[0])
		}
		slices.Sort(took)
		slices.Sort(processor)
		row(fmt.Sprintf("%v: Put of %s, time with the indices of the desk beside without: median, quartiles; processor", dialect, of.letters),
			"%.2f, %.2f to %.2f; %.2f", took[turns/2], took[turns/4], took[turns*3/4], processor[turns/2])
	}
	return nil
}

// strip takes all from a table that is there for people who look for letters.
func strip(ctx context.Context, dialect store.Dialect, db *sql.DB, table string) error {
	var drops []string
	for _, column := range []string{"fingerprint", "routing_key", "error_type", "queue", "cause", "exchange", "state", "groups"} {
		drops = append(drops, "DROP INDEX "+table+"_"+column)
	}
	if dialect == store.MySQL {
		for _, column := range []string{"fingerprint", "routing_key", "error_type", "queue", "cause", "exchange"} {
			drops = append(drops, "DROP COLUMN desk_"+column)
		}
		drops = []string{"ALTER TABLE " + table + " " + strings.Join(drops, ", ")}
	}
	for _, statement := range drops {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}
