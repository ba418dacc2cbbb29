package store_test

import (
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/rehop/rehop/integration/poll"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/store"
)

// TestForwardKeepsTheLockForNoDisk: while requests of the service write to the same file,
// Forward commits without waiting for the disk, with the lock that the requests wait for.
// Triggers note the level of synchronous at which each statement is committed.
func TestForwardKeepsTheLockForNoDisk(t *testing.T) {
	t.Parallel()
	p := newPlace(t, store.SQLite)
	db := p.open(t)
	s, err := store.Open(t.Context(), db, store.SQLite, store.Config{KeepOrder: true})
	must(t, err)
	for _, statement := range []string{
		"CREATE TABLE levels (what TEXT, message TEXT, level INTEGER)",
		"CREATE TRIGGER stored AFTER INSERT ON rehop_letters BEGIN INSERT INTO levels SELECT 'stored', new.message_id, synchronous FROM pragma_synchronous; END",
		"CREATE TRIGGER leased AFTER UPDATE OF lease ON rehop_letters BEGIN INSERT INTO levels SELECT 'leased', new.message_id, synchronous FROM pragma_synchronous; END",
		"CREATE TRIGGER settled AFTER DELETE ON rehop_letters BEGIN INSERT INTO levels SELECT 'settled', old.message_id, synchronous FROM pragma_synchronous; END",
	} {
		_, err := db.ExecContext(t.Context(), statement)
		must(t, err)
	}
	levels := func(message string) map[string]int {
		all := map[string]int{}
		rows, err := db.QueryContext(t.Context(), "SELECT what, level FROM levels WHERE message = ?", message)
		must(t, err)
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			var what string
			var level int
			must(t, rows.Scan(&what, &level))
			all[what] = level
		}
		must(t, rows.Err())
		return all
	}
	const full, normal = 2, 1
	forward(t, s, &peer{}, store.ForwardConfig{})

	must(t, s.Put(t.Context(), producer.Message{RoutingKey: "k", ID: "alone"}, errAway))
	empties(t, s, store.Query{}, patience)
	if got := levels("alone"); got["stored"] != full || got["settled"] != full { // the lease may share the commit of the Put
		t.Errorf("synchronous for a letter while no request writes: %v, want %d", got, full)
	}

	ended := make(chan struct{})
	var requests sync.WaitGroup
	requests.Go(func() { // without a pause longer than a second
		for n := 0; ; n++ {
			select {
			case <-ended:
				return
			case <-time.After(20 * time.Millisecond):
			}
			tx, err := db.BeginTx(t.Context(), nil)
			if err == nil {
				_, err = s.Once(t.Context(), tx, "requests", fmt.Sprint(n))
				err = errors.Join(err, tx.Commit())
			}
			if err != nil {
				t.Error(err)
				return
			}
		}
	})
	inTx(t, db, func(tx *sql.Tx) bool {
		_, err := s.PutTx(t.Context(), tx, producer.Message{RoutingKey: "k", ID: "beside"})
		must(t, err)
		return true
	})
	empties(t, s, store.Query{}, patience)
	close(ended)
	requests.Wait()
	if got := levels("beside"); got["stored"] != full || got["leased"] != normal || got["settled"] != normal {
		t.Errorf("synchronous for a letter beside requests: %v, want %d, but %d where it is stored", got, normal, full)
	}

	// Every connection of the pool waits for the disk again.
	poll.Until(t, patience, "Forward has given its connections back", func() bool { return db.Stats().InUse == 0 })
	for range 8 {
		conn, err := db.Conn(t.Context())
		must(t, err)
		defer func() { must(t, conn.Close()) }()
		var level int
		if err := conn.QueryRowContext(t.Context(), "PRAGMA synchronous").Scan(&level); err != nil || level != full {
			t.Errorf("a connection has synchronous = %d, want %d: %v", level, full, err)
		}
	}
}
