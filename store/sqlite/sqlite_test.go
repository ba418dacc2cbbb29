package sqlite

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOpenIsDurable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a file%20?#.db")
	db, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxIdleConns(0) // each statement on a new connection
	for pragma, want := range map[string]string{"journal_mode": "wal", "synchronous": "2", "busy_timeout": "5000"} {
		var got string
		if err := db.QueryRow("PRAGMA " + pragma).Scan(&got); err != nil || got != want {
			t.Errorf("%s is %s, %v; want %s", pragma, got, err, want)
		}
	}
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
}

func TestOpenRefuses(t *testing.T) {
	junk := filepath.Join(t.TempDir(), "junk")
	if err := os.WriteFile(junk, []byte(strings.Repeat("no database ", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	for rule, path := range map[string]string{"no path": "", "no folder": "/nowhere/at/all.db", "another file": junk} {
		db, err := Open(path)
		if err == nil {
			db.Close()
			t.Errorf("%s: no error", rule)
		}
		if rule == "no folder" && (err == nil || !strings.Contains(err.Error(), "no folder /nowhere/at")) {
			t.Errorf("%s: %v", rule, err)
		}
	}
}
