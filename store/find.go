package store

import (
	"cmp"
	"context"
	"fmt"

	"github.com/rehop/rehop"
)

// Find returns a page of letters in the order of storing, and next, which is
// Query.After of the next page; next is 0 if there is none.
//
// A page has up to Query.Limit letters. It has fewer, but at least one, if the letters
// reach 16 MiB of memory first. It also has fewer if letters are published or deleted
// while Find reads. Find also ends a page, which may be empty then, where it has looked
// at 20,000 letters, or for a Text at 32 MiB of letters. It looks at letters if a Query
// has a Text, more than one name, or a name with a time: the database has an index for
// each name, and reads the letters to compare the rest. It also looks at letters that
// are Ready, unless the Query has nothing but states. If the Query has only times, Find
// walks along an index until it has found enough letters.
func (s *Store) Find(ctx context.Context, q Query) (letters []Entry, next int64, err error) {
	if err := q.validateRead(); err != nil {
		return nil, 0, err
	}
	for {
		var gone bool
		letters, next, gone, err = s.page(ctx, q)
		if !gone || next == 0 {
			return letters, next, err
		}
		q.After = next // somebody has deleted the whole page meanwhile
	}
}

// page returns a page. gone reports that it found letters, and none was there any more
// when it read them.
func (s *Store) page(ctx context.Context, q Query) (letters []Entry, next int64, gone bool, err error) {
	end, err := s.lookEnd(ctx, q)
	if err != nil {
		return nil, 0, false, err
	}
	limit := cmp.Or(q.Limit, 100)
	statement, args := s.selection(q, "seq, size", part{upTo: end, letters: limit + 1})
	found, err := s.sizes(ctx, statement, args)
	if err != nil {
		return nil, 0, false, err
	}
	page := fitting(found[:min(len(found), limit)])
	if next = end; len(page) < len(found) {
		next = page[len(page)-1]
	}
	if len(page) > 0 {
		letters, err = s.read(ctx, whole, "WHERE "+s.dialect.among("seq", page)+" ORDER BY seq")
	}
	return letters, next, err == nil && len(letters) == 0 && len(page) > 0, err
}

// read returns letters. One that cannot be decoded ends it with an error.
func (s *Store) read(ctx context.Context, columns, rest string, args ...any) ([]Entry, error) {
	rows, err := s.db.QueryContext(ctx, s.sql("SELECT "+columns+" FROM {letters} "+rest), args...)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	defer rows.Close()
	var letters []Entry
	var scanner scanner
	for rows.Next() {
		var l Entry
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

// Count returns how many letters a Query selects. It passes all of them, which takes a
// second for some millions of letters, and longer for a Text.
func (s *Store) Count(ctx context.Context, q Query) (int, error) {
	if err := q.validateCount(); err != nil {
		return 0, err
	}
	return s.countOf(ctx, q, part{})
}

// CountUpTo is Count with a bound: it counts up to limit of the letters that Find looks
// at for its first page. more reports that there may be more letters.
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
	n, err = s.countOf(ctx, q, part{upTo: end, letters: limit + 1})
	return min(n, limit), n > limit || end > 0, err
}

func (s *Store) countOf(ctx context.Context, q Query, p part) (n int, err error) {
	statement, args := s.selection(q, "seq", p)
	if err := s.db.QueryRowContext(ctx, s.sql("SELECT COUNT(*) FROM ("+statement+") AS found"), args...).Scan(&n); err != nil {
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
