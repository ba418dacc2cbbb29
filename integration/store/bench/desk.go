package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/integration/store/database"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/store"
)

// kinds of letters that the desk has: work queues times errors.
const deskKinds = 1000

// desk measures what a person looks at, over many held letters, on each database.
func (b *bench) desk(ctx context.Context) error {
	if strings.Contains(b.on, string(store.SQLite)) {
		db, s, err := b.open(ctx, "desk.db")
		if err != nil {
			return err
		}
		if err := errors.Join(b.deskOf(ctx, store.SQLite, db, s), db.Close()); err != nil {
			return err
		}
	}
	return b.onServers(ctx, func(dialect store.Dialect, _ *database.Server, db *sql.DB, s *store.Store) error {
		return b.deskOf(ctx, dialect, db, s)
	})
}

func (b *bench) deskOf(ctx context.Context, dialect store.Dialect, db *sql.DB, s *store.Store) error {
	took := func(what string, do func() error) error { return took(fmt.Sprint(dialect, ": ", what), do) }
	for i := range deskKinds {
		m := producer.Message{Exchange: fmt.Sprint("exchange ", i%10), RoutingKey: fmt.Sprint("key ", i), ID: fmt.Sprint("m-", i), Body: make([]byte, 256)}
		if err := s.Put(ctx, m, fmt.Errorf("kind %c%c: %w", 'a'+rune(i%26), 'a'+rune(i/26%26), producer.ErrReturned)); err != nil {
			return err
		}
	}
	if err := multiply(ctx, dialect, db, b.rows/deskKinds); err != nil {
		return err
	}
	analyze := map[store.Dialect]string{store.SQLite: "ANALYZE", store.MySQL: "ANALYZE TABLE rehop_letters", store.PostgreSQL: "VACUUM ANALYZE rehop_letters"}
	if _, err := db.ExecContext(ctx, analyze[dialect]); err != nil {
		return err
	}
	last, _, err := s.Find(ctx, store.Query{Limit: 1})
	if err != nil || len(last) == 0 {
		return fmt.Errorf("no letter: %w", err)
	}
	held := []store.State{store.Held}
	for _, q := range []struct {
		name string
		q    store.Query
	}{
		{"of a state", store.Query{States: held}},
		{"of a state, in the middle", store.Query{States: held, After: int64(b.rows / 2)}},
		{"of any state", store.Query{}},
		{"of a queue that has none", store.Query{Queue: "none"}},
		{"of a routing key", store.Query{RoutingKey: "key 77"}},
		{"of an exchange", store.Query{Exchange: "exchange 7"}},
		{"of a cause", store.Query{Cause: rehop.CauseUnroutable}},
		{"of a cause that none has", store.Query{Cause: rehop.CauseExhausted, States: held}},
		{"of an error type that none has", store.Query{ErrorType: "*none"}},
		{"of a fingerprint", store.Query{Fingerprint: last[0].Fingerprint}},
		{"of the last minute", store.Query{States: held, From: time.Now()}},
		{"that failed in the last minute", store.Query{States: held, FailedFrom: time.Now()}},
		{"of a routing key and an exchange that has none", store.Query{States: held, RoutingKey: "key 77", Exchange: "none"}},
		{"of a cause and an exchange that has none", store.Query{States: held, Cause: rehop.CauseUnroutable, Exchange: "none"}},
		{"with a text that none has", store.Query{Text: "no such text"}},
	} {
		if err := took("page "+q.name, func() error { _, _, err := s.Find(ctx, q.q); return err }); err != nil {
			return err
		}
		if err := took("count up to 10,000 "+q.name, func() error { _, _, err := s.CountUpTo(ctx, q.q, 10_000); return err }); err != nil {
			return err
		}
	}
	if err := took("count of a state, all", func() error { _, err := s.Count(ctx, store.Query{States: held}); return err }); err != nil {
		return err
	}
	for name, q := range map[string]store.Query{
		"all": {}, "of a cause": {Cause: rehop.CauseUnroutable}, "that failed in the last minute": {FailedFrom: time.Now()}, "of an exchange": {Exchange: "exchange 7"},
		"of a queue that has none": {Queue: "none"}, "with a text that none has": {Text: "no such text"},
	} {
		if err := took("groups "+name, func() error { _, _, err := s.Groups(ctx, q); return err }); err != nil {
			return err
		}
	}
	if err := took("trends of 12 groups", func() error { return trends(ctx, s) }); err != nil {
		return err
	}
	if err := b.pages(dialect, s, last[0]); err != nil {
		return err
	}
	var numbers []int64
	for i := range int64(20_000) {
		numbers = append(numbers, 1+i*int64(b.rows)/20_000)
	}
	began := time.Now()
	_, err = s.Park(ctx, store.Query{Numbers: numbers})
	row(fmt.Sprint(dialect, ": Park of 20,000"), "%v", time.Since(began).Round(time.Millisecond))
	return err
}

func trends(ctx context.Context, s *store.Store) error {
	groups, _, err := s.Groups(ctx, store.Query{Limit: 12})
	for i := 0; i < len(groups) && err == nil; i++ {
		_, _, err = s.Trend(ctx, store.Query{Fingerprint: groups[i].Fingerprint}, time.Now().Add(-24*time.Hour), time.Now(), 24)
	}
	return err
}

// took tells how long a question took at first, and at best of five more.
func took(what string, do func() error) error {
	var first, best time.Duration
	for i := range 6 {
		began := time.Now()
		if err := do(); err != nil {
			return err
		}
		last := time.Since(began)
		if i == 0 {
			first, best = last, last
		}
		best = min(best, last)
	}
	row(what, "%v, %v", first.Round(time.Millisecond), best.Round(time.Millisecond))
	return nil
}

// multiply makes each letter n times as many.
func multiply(ctx context.Context, dialect store.Dialect, db *sql.DB, n int) error {
	columns := "state, line, due, next_try, exchange, routing_key, order_key, queue, properties, headers, body, size, cause, error, error_type, " +
		"fingerprint, attempts, redrives, redrive_id, tries, try_error, alone, unconfirmed, first_failed, failed, stored, lease"
	concat := "id || '-' || i, message_id || '-' || i"
	if dialect == store.MySQL {
		concat = "CONCAT(id, '-', i), CONCAT(message_id, '-', i)"
	}
	_, err := db.ExecContext(ctx, fmt.Sprintf(`INSERT INTO rehop_letters (id, message_id, %s)
		WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d) SELECT %s, %s FROM n, rehop_letters`, columns, n-1, concat, columns))
	return err
}
