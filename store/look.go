package store

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/rehop/rehop/internal/letter"
)

// A Query is answered from one index, in the order of storing. If that index does not
// answer it alone, each entry costs a look at the entry, and a call that a person
// waits for looks at no more than these at a time.
const (
	maxLooked = 20_000 // entries

	// maxLookedBytes bounds them if their bodies are read, for a Text.
	maxLookedBytes = 32 << 20
)

// names are the columns of the desk that a Query names, with their values as the
// database has them; the most telling one first.
func (q Query) names() (names []named) {
	for _, one := range []named{ // in the order of desk
		{"fingerprint", letter.Armour(q.Fingerprint)}, {"routing_key", letter.Armour(q.RoutingKey)}, {"error_type", letter.Readable(q.ErrorType, letter.MaxName)},
		{"queue", letter.Armour(q.Queue)}, {"cause", letter.Readable(string(q.Cause), letter.MaxName)}, {"exchange", letter.Armour(q.Exchange)},
	} {
		if one.value != "" {
			names = append(names, one)
		}
	}
	return names
}

type named struct{ column, value string }

// driver is the index that answers a Query about entries that are not Ready.
func (q Query) driver() string {
	if names := q.names(); len(names) > 0 {
		return names[0].column
	}
	return byState.name
}

// timed reports whether a Query has a time.
func (q Query) timed() bool {
	return !q.From.IsZero() || !q.Before.IsZero() || !q.FailedFrom.IsZero() || !q.FailedBefore.IsZero()
}

// direct reports whether a Query is answered from the table itself, by its numbers or by
// message ids, and not from the indices of a state.
func (q Query) direct() bool {
	return q.MessageIDs != nil || q.Numbers != nil || q.States == nil && !q.Scheduled && len(q.names()) == 0
}

// looks reports whether entries have to be looked at, because no index answers a Query.
func (q Query) looks() bool {
	names := len(q.names())
	ready := slices.Contains(q.states(), Ready) // which have no index of names and times
	switch {
	case q.Text != "":
		return true
	case q.MessageIDs != nil || q.Numbers != nil:
		return false // they are few
	}
	return names > 1 || (names == 1 || q.timed()) && ready || names == 1 && q.timed()
}

// part is a part of the entries that a Query selects, in the order of storing. The
// zero part is all of them, in any order.
type part struct {
	bare          bool  // all that the index finds which answers the Query
	upTo          int64 // the last number; 0: no bound
	skip, entries int   // of each state; entries 0: no bound
}

// bare is a Query of one state with no more than its index answers.
func (q Query) bare(state State) Query {
	one := Query{MessageIDs: q.MessageIDs, Numbers: q.Numbers, States: q.States, Scheduled: q.Scheduled, After: q.After}
	if state == Ready {
		return one
	}
	switch q.driver() {
	case "fingerprint":
		one.Fingerprint = q.Fingerprint
	case "routing_key":
		one.RoutingKey = q.RoutingKey
	case "error_type":
		one.ErrorType = q.ErrorType
	case "queue":
		one.Queue = q.Queue
	case "cause":
		one.Cause = q.Cause
	case "exchange":
		one.Exchange = q.Exchange
	}
	return one
}

// from is where the entries of a Query of one state are looked for.
func (s *Store) from(q Query) string {
	if q.States[0] == Ready {
		return "{letters by turn}"
	}
	return s.by(q.driver())
}

// by is the table, to be read by an index of the desk.
func (s *Store) by(index string) string {
	switch s.dialect {
	case SQLite: // which has statistics seldom
		return "{letters} INDEXED BY " + s.cfg.Table + "_" + index
	case MySQL: // which prefers the primary key
		return "{letters} FORCE INDEX (" + s.cfg.Table + "_" + index + ")"
	}
	return "{letters}"
}

// selection is a SELECT of columns of entries that a Query selects. Each state has
// indices of its own, so it is looked at by itself.
func (s *Store) selection(q Query, columns string, p part) (statement string, args []any) {
	end := ""
	var last []any
	if p.entries > 0 {
		end, last = " ORDER BY seq LIMIT ?", []any{p.entries}
		if p.skip > 0 {
			end, last = end+" OFFSET ?", append(last, p.skip)
		}
	}
	where := func(q Query, state State) *condition {
		if p.bare {
			q = q.bare(state)
		}
		c := s.whereIn(q)
		if p.upTo > 0 {
			c.add("seq <= ?", p.upTo)
		}
		return c
	}
	if q.direct() {
		c := where(q, Ready)
		return "SELECT " + columns + " FROM {letters} WHERE " + c.String() + end, slices.Concat(c.args, last)
	}
	var parts []string
	for _, state := range q.states() {
		one := q
		one.States = []State{state}
		c := where(one, state)
		parts = append(parts, "SELECT "+columns+" FROM (SELECT "+columns+" FROM "+s.from(one)+" WHERE "+c.String()+end+") AS part")
		args = slices.Concat(args, c.args, last)
	}
	switch {
	case len(parts) == 0:
		return "SELECT " + columns + " FROM {letters} WHERE " + never, nil
	case len(parts) > 1 && p.entries > 0 && p.skip == 0:
		return "SELECT " + columns + " FROM (" + strings.Join(parts, " UNION ALL ") + ") AS parts ORDER BY seq LIMIT ?", append(args, p.entries)
	}
	return strings.Join(parts, " UNION ALL "), args
}

// lookEnd returns the number of the entry at which a call that a person waits for
// stops looking; 0 if it may look at all.
func (s *Store) lookEnd(ctx context.Context, q Query) (last int64, err error) {
	switch {
	case !q.looks():
		return 0, nil
	case q.Text != "":
		return s.lookEndOfText(ctx, q)
	}
	statement, args := s.selection(q, "seq", part{bare: true, skip: maxLooked - 1, entries: 1})
	if err := s.db.QueryRowContext(ctx, s.sql("SELECT COALESCE(MIN(seq), 0) FROM ("+statement+") AS looked"), args...).Scan(&last); err != nil {
		return 0, fmt.Errorf("store: %w", err)
	}
	return last, nil
}

func (s *Store) lookEndOfText(ctx context.Context, q Query) (int64, error) {
	statement, args := s.selection(q, "seq, size", part{bare: true, entries: maxLooked})
	looked, err := s.sizes(ctx, statement, args)
	bytes := 0
	for i, one := range looked {
		if bytes += one.size; bytes > maxLookedBytes || i == maxLooked-1 {
			return one.number, err
		}
	}
	return 0, err
}

// sizes returns the numbers and sizes of entries.
func (s *Store) sizes(ctx context.Context, statement string, args []any) (all []sized, err error) {
	rows, err := s.db.QueryContext(ctx, s.sql(statement), args...)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var one sized
		if err := rows.Scan(&one.number, &one.size); err != nil {
			return nil, fmt.Errorf("store: %w", err)
		}
		all = append(all, one)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	return all, nil
}
