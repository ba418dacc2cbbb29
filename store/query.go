package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/internal/letter"
)

// Query selects entries. An entry must match each field that is set. The zero Query
// selects all entries for Find, Count and Groups.
//
// Calls that change entries (Park, Archive, Release, Delete and Replay) refuse a Query
// that names nothing but states, times or After, unless All is set: a list that has
// turned out nil, or a name that has turned out empty, must not select everything. A
// list that is empty and not nil selects nothing.
type Query struct {
	// All allows calls that change entries to change every entry of the States,
	// times and numbers that are named.
	All bool

	States      []State  // any of these
	MessageIDs  []string // any of these, up to 10,000
	Numbers     []int64  // Entry.Number, any of these; up to 10,000 for Find, Count and Groups
	Queue       string
	Exchange    string
	RoutingKey  string
	Cause       rehop.Cause
	ErrorType   string
	Fingerprint string

	// Text is contained in the error, the headers or the body. Upper and lower case
	// differ. The database reads the entries that match the other fields: for Find and
	// Groups as many as their bounds allow, for other calls all of them.
	Text string

	// From and Before bound when the entry was stored; From is included.
	From, Before time.Time

	// FailedFrom and FailedBefore bound when the entry failed; FailedFrom is included.
	// An entry that has not failed does not match them.
	FailedFrom, FailedBefore time.Time

	// Scheduled selects entries that are Ready and not due yet: entries of PutAt, and
	// messages with a Delay.
	Scheduled bool

	// After selects entries with a greater Number. For the next page, set it to the
	// result next of the Find before.
	After int64

	// Limit is how many entries Find returns, and how many groups Groups returns; it
	// defaults to 100. Other calls refuse it.
	Limit int
}

// maxListed is how many ids or numbers a Query may name: databases bound the parameters
// of a statement.
const maxListed = 10_000

func (q Query) validate() error {
	var errs []error
	if n := len(q.MessageIDs); n > maxListed {
		errs = append(errs, fmt.Errorf("store: Query.MessageIDs has %d ids, want up to %d: ask in pieces", n, maxListed))
	}
	if q.Limit < 0 {
		errs = append(errs, fmt.Errorf("store: Query.Limit is %d, want 0 or more", q.Limit))
	}
	return rehop.WithClass(errors.Join(errs...), rehop.ClassBug)
}

// validateRead is validate for a call that reads entries.
func (q Query) validateRead() error {
	errs := []error{q.validate()}
	if n := len(q.Numbers); n > maxListed {
		errs = append(errs, fmt.Errorf("store: Query.Numbers has %d numbers, want up to %d: ask in pieces", n, maxListed))
	}
	return rehop.WithClass(errors.Join(errs...), rehop.ClassBug)
}

// validateCount is validate for a call that counts entries.
func (q Query) validateCount() error {
	errs := []error{q.validateRead()}
	if q.Limit != 0 {
		errs = append(errs, fmt.Errorf("store: Query.Limit is %d, want 0: it is for Find and Groups", q.Limit))
	}
	return rehop.WithClass(errors.Join(errs...), rehop.ClassBug)
}

// validateChange is validate for a call that changes entries.
func (q Query) validateChange() error {
	errs := []error{q.validate()}
	if q.Limit != 0 {
		errs = append(errs, fmt.Errorf("store: Query.Limit is %d, want 0: it is for Find and Groups", q.Limit))
	}
	named := q.MessageIDs != nil || q.Numbers != nil || q.Text != "" || q.Scheduled ||
		q.Queue+q.Exchange+q.RoutingKey+string(q.Cause)+q.ErrorType+q.Fingerprint != ""
	if !named && !q.All {
		errs = append(errs, errors.New("store: Query names no entries but by state, time or After; want another condition, or All"))
	}
	return rehop.WithClass(errors.Join(errs...), rehop.ClassBug)
}

// condition is a WHERE with its parameters.
type condition struct {
	parts []string
	args  []any
}

func (c *condition) add(part string, args ...any) {
	c.parts = append(c.parts, part)
	c.args = append(c.args, args...)
}

// in is the condition that a column has one of these values, one at least.
func (c *condition) in(column string, values []string) {
	var args []any
	for _, v := range values {
		args = append(args, v)
	}
	c.add(column+" IN ("+strings.Repeat("?,", len(values)-1)+"?)", args...)
}

// never is the condition that no entry meets.
const never = "1 = 0"

func (c *condition) String() string {
	if len(c.parts) == 0 {
		return "1 = 1"
	}
	return strings.Join(c.parts, " AND ")
}

// where is the condition of a Query, without its States.
func (s *Store) where(q Query) *condition {
	var c condition
	if q.MessageIDs != nil && len(q.MessageIDs) == 0 || q.Numbers != nil && len(q.Numbers) == 0 {
		c.add(never)
		return &c
	}
	if len(q.MessageIDs) > 0 {
		var ids []string
		for _, id := range q.MessageIDs {
			ids = append(ids, letter.Armour(id))
		}
		c.in("message_id", ids)
	}
	if len(q.Numbers) > 0 {
		c.add(s.dialect.among("seq", q.Numbers))
	}
	for _, name := range q.names() {
		c.add(s.column(q, name.column)+" = ?", name.value)
	}
	if q.Text != "" {
		s.contains(&c, q.Text)
	}
	if !q.From.IsZero() {
		c.add("stored >= ?", q.From.UnixMilli())
	}
	if !q.Before.IsZero() {
		c.add("stored < ?", q.Before.UnixMilli())
	}
	if !q.FailedFrom.IsZero() || !q.FailedBefore.IsZero() {
		c.add(q.failedWithin())
	}
	if q.Scheduled {
		c.add("state = 'ready' AND due > ?", s.now().UnixMilli())
	}
	if q.After > 0 {
		c.add("seq > ?", q.After)
	}
	return &c
}

// failedWithin is the condition of when entries failed, with literals.
func (q Query) failedWithin() string {
	var c condition
	if !q.FailedFrom.IsZero() || !q.FailedBefore.IsZero() {
		c.add(fmt.Sprintf("failed >= %d", millis(q.FailedFrom)))
		c.add("failed > 0")
	}
	if !q.FailedBefore.IsZero() {
		c.add(fmt.Sprintf("failed < %d", millis(q.FailedBefore)))
	}
	return c.String()
}

// column is a column of the desk as a Query is to name it: on MySQL the entries that are
// not Ready have it a second time, with an index.
func (s *Store) column(q Query, name string) string {
	if s.dialect == MySQL && len(q.States) > 0 && !slices.Contains(q.States, Ready) {
		return "desk_" + name
	}
	return name
}

// contains is the condition that a text is in the error, the headers or the body. What
// is no text, or has a NUL, is in no error and not as such in headers.
func (s *Store) contains(c *condition, text string) {
	in := s.dialect.contains("body", true)
	args := []any{[]byte(text)}
	if utf8.ValidString(text) && !strings.Contains(text, "\x00") {
		in += " OR " + s.dialect.contains("error", false) + " OR " + s.dialect.contains("headers", false)
		args = append(args, text, text)
	}
	c.add("("+in+")", args...)
}

// everyState are the states that a Query means which names none.
var everyState = []State{Ready, Held, Parked, Archived}

// states are the states that a Query means.
func (q Query) states() []State {
	if q.States == nil {
		return everyState
	}
	var known []State
	for _, state := range everyState { // each once
		if slices.Contains(q.States, state) {
			known = append(known, state)
		}
	}
	return known
}

// unleased is the condition of the entries of a Query, but for its Numbers, that nobody
// is publishing.
func (s *Store) unleased(q Query) *condition {
	if len(q.Numbers) > 0 {
		q.Numbers = nil
	}
	c := s.whereIn(q)
	c.add("(lease = '' OR next_try <= ?)", s.now().UnixMilli())
	return c
}

// selected returns the numbers of the entries that a Query of a call that changes entries
// selects now, in the order of storing. It reads them at once, because each page of a
// sorted query would be sorted anew; a million takes 8 MB.
func (s *Store) selected(ctx context.Context, q Query) (numbers []int64, err error) {
	pieces := [][]int64{q.Numbers}
	if len(q.Numbers) > 0 {
		pieces = slices.Collect(slices.Chunk(slices.Compact(slices.Sorted(slices.Values(q.Numbers))), piece))
	}
	for _, q.Numbers = range pieces {
		statement, args := s.selection(q, "seq", part{})
		rows, err := s.db.QueryContext(ctx, s.sql(statement), args...)
		if err != nil {
			return nil, fmt.Errorf("store: %w", err)
		}
		some, err := scanNumbers(rows)
		if err != nil {
			return nil, fmt.Errorf("store: %w", err)
		}
		numbers = append(numbers, some...)
	}
	slices.Sort(numbers)
	return numbers, nil
}

// whereIn is where with the States.
func (s *Store) whereIn(q Query) *condition {
	c := s.where(q)
	if q.States != nil {
		c.add(inState(q.States...))
	}
	return c
}
