package main

import (
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rehop/rehop/store"
)

// contents are the files of a folder.
func contents(t *testing.T, folder string) map[string]string {
	t.Helper()
	files, err := os.ReadDir(folder)
	must(t, err)
	all := map[string]string{}
	for _, f := range files {
		text, err := os.ReadFile(filepath.Join(folder, f.Name()))
		must(t, err)
		all[f.Name()] = string(text)
	}
	return all
}

// unchanged checks that no file was changed. SQLite may leave an index of the log beside a file,
// and the empty log.
func unchanged(t *testing.T, line, folder string, before map[string]string) {
	t.Helper()
	for name, text := range contents(t, folder) {
		was, is := before[name]
		if is && was == text || !is && (strings.HasSuffix(name, "-shm") || strings.HasSuffix(name, "-wal") && text == "") {
			continue
		}
		t.Errorf("%s has written to %s: %d bytes, before: %d (%v)", line, name, len(text), len(was), is)
	}
}

// The name of a store may be a slip: what it names by chance stays as it is.
func TestAFileThatIsNoStoreStaysAsItIs(t *testing.T) {
	s := open(t)
	folder := t.TempDir()
	for name, statement := range map[string]string{
		"other.db": "CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT)", // of another program
		"wal.db":   "PRAGMA journal_mode = WAL; CREATE TABLE customers (id INTEGER PRIMARY KEY)",
		"cut.db":   "CREATE TABLE rehop_letters_schema (version INTEGER NOT NULL); CREATE TABLE rehop_letters (seq INTEGER)", // cut off while it was made
		"newer.db": "CREATE TABLE rehop_letters_schema (version INTEGER NOT NULL); CREATE TABLE rehop_letters (seq INTEGER); INSERT INTO rehop_letters_schema VALUES (99)",
	} {
		db, err := sql.Open("sqlite", filepath.Join(folder, name))
		must(t, err)
		_, err = db.Exec(statement)
		must(t, err)
		must(t, db.Close())
	}
	must(t, os.WriteFile(filepath.Join(folder, "notes.txt"), []byte("not a database at all, but a text of some length"), 0o600))
	before := contents(t, folder)
	for name, why := range map[string]string{
		"other.db": "no store", "wal.db": "no store", "cut.db": "schema version 0", "newer.db": "use the newer program", "notes.txt": "not a database",
	} {
		for _, line := range []string{
			"dlq list", "dlq groups", "dlq show 1", "dlq export", "dlq send --all --yes", "dlq send --all --dry-run", "dlq move --all --yes --to orders",
			"dlq drop --all --yes --copy " + filepath.Join(t.TempDir(), "copy"), "dlq edit 1 --header a=b", "desk", "desk --read-only",
		} {
			s.run(exitFailed, append(strings.Fields(line), "--store", filepath.Join(folder, name))...)
			s.prints("--store", name, why)
			unchanged(t, line, folder, before)
		}
	}
}

// Commands that only look, and a dry run, write nothing to a store.
func TestLookingIntoAStoreWritesNothing(t *testing.T) {
	s := open(t)
	letters := s.collect("orders.dlq")
	folder := filepath.Dir(letters)
	before := contents(t, folder)
	for _, line := range []string{"dlq list", "dlq groups", "dlq show 1", "dlq export", "dlq send --all --dry-run", "dlq list --text stock"} {
		s.run(exitDone, append(strings.Fields(line), "--store", letters)...)
		unchanged(t, line, folder, before)
	}
	must(t, os.Chmod(letters, 0o400))
	s.run(exitDone, "dlq", "list", "--store", letters)
	must(t, os.Chmod(letters, 0o600))
	s.run(exitDone, "dlq", "send", "--all", "--yes", "--store", letters)
	s.has("orders", 6)
	s.run(exitNothing, "dlq", "list", "--store", letters)
}

// Collect makes a store where there is none, and never in a file that another program has.
func TestCollectMakesNoStoreInAFileOfAnotherProgram(t *testing.T) {
	s := open(t)
	folder := t.TempDir()
	for name, statements := range map[string]string{
		"other.db":  "CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT)",
		"wal.db":    "PRAGMA journal_mode = WAL; CREATE TABLE customers (id INTEGER PRIMARY KEY)",
		"half.db":   "CREATE TABLE customers (id INTEGER PRIMARY KEY); CREATE TABLE rehop_letters_schema (version INTEGER NOT NULL)",
		"view.db":   "CREATE VIEW customers AS SELECT 1",
		"shared.db": "CREATE TABLE orders (id TEXT)",
	} {
		db, err := sql.Open("sqlite", filepath.Join(folder, name))
		must(t, err)
		_, err = db.Exec(statements)
		must(t, err)
		if name == "shared.db" { // a service has its orders and its store in one file
			_, err = store.Open(t.Context(), db, store.SQLite, store.Config{})
			must(t, err)
		}
		must(t, db.Close())
	}
	must(t, os.WriteFile(filepath.Join(folder, "notes.txt"), []byte("not a database at all, but a text of some length"), 0o600))
	before := contents(t, folder)
	for name, why := range map[string]string{
		"other.db": `it has "customers" and no table rehop_letters`, "wal.db": `it has "customers" and no table rehop_letters`, "half.db": `it has "customers" and no table rehop_letters`,
		"view.db": `it has "customers" and no table rehop_letters`, "notes.txt": "not a database",
	} {
		s.run(exitFailed, "dlq", "collect", "none.dlq", "--store", filepath.Join(folder, name))
		s.prints("--store", filepath.Join(folder, name), why)
		unchanged(t, "dlq collect", folder, before)
	}
	s.has("orders.dlq", 6)
	s.collectInto("orders.dlq", filepath.Join(folder, "shared.db"))
	empty := filepath.Join(folder, "empty.db")
	must(t, os.WriteFile(empty, nil, 0o600))
	s.dead("orders.dlq", "orders", "late")
	s.collectInto("orders.dlq", empty)
}
