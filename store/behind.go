package store

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/rehop/rehop/internal/letter"
	"github.com/rehop/rehop/producer"
)

var _ interface { // a Producer looks for these methods
	producer.Sink
	PutBehind(ctx context.Context, m producer.Message) (stored bool, err error)
} = (*Store)(nil)

// PutBehind stores a message if entries of its line wait to be forwarded, so that the
// message does not overtake them. It reports whether it stored the message. A Producer
// that has the Store in its Fallback calls it before it sends a message. Without
// Config.KeepOrder it does nothing. Config.KeepOrder says which entries it knows of.
func (s *Store) PutBehind(ctx context.Context, m producer.Message) (stored bool, err error) {
	if !s.cfg.KeepOrder || m.Delay > 0 || s.own(ctx) {
		return false, nil
	}
	line := lineOf(m)
	look, maybe := s.waiting.look(line, s.now())
	if !maybe {
		return false, nil
	}
	defer look.end()
	waits, others, err := s.lineWaits(ctx, line)
	if err != nil {
		return false, fmt.Errorf("store: looking for entries before message %q: %w", m.ID, err)
	}
	if !waits {
		look.empty = !others
		return false, nil
	}
	l := fromLetter(letter.Unpublished(m, producer.ErrBehind, s.now()))
	l.State, l.line = Ready, line
	if _, err := s.put(ctx, l); err != nil {
		return false, err
	}
	return true, nil
}

// lineWaits reports whether a line has entries, and whether any line of its range has.
func (s *Store) lineWaits(ctx context.Context, line int64) (own, others bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	first, last := rangeOf(line)
	exists := "EXISTS (SELECT 1 FROM {letters by turn} WHERE state = 'ready' AND line "
	err = s.db.QueryRowContext(ctx, s.sql("SELECT "+exists+"= ?), "+exists+"BETWEEN ? AND ?)"), line, first, last).Scan(&own, &others)
	if err != nil {
		err = explained(err, s.dialect, s.db)
	}
	return own, others, err
}

// noteWaiting learns which lines have entries of earlier processes.
func (s *Store) noteWaiting(ctx context.Context) error {
	rows, err := s.db.QueryContext(ctx, s.sql("SELECT DISTINCT line FROM {letters by turn} WHERE state = 'ready' AND line > 0"))
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var line int64
		if err := rows.Scan(&line); err != nil {
			return fmt.Errorf("store: %w", err)
		}
		s.waiting.begin(line)()
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	return nil
}

// waiting knows which lines may have entries of this process, so that a message of any
// other line costs no look into the table. It keeps ranges of lines, not lines: it
// does not grow, and a line beside one that has entries costs a look.
type waiting struct {
	mu     sync.Mutex
	ranges [1 << rangeBits]lineRange
}

const rangeBits = 12

// lineRange is some lines.
type lineRange struct {
	maybe  bool      // there may be entries
	until  time.Time // a transaction with PutTx may be open until then
	stored uint64    // counts each entry twice: when storing it begins, and when that ends
	using  int       // entries that are being stored, or may be after a look
}

// rangeOf returns the lines of the range that a line is in.
func rangeOf(line int64) (first, last int64) {
	const size = 1 << (63 - rangeBits)
	first = line &^ (size - 1)
	return first, first | (size - 1)
}

func (w *waiting) of(line int64) *lineRange { return &w.ranges[line>>(63-rangeBits)] }

// begin notes that an entry of a line is being stored. end must be called when that
// has ended, whatever came of it.
func (w *waiting) begin(line int64) (end func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.of(line)
	r.maybe = true
	r.stored++
	r.using++
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		r.stored++ // a look that began before may not have seen it
		r.using--
	}
}

type beginKey struct{}

// counted returns a ctx with which the writer calls begin before each write, and its end
// with the answer: when ctx ends the caller leaves, and the entries may be stored yet.
func counted(ctx context.Context, begin func() (end func())) context.Context {
	return context.WithValue(ctx, beginKey{}, begin)
}

// beginAny is begin for entries whose lines nobody knows.
func (w *waiting) beginAny() (end func()) {
	ends := make([]func(), len(w.ranges))
	for i := range w.ranges {
		ends[i] = w.begin(int64(i) << (63 - rangeBits))
	}
	return func() {
		for _, end := range ends {
			end()
		}
	}
}

// longestTx is how long a transaction with PutTx may be open and keep its place before
// new messages that are published after its commit.
const longestTx = 10 * time.Minute

// mark notes that a transaction of somebody else stores an entry of a line. Its end is
// unknown, so the line is looked at until then.
func (w *waiting) mark(line int64, until time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.of(line)
	r.maybe = true
	r.stored++
	r.until = until
}

// look is a look into the table for the entries of a line.
type look struct {
	waiting *waiting
	of      *lineRange
	stored  uint64
	began   time.Time
	empty   bool // the range has no entries
}

// look begins a look if a line may have entries.
func (w *waiting) look(line int64, now time.Time) (l *look, maybe bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.of(line)
	if !r.maybe {
		return nil, false
	}
	r.using++
	return &look{waiting: w, of: r, stored: r.stored, began: now}, true
}

// end ends a look. A range that it has found empty needs no other, unless storing an entry
// has begun or ended meanwhile, another look may end with that, or a transaction may be
// open that has one.
func (l *look) end() {
	l.waiting.mu.Lock()
	defer l.waiting.mu.Unlock()
	l.of.using--
	if l.empty && l.of.using == 0 && l.of.stored == l.stored && l.began.After(l.of.until) {
		l.of.maybe = false
	}
}
