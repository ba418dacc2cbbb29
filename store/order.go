package store

import (
	"context"
	"math"
	"slices"
	"time"
)

// head is a letter as leaseHeads looks at it.
type head struct {
	candidate
	target target
}

// maxApart bounds the targets that a statement leaves out.
const maxApart = 100

// How many letters leaseHeads reads at a time, and how often.
const (
	headsPage  = 2000
	headsPages = 20
)

// leaseHeads leases the oldest letters of each target, up to n of all. A letter that
// is leased or has to wait holds up those of its target.
func (s *Store) leaseHeads(ctx context.Context, n int, long time.Duration, brief bool) (leased, error) {
	return s.take(ctx, long, brief, func(ctx context.Context, q querier, now int64) ([]candidate, error) {
		waiting, err := s.waitingTargets(ctx, q, now)
		if err != nil {
			return nil, err
		}
		found, err := s.heads(ctx, q, n, now, waiting)
		if err != nil || s.dialect == SQLite {
			return candidatesOf(found, waiting), err
		}
		// What is found is locked now. Another process may have leased letters before
		// those meanwhile.
		if waiting, err = s.waitingTargets(ctx, q, now); err != nil {
			return nil, err
		}
		return candidatesOf(found, waiting), nil
	})
}

// candidatesOf leaves out the letters of targets that wait.
func candidatesOf(all []head, waiting map[target]bool) []candidate {
	var candidates []candidate
	for _, h := range all {
		if !waiting[h.target] {
			candidates = append(candidates, h.candidate)
		}
	}
	return candidates
}

// soon is how far ahead the end of a lease or a pause is at most, also where the clock
// was set back by so little that recover does not know yet.
const soon = longest + 2*time.Minute

// waitingTargets returns the targets with a letter that is leased or paused.
func (s *Store) waitingTargets(ctx context.Context, q querier, now int64) (map[target]bool, error) {
	rows, err := q.QueryContext(ctx, s.sql("SELECT DISTINCT exchange, routing_key FROM {letters} WHERE state = 'ready' AND next_try > ? AND next_try <= ? AND due <= ?"),
		now, now+soon.Milliseconds(), now)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	waiting := map[target]bool{}
	for rows.Next() {
		var t target
		if err := rows.Scan(&t.exchange, &t.key); err != nil {
			return nil, err
		}
		waiting[t] = true
	}
	return waiting, rows.Err()
}

// heads returns the oldest letters to targets that do not wait, up to n, in the order
// of storing: those without a date, which an index has in this order, and those whose
// date or pause has passed.
func (s *Store) heads(ctx context.Context, q querier, n int, now int64, waiting map[target]bool) ([]head, error) {
	apart, targets := "", []any(nil)
	for t := range waiting {
		if len(targets) < 2*maxApart {
			apart += " AND NOT (exchange = ? AND routing_key = ?)"
			targets = append(targets, t.exchange, t.key)
		}
	}
	dated, whole, err := s.headsPage(ctx, q, "next_try > 0 AND next_try <= ? AND due <= ?"+apart, headsPages*headsPage, slices.Concat([]any{now, now}, targets)...)
	if err != nil {
		return nil, err
	}
	last := end(dated, whole)
	var found []head
	for after, page := int64(0), 0; page < headsPages; page++ {
		others, all, err := s.headsPage(ctx, q, "next_try = 0 AND seq > ?"+apart, headsPage, slices.Concat([]any{after}, targets)...)
		if err != nil {
			return nil, err
		}
		after = min(last, end(others, all))
		found = append(found, inOrder(dated, others, after)...)
		dated = slices.DeleteFunc(dated, func(h head) bool { return h.number <= after })
		found = slices.DeleteFunc(found, func(h head) bool { return waiting[h.target] }) // more than maxApart wait
		if len(found) >= n {
			return found[:n], nil
		}
		if all || after == last {
			break
		}
	}
	return found, nil
}

// end is the number up to which a page knows every letter.
func end(page []head, whole bool) int64 {
	if whole || len(page) == 0 {
		return math.MaxInt64
	}
	return page[len(page)-1].number
}

// inOrder returns the letters of two pages up to a number in the order of storing.
func inOrder(one, other []head, last int64) []head {
	all := slices.Concat(one, other)
	slices.SortFunc(all, func(a, b head) int { return int(a.number - b.number) })
	return slices.DeleteFunc(all, func(h head) bool { return h.number > last })
}

// headsPage locks what it reads: another process that skipped a locked letter
// would take the one behind it for the oldest. whole says that there are no more.
func (s *Store) headsPage(ctx context.Context, q querier, where string, n int, args ...any) (page []head, whole bool, err error) {
	suffix := ""
	if s.dialect != SQLite {
		suffix = " FOR UPDATE"
	}
	rows, err := q.QueryContext(ctx, s.sql("SELECT seq, size, exchange, routing_key FROM {letters} WHERE state = 'ready' AND "+where+" ORDER BY seq LIMIT ?"+suffix), append(args, n)...)
	if err != nil {
		return nil, false, err
	}
	defer rows.Close()
	for rows.Next() {
		var h head
		if err := rows.Scan(&h.number, &h.size, &h.target.exchange, &h.target.key); err != nil {
			return nil, false, err
		}
		page = append(page, h)
	}
	return page, len(page) < n, rows.Err()
}
