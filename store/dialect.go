package store

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Dialect is the kind of a database. The zero value is invalid.
type Dialect string

// The dialects.
const (
	SQLite     Dialect = "SQLite"     // 3.35 or later
	MySQL      Dialect = "MySQL"      // 8.0 or later, or MariaDB 10.6 or later
	PostgreSQL Dialect = "PostgreSQL" // 12 or later
)

// bind rewrites the question marks of a statement to the database's own
// placeholders. The statements of this package hold no other question marks.
func (d Dialect) bind(query string) string {
	if d != PostgreSQL {
		return query
	}
	var b strings.Builder
	n := 0
	for _, part := range strings.SplitAfter(query, "?") {
		text, found := strings.CutSuffix(part, "?")
		b.WriteString(text)
		if found {
			n++
			b.WriteString("$" + strconv.Itoa(n))
		}
	}
	return b.String()
}

// inline writes texts in UTF-8 and numbers into a statement, where they cost less so. The
// driver of MySQL prepares a statement with arguments, which is one more round trip.
func (d Dialect) inline(statement string, args []any) (string, []any) {
	if d != MySQL {
		return statement, args
	}
	for _, arg := range args {
		literal := fmt.Sprint(arg)
		if text, is := arg.(string); is {
			literal = fmt.Sprintf("_utf8mb4 x'%x'", text)
		}
		statement = strings.Replace(statement, "?", literal, 1)
	}
	return statement, nil
}

// upsert begins the clause of an INSERT that meets a row with the same identity, and
// incoming names a value of the row that came.
func (d Dialect) upsert() string {
	if d == MySQL {
		return " ON DUPLICATE KEY UPDATE "
	}
	return " ON CONFLICT (message_id, id) DO UPDATE SET "
}

func (d Dialect) incoming(column string) string {
	if d == MySQL {
		return "VALUES(" + column + ")"
	}
	return "excluded." + column
}

// inState is the condition that an entry is in one of these states, with literals:
// a database uses an index of some states only if it sees which ones are meant.
func inState(states ...State) string {
	var known []string
	ready := false
	for _, state := range []State{Ready, Held, Parked, Archived} {
		if slices.Contains(states, state) {
			known = append(known, "'"+string(state)+"'")
			ready = ready || state == Ready
		}
	}
	switch {
	case len(known) == 0:
		return never
	case ready && len(known) == 1:
		return "state = 'ready'"
	case ready:
		return "state IN (" + strings.Join(known, ", ") + ")"
	}
	return "state <> 'ready' AND state IN (" + strings.Join(known, ", ") + ")"
}

// skipLocked ends a SELECT that takes rows for its transaction and leaves alone
// what another one has. SQLite has one writer at a time.
func (d Dialect) skipLocked() string {
	if d == SQLite {
		return ""
	}
	return " FOR UPDATE SKIP LOCKED"
}

// contains is the condition that a column of text or bytes has a text within
// it, which is the one parameter.
func (d Dialect) contains(column string, isBytes bool) string {
	switch {
	case d == PostgreSQL && isBytes:
		return "position(CAST(? AS bytea) in " + column + ") > 0"
	case d == PostgreSQL:
		return "position(CAST(? AS text) in " + column + ") > 0"
	case d == MySQL:
		return "LOCATE(CAST(? AS BINARY), CAST(" + column + " AS BINARY)) > 0"
	case isBytes:
		return "instr(" + column + ", CAST(? AS BLOB)) > 0"
	}
	return "instr(" + column + ", ?) > 0"
}

// rowsPerInsert is how many rows one INSERT takes. SQLite prepares each statement anew,
// with code for every index.
func (d Dialect) rowsPerInsert() int {
	if d == SQLite {
		return 32
	}
	return 100
}

// writers is how many transactions store messages at a time.
func (d Dialect) writers() int {
	if d == SQLite {
		return 1
	}
	return 4
}

// among is the condition that a column has one of these numbers, one at least.
// Neighbours are a range, which costs a database less than a list. Not on MySQL: there a
// statement that changes a range locks the row behind it too, and waits for it if the
// transaction of somebody else has it.
func (d Dialect) among(column string, numbers []int64) string {
	numbers = slices.Compact(slices.Sorted(slices.Values(numbers)))
	first, last := numbers[0], numbers[len(numbers)-1]
	if d != MySQL && last-first == int64(len(numbers)-1) {
		return fmt.Sprintf("%s BETWEEN %d AND %d", column, first, last)
	}
	var b strings.Builder
	b.WriteString(column + " IN (")
	for i, n := range numbers {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.FormatInt(n, 10))
	}
	b.WriteByte(')')
	return b.String()
}

func (d Dialect) validate() error {
	switch d {
	case SQLite, MySQL, PostgreSQL:
		return nil
	}
	return fmt.Errorf("store: dialect is %q, want SQLite, MySQL or PostgreSQL", string(d))
}
