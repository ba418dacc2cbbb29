package store

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/letter"
	"github.com/rehop/rehop/producer"
)

var _ producer.OrderedSink = (*Store)(nil)

// PutBehind stores a message if letters with the same exchange and key wait to be
// forwarded, so that it does not overtake them, and reports whether it did. A
// Producer that has the Store in its Fallback calls it before it sends a message.
// Without Config.KeepOrder it does nothing. See Config.KeepOrder for what it knows.
func (s *Store) PutBehind(ctx context.Context, m producer.Message) (stored bool, err error) {
	if !s.cfg.KeepOrder || m.Delay > 0 {
		return false, nil
	}
	t := target{m.Exchange, m.Key}
	before, end, waiting := s.tails.behind(t)
	if !waiting {
		return false, nil
	}
	r, err := s.readyRow(m)
	if err != nil {
		end(identity{}, nil)
		return false, connection.WithClass(err, connection.Bug)
	}
	put := false // not the result: it may be written after ctx has ended
	err = s.writer.do(ctx, func(ctx context.Context, q querier) error {
		put = false // it may run twice
		waiting, err := s.anyReady(ctx, q, before)
		if err != nil || !waiting {
			return err
		}
		put = true
		return s.insert(ctx, q, []*row{r})
	})
	switch {
	case err != nil:
		end(r.identity(), err)
		return false, fmt.Errorf("store: storing message %q: %w", m.ID, err)
	case !put:
		end(identity{}, nil)
		s.tails.gone(t, before)
		return false, nil
	}
	end(r.identity(), nil)
	s.nudge()
	return true, nil
}

// readyRow is the row of a message that Forward is to publish after others.
func (s *Store) readyRow(m producer.Message) (*row, error) {
	l := fromLetter(letter.Unpublished(m, producer.ErrBehind, s.now()))
	l.State = Ready
	return newRow(l)
}

// anyReady reports whether one of these letters waits for Forward.
func (s *Store) anyReady(ctx context.Context, q querier, letters []identity) (bool, error) {
	for chunk := range slices.Chunk(letters, 250) {
		var args []any
		for _, one := range chunk {
			args = append(args, one.messageID, one.id)
		}
		rows, err := q.QueryContext(ctx, s.sql("SELECT id FROM {letters} WHERE state = 'ready' AND (message_id, id) IN "+s.dialect.pairs(len(chunk))+" LIMIT 1"), args...)
		if err != nil {
			return false, err
		}
		found := rows.Next()
		if err := rows.Close(); err != nil {
			return false, err
		}
		if err := rows.Err(); err != nil || found {
			return found, err
		}
	}
	return false, nil
}

// loadTails learns what earlier processes have left.
func (s *Store) loadTails(ctx context.Context) error {
	rows, err := s.db.QueryContext(ctx, s.sql("SELECT message_id, id, exchange, routing_key FROM {letters} WHERE seq IN (SELECT MAX(seq) FROM {letters} WHERE state = 'ready' AND due = 0 GROUP BY exchange, routing_key)"))
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var one identity
		var exchange, key string
		if err := rows.Scan(&one.messageID, &one.id, &exchange, &key); err != nil {
			return fmt.Errorf("store: %w", err)
		}
		if exchange, err = letter.Unarmour(exchange); err != nil {
			return fmt.Errorf("store: %w", err)
		}
		if key, err = letter.Unarmour(key); err != nil {
			return fmt.Errorf("store: %w", err)
		}
		s.tails.begin(target{exchange, key})(one, nil)
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	return nil
}

// forgetTails forgets the targets of which nothing is left, so that those that
// are never published to again take no memory.
func (s *Store) forgetTails(ctx context.Context) error {
	for t, letters := range s.tails.all() {
		waiting, err := s.anyReady(ctx, s.db, letters)
		if err != nil {
			return fmt.Errorf("store: %w", err)
		}
		if !waiting {
			s.tails.gone(t, letters)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// tails knows, of each target, the letter that was stored last by this process:
// while it waits, so may others before it. Letters of calls that overlap are
// stored in an unknown order, and are all remembered.
type tails struct {
	mu sync.Mutex
	of map[target]*tail
}

type tail struct {
	letters []identity // in the order in which the calls ended
	dropped int        // letters that were there before these
	writing int        // calls that have not ended
}

// begin notes that a letter is being stored. end must be called with its identity
// and what came of it, or with the zero identity if it was not stored.
func (t *tails) begin(to target) (end func(identity, error)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of[to] == nil {
		if t.of == nil {
			t.of = map[target]*tail{}
		}
		t.of[to] = &tail{}
	}
	return t.writing(to)
}

// behind is begin for a message that is stored only if letters to its target
// wait, and returns those that may.
func (t *tails) behind(to target) (letters []identity, end func(identity, error), waiting bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	one := t.of[to]
	if one == nil || len(one.letters) == 0 {
		return nil, nil, false // another call that is under way has no order with this one
	}
	return slices.Clone(one.letters), t.writing(to), true
}

func (t *tails) writing(to target) (end func(identity, error)) {
	one := t.of[to]
	one.writing++
	before := one.dropped + len(one.letters)
	return func(stored identity, err error) {
		t.mu.Lock()
		defer t.mu.Unlock()
		one.writing--
		if stored != (identity{}) {
			if err == nil { // else it may be stored, and those before it count too
				one.drop(before - one.dropped)
			}
			one.letters = append(one.letters, stored)
		}
		t.tidy(to, one)
	}
}

func (one *tail) drop(n int) {
	if n > 0 {
		one.letters = append([]identity(nil), one.letters[n:]...)
		one.dropped += n
	}
}

func (t *tails) tidy(to target, one *tail) {
	if one.writing == 0 && len(one.letters) == 0 {
		delete(t.of, to)
	}
}

// gone notes that these letters wait no more.
func (t *tails) gone(to target, letters []identity) {
	t.mu.Lock()
	defer t.mu.Unlock()
	one := t.of[to]
	if one == nil {
		return
	}
	n := 0 // they are the first, if others have been added
	for n < len(one.letters) && slices.Contains(letters, one.letters[n]) {
		n++
	}
	one.drop(n)
	t.tidy(to, one)
}

// all returns the letters of each target to which nothing is being stored.
func (t *tails) all() map[target][]identity {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make(map[target][]identity, len(t.of))
	for to, one := range t.of {
		if one.writing == 0 {
			all[to] = slices.Clone(one.letters)
		}
	}
	return all
}
