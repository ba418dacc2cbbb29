package store

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/rehop/rehop/producer"
)

// A line is the entries that are published in the order of storing, each after the
// confirm of the one before. The table has a number for each line. An entry of a line
// is leased only together with all that stand before it; while any of them is leased
// or paused the line waits. Entries without a line have the number 0.

// lineOf is the number of the line of a message, made from its OrderKey, or its
// exchange and routing key. Two lines that have one number by chance are one.
func lineOf(m producer.Message) int64 {
	text := "key\x00" + m.OrderKey
	if m.OrderKey == "" {
		text = m.Exchange + "\x00" + m.RoutingKey
	}
	sum := sha256.Sum256([]byte(text))
	return int64(binary.BigEndian.Uint64(sum[:8])>>1) | 1
}

// pass is a look at some lines.
type pass struct {
	last int64 // the line to go on behind; 0: from the first
	more bool  // there may be others that nobody has looked at
}

// maxLines is how many lines one pass looks at. MySQL ends a recursion after 1000.
const maxLines = 900

// wide is how many lines a lease may have and look for more entries than the first of
// each.
const wide = 50

// heads returns the first entries of lines that do not wait, up to n in all, line by
// line, from the lines behind one on. The cost grows with the lines that it passes,
// and not with the entries in them: each is a look into the index.
func (s *Store) heads(ctx context.Context, tx Tx, n int, now, behind int64) ([]sized, pass, error) {
	lines, last, err := s.freeLines(ctx, tx, now, behind)
	if err != nil {
		return nil, pass{}, err
	}
	seen := pass{last: last, more: last != 0 || behind != 0}
	if len(lines) > n {
		lines = lines[:n]
		seen = pass{last: lines[n-1].line, more: true}
	}
	each := 1
	if len(lines) > 0 && len(lines) <= wide {
		each = n / len(lines)
	}
	var first []inLine
	var closer []int64
	for _, one := range lines {
		if each == 1 && !one.tried {
			first = append(first, one.inLine)
		} else {
			closer = append(closer, one.line)
		}
	}
	for some := range slices.Chunk(closer, wide/2) { // MariaDB takes longer for one long UNION than for two
		entries, err := s.firstOf(ctx, tx, some, each, now)
		if err != nil {
			return nil, pass{}, err
		}
		first = append(first, entries...)
	}
	slices.SortFunc(first, func(a, b inLine) int { return cmp.Or(cmp.Compare(a.line, b.line), cmp.Compare(a.number, b.number)) })
	free, err := s.lock(ctx, tx, first, now)
	if err != nil {
		return nil, pass{}, err
	}
	return prefixes(first, each, free), seen, nil
}

// freeLine is a line with its first entry; another one may be before that if an entry
// of the line has been tried.
type freeLine struct {
	inLine
	tried bool
}

// freeLines returns the lines behind one, up to maxLines, without those that have a
// leased or paused entry. last is the last line that it has seen, or 0 if there is none
// behind it.
func (s *Store) freeLines(ctx context.Context, tx Tx, now, behind int64) (lines []freeLine, last int64, err error) {
	of := " FROM {letters as l by turn} WHERE l.state = 'ready' AND l.line "
	distinct, args := "WITH RECURSIVE seen(line, n) AS ("+
		"SELECT line, n FROM (SELECT l.line, 1 AS n"+of+"> ? ORDER BY l.line LIMIT 1) AS head"+
		" UNION ALL SELECT (SELECT l.line"+of+"> seen.line ORDER BY l.line LIMIT 1), n + 1 FROM seen WHERE seen.line IS NOT NULL AND n < ?) ", []any{behind, maxLines}
	from := "seen"
	if s.dialect == MySQL { // which leaps from line to line for this, and not for that
		distinct, from = "", "(SELECT DISTINCT l.state, l.line"+of+"> ? ORDER BY l.state, l.line LIMIT ?) AS seen"
	}
	rows, err := tx.QueryContext(ctx, s.sql(distinct+"SELECT line, "+
		"(SELECT l.next_try"+of+"= seen.line ORDER BY l.next_try DESC LIMIT 1), "+
		"(SELECT l.seq"+of+"= seen.line AND l.next_try = 0 ORDER BY l.seq LIMIT 1) "+
		"FROM "+from+" WHERE line IS NOT NULL"), args...)
	if err != nil {
		return nil, 0, err
	}
	defer rows.Close()
	n := 0
	for rows.Next() {
		var latest, untried sql.NullInt64
		if err := rows.Scan(&last, &latest, &untried); err != nil {
			return nil, 0, err
		}
		if n++; latest.Int64 <= now {
			lines = append(lines, freeLine{inLine{last, untried.Int64}, latest.Int64 > 0 || !untried.Valid})
		}
	}
	if n < maxLines {
		last = 0
	}
	return lines, last, rows.Err()
}

// inLine is an entry of a line.
type inLine struct{ line, number int64 }

// firstOf returns the first entries of lines, up to n of each. It asks in the same statement
// whether a line has a leased or paused entry: since freeLines has looked, another process
// may have leased those in front, and a new entry is not the first one behind them.
func (s *Store) firstOf(ctx context.Context, tx Tx, lines []int64, n int, now int64) ([]inLine, error) {
	var parts []string
	var args []any
	for _, line := range lines { // entries that have never been tried, whose pause or lease is over, and one for which the line waits
		of := "SELECT line, %s FROM (SELECT line, seq FROM {letters by turn} WHERE state = 'ready' AND line = ? AND "
		numbered := fmt.Sprintf(of, "seq")
		parts = append(parts, numbered+"next_try = 0 ORDER BY seq LIMIT ?) AS part", numbered+"next_try > 0 AND next_try <= ? ORDER BY seq LIMIT ?) AS part", fmt.Sprintf(of, "0")+"next_try > ? LIMIT 1) AS part")
		args = append(args, line, n, line, now, n, line, now)
	}
	rows, err := tx.QueryContext(ctx, s.sql(strings.Join(parts, " UNION ALL ")), args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []inLine
	waits := map[int64]bool{}
	for rows.Next() {
		var one inLine
		if err := rows.Scan(&one.line, &one.number); err != nil {
			return nil, err
		}
		if one.number == 0 {
			waits[one.line] = true
		}
		all = append(all, one)
	}
	return slices.DeleteFunc(all, func(one inLine) bool { return waits[one.line] }), rows.Err()
}

// lock locks entries, and returns those that are as free as they looked, by their
// number. An entry that another process has leased since, or is about to lease, is not
// among them.
func (s *Store) lock(ctx context.Context, tx Tx, all []inLine, now int64) (map[int64]sized, error) {
	free := make(map[int64]sized, len(all))
	for some := range slices.Chunk(all, 1000) {
		var numbers []int64
		for _, one := range some {
			numbers = append(numbers, one.number)
		}
		found, err := s.free(ctx, tx, "{letters by number}", s.dialect.among("seq", numbers)+" AND state = 'ready' AND next_try <= ?", "seq", len(numbers), now)
		if err != nil {
			return nil, err
		}
		for _, one := range found {
			free[one.number] = one
		}
	}
	return free, nil
}

// prefixes returns of each line the first n entries, up to the first that is not
// free: none is leased before one that stands in front of it. all is in order.
func prefixes(all []inLine, n int, free map[int64]sized) []sized {
	var first []sized
	var line int64
	taken, open := 0, false
	for _, one := range all {
		if one.line != line {
			line, taken, open = one.line, 0, true
		}
		entry, isFree := free[one.number]
		if open = open && taken < n && isFree; open {
			first = append(first, entry)
			taken++
		}
	}
	return first
}
