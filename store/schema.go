package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"github.com/rehop/rehop"
)

// schemaVersion is the version of the schema that this package makes and knows. A program
// refuses a store of a later version. So it rises only with a change that an earlier program
// must not meet. An addition that does an earlier program no harm, such as a table or an
// index, is looked for and made by itself: programs of two consecutive versions use one store.
const schemaVersion = 1

// definitions are the columns of an entry.
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
		"line " + number + " NOT NULL",
		"due " + number + " NOT NULL",
		"next_try " + number + " NOT NULL",
		"exchange " + name + " NOT NULL",
		"routing_key " + name + " NOT NULL",
		"order_key " + name + " NOT NULL",
		"queue " + name + " NOT NULL",
		"properties " + long + " NOT NULL",
		"headers " + long + " NOT NULL",
		"size " + number + " NOT NULL",
		"cause " + name + " NOT NULL",
		"error " + text + " NOT NULL",
		"error_type " + name + " NOT NULL",
		"fingerprint " + word + " NOT NULL",
		"attempts " + number + " NOT NULL",
		"redrives " + number + " NOT NULL",
		"redrive_id " + name + " NOT NULL",
		"tries " + number + " NOT NULL",
		"try_error " + text + " NOT NULL",
		"alone " + number + " NOT NULL",
		"unconfirmed " + number + " NOT NULL",
		"first_failed " + number + " NOT NULL",
		"failed " + number + " NOT NULL",
		"stored " + number + " NOT NULL",
		"lease " + word + " NOT NULL",
		"body " + body + " NOT NULL", // at the end: SQLite passes it on the way to the columns behind it
	}
}

// index is one by which people look for entries.
type index struct{ name, columns string }

// desk are the columns by which people look for entries, the most telling first, each
// with its index. An index has the entries that are not Ready, which are the entries
// that wait for people.
var desk = []index{
	{"fingerprint", "fingerprint, state, seq"},
	{"routing_key", "routing_key, state, seq"},
	{"error_type", "error_type, state, seq"},
	{"queue", "queue, state, seq"},
	{"cause", "cause, state, seq"},
	{"exchange", "exchange, state, seq"},
}

// byState finds entries by nothing but their state and times. byGroup has the groups of
// a state, each in the order in which its entries failed. On MySQL it has no column of the
// desk: MariaDB leaps over no index of a generated column.
var (
	byState = index{"state", "state, seq, stored, failed"}
	byGroup = index{"groups", "state, fingerprint, failed, seq"}
)

// schema are the statements that make the tables. They can be run again after having
// been cut off: MySQL commits each by itself. collation is for MySQL.
//
// An entry that waits for the Forwarder is in two indices, of its message id and of its
// turn, whether or not it has a line. MySQL has no partial indices: there each column of
// the desk has another one beside it that is NULL for such an entry, so that what the
// indices cost it is small.
func schema(d Dialect, table, collation string) []string {
	columns := definitions(d)
	indices := append(slices.Clone(desk), byState, byGroup)
	if d == MySQL { // which has no CREATE INDEX IF NOT EXISTS
		columns = append(columns,
			fmt.Sprintf("UNIQUE INDEX %s_message (message_id, id)", table),
			fmt.Sprintf("INDEX %s_next (state, line, next_try, seq)", table))
		for _, one := range desk {
			width := 400
			if one.name == "fingerprint" {
				width = 64
			}
			columns = append(columns, fmt.Sprintf("desk_%[1]s VARCHAR(%[2]d) AS (IF(state = 'ready', NULL, %[1]s)) STORED", one.name, width))
		}
		for _, one := range indices {
			if slices.Contains(desk, one) {
				one.columns = "desk_" + one.columns
			}
			columns = append(columns, fmt.Sprintf("INDEX %s_%s (%s)", table, one.name, one.columns))
		}
		return []string{"CREATE TABLE IF NOT EXISTS " + table + " (" + strings.Join(columns, ", ") + ") ENGINE=InnoDB CHARACTER SET utf8mb4 COLLATE " + collation}
	}
	statements := []string{
		"CREATE TABLE IF NOT EXISTS {letters} (" + strings.Join(columns, ", ") + ")",
		"CREATE UNIQUE INDEX IF NOT EXISTS {letters}_message ON {letters} (message_id, id)",
		"CREATE INDEX IF NOT EXISTS {letters}_next ON {letters} (line, next_try, seq) WHERE state = 'ready'",
	}
	for _, one := range indices {
		statements = append(statements, "CREATE INDEX IF NOT EXISTS {letters}_"+one.name+" ON {letters} ("+one.columns+") WHERE state <> 'ready'")
	}
	for i := range statements {
		statements[i] = strings.ReplaceAll(statements[i], "{letters}", table)
	}
	return statements
}

// prepare makes the tables unless they are there. Of several processes that start at
// once one does it, and all others wait for it.
func prepare(ctx context.Context, db *sql.DB, d Dialect, table string) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	defer conn.Close()
	if err := checkDialect(ctx, conn, d); err != nil {
		return err
	}
	end, err := lockSchema(ctx, conn, d, table)
	if err != nil {
		return fmt.Errorf("store: locking the schema: %w", explained(err, d, db))
	}
	if err := end(prepareLocked(ctx, conn, d, table)); err != nil {
		return fmt.Errorf("store: schema of %s: %w", table, err)
	}
	return nil
}

// examine returns nil if the tables are there, as this version makes them. It only reads.
func examine(ctx context.Context, db *sql.DB, d Dialect, table string) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	defer conn.Close()
	if err := checkDialect(ctx, conn, d); err != nil {
		return err
	}
	versions := table + "_schema"
	found := map[string]bool{}
	for _, name := range []string{table, versions} {
		n := 0
		if err := conn.QueryRowContext(ctx, d.bind(tablesNamed(d)), name).Scan(&n); err != nil {
			return fmt.Errorf("store: %w", explained(err, d, db))
		}
		found[name] = n > 0
	}
	if !found[table] || !found[versions] {
		return rehop.WithClass(fmt.Errorf("store: the database is no store: it has no table %s of this package", table), rehop.ClassConfiguration)
	}
	have := 0
	if err := conn.QueryRowContext(ctx, "SELECT COALESCE(MAX(version), 0) FROM "+versions).Scan(&have); err != nil {
		return fmt.Errorf("store: schema of %s: %w", table, explained(err, d, db))
	}
	switch {
	case have > schemaVersion:
		return fmt.Errorf("store: schema of %s: %w", table, tooNew(table, have))
	case have < schemaVersion:
		return rehop.WithClass(fmt.Errorf("store: table %s has schema version %d, and this program reads version %d: open it once without Config.Existing, as the service that writes it or rehop dlq collect does, which brings it up to date", table, have, schemaVersion), rehop.ClassConfiguration)
	}
	return nil
}

func tooNew(table string, have int) error {
	return rehop.WithClass(fmt.Errorf("table %s has schema version %d, and this program knows versions up to %d: use the newer program", table, have, schemaVersion), rehop.ClassConfiguration)
}

// tablesNamed counts the tables of a name.
func tablesNamed(d Dialect) string {
	switch d {
	case PostgreSQL:
		return "SELECT COUNT(to_regclass(?))"
	case MySQL:
		return "SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ?"
	}
	return "SELECT COUNT(*) FROM sqlite_master WHERE type = 'table' AND name = ?"
}

// lockSchema keeps other processes from making the tables until end is called with
// what came of it.
func lockSchema(ctx context.Context, conn *sql.Conn, d Dialect, table string) (end func(error) error, err error) {
	undone := context.WithoutCancel(ctx) // a lock is given back even if ctx has ended
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
		// Another process writes, for longer than the driver is patient.
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

func versionsSchema(versions string) string {
	return "CREATE TABLE IF NOT EXISTS " + versions + " (version INTEGER NOT NULL)"
}

func prepareLocked(ctx context.Context, conn *sql.Conn, d Dialect, table string) error {
	versions := table + "_schema"
	if _, err := conn.ExecContext(ctx, versionsSchema(versions)); err != nil {
		return err
	}
	var have int
	if err := conn.QueryRowContext(ctx, "SELECT COALESCE(MAX(version), 0) FROM "+versions).Scan(&have); err != nil {
		return err
	}
	switch {
	case have > schemaVersion:
		return tooNew(table, have)
	case have == schemaVersion:
		return nil
	}
	collation, err := exactCollation(ctx, conn, d)
	if err != nil {
		return err
	}
	for _, statement := range slices.Concat(schema(d, table, collation), inboxSchema(d, table, collation)) {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	_, err = conn.ExecContext(ctx, d.bind("INSERT INTO "+versions+" (version) VALUES (?)"), schemaVersion)
	return err
}

// exactCollation returns the collation in which two texts are equal if their bytes
// are. In utf8mb4_bin "c1" equals "c1 ". MariaDB and MySQL have different names for it.
func exactCollation(ctx context.Context, conn *sql.Conn, d Dialect) (name string, err error) {
	if d != MySQL {
		return "", nil
	}
	err = conn.QueryRowContext(ctx, "SELECT COLLATION_NAME FROM information_schema.COLLATIONS WHERE COLLATION_NAME IN ('utf8mb4_nopad_bin', 'utf8mb4_0900_bin') ORDER BY COLLATION_NAME DESC LIMIT 1").Scan(&name)
	if errors.Is(err, sql.ErrNoRows) {
		return "", errors.New("the server has neither the collation utf8mb4_nopad_bin nor utf8mb4_0900_bin: want MariaDB 10.6 or MySQL 8.0, or later")
	}
	return name, err
}

// checkDialect refuses a database that is of another kind than its dialect says. It
// asks first a question that a database of this dialect can answer.
func checkDialect(ctx context.Context, conn *sql.Conn, d Dialect) error {
	is := kind(ctx, conn, d == SQLite)
	if is == "" {
		is = kind(ctx, conn, d != SQLite)
	}
	if is == "" || is == d { // 0: the next question finds the fault
		return nil
	}
	return rehop.WithClass(fmt.Errorf("store: the dialect is %v, and the database is %v: open the Store with store.%v", d, is, is), rehop.ClassBug)
}

// kind asks a database for its kind, as SQLite or as a server; 0 if it does not know
// the question.
func kind(ctx context.Context, conn *sql.Conn, asSQLite bool) Dialect {
	ask := "SELECT version()"
	if asSQLite {
		ask = "SELECT sqlite_version()"
	}
	var version string
	switch err := conn.QueryRowContext(ctx, ask).Scan(&version); {
	case err != nil:
		return ""
	case asSQLite:
		return SQLite
	case strings.HasPrefix(version, "PostgreSQL"):
		return PostgreSQL
	}
	return MySQL
}
