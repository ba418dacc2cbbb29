package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	"github.com/rehop/rehop/connection"
)

// A SchemaError says that the tables were made by a later version of this package.
// Nothing was changed. Deploy that version here too.
type SchemaError struct {
	Table      string
	Have, Want int // versions of the schema: of the database, of this program
}

func (e *SchemaError) Error() string {
	return fmt.Sprintf("store: table %s has schema version %d, and this program knows versions up to %d: use the newer program", e.Table, e.Have, e.Want)
}

// Class returns connection.Configuration.
func (e *SchemaError) Class() connection.Class { return connection.Configuration }

// A migration takes the schema from one version to the next. Its statements
// can be run again after having been cut off: MySQL commits each by itself.
type migration func(d Dialect, table string) []string

// migrations[i] leads from version i to i+1. Released ones do not change.
var migrations = []migration{createLetters, partialIndices}

// definitions are the columns of a letter, seq and id being the first.
func definitions(d Dialect) []string {
	seq, name, text, long, body, number := "INTEGER PRIMARY KEY AUTOINCREMENT", "TEXT", "TEXT", "TEXT", "BLOB", "INTEGER"
	switch d {
	case MySQL:
		seq, name, text, long, body, number = "BIGINT AUTO_INCREMENT PRIMARY KEY", "VARCHAR(400)", "TEXT", "MEDIUMTEXT", "LONGBLOB", "BIGINT"
	case PostgreSQL:
		seq, body, number = "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY", "BYTEA", "BIGINT"
	}
	word := name
	if d == MySQL {
		word = "VARCHAR(64)"
	}
	return []string{
		"seq " + seq,
		"id " + word + " NOT NULL",
		"message_id " + name + " NOT NULL",
		"state " + word + " NOT NULL",
		"due " + number + " NOT NULL",
		"next_try " + number + " NOT NULL",
		"exchange " + name + " NOT NULL",
		"routing_key " + name + " NOT NULL",
		"queue " + name + " NOT NULL",
		"properties " + long + " NOT NULL",
		"headers " + long + " NOT NULL",
		"body " + body + " NOT NULL",
		"size " + number + " NOT NULL",
		"cause " + name + " NOT NULL",
		"error " + text + " NOT NULL",
		"error_type " + text + " NOT NULL",
		"fingerprint " + word + " NOT NULL",
		"attempts " + number + " NOT NULL",
		"tries " + number + " NOT NULL",
		"try_error " + text + " NOT NULL",
		"unconfirmed " + number + " NOT NULL",
		"first_failed " + number + " NOT NULL",
		"failed " + number + " NOT NULL",
		"stored " + number + " NOT NULL",
		"lease " + word + " NOT NULL",
	}
}

func createLetters(d Dialect, table string) []string {
	columns := definitions(d)
	indices := []struct{ name, columns string }{
		{"next", "state, next_try, seq"},
		{"message", "message_id"},
		{"group", "fingerprint, state, failed, seq"},
	}
	if d == MySQL { // which has no CREATE INDEX IF NOT EXISTS
		columns = append(columns, "UNIQUE (id)")
		for _, i := range indices {
			columns = append(columns, fmt.Sprintf("INDEX %s_%s (%s)", table, i.name, i.columns))
		}
		return []string{"CREATE TABLE IF NOT EXISTS " + table + " (" + strings.Join(columns, ", ") + ") ENGINE=InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"}
	}
	columns[1] += " UNIQUE"
	statements := []string{"CREATE TABLE IF NOT EXISTS " + table + " (" + strings.Join(columns, ", ") + ")"}
	for _, i := range indices {
		statements = append(statements, fmt.Sprintf("CREATE INDEX IF NOT EXISTS %s_%s ON %s (%s)", table, i.name, table, i.columns))
	}
	return statements
}

// partialIndices keeps out of the indices what need not be looked for: each entry is
// written for a letter that comes, and deleted for one that goes. MySQL,
// which has no partial indices, stays as it is. SQLite can only take a constraint
// away with the table.
func partialIndices(d Dialect, table string) []string {
	if d == MySQL {
		return nil
	}
	var statements []string
	add := func(statement string) {
		statements = append(statements, strings.ReplaceAll(statement, "{letters}", table))
	}
	if d == SQLite {
		add("CREATE TABLE {letters}_schema_2 (" + strings.Join(definitions(d), ", ") + ")")
		all := "seq, " + strings.Join(columns, ", ")
		add("INSERT INTO {letters}_schema_2 (" + all + ") SELECT " + all + " FROM {letters}")
		add("DELETE FROM sqlite_sequence WHERE name = '{letters}_schema_2'") // no number is used again
		add("INSERT INTO sqlite_sequence (name, seq) SELECT '{letters}_schema_2', seq FROM sqlite_sequence WHERE name = '{letters}'")
		add("DROP TABLE {letters}")           // and its indices
		add("PRAGMA legacy_alter_table = ON") // or a view of the user's would be checked in between
		add("ALTER TABLE {letters}_schema_2 RENAME TO {letters}")
		add("PRAGMA legacy_alter_table = OFF")
	} else {
		add("ALTER TABLE {letters} DROP CONSTRAINT {letters}_id_key")
		for _, index := range []string{"next", "message", "group"} {
			add("DROP INDEX {letters}_" + index)
		}
	}
	add("CREATE UNIQUE INDEX {letters}_message ON {letters} (message_id, id)")
	add("CREATE INDEX {letters}_next ON {letters} (next_try, seq) WHERE state = 'ready'")
	add("CREATE INDEX {letters}_others ON {letters} (state, next_try, seq) WHERE state <> 'ready'")
	add("CREATE INDEX {letters}_group ON {letters} (fingerprint, state, failed, seq) WHERE state <> 'ready'")
	return statements
}

// migrate brings the schema to the latest version. Of several processes that
// start at once one does it, and the others wait for it.
func migrate(ctx context.Context, db *sql.DB, d Dialect, table string, steps []migration) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	defer conn.Close()
	end, err := lockSchema(ctx, conn, d, table)
	if err != nil {
		return fmt.Errorf("store: locking the schema: %w", err)
	}
	if err := end(migrateLocked(ctx, conn, d, table, steps)); err != nil {
		var newer *SchemaError
		if errors.As(err, &newer) {
			return newer
		}
		return fmt.Errorf("store: schema of %s: %w", table, err)
	}
	return nil
}

// lockSchema keeps other processes from migrating until end is called with
// what came of it.
func lockSchema(ctx context.Context, conn *sql.Conn, d Dialect, table string) (end func(error) error, err error) {
	undone := context.WithoutCancel(ctx) // a lock is given back whatever becomes of ctx
	if d == MySQL {
		name := "rehop." + table
		var got sql.NullInt64
		err := conn.QueryRowContext(ctx, "SELECT GET_LOCK(?, 60)", name).Scan(&got)
		if err == nil && got.Int64 != 1 {
			err = errors.New("another process has held the lock for 60 s")
		}
		return func(err error) error {
			_, unlocked := conn.ExecContext(undone, "DO RELEASE_LOCK(?)", name)
			return errors.Join(err, unlocked)
		}, err
	}
	begin := "BEGIN IMMEDIATE"
	if d == PostgreSQL {
		begin = "BEGIN"
	}
	_, err = conn.ExecContext(ctx, begin)
	for d == SQLite && err != nil && strings.Contains(err.Error(), "locked") && ctx.Err() == nil {
		// Another process migrates, for longer than the driver is patient.
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
		}
		_, err = conn.ExecContext(ctx, begin)
	}
	if err != nil {
		rollBack(ctx, conn)
		return nil, err
	}
	end = func(err error) error {
		if err == nil {
			_, err = conn.ExecContext(ctx, "COMMIT")
		}
		if err != nil {
			rollBack(ctx, conn)
		}
		return err
	}
	if d == PostgreSQL {
		h := fnv.New32a()
		h.Write([]byte("rehop." + table))
		if _, err := conn.ExecContext(ctx, "SELECT pg_advisory_xact_lock($1)", int64(h.Sum32())); err != nil {
			return nil, end(err)
		}
	}
	return end, nil
}

func migrateLocked(ctx context.Context, conn *sql.Conn, d Dialect, table string, steps []migration) error {
	versions := table + "_schema"
	if _, err := conn.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS "+versions+" (version INTEGER NOT NULL)"); err != nil {
		return err
	}
	var have int
	if err := conn.QueryRowContext(ctx, "SELECT COALESCE(MAX(version), 0) FROM "+versions).Scan(&have); err != nil {
		return err
	}
	if have > len(steps) {
		return &SchemaError{Table: table, Have: have, Want: len(steps)}
	}
	for version := have; version < len(steps); version++ {
		for _, statement := range steps[version](d, table) {
			if _, err := conn.ExecContext(ctx, statement); err != nil {
				return fmt.Errorf("version %d: %w", version+1, err)
			}
		}
		if _, err := conn.ExecContext(ctx, d.bind("INSERT INTO "+versions+" (version) VALUES (?)"), version+1); err != nil {
			return err
		}
	}
	return nil
}
