package store_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/store"
)

func TestSchema(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		var all sync.WaitGroup
		for range 8 { // processes that start at once
			db := p.open(t)
			all.Go(func() {
				if _, err := store.Open(t.Context(), db, p.dialect, store.Config{}); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		db := p.open(t)
		var versions int
		must(t, db.QueryRow("SELECT COUNT(*) FROM rehop_letters_schema").Scan(&versions))
		if versions != 2 {
			t.Errorf("%d versions of the schema, want 2", versions)
		}
		_, err := db.Exec("INSERT INTO rehop_letters_schema VALUES (99)")
		must(t, err)
		_, err = store.Open(t.Context(), db, p.dialect, store.Config{})
		var newer *store.SchemaError
		if !errors.As(err, &newer) || newer.Have != 99 || connection.ClassOf(err) != connection.Configuration {
			t.Errorf("a schema of the future: %v", err)
		}
	})
}

// TestSchemaOfBefore: letters that the first version of the schema holds are all
// there, with their numbers, and go on as before.
func TestSchemaOfBefore(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		s := p.store(t, store.Config{})
		var numbers []int64
		for i := range 20 {
			must(t, s.Put(t.Context(), producer.Message{Key: "k", ID: fmt.Sprint("m-", i)}, []error{errAway, producer.ErrReturned}[i%2]))
		}
		_, err := s.Delete(t.Context(), store.Query{MessageIDs: []string{"m-3"}})
		must(t, err)
		for _, l := range find(t, s, store.Query{}) {
			numbers = append(numbers, l.Number)
		}
		db := p.open(t)
		for _, statement := range firstVersion[p.dialect] {
			if _, err := db.Exec(statement); err != nil {
				t.Fatalf("%s: %v", statement, err)
			}
		}
		s = p.store(t, store.Config{})
		var got []int64
		for _, l := range find(t, s, store.Query{}) {
			got = append(got, l.Number)
		}
		if !slices.Equal(got, numbers) {
			t.Errorf("letters %v, want %v", got, numbers)
		}
		must(t, s.Put(t.Context(), producer.Message{Key: "k", ID: "m-0"}, errAway)) // it is there
		must(t, s.Put(t.Context(), producer.Message{Key: "k", ID: "new"}, errAway))
		if p.dialect == store.SQLite {
			var seen int
			must(t, db.QueryRow("SELECT COUNT(*) FROM mine").Scan(&seen))
			if n := find(t, s, store.Query{MessageIDs: []string{"new"}})[0].Number; seen != 20 || n <= 500 {
				t.Errorf("a view shows %d letters, want 20; the new one is number %d, want one above 500", seen, n)
			}
		}
		if all := find(t, s, store.Query{}); len(all) != 20 || all[19].Message.ID != "new" || all[19].Number <= numbers[18] {
			t.Errorf("%d letters, the last one %+v; want 20, and the new one last", len(all), all[len(all)-1])
		}
	})
}

// firstVersion leads from the present schema back to its first version.
var firstVersion = map[store.Dialect][]string{
	store.SQLite: {
		"ALTER TABLE rehop_letters RENAME TO present",
		`CREATE TABLE rehop_letters (seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, message_id TEXT NOT NULL, state TEXT NOT NULL, due INTEGER NOT NULL,
			next_try INTEGER NOT NULL, exchange TEXT NOT NULL, routing_key TEXT NOT NULL, queue TEXT NOT NULL, properties TEXT NOT NULL, headers TEXT NOT NULL,
			body BLOB NOT NULL, size INTEGER NOT NULL, cause TEXT NOT NULL, error TEXT NOT NULL, error_type TEXT NOT NULL, fingerprint TEXT NOT NULL,
			attempts INTEGER NOT NULL, tries INTEGER NOT NULL, try_error TEXT NOT NULL, unconfirmed INTEGER NOT NULL, first_failed INTEGER NOT NULL,
			failed INTEGER NOT NULL, stored INTEGER NOT NULL, lease TEXT NOT NULL)`,
		"INSERT INTO rehop_letters SELECT * FROM present",
		"DROP TABLE present",
		"CREATE INDEX rehop_letters_next ON rehop_letters (state, next_try, seq)",
		"CREATE INDEX rehop_letters_message ON rehop_letters (message_id)",
		"CREATE INDEX rehop_letters_group ON rehop_letters (fingerprint, state, failed, seq)",
		"UPDATE sqlite_sequence SET seq = 500 WHERE name = 'rehop_letters'", // letters have been and gone
		"CREATE VIEW mine AS SELECT message_id FROM rehop_letters",
		"DELETE FROM rehop_letters_schema WHERE version = 2",
	},
	store.PostgreSQL: {
		"DROP INDEX rehop_letters_next", "DROP INDEX rehop_letters_message", "DROP INDEX rehop_letters_others", "DROP INDEX rehop_letters_group",
		"ALTER TABLE rehop_letters ADD UNIQUE (id)",
		"CREATE INDEX rehop_letters_next ON rehop_letters (state, next_try, seq)",
		"CREATE INDEX rehop_letters_message ON rehop_letters (message_id)",
		"CREATE INDEX rehop_letters_group ON rehop_letters (fingerprint, state, failed, seq)",
		"DELETE FROM rehop_letters_schema WHERE version = 2",
	},
	store.MySQL: {"DELETE FROM rehop_letters_schema WHERE version = 2"},
}

func TestFaultyConfig(t *testing.T) {
	_, err := store.Open(t.Context(), nil, 0, store.Config{Table: "a; DROP", Timeout: -1, KeepArchived: -1})
	for _, want := range []string{"Table", "Timeout", "KeepArchived", "dialect", "db is nil"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Open: %v, want a word of %s", err, want)
		}
	}
}
