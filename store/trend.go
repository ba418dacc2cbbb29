package store

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/rehop/rehop"
)

// maxInPart is how far Trend counts one part of a group.
const maxInPart = 2000

// Trend divides the time between from and to into n equal parts, 1 to 100, and returns
// how many entries that a Query selects failed in each part. It is for a Query that
// names a Fingerprint, and counts up to 2,000 entries in each part. If the Query has
// more than States, Queue, Cause, ErrorType and Fingerprint, or no Fingerprint, Trend
// counts the entries that Find looks at for its first page, 20,000 at most. more
// reports that there are entries that Trend did not count. Query.States defaults to
// [Held] and [Parked].
func (s *Store) Trend(ctx context.Context, q Query, from, to time.Time, n int) (counts []int, more bool, err error) {
	if n < 1 || n > 100 || !from.Before(to) {
		return nil, false, rehop.WithClass(fmt.Errorf("store: a trend of %d parts from %v to %v, want 1 to 100 parts of a time", n, from, to), rehop.ClassBug)
	}
	if err := q.validateCount(); err != nil {
		return nil, false, err
	}
	if q.States == nil {
		q.States = []State{Held, Parked}
	}
	edges := make([]int64, n+1) // of the parts, in milliseconds
	for i := range edges {
		edges[i] = from.Add(to.Sub(from) / time.Duration(n) * time.Duration(i)).UnixMilli()
	}
	edges[n] = to.UnixMilli()
	if q.FailedFrom.Before(from) {
		q.FailedFrom = from
	}
	if q.FailedBefore.IsZero() || q.FailedBefore.After(to) {
		q.FailedBefore = to
	}
	if q.whole() && q.Fingerprint != "" {
		return s.trendOfGroup(ctx, q, edges)
	}
	return s.trendOfLook(ctx, q, edges)
}

func (s *Store) trendOfGroup(ctx context.Context, q Query, edges []int64) (counts []int, more bool, err error) {
	var parts []string
	var args []any
	for _, state := range q.states() {
		found, _, err := s.leapIn(ctx, q, state)
		if err != nil {
			return nil, false, err
		}
		if len(found) == 0 {
			continue
		}
		for i := range len(edges) - 1 {
			parts = append(parts, fmt.Sprintf("SELECT %d AS i, COUNT(*) AS n FROM (SELECT seq FROM %s WHERE %s AND fingerprint = ? AND failed >= ? AND failed < ? LIMIT ?) AS part",
				i, s.by(byGroup.name), inState(state)))
			args = append(args, q.Fingerprint, max(edges[i], millis(q.FailedFrom)), min(edges[i+1], millis(q.FailedBefore)), maxInPart+1)
		}
	}
	counts = make([]int, len(edges)-1)
	if len(parts) == 0 {
		return counts, false, nil
	}
	rows, err := s.db.QueryContext(ctx, s.sql(strings.Join(parts, " UNION ALL ")), args...)
	if err != nil {
		return nil, false, fmt.Errorf("store: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var i, n int
		if err := rows.Scan(&i, &n); err != nil {
			return nil, false, fmt.Errorf("store: %w", err)
		}
		counts[i] += n
	}
	for i := range counts {
		more = more || counts[i] > maxInPart
		counts[i] = min(counts[i], maxInPart)
	}
	if err := rows.Err(); err != nil {
		return nil, false, fmt.Errorf("store: %w", err)
	}
	return counts, more, nil
}

func (s *Store) trendOfLook(ctx context.Context, q Query, edges []int64) (counts []int, more bool, err error) {
	end, err := s.lookEnd(ctx, q)
	if err != nil {
		return nil, false, err
	}
	statement, args := s.selection(q, "failed, seq", part{upTo: end, entries: maxLooked + 1})
	rows, err := s.db.QueryContext(ctx, s.sql("SELECT failed FROM ("+statement+") AS found"), args...)
	if err != nil {
		return nil, false, fmt.Errorf("store: %w", err)
	}
	failed, err := scanNumbers(rows)
	if err != nil {
		return nil, false, fmt.Errorf("store: %w", err)
	}
	counts = make([]int, len(edges)-1)
	for _, at := range failed {
		for i := range counts {
			if edges[i] <= at && at < edges[i+1] {
				counts[i]++
			}
		}
	}
	return counts, end > 0 || len(failed) > maxLooked, nil
}
