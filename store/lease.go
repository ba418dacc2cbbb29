package store

import (
	"context"
	"fmt"
	"time"
)

// A lease is a token in the letter's row, and the time in its next_try when it
// ends: until then the letter is not due. A process that dies leaves a lease
// that ends by itself. Whatever changes the letter meanwhile clears the token,
// and who had the lease changes nothing any more.

// longest is how far ahead a lease or a pause may end. What is further ahead,
// and not because the letter is due then, was written before the clock was set
// back.
const longest = 10 * time.Minute

// leased are the letters of one lease.
type leased struct {
	token   string
	until   time.Time
	letters []Letter
	broken  map[int64]error // letters that cannot be decoded, by number
}

func (s *Store) newToken() string { return fmt.Sprintf("%s/%d", s.owner, s.leases.Add(1)) }

// candidate is a letter that may be leased.
type candidate struct {
	number int64
	size   int
}

// maxLeaseBytes bounds the letters of one lease in memory.
const maxLeaseBytes = 16 << 20

// fitting returns the first candidates that are not too large together, and
// one at least.
func fitting(all []candidate) []int64 {
	var numbers []int64
	bytes := 0
	for _, c := range all {
		if bytes += c.size; bytes > maxLeaseBytes && len(numbers) > 0 {
			break
		}
		numbers = append(numbers, c.number)
	}
	return numbers
}

// lease takes up to n letters that are due, for a time. Half of them at most
// are due by date or by the end of a pause, if there are enough of the others:
// neither kind waits for the other to end.
func (s *Store) lease(ctx context.Context, n int, long time.Duration, brief bool) (leased, error) {
	return s.take(ctx, long, brief, func(ctx context.Context, q querier, now int64) ([]candidate, error) {
		half := n / 2
		if n == 1 { // now the one kind, now the other
			half = int(s.leases.Load() % 2)
		}
		// due: a Replay that died may have left an end of its lease in next_try.
		dated, err := s.candidates(ctx, q, "{letters}", "state = 'ready' AND next_try > 0 AND next_try <= ? AND due <= ?", "next_try, seq", half, now, now)
		if err != nil {
			return nil, err
		}
		at, err := s.candidates(ctx, q, "{letters}", "state = 'ready' AND next_try = 0", "seq", n-len(dated))
		return append(dated, at...), err
	})
}

// take leases the letters that choose returns.
func (s *Store) take(ctx context.Context, long time.Duration, brief bool, choose func(ctx context.Context, q querier, now int64) ([]candidate, error)) (leased, error) {
	var l leased
	err := s.writer.do(ctx, func(ctx context.Context, q querier) error {
		now := s.now()
		l = leased{token: s.newToken(), until: now.Add(long)} // it may run twice
		all, err := choose(ctx, q, now.UnixMilli())
		if err != nil || len(all) == 0 {
			return err
		}
		numbers := fitting(all)
		if _, err := q.ExecContext(ctx, s.sql("UPDATE {letters} SET lease = ?, next_try = ? WHERE "+among("seq", numbers)), l.token, l.until.UnixMilli()); err != nil {
			return err
		}
		return s.readLeased(ctx, q, numbers, brief, &l)
	})
	if err != nil {
		return leased{}, fmt.Errorf("store: %w", err)
	}
	return l, nil
}

// readLeased reads letters in the transaction that leases them, because another
// connection of SQLite would have to read from the disk what this one has in memory.
func (s *Store) readLeased(ctx context.Context, q querier, numbers []int64, brief bool, l *leased) error {
	scanner := scanner{brief: brief}
	rows, err := q.QueryContext(ctx, s.sql("SELECT "+scanner.columns()+" FROM {letters} WHERE "+among("seq", numbers)+" ORDER BY seq"))
	if err != nil {
		return err
	}
	defer rows.Close()
	l.letters = make([]Letter, len(numbers))
	n := 0
	for rows.Next() && n < len(numbers) {
		letter := &l.letters[n]
		err := scanner.scan(rows, letter)
		switch {
		case err == nil:
			n++
		case letter.Number != 0:
			if l.broken == nil {
				l.broken = map[int64]error{}
			}
			l.broken[letter.Number] = err
			*letter = Letter{}
		default:
			return err
		}
	}
	l.letters = l.letters[:n]
	return rows.Err()
}

func (s *Store) candidates(ctx context.Context, q querier, from, where, order string, n int, args ...any) ([]candidate, error) {
	rows, err := q.QueryContext(ctx, s.sql("SELECT seq, size FROM "+from+" WHERE "+where+" ORDER BY "+order+" LIMIT ?"+s.dialect.skipLocked()), append(args, n)...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []candidate
	for rows.Next() {
		var c candidate
		if err := rows.Scan(&c.number, &c.size); err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, rows.Err()
}

// ending is what becomes of a leased letter.
type ending struct {
	number      int64
	token       string
	done        bool      // published and confirmed: delete it
	state       State     // otherwise
	next        time.Time // not before
	tried       bool      // the try counts
	unconfirmed bool
	err         string
}

// settle ends leases. An ending whose lease is not there any more changes
// nothing.
func (s *Store) settle(ctx context.Context, endings []ending) error {
	done := map[string][]int64{}
	var others []ending
	for _, e := range endings {
		if e.done {
			done[e.token] = append(done[e.token], e.number)
		} else {
			others = append(others, e)
		}
	}
	err := s.writer.do(ctx, func(ctx context.Context, q querier) error {
		for token, numbers := range done {
			if _, err := q.ExecContext(ctx, s.sql("DELETE FROM {letters} WHERE lease = ? AND "+among("seq", numbers)), token); err != nil {
				return err
			}
		}
		for _, alike := range group(others) {
			e := alike[0]
			var numbers []int64
			for _, one := range alike {
				numbers = append(numbers, one.number)
			}
			if _, err := q.ExecContext(ctx, s.sql("UPDATE {letters} SET lease = '', state = ?, next_try = ?, tries = tries + ?, unconfirmed = unconfirmed + ?, try_error = CASE WHEN ? = '' THEN try_error ELSE ? END WHERE lease = ? AND "+among("seq", numbers)),
				string(e.state), millis(e.next), count(e.tried), count(e.unconfirmed), e.err, e.err, e.token); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	return nil
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}

// group puts endings together that differ in nothing but their letter.
func group(endings []ending) [][]ending {
	at := map[ending]int{}
	var groups [][]ending
	for _, e := range endings {
		key := e
		key.number = 0
		i, found := at[key]
		if !found {
			i = len(groups)
			at[key] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], e)
	}
	return groups
}

// recover makes due what a clock that was set back keeps waiting, and gives back to
// their date the letters of a Replay that died.
func (s *Store) recover(ctx context.Context) (int, error) {
	ahead := s.now().Add(longest).UnixMilli()
	total := 0
	for _, states := range []string{inState(Ready), inState(Held, Parked)} {
		n, err := s.exec(ctx, "UPDATE {letters} SET next_try = due, lease = '' WHERE "+states+" AND next_try > ? AND next_try > due", ahead)
		total += n
		if err != nil {
			return total, err
		}
	}
	now := s.now().UnixMilli()
	_, err := s.exec(ctx, "UPDATE {letters} SET next_try = due, lease = '' WHERE state = 'ready' AND next_try > 0 AND next_try <= ? AND due > ?", now, now)
	return total, err
}
