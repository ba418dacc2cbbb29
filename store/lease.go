package store

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// A lease is a token in the entry's row, and the time in its next_try when it
// ends: until then the entry is not due. A process that dies leaves a lease
// that ends by itself. Whatever changes the entry meanwhile clears the token,
// and who had the lease changes nothing any more.
//
// No statement here waits for a row that the transaction of somebody else has
// locked, such as one of PutTx that is open for minutes: rows are chosen with SKIP
// LOCKED, or read without a lock, and changed by their numbers.

// longest is how far ahead a lease or a pause may end by the clock of the process that has
// written it, which may be ahead of the clock of another one by as much as apart. A time
// further ahead, at which the entry is not due, was written before a clock was set back.
const (
	longest = 10 * time.Minute
	apart   = 5 * time.Minute
)

// noteEnded begins the SET of an UPDATE that changes the lease of entries: one that has
// ended by itself is the lease of a process that may have published the entry and then
// died. It comes before the lease, because MySQL assigns from left to right.
const noteEnded = "unconfirmed = unconfirmed + CASE WHEN lease <> '' THEN 1 ELSE 0 END, "

// leased are the entries of one lease.
type leased struct {
	token   string
	until   time.Time
	entries []Entry
	broken  map[int64]error // entries that cannot be decoded, by number
	lines   pass            // the look at the lines
}

// sized is the number of an entry, with its size.
type sized struct {
	number int64
	size   int
}

// maxLeaseBytes bounds the entries of one lease in memory.
const maxLeaseBytes = 16 << 20

// fitting returns the numbers of the first entries that are not too large together,
// and of one at least.
func fitting(all []sized) []int64 {
	var numbers []int64
	bytes := 0
	for _, one := range all {
		if bytes += one.size; bytes > maxLeaseBytes && len(numbers) > 0 {
			break
		}
		numbers = append(numbers, one.number)
	}
	return numbers
}

// lease takes up to n entries that are due, for a time: those that stand in no line,
// and those at the head of the lines behind one, half of each if there are enough.
func (s *Store) lease(ctx context.Context, n int, long time.Duration, brief bool, behind int64) (leased, error) {
	var seen pass
	choose := func(ctx context.Context, tx Tx, now int64) ([]sized, error) {
		unordered, err := s.unordered(ctx, tx, n, now)
		if err != nil {
			return nil, err
		}
		var ordered []sized
		if ordered, seen, err = s.heads(ctx, tx, n, now, behind); err != nil {
			return nil, err
		}
		half := n / 2
		if n == 1 { // now the one kind, now the other
			half = int(s.leases.Load() / 2 % 2)
		}
		unordered = unordered[:min(len(unordered), max(half, n-len(ordered)))]
		return append(unordered, ordered[:min(len(ordered), n-len(unordered))]...), nil
	}
	l, err := s.take(ctx, long, brief, choose)
	l.lines = seen
	return l, err
}

// unordered returns up to n entries that are due and stand in no line. Half of them at
// most are due by date or by the end of a pause, if there are enough of the others:
// neither kind waits for the other to end.
func (s *Store) unordered(ctx context.Context, tx Tx, n int, now int64) ([]sized, error) {
	half := n / 2
	if n == 1 {
		half = int(s.leases.Load() % 2)
	}
	// due: a Replay that died may have left an end of its lease in next_try.
	dated, err := s.free(ctx, tx, "{letters by turn}", "state = 'ready' AND line = 0 AND next_try > 0 AND next_try <= ? AND due <= ?", "next_try, seq", half, now, now)
	if err != nil {
		return nil, err
	}
	others, err := s.free(ctx, tx, "{letters by turn}", "state = 'ready' AND line = 0 AND next_try = 0", "seq", n-len(dated))
	return append(dated, others...), err
}

// free returns up to n entries that no other transaction has locked, and locks them.
func (s *Store) free(ctx context.Context, tx Tx, from, where, order string, n int, args ...any) ([]sized, error) {
	rows, err := tx.QueryContext(ctx, s.sql("SELECT seq, size FROM "+from+" WHERE "+where+" ORDER BY "+order+" LIMIT ?"+s.dialect.skipLocked()), append(args, n)...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []sized
	for rows.Next() {
		var one sized
		if err := rows.Scan(&one.number, &one.size); err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, rows.Err()
}

// take leases the entries that choose returns.
func (s *Store) take(ctx context.Context, long time.Duration, brief bool, choose func(ctx context.Context, tx Tx, now int64) ([]sized, error)) (leased, error) {
	var l leased
	err := s.writeAs(ctx, true, func(ctx context.Context, tx Tx) error {
		now := s.now()
		l = leased{token: fmt.Sprintf("%s/%d", s.owner, s.leases.Add(1)), until: now.Add(long)} // it may run twice
		all, err := choose(ctx, tx, now.UnixMilli())
		if err != nil || len(all) == 0 {
			return err
		}
		numbers := fitting(all)
		if _, err := tx.ExecContext(ctx, s.sql("UPDATE {letters by number} SET "+noteEnded+"lease = ?, next_try = ? WHERE "+s.dialect.among("seq", numbers)), l.token, l.until.UnixMilli()); err != nil {
			return err
		}
		return s.readLeased(ctx, tx, numbers, brief, &l)
	})
	if err != nil {
		return leased{}, fmt.Errorf("store: %w", err)
	}
	return l, nil
}

// readLeased reads entries in the transaction that leases them, because another
// connection of SQLite would have to read from the disk what this one has in memory.
func (s *Store) readLeased(ctx context.Context, tx Tx, numbers []int64, brief bool, l *leased) error {
	scanner := scanner{brief: brief}
	rows, err := tx.QueryContext(ctx, s.sql("SELECT "+scanner.columns()+" FROM {letters} WHERE "+s.dialect.among("seq", numbers)+" ORDER BY seq"))
	if err != nil {
		return err
	}
	defer rows.Close()
	l.entries = make([]Entry, len(numbers))
	n := 0
	for rows.Next() && n < len(numbers) {
		entry := &l.entries[n]
		err := scanner.scan(rows, entry)
		switch {
		case err == nil:
			n++
		case entry.Number != 0:
			if l.broken == nil {
				l.broken = map[int64]error{}
			}
			l.broken[entry.Number] = err
			*entry = Entry{}
		default:
			return err
		}
	}
	l.entries = l.entries[:n]
	return rows.Err()
}

// result is what becomes of a leased entry.
type result struct {
	number      int64
	token       string
	done        bool      // published and confirmed: delete it
	state       State     // else
	next        time.Time // not before; zero: at once
	tried       bool      // a try was spent
	alone       bool      // the broker has refused it
	unconfirmed bool
	err         string
}

// settle ends leases. A result whose lease is not there any more changes nothing.
func (s *Store) settle(ctx context.Context, results []result) error {
	done := map[string][]int64{}
	var others []result
	for _, r := range results {
		if r.done {
			done[r.token] = append(done[r.token], r.number)
		} else {
			others = append(others, r)
		}
	}
	err := s.writeAs(ctx, s.servesWriters(), func(ctx context.Context, tx Tx) error {
		for token, numbers := range done {
			if _, err := tx.ExecContext(ctx, s.sql("DELETE FROM {letters by number} WHERE lease = ? AND "+s.dialect.among("seq", numbers)), token); err != nil {
				return err
			}
		}
		for _, alike := range byResult(others) {
			for some := range slices.Chunk(alike, 500) {
				if err := s.keep(ctx, tx, some); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	return nil
}

// keep gives entries back that differ in nothing but their number and their error.
func (s *Store) keep(ctx context.Context, tx Tx, alike []result) error {
	r := alike[0]
	args := []any{string(r.state), millis(r.next), count(r.tried), count(r.alone), count(r.unconfirmed)}
	var numbers []int64
	errs := ""
	for _, one := range alike {
		numbers = append(numbers, one.number)
		if one.err != "" {
			errs += fmt.Sprintf(" WHEN %d THEN ?", one.number)
			args = append(args, one.err)
		}
	}
	if errs != "" {
		errs = ", try_error = CASE seq" + errs + " ELSE try_error END"
	}
	_, err := tx.ExecContext(ctx, s.sql("UPDATE {letters by number} SET lease = '', state = ?, next_try = ?, tries = tries + ?, alone = CASE WHEN ? = 1 THEN 1 ELSE alone END, unconfirmed = unconfirmed + ?"+errs+
		" WHERE lease = ? AND "+s.dialect.among("seq", numbers)), append(args, r.token)...)
	return err
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}

// byResult puts results together that differ in nothing but their entry and its error.
func byResult(results []result) [][]result {
	at := map[result]int{}
	var groups [][]result
	for _, r := range results {
		key := r
		key.number, key.err = 0, ""
		i, found := at[key]
		if !found {
			i = len(groups)
			at[key] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], r)
	}
	return groups
}

// recover makes due what a clock that was set back keeps waiting, and gives back to
// their date the entries of a Replay that died. It looks without locks and then
// changes entries by their numbers, a piece at a time.
func (s *Store) recover(ctx context.Context) (early int, err error) {
	now := s.now().UnixMilli()
	ahead := s.now().Add(longest + apart).UnixMilli()
	for _, wrong := range []struct {
		where string
		args  []any
	}{
		{"state = 'ready' AND next_try > ? AND next_try > due", []any{ahead}},
		{"state <> 'ready' AND state IN ('held', 'parked') AND lease <> '' AND next_try > ?", []any{ahead}},
		{"state = 'ready' AND line = 0 AND next_try > 0 AND next_try <= ? AND due > ?", []any{now, now}},
	} {
		c := condition{parts: []string{wrong.where}, args: wrong.args}
		numbers, err := s.numbers(ctx, &c)
		if err != nil {
			return early, err
		}
		n, err := s.inPieces(ctx, numbers, "UPDATE {letters by number} SET "+noteEnded+"next_try = due, lease = '' WHERE ", nil, &c)
		if wrong.args[0] == any(ahead) {
			early += n
		}
		if err != nil {
			return early, err
		}
	}
	return early, nil
}
