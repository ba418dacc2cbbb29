package store

import (
	"context"
	"fmt"
	"slices"
	"strings"
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
		end("", nil)
		return false, connection.WithClass(err, connection.Bug)
	}
	err = s.writer.do(ctx, func(ctx context.Context, q querier) error {
		stored = false // it may run twice
		waiting, err := s.anyReady(ctx, q, before)
		if err != nil || !waiting {
			return err
		}
		stored = true
		return s.insert(ctx, q, []*row{r})
	})
	switch {
	case err != nil:
		end(r.l.ID, err)
		return false, fmt.Errorf("store: storing message %q: %w", m.ID, err)
	case !stored:
		end("", nil)
		s.tails.gone(t, before)
		return false, nil
	}
	end(r.l.ID, nil)
	s.nudge()
	return true, nil
}

// readyRow is the row of a message that Forward is to publish after others.
func (s *Store) readyRow(m producer.Message) (*row, error) {
	l := fromLetter(letter.Unpublished(m, producer.ErrBehind, s.now()))
	l.State = Ready
	return newRow(l)
}

// anyReady reports whether one of the letters with these IDs waits for Forward.
func (s *Store) anyReady(ctx context.Context, q querier, ids []string) (bool, error) {
	for chunk := range slices.Chunk(ids, 500) {
		args := []any{string(Ready)}
		for _, id := range chunk {
			args = append(args, id)
		}
		rows, err := q.QueryContext(ctx, s.sql("SELECT id FROM {letters} WHERE state = ? AND id IN ("+strings.Repeat("?,", len(chunk)-1)+"?) LIMIT 1"), args...)
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
	rows, err := s.db.QueryContext(ctx, s.sql("SELECT id, exchange, routing_key FROM {letters} WHERE seq IN (SELECT MAX(seq) FROM {letters} WHERE state = ? AND due = 0 GROUP BY exchange, routing_key)"), string(Ready))
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var id, exchange, key string
		if err := rows.Scan(&id, &exchange, &key); err != nil {
			return fmt.Errorf("store: %w", err)
		}
		if exchange, err = letter.Unarmour(exchange); err != nil {
			return fmt.Errorf("store: %w", err)
		}
		if key, err = letter.Unarmour(key); err != nil {
			return fmt.Errorf("store: %w", err)
		}
		s.tails.begin(target{exchange, key})(id, nil)
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	return nil
}

// forgetTails forgets the targets of which nothing is left, so that those that
// are never published to again take no memory.
func (s *Store) forgetTails(ctx context.Context) error {
	for t, ids := range s.tails.all() {
		waiting, err := s.anyReady(ctx, s.db, ids)
		if err != nil {
			return fmt.Errorf("store: %w", err)
		}
		if !waiting {
			s.tails.gone(t, ids)
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
	ids     []string // in the order in which the calls ended
	dropped int      // ids that were there before these
	writing int      // calls that have not ended
}

// begin notes that a letter is being stored. end must be called with its ID and
// what came of it, or with "" if it was not stored.
func (t *tails) begin(to target) (end func(id string, err error)) {
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
// wait, and returns the IDs of those that may.
func (t *tails) behind(to target) (ids []string, end func(id string, err error), waiting bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	one := t.of[to]
	if one == nil || len(one.ids) == 0 {
		return nil, nil, false // another call that is under way has no order with this one
	}
	return slices.Clone(one.ids), t.writing(to), true
}

func (t *tails) writing(to target) (end func(id string, err error)) {
	one := t.of[to]
	one.writing++
	before := one.dropped + len(one.ids)
	return func(id string, err error) {
		t.mu.Lock()
		defer t.mu.Unlock()
		one.writing--
		if id != "" {
			if err == nil { // else it may be stored, and those before it count too
				one.drop(before - one.dropped)
			}
			one.ids = append(one.ids, id)
		}
		t.tidy(to, one)
	}
}

func (one *tail) drop(n int) {
	if n > 0 {
		one.ids = append([]string(nil), one.ids[n:]...)
		one.dropped += n
	}
}

func (t *tails) tidy(to target, one *tail) {
	if one.writing == 0 && len(one.ids) == 0 {
		delete(t.of, to)
	}
}

// gone notes that these letters wait no more.
func (t *tails) gone(to target, ids []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	one := t.of[to]
	if one == nil {
		return
	}
	n := 0 // they are the first, if others have been added
	for n < len(one.ids) && slices.Contains(ids, one.ids[n]) {
		n++
	}
	one.drop(n)
	t.tidy(to, one)
}

// all returns the IDs of each target to which nothing is being stored.
func (t *tails) all() map[target][]string {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make(map[target][]string, len(t.of))
	for to, one := range t.of {
		if one.writing == 0 {
			all[to] = slices.Clone(one.ids)
		}
	}
	return all
}
