package store_test

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rehop/rehop/integration/poll"
	"github.com/rehop/rehop/integration/store/database"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/store"
)

func contains(err error, text string) bool { return strings.Contains(err.Error(), text) }

// lock makes this process another one that is writing to SQLite.
func lock(t *testing.T, p place) (unlock func()) {
	t.Helper()
	conn, err := p.open(t).Conn(t.Context())
	must(t, err)
	_, err = conn.ExecContext(t.Context(), "BEGIN IMMEDIATE")
	must(t, err)
	return func() {
		_, err := conn.ExecContext(t.Context(), "ROLLBACK")
		must(t, err)
		must(t, conn.Close())
	}
}

func TestDatabaseLocked(t *testing.T) {
	t.Parallel()
	p := newPlace(t, store.SQLite)
	s := p.store(t, store.Config{Timeout: 300 * time.Millisecond})
	unlock := lock(t, p)
	if err := s.Put(t.Context(), producer.Message{RoutingKey: "k", ID: "locked"}, errAway); err == nil {
		t.Error("Put into a locked database: nil")
	}
	broker := &peer{}
	forward(t, s, broker, store.ForwardConfig{})
	unlock()
	poll.Until(t, patience, "Put works again", func() bool {
		return s.Put(t.Context(), producer.Message{RoutingKey: "k", ID: "free"}, errAway) == nil
	})
	empties(t, s, store.Query{}, time.Minute)
}

// TestDatabaseAway: the server is killed under storing and forwarding, and
// comes back.
func TestDatabaseAway(t *testing.T) {
	t.Parallel()
	for _, dialect := range eachServer(t) {
		t.Run(string(dialect), func(t *testing.T) {
			t.Parallel()
			server, err := database.Start(t.Context(), kinds[dialect])
			must(t, err)
			defer server.Close()
			driver, source, err := server.Create(t.Context(), "away")
			must(t, err)
			s := place{dialect, driver, source}.store(t, store.Config{Timeout: 2 * time.Second})
			broker := &peer{}
			forward(t, s, broker, store.ForwardConfig{Batch: 10, Lease: 2 * time.Second})
			safe := map[string]bool{}
			put := func(phase string, n int) (failed int) {
				for i := range n {
					id := fmt.Sprint(phase, " ", i)
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
					if err := s.Put(ctx, producer.Message{RoutingKey: "k", ID: id}, errAway); err == nil {
						safe[id] = true
					} else {
						failed++
					}
					cancel()
				}
				return failed
			}
			put("before", 200)
			must(t, server.Kill())
			if put("away", 5) != 5 {
				t.Error("Put is nil while the database is away")
			}
			must(t, server.Start(t.Context()))
			poll.Until(t, patience, "Put works again", func() bool { return put("after", 1) == 0 })
			put("later", 100)
			empties(t, s, store.Query{}, patience)
			got := map[string]int{}
			for _, id := range broker.ids() {
				got[id]++
			}
			twice := 0
			for id := range safe {
				if got[id] == 0 {
					t.Errorf("%s was stored and is lost", id)
				}
				twice += count(got[id] > 1)
			}
			t.Logf("%d of %d twice", twice, len(safe))
		})
	}
}

// TestDiskFull: what does not fit is an error, what was stored stays, and all
// goes on when there is room.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	p := newPlace(t, store.SQLite)
	db, makeRoom := fullSoon(t, p)
	s, err := store.Open(t.Context(), db, store.SQLite, store.Config{})
	must(t, err)
	var safe []string
	body := bytes.Repeat([]byte("x"), 20_000)
	var full error
	for i := 0; full == nil && i < 1000; i++ {
		id := fmt.Sprint(i)
		if full = s.Put(t.Context(), producer.Message{RoutingKey: "k", ID: id, Body: body}, errAway); full == nil {
			safe = append(safe, id)
		}
	}
	if full == nil || !contains(full, "full") || len(safe) < 10 {
		t.Fatalf("%d messages fitted, and then %v", len(safe), full)
	}
	if n, err := s.Count(t.Context(), store.Query{}); n != len(safe) || err != nil {
		t.Errorf("%d letters and %v, want the %d that were stored", n, err, len(safe))
	}
	broker := &peer{}
	forward(t, s, broker, store.ForwardConfig{Batch: 5})
	makeRoom()
	empties(t, s, store.Query{}, patience)
	if err := s.Put(t.Context(), producer.Message{RoutingKey: "k", ID: "fits", Body: body}, errAway); err != nil {
		t.Errorf("with room again: %v", err)
	}
}

// fullSoon opens SQLite on a small disk. Without root, which may mount one, it
// is a file that must not grow: SQLite reports the same.
func fullSoon(t *testing.T, p place) (db *sql.DB, makeRoom func()) {
	t.Helper()
	dir := filepath.Dir(p.source)
	root := os.Geteuid() == 0
	if root {
		must(t, syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=2m"))
		t.Cleanup(func() { must(t, syscall.Unmount(dir, syscall.MNT_DETACH)) })
	}
	db = p.open(t)
	if root {
		return db, func() { must(t, syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT, "size=16m")) }
	}
	limit := func(pages int) {
		_, err := db.Exec(fmt.Sprintf("PRAGMA max_page_count = %d", pages))
		must(t, err)
	}
	db.SetMaxOpenConns(1) // the limit is that of a connection
	limit(300)
	return db, func() { limit(1 << 30) }
}

// TestFileCorrupt: an error, from Open or from what is asked, and no panic.
func TestFileCorrupt(t *testing.T) {
	t.Parallel()
	p := newPlace(t, store.SQLite)
	db, err := p.connect()
	must(t, err)
	s, err := store.Open(t.Context(), db, store.SQLite, store.Config{})
	must(t, err)
	fill(t, s, 500, producer.Message{RoutingKey: "k", Body: []byte(strings.Repeat("body", 100))})
	must(t, db.Close())
	data, err := os.ReadFile(p.source)
	must(t, err)
	for i := 2 * 4096; i < len(data)-4096; i++ {
		data[i] = byte(i * 7)
	}
	must(t, os.WriteFile(p.source, data, 0o600))
	s, err = store.Open(t.Context(), p.open(t), store.SQLite, store.Config{})
	if err == nil {
		_, _, err = s.Find(t.Context(), store.Query{})
	}
	if err == nil {
		err = s.Put(t.Context(), producer.Message{RoutingKey: "k", ID: "new"}, errAway)
	}
	if err == nil || !contains(err, "malformed") {
		t.Errorf("%v, want a word of the damage", err)
	}
}
