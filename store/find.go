package store

import (
	"cmp"
	"context"
	"fmt"

	"github.com/rehop/rehop"
)

// Find returns a page of entries in the order of storing, and next, which is
// Query.After of the next page; next is 0 if there is none.
//
// A page has up to Query.Limit entries. It has fewer, but at least one, if the entries
// reach 16 MiB of memory first. It also has fewer if entries are published or deleted
// while Find reads. Find also ends a page, which may be empty then, where it has looked
// at 20,000 entries, or for a Text at 32 MiB of entries. It looks at entries if a Query
// has a Text, more than one name, or a name with a time: the database has an index for
// each name, and reads the entries to compare the rest. It also looks at entries that
// are Ready, unless the Query has nothing but states. If the Query has only times, Find
// walks along an index until it has found enough entries.
func (s *Store) Find(ctx context.Context, q Query) (entries []Entry, next int64, err error) {
	if err := q.validateRead(); err != nil {
		return nil, 0, err
	}
	for {
		var gone bool
		entries, next, gone, err = s.page(ctx, q)
		if !gone || next == 0 {
			return entries, next, err
		}
		q.After = next // somebody has deleted the whole page meanwhile
	}
}

// page returns a page. gone reports that it found entries, and none was there any more
// when it read them.
func (s *Store) page(ctx context.Context, q Query) (entries []Entry, next int64, gone bool, err error) {
	end, err := s.lookEnd(ctx, q)
	if err != nil {
		return nil, 0, false, err
	}
	limit := cmp.Or(q.Limit, 100)
	statement, args := s.selection(q, "seq, size", part{upTo: end, entries: limit + 1})
	found, err := s.sizes(ctx, statement, args)
	if err != nil {
		return nil, 0, false, err
	}
	page := fitting(found[:min(len(found), limit)])
	if next = end; len(page) < len(found) {
		next = page[len(page)-1]
	}
	if len(page) > 0 {
		entries, err = s.read(ctx, whole, "WHERE "+s.dialect.among("seq", page)+" ORDER BY seq")
	}
	return entries, next, err == nil && len(entries) == 0 && len(page) > 0, err
}

// read returns entries. One that cannot be decoded ends it with an error.
func (s *Store) read(ctx context.Context, columns, rest string, args ...any) ([]Entry, error) {
	rows, err := s.db.QueryContext(ctx, s.sql("SELECT "+columns+" FROM {letters} "+rest), args...)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	defer rows.Close()
	var entries []Entry
	var scanner scanner
	for rows.Next() {
		var l Entry
		if err := scanner.scan(rows, &l); err != nil {
			return nil, err
		}
		entries = append(entries, l)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	return entries, nil
}

// Count returns how many entries a Query selects. It passes all of them, which takes a
// second for some millions of entries, and longer for a Text.
func (s *Store) Count(ctx context.Context, q Query) (int, error) {
	if err := q.validateCount(); err != nil {
		return 0, err
	}
	return s.countOf(ctx, q, part{})
}

// CountUpTo is Count with a bound: it counts up to limit of the entries that Find looks
// at for its first page. more reports that there may be more entries.
func (s *Store) CountUpTo(ctx context.Context, q Query, limit int) (n int, more bool, err error) {
	if err := q.validateCount(); err != nil {
		return 0, false, err
	}
	if limit < 1 {
		return 0, false, rehop.WithClass(fmt.Errorf("store: CountUpTo %d, want 1 or more", limit), rehop.ClassBug)
	}
	end, err := s.lookEnd(ctx, q)
	if err != nil {
		return 0, false, err
	}
	n, err = s.countOf(ctx, q, part{upTo: end, entries: limit + 1})
	return min(n, limit), n > limit || end > 0, err
}

func (s *Store) countOf(ctx context.Context, q Query, p part) (n int, err error) {
	statement, args := s.selection(q, "seq", p)
	if err := s.db.QueryRowContext(ctx, s.sql("SELECT COUNT(*) FROM ("+statement+") AS found"), args...).Scan(&n); err != nil {
		return 0, fmt.Errorf("store: %w", err)
	}
	return n, nil
}

// lastNumber returns the number of the entry that was stored last.
func (s *Store) lastNumber(ctx context.Context) (n int64, err error) {
	if err := s.db.QueryRowContext(ctx, s.sql("SELECT COALESCE(MAX(seq), 0) FROM {letters}")).Scan(&n); err != nil {
		return 0, fmt.Errorf("store: %w", err)
	}
	return n, nil
}
