// Package sqlite opens a SQLite database for a store.Store, in programs without
// a database server: one file, and no C compiler.
//
//	your program --- store.Store --- *sql.DB of Open --- letters.db
//	                                                     (and letters.db-wal, letters.db-shm)
//
// A program opens the file, and a store in it:
//
//	db, err := sqlite.Open("/var/lib/shop/letters.db")
//	defer db.Close()
//	letters, err := store.Open(ctx, db, store.SQLite, store.Config{})
//
// It is a module of its own, so that only programs that use it depend on the
// driver, modernc.org/sqlite. Package [github.com/rehop/rehop/store] describes
// the store, and has more examples.
package sqlite

import (
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"

	_ "modernc.org/sqlite" // the driver
)

// Open opens the database in a file. It creates the file if need be, and two more,
// path-wal and path-shm. Commits are on the disk: WAL with synchronous=FULL. A writer
// waits up to 5 s for a writer of another process. The folder must exist, on a local disk.
// The database keeps up to 8 connections open; close it when nothing uses it any more.
//
// The file does not shrink by itself. SQLite uses the space of deleted letters again, and
// VACUUM gives it back to the disk.
func Open(path string) (*sql.DB, error) {
	return open(path, url.Values{"_pragma": {"busy_timeout(5000)", "journal_mode(WAL)", "synchronous(FULL)"}})
}

// OpenReadOnly opens the database in a file that exists, and writes nothing to it. SQLite
// may leave path-shm and an empty path-wal beside a database that no other program has open.
func OpenReadOnly(path string) (*sql.DB, error) {
	if _, err := os.Stat(path); err != nil && path != "" {
		return nil, fmt.Errorf("sqlite: %w", err)
	}
	return open(path, url.Values{"mode": {"ro"}, "_pragma": {"busy_timeout(5000)", "query_only(1)"}})
}

func open(path string, query url.Values) (*sql.DB, error) {
	if path == "" {
		return nil, errors.New("sqlite: path is empty")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("sqlite: %w", err)
	}
	if folder, err := os.Stat(filepath.Dir(path)); err != nil || !folder.IsDir() {
		return nil, fmt.Errorf("sqlite: %s: there is no folder %s: create it first", path, filepath.Dir(path))
	}
	source := url.URL{Scheme: "file", Path: filepath.ToSlash(path), RawQuery: query.Encode()}
	db, err := sql.Open("sqlite", source.String())
	if err != nil {
		return nil, fmt.Errorf("sqlite: %w", err)
	}
	db.SetMaxOpenConns(8)
	db.SetMaxIdleConns(8) // to open one costs more than it holds
	if err := db.Ping(); err != nil {
		return nil, errors.Join(fmt.Errorf("sqlite: %s: %w", path, err), db.Close())
	}
	return db, nil
}
