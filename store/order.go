package store

import (
	"context"
	"database/sql"
	"time"
)

// head is a letter as leaseHeads looks at it.
type head struct {
	candidate
	target  target
	nextTry int64
}

// heads returns the letters of each target, in the order of storing, up to the
// first that has to wait: then those behind it do too. blocked remembers the
// targets of former pages.
func heads(page []head, blocked map[target]bool, now int64) []candidate {
	var first []candidate
	for _, h := range page {
		if h.nextTry > now {
			blocked[h.target] = true
		}
		if !blocked[h.target] {
			first = append(first, h.candidate)
		}
	}
	return first
}

// How far leaseHeads looks for targets that need not wait.
const (
	headsPage  = 2000
	headsPages = 20
)

// leaseHeads leases the oldest letters of each target, up to n of all. A letter that
// is leased or has to wait holds up those behind it.
func (s *Store) leaseHeads(ctx context.Context, n int, long time.Duration, brief bool) (leased, error) {
	return s.take(ctx, long, brief, func(ctx context.Context, q querier, now int64) ([]candidate, error) {
		from, err := s.oldest(ctx, q)
		if err != nil || from == 0 {
			return nil, err
		}
		var found []candidate
		blocked := map[target]bool{}
		for range headsPages {
			page, err := s.headsPage(ctx, q, now, from)
			if err != nil {
				return nil, err
			}
			found = append(found, heads(page, blocked, now)...)
			if len(found) >= n {
				return found[:n], nil
			}
			if len(page) < headsPage {
				break
			}
			from = page[len(page)-1].number + 1
		}
		return found, nil
	})
}

// oldest returns the number of the first letter that is Ready, or 0. The pages
// begin there, because a database reads them in the order of the table, where any
// number of letters in other states may be in front.
func (s *Store) oldest(ctx context.Context, q querier) (number int64, err error) {
	rows, err := q.QueryContext(ctx, s.sql("SELECT MIN(seq) FROM {letters} WHERE state = 'ready' AND next_try = 0 UNION ALL SELECT MIN(seq) FROM {letters} WHERE state = 'ready' AND next_try > 0"))
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	for rows.Next() {
		var first sql.NullInt64
		if err := rows.Scan(&first); err != nil {
			return 0, err
		}
		if first.Valid && (number == 0 || first.Int64 < number) {
			number = first.Int64
		}
	}
	return number, rows.Err()
}

// headsPage locks what it reads: another process that skipped a locked letter
// would take the one behind it for the oldest.
func (s *Store) headsPage(ctx context.Context, q querier, now, from int64) ([]head, error) {
	suffix := ""
	if s.dialect != SQLite {
		suffix = " FOR UPDATE"
	}
	rows, err := q.QueryContext(ctx, s.sql("SELECT seq, size, exchange, routing_key, next_try FROM {letters} WHERE state = 'ready' AND due <= ? AND seq >= ? ORDER BY seq LIMIT ?"+suffix),
		now, from, headsPage)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var page []head
	for rows.Next() {
		var h head
		if err := rows.Scan(&h.number, &h.size, &h.target.exchange, &h.target.key, &h.nextTry); err != nil {
			return nil, err
		}
		page = append(page, h)
	}
	return page, rows.Err()
}
