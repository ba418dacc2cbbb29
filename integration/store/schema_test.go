package store_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/rehop/rehop"
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
		if versions != 1 {
			t.Errorf("%d versions of the schema, want 1", versions)
		}
		_, err := db.Exec("INSERT INTO rehop_letters_schema VALUES (99)")
		must(t, err)
		_, err = store.Open(t.Context(), db, p.dialect, store.Config{})
		if err == nil || !strings.Contains(err.Error(), "schema version 99") || rehop.ClassOf(err) != rehop.ClassConfiguration {
			t.Errorf("a schema of the future: %v", err)
		}
	})
}

// Open of a store that is to exist makes nothing.
func TestAnExistingStoreIsNotMade(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		db := p.open(t)
		existing := store.Config{Existing: true}
		for range 2 { // the first has made nothing either
			if _, err := store.Open(t.Context(), db, p.dialect, existing); err == nil || !strings.Contains(err.Error(), "no table rehop_letters") || rehop.ClassOf(err) != rehop.ClassConfiguration {
				t.Errorf("without a store: %v", err)
			}
		}
		_, err := store.Open(t.Context(), db, p.dialect, store.Config{})
		must(t, err)
		s, err := store.Open(t.Context(), db, p.dialect, existing)
		must(t, err)
		if n, err := s.Count(t.Context(), store.Query{}); err != nil || n != 0 {
			t.Errorf("%d entries: %v", n, err)
		}
		_, err = db.Exec("DELETE FROM rehop_letters_schema")
		must(t, err)
		if _, err := store.Open(t.Context(), db, p.dialect, existing); err == nil || !strings.Contains(err.Error(), "schema version 0") || !strings.Contains(err.Error(), "rehop dlq collect") {
			t.Errorf("an older schema: %v", err)
		}
		_, err = db.Exec("INSERT INTO rehop_letters_schema VALUES (99)")
		must(t, err)
		if _, err := store.Open(t.Context(), db, p.dialect, existing); err == nil || !strings.Contains(err.Error(), "use the newer program") {
			t.Errorf("a schema of the future: %v", err)
		}
	})
}

func TestFaultyConfig(t *testing.T) {
	_, err := store.Open(t.Context(), nil, "", store.Config{Table: "a; DROP", Timeout: -1, KeepArchived: -1})
	for _, want := range []string{"Table", "Timeout", "KeepArchived", "dialect", "db is nil"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Open: %v, want a word of %s", err, want)
		}
	}
}
