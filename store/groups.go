package store

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/rehop/rehop/internal/letter"
)

// The bounds of Groups, beside those of a look.
const (
	maxGroups = 1000 // of each state

	// maxInGroup is how far a group is counted, and maxCounted all of a state together.
	maxInGroup = 10_000
	maxCounted = 300_000
)

// foundGroup is a Group, as it is found.
type foundGroup struct {
	fingerprint string
	count       int
	more        bool
	example     int64 // number
	first, last int64 // failures, in milliseconds
	cut         bool  // on MySQL: some of its entries have failed at another time than is asked for
}

// Groups returns entries by fingerprint, the largest group first, up to Query.Limit.
// Entries without a cause are in no group. Query.States defaults to [Held] and [Parked],
// the entries that wait for a person.
//
// Groups looks at 1,000 groups of each state, in the order of their fingerprints, and
// counts each up to 10,000 entries, or less if those of a state have more than 300,000
// entries together. Group.More says that a group has more. If the Query has more than
// States, Queue, Cause, ErrorType, Fingerprint, FailedFrom and FailedBefore, the groups
// are those of 20,000 entries at most, which Find looks at for its first page. more
// reports that there are entries that Groups did not look at, or groups beyond the
// Limit.
func (s *Store) Groups(ctx context.Context, q Query) (groups []Group, more bool, err error) {
	if err := q.validateRead(); err != nil {
		return nil, false, err
	}
	if q.States == nil {
		q.States = []State{Held, Parked}
	}
	var found []foundGroup
	if q.whole() {
		found, more, err = s.leap(ctx, q)
	} else {
		found, more, err = s.groupsOfLook(ctx, q)
	}
	if err != nil {
		return nil, false, err
	}
	slices.SortStableFunc(found, func(a, b foundGroup) int {
		return cmp.Or(cmp.Compare(b.count, a.count), strings.Compare(a.fingerprint, b.fingerprint))
	})
	if limit := cmp.Or(q.Limit, 100); len(found) > limit {
		found, more = found[:limit], true
	}
	groups, err = s.examples(ctx, found)
	return groups, more, err
}

// whole reports whether a Query selects all entries of a group that failed within a time, or
// none: those of one group have these names in common.
func (q Query) whole() bool {
	rest := q
	rest.All, rest.States, rest.Limit = false, nil, 0
	rest.Queue, rest.Cause, rest.ErrorType, rest.Fingerprint, rest.FailedFrom, rest.FailedBefore = "", "", "", "", time.Time{}, time.Time{}
	return !slices.Contains(q.States, Ready) && len(rest.names()) == 0 && !rest.timed() && rest.Text == "" && rest.MessageIDs == nil && rest.Numbers == nil && !rest.Scheduled && rest.After == 0
}

// groupsOfLook are the groups of the entries that a call may look at.
func (s *Store) groupsOfLook(ctx context.Context, q Query) (groups []foundGroup, more bool, err error) {
	p := part{entries: maxLooked + 1}
	if p.upTo, err = s.lookEnd(ctx, q); err != nil {
		return nil, false, err
	}
	statement, args := s.selection(q, "fingerprint, failed, seq", p)
	rows, err := s.db.QueryContext(ctx, s.sql("SELECT fingerprint, seq, failed FROM ("+statement+") AS found"), args...)
	if err != nil {
		return nil, false, fmt.Errorf("store: %w", err)
	}
	entries, err := scanGroups(rows)
	slices.SortFunc(entries, func(a, b foundGroup) int {
		return cmp.Or(cmp.Compare(a.first, b.first), cmp.Compare(a.example, b.example))
	})
	at := map[string]int{}
	for _, l := range entries {
		i, known := at[l.fingerprint]
		switch {
		case l.fingerprint == "":
			continue
		case !known:
			i = len(groups)
			at[l.fingerprint] = i
			groups = append(groups, l)
		}
		groups[i].count++
		groups[i].last = l.first
	}
	return groups, p.upTo > 0 || len(entries) > maxLooked, err
}

// scanGroups reads rows of a fingerprint, an entry and when it failed, and closes them.
func scanGroups(rows *sql.Rows) (all []foundGroup, err error) {
	defer rows.Close()
	for rows.Next() {
		var one foundGroup
		if err := rows.Scan(&one.fingerprint, &one.example, &one.first); err != nil {
			return nil, fmt.Errorf("store: %w", err)
		}
		all = append(all, one)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	return all, nil
}

// leap goes over the index from group to group, and counts them.
func (s *Store) leap(ctx context.Context, q Query) (groups []foundGroup, more bool, err error) {
	var all []foundGroup
	for _, state := range q.states() {
		found, left, err := s.leapIn(ctx, q, state)
		if err == nil {
			err = s.countGroups(ctx, state, q.failedWithin(), found)
		}
		if err != nil {
			return nil, false, err
		}
		all, more = append(all, found...), more || left
	}
	at := map[string]int{}
	for _, one := range all {
		i, known := at[one.fingerprint]
		if !known {
			at[one.fingerprint] = len(groups)
			groups = append(groups, one)
			continue
		}
		g := &groups[i]
		g.count += one.count
		g.more = g.more || one.more
		if g.last = max(g.last, one.last); cmp.Or(cmp.Compare(one.first, g.first), cmp.Compare(one.example, g.example)) < 0 {
			g.first, g.example = one.first, one.example
		}
	}
	return groups, more, nil
}

// leapIn returns the groups of a state, uncounted, and whether there are more.
func (s *Store) leapIn(ctx context.Context, q Query, state State) (groups []foundGroup, more bool, err error) {
	of := s.by(byGroup.name) + " WHERE state <> 'ready' AND state = '" + string(state) + "' AND fingerprint"
	begin, arg, limit := " > ?", "", maxGroups+1
	if q.Fingerprint != "" {
		begin, arg, limit = " = ?", letter.Armour(q.Fingerprint), 1
	}
	leaps := "WITH RECURSIVE seen(fingerprint, n) AS (" +
		"SELECT fingerprint, n FROM (SELECT fingerprint, 1 AS n FROM " + of + begin + " ORDER BY fingerprint LIMIT 1) AS head" +
		" UNION ALL SELECT (SELECT fingerprint FROM " + of + " > seen.fingerprint ORDER BY fingerprint LIMIT 1), n + 1 FROM seen WHERE seen.fingerprint IS NOT NULL AND n < ?) "
	from, within := "seen", q.failedWithin()
	if s.dialect == MySQL { // which leaps for this, and not for that, and passes the whole of a group for a time
		leaps, within = "", Query{}.failedWithin()
		from = "(SELECT DISTINCT state, fingerprint FROM " + of + begin + " ORDER BY state, fingerprint LIMIT ?) AS seen"
		if q.Fingerprint != "" {
			from = "(SELECT ? AS fingerprint LIMIT ?) AS seen"
		}
	}
	ofOne := " FROM " + of + " = seen.fingerprint AND " + within + " ORDER BY "
	rows, err := s.db.QueryContext(ctx, s.sql(leaps+"SELECT fingerprint, (SELECT seq"+ofOne+"failed, seq LIMIT 1), (SELECT failed"+ofOne+"failed, seq LIMIT 1), "+
		"(SELECT failed"+ofOne+"failed DESC, seq DESC LIMIT 1) FROM "+from+" WHERE fingerprint IS NOT NULL"), arg, limit)
	if err != nil {
		return nil, false, fmt.Errorf("store: %w", err)
	}
	defer rows.Close()
	n := 0
	for rows.Next() {
		var one foundGroup
		var example, first, last sql.NullInt64
		if err := rows.Scan(&one.fingerprint, &example, &first, &last); err != nil {
			return nil, false, fmt.Errorf("store: %w", err)
		}
		if n++; n > maxGroups {
			more = true
		} else if example.Valid { // else none of its entries has failed within the time
			one.example, one.first, one.last = example.Int64, first.Int64, last.Int64
			groups = append(groups, one)
		}
	}
	if err := rows.Err(); err != nil {
		return nil, false, fmt.Errorf("store: %w", err)
	}
	if s.dialect == MySQL && q.timed() {
		if groups, err = s.failedIn(ctx, q, state, groups); err != nil {
			return nil, false, err
		}
	}
	groups, err = s.named(ctx, q, groups)
	return groups, more, err
}

// failedIn returns the groups that have entries which failed within the time of a Query,
// with the first and the last of these. Groups that have other entries too are cut.
func (s *Store) failedIn(ctx context.Context, q Query, state State, groups []foundGroup) ([]foundGroup, error) {
	from, before := max(millis(q.FailedFrom), 1), int64(math.MaxInt64)
	if !q.FailedBefore.IsZero() {
		before = millis(q.FailedBefore)
	}
	groups = slices.DeleteFunc(groups, func(g foundGroup) bool { return g.last < from || g.first >= before })
	var cut []*foundGroup
	for i := range groups {
		if g := &groups[i]; g.first < from || g.last >= before {
			g.cut = true
			cut = append(cut, g)
		}
	}
	of := s.by(byGroup.name) + " WHERE " + inState(state) + " AND fingerprint = ? AND " + q.failedWithin() + " ORDER BY failed"
	ends := "(SELECT seq FROM " + of + ", seq LIMIT 1), (SELECT failed FROM " + of + ", seq LIMIT 1), (SELECT failed FROM " + of + " DESC, seq DESC LIMIT 1)"
	for some := range slices.Chunk(cut, 50) {
		statement, args := eachOf(some, ends)
		err := s.scan(ctx, statement, args, func(rows *sql.Rows) error {
			var i int
			var example, first, last sql.NullInt64
			err := rows.Scan(&i, &example, &first, &last)
			some[i].example, some[i].first, some[i].last = example.Int64, first.Int64, last.Int64
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(groups, func(g foundGroup) bool { return g.example == 0 }), nil
}

// eachOf is a SELECT with a part for each group: its index, and columns in which a
// parameter is its fingerprint. MySQL uses the whole of an index for such a part, and
// for a fingerprint from another table no more than the columns that are equal to something.
func eachOf(groups []*foundGroup, columns string) (statement string, args []any) {
	var parts []string
	for i, g := range groups {
		parts = append(parts, fmt.Sprintf("SELECT %d, %s", i, columns))
		for range strings.Count(columns, "?") {
			args = append(args, g.fingerprint)
		}
	}
	return strings.Join(parts, " UNION ALL "), args
}

// scan calls row for each row of a query.
func (s *Store) scan(ctx context.Context, statement string, args []any, row func(*sql.Rows) error) error {
	rows, err := s.db.QueryContext(ctx, s.sql(statement), args...)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows); err != nil {
			return fmt.Errorf("store: %w", err)
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	return nil
}

// named returns the groups whose entries have the names of a Query.
func (s *Store) named(ctx context.Context, q Query, groups []foundGroup) ([]foundGroup, error) {
	names := condition{}
	for _, name := range (Query{Queue: q.Queue, Cause: q.Cause, ErrorType: q.ErrorType}).names() {
		names.add(name.column+" = ?", name.value)
	}
	if len(names.parts) == 0 || len(groups) == 0 {
		return groups, nil
	}
	var examples []int64
	for _, g := range groups {
		examples = append(examples, g.example)
	}
	names.add(s.dialect.among("seq", examples))
	have, err := s.numbers(ctx, &names)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(groups, func(g foundGroup) bool { return !slices.Contains(have, g.example) }), nil
}

// countGroups counts groups, first all a little way and then those further that have more.
func (s *Store) countGroups(ctx context.Context, state State, within string, groups []foundGroup) error {
	open := make([]*foundGroup, len(groups))
	for i := range groups {
		open[i] = &groups[i]
	}
	left := maxCounted
	for bound := 0; len(open) > 0; {
		next := min(max(10*bound, 100), maxInGroup, max(left/len(open), 1))
		if next <= bound {
			break
		}
		bound = next
		for some := range slices.Chunk(open, 200) {
			if err := s.countUpTo(ctx, state, within, some, bound); err != nil {
				return err
			}
		}
		for _, one := range open {
			left -= one.count
		}
		open = slices.DeleteFunc(open, func(one *foundGroup) bool { return !one.more })
	}
	return nil
}

// countUpTo counts groups up to a bound.
func (s *Store) countUpTo(ctx context.Context, state State, within string, groups []*foundGroup, bound int) error {
	if s.dialect == MySQL {
		return s.countOnMySQL(ctx, state, within, groups, bound)
	}
	var parts []string
	var args []any
	for i, g := range groups {
		parts, args = append(parts, fmt.Sprintf("(%d, ?)", i)), append(args, g.fingerprint)
	}
	return s.counted(ctx, groups, bound, fmt.Sprintf("WITH asked(i, fingerprint) AS (VALUES %s) SELECT i, "+
		"(SELECT COUNT(*) FROM (SELECT seq FROM %s WHERE %s AND %s AND fingerprint = asked.fingerprint LIMIT %d) AS part) FROM asked",
		strings.Join(parts, ", "), s.by(byGroup.name), inState(state), within, bound+1), args)
}

// countOnMySQL is countUpTo. A subquery with a bound, to be counted, sees nothing of what
// is around it there.
func (s *Store) countOnMySQL(ctx context.Context, state State, within string, groups []*foundGroup, bound int) error {
	of := s.by(byGroup.name) + " WHERE " + inState(state) + " AND fingerprint"
	var whole, cut []*foundGroup
	for _, g := range groups {
		if g.cut {
			cut = append(cut, g)
		} else {
			whole = append(whole, g)
		}
	}
	for some := range slices.Chunk(cut, 50) {
		statement, args := eachOf(some, fmt.Sprintf("(SELECT COUNT(*) FROM (SELECT seq FROM %s = ? AND %s LIMIT %d) AS part)", of, within, bound+1))
		if err := s.counted(ctx, some, bound, statement, args); err != nil {
			return err
		}
	}
	if len(whole) == 0 {
		return nil
	}
	asked, args := eachOf(whole, "? AS fingerprint")
	asked = strings.Replace(asked, "SELECT 0", "SELECT 0 AS i", 1)
	return s.counted(ctx, whole, bound, fmt.Sprintf("SELECT i, CASE WHEN (SELECT 1 FROM %[1]s = asked.fingerprint LIMIT 1 OFFSET %[2]d) IS NULL "+
		"THEN (SELECT COUNT(*) FROM %[1]s = asked.fingerprint) ELSE %[2]d + 1 END FROM (%[3]s) AS asked", of, bound, asked), args)
}

// counted takes the counts of groups from the rows of a query.
func (s *Store) counted(ctx context.Context, groups []*foundGroup, bound int, statement string, args []any) error {
	return s.scan(ctx, statement, args, func(rows *sql.Rows) error {
		var i, n int
		err := rows.Scan(&i, &n)
		groups[i].count, groups[i].more = min(n, bound), n > bound
		return err
	})
}

// withoutBody are the columns of whole, for entries of which the body is not wanted.
var withoutBody = strings.Replace(whole, "body", "NULL", 1)

// examples reads the entries that groups show.
func (s *Store) examples(ctx context.Context, found []foundGroup) (groups []Group, err error) {
	var numbers []int64
	for _, g := range found {
		numbers = append(numbers, g.example)
	}
	byNumber := map[int64]Entry{}
	for some := range slices.Chunk(numbers, 1000) {
		entries, err := s.read(ctx, withoutBody, "WHERE "+s.dialect.among("seq", some))
		if err != nil {
			return nil, err
		}
		for _, l := range entries {
			byNumber[l.Number] = l
		}
	}
	for _, g := range found {
		groups = append(groups, Group{
			Fingerprint: g.fingerprint, Count: g.count, More: g.more, First: instant(g.first), Last: instant(g.last), Example: byNumber[g.example],
		})
	}
	return groups, nil
}
