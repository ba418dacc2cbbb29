package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/letter"
	"github.com/rehop/rehop/xdeath"
)

// Query selects letters. A letter must match each field that is set. The zero Query
// selects all letters. Park, Archive, Release and Delete refuse it, unless All is
// set, and they refuse a Limit. Replay does not refuse it: see [Store.Replay].
type Query struct {
	All bool // allows Park, Archive, Release and Delete to change every letter

	States      []State // any of these
	MessageIDs  []string
	Numbers     []int64 // Letter.Number
	Queue       string
	Exchange    string
	Key         string
	Cause       xdeath.Cause
	ErrorType   string
	Fingerprint string

	// Text is contained in the error, the headers or the body. Upper and lower
	// case differ.
	Text string

	// From and Before bound when the letter was stored; From is included.
	From, Before time.Time

	// Scheduled selects letters that Forward has but that are not due yet: those of
	// PutAt, and messages with a Delay.
	Scheduled bool

	// After is the Number of the last letter of the page before. Find orders by
	// Number.
	After int64

	// Limit is how many Find and Groups return. Defaults to 100. Count and Replay
	// ignore it.
	Limit int
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

func (c *condition) equal(column, value string) {
	if value != "" {
		c.add(column+" = ?", value)
	}
}

func (c *condition) in(column string, values []string) {
	if len(values) == 0 {
		return
	}
	var args []any
	for _, v := range values {
		args = append(args, v)
	}
	c.add(column+" IN ("+strings.Repeat("?,", len(values)-1)+"?)", args...)
}

func (c *condition) String() string {
	if len(c.parts) == 0 {
		return "1 = 1"
	}
	return strings.Join(c.parts, " AND ")
}

// where is the condition of a Query.
func (s *Store) where(q Query) *condition {
	var c condition
	var messageIDs []string
	for _, id := range q.MessageIDs {
		messageIDs = append(messageIDs, letter.Armour(id))
	}
	if len(q.States) > 0 {
		c.add(inState(q.States...))
	}
	c.in("message_id", messageIDs)
	if len(q.Numbers) > 0 {
		c.add(among("seq", q.Numbers))
	}
	c.equal("queue", letter.Armour(q.Queue))
	c.equal("exchange", letter.Armour(q.Exchange))
	c.equal("routing_key", letter.Armour(q.Key))
	c.equal("cause", string(q.Cause))
	c.equal("error_type", q.ErrorType)
	c.equal("fingerprint", q.Fingerprint)
	if q.Text != "" {
		c.add("("+s.dialect.contains("error", false)+" OR "+s.dialect.contains("headers", false)+" OR "+s.dialect.contains("body", true)+")", q.Text, q.Text, q.Text)
	}
	if !q.From.IsZero() {
		c.add("stored >= ?", q.From.UnixMilli())
	}
	if !q.Before.IsZero() {
		c.add("stored < ?", q.Before.UnixMilli())
	}
	if q.Scheduled {
		c.add("state = 'ready' AND due > ?", s.now().UnixMilli())
	}
	if q.After > 0 {
		c.add("seq > ?", q.After)
	}
	return &c
}

// chosen is the condition of a call that writes: not without a word about which
// letters, and none that somebody is publishing.
func (s *Store) chosen(q Query) (*condition, error) {
	if q.Limit != 0 {
		return nil, connection.WithClass(fmt.Errorf("store: Query.Limit is %d, want 0: it is for Find and Groups", q.Limit), connection.Bug)
	}
	c := s.where(q)
	if len(c.parts) == 0 && !q.All {
		return nil, connection.WithClass(errors.New("store: Query is empty, want a condition, or All"), connection.Bug)
	}
	c.add("(lease = '' OR next_try <= ?)", s.now().UnixMilli())
	return c, nil
}

// Find returns letters in the order of storing, up to Query.Limit. The next
// page is that after the last Number.
func (s *Store) Find(ctx context.Context, q Query) ([]Letter, error) {
	c := s.where(q)
	c.args = append(c.args, cmp.Or(q.Limit, 100))
	return s.read(ctx, s.db, "WHERE "+c.String()+" ORDER BY seq LIMIT ?", c.args...)
}

// read returns letters whole. One that cannot be decoded ends it with an error.
func (s *Store) read(ctx context.Context, q querier, rest string, args ...any) ([]Letter, error) {
	rows, err := q.QueryContext(ctx, s.sql("SELECT "+whole+" FROM {letters} "+rest), args...)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	defer rows.Close()
	var letters []Letter
	var scanner scanner
	for rows.Next() {
		var l Letter
		if err := scanner.scan(rows, &l); err != nil {
			return nil, err
		}
		letters = append(letters, l)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	return letters, nil
}

// Count returns how many letters a Query selects.
func (s *Store) Count(ctx context.Context, q Query) (int, error) {
	c := s.where(q)
	var n int
	if err := s.db.QueryRowContext(ctx, s.sql("SELECT COUNT(*) FROM {letters} WHERE "+c.String()), c.args...).Scan(&n); err != nil {
		return 0, fmt.Errorf("store: %w", err)
	}
	return n, nil
}

// lastNumber returns the number of the letter that was stored last.
func (s *Store) lastNumber(ctx context.Context) (n int64, err error) {
	if err := s.db.QueryRowContext(ctx, s.sql("SELECT COALESCE(MAX(seq), 0) FROM {letters}")).Scan(&n); err != nil {
		return 0, fmt.Errorf("store: %w", err)
	}
	return n, nil
}

// Groups returns letters by fingerprint, the largest group first, up to
// Query.Limit. Letters without a cause are in no group.
func (s *Store) Groups(ctx context.Context, q Query) ([]Group, error) {
	c := s.where(q)
	c.add("fingerprint <> ''")
	// The letters that are not Ready have an index by fingerprint.
	part := func(states string) string {
		return "SELECT fingerprint, COUNT(*) AS n, MIN(failed) AS first_of, MAX(failed) AS last_of, MIN(seq) AS example FROM {letters} WHERE " + states + " AND " + c.String() + " GROUP BY fingerprint"
	}
	rows, err := s.db.QueryContext(ctx, s.sql("SELECT fingerprint, SUM(n), MIN(first_of), MAX(last_of), MIN(example) FROM ("+
		part("state = 'ready'")+" UNION ALL "+part("state <> 'ready'")+") AS parts GROUP BY fingerprint ORDER BY 2 DESC, fingerprint LIMIT ?"),
		append(slices.Concat(c.args, c.args), cmp.Or(q.Limit, 100))...)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	defer rows.Close()
	var groups []Group
	var examples []int64
	for rows.Next() {
		var g Group
		var first, last, example int64
		if err := rows.Scan(&g.Fingerprint, &g.Count, &first, &last, &example); err != nil {
			return nil, fmt.Errorf("store: %w", err)
		}
		g.First, g.Last = instant(first), instant(last)
		groups, examples = append(groups, g), append(examples, example)
	}
	if err := rows.Err(); err != nil || len(groups) == 0 {
		return groups, err
	}
	letters, err := s.read(ctx, s.db, "WHERE "+among("seq", examples))
	for _, l := range letters {
		for i := range groups {
			if groups[i].Fingerprint == l.Fingerprint {
				groups[i].Example = l
			}
		}
	}
	return groups, err
}
