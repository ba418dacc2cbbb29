package store

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/letter"
	"github.com/rehop/rehop/producer"
)

// Park sets letters aside: nothing forwards them until somebody replays or
// releases them. It returns how many. Letters that are being published right
// now are left alone, here and by the other calls that change letters.
func (s *Store) Park(ctx context.Context, q Query) (int, error) { return s.setState(ctx, q, Parked) }

// Archive moves letters to state [Archived]. They are kept for
// Config.KeepArchived, and neither forwarded nor replayed by default.
func (s *Store) Archive(ctx context.Context, q Query) (int, error) {
	return s.setState(ctx, q, Archived)
}

// Release gives letters to Forward, which publishes them when they are due.
func (s *Store) Release(ctx context.Context, q Query) (int, error) {
	n, err := s.setState(ctx, q, Ready)
	s.nudge()
	return n, err
}

func (s *Store) setState(ctx context.Context, q Query, state State) (int, error) {
	c, err := s.chosen(q)
	if err != nil {
		return 0, err
	}
	return s.exec(ctx, "UPDATE {letters} SET state = ?, lease = '', tries = 0, next_try = due WHERE "+c.String(), append([]any{string(state)}, c.args...)...)
}

// Delete removes letters.
func (s *Store) Delete(ctx context.Context, q Query) (int, error) {
	c, err := s.chosen(q)
	if err != nil {
		return 0, err
	}
	return s.exec(ctx, "DELETE FROM {letters} WHERE "+c.String(), c.args...)
}

// Edit changes the message of the letter with this Number. The letter keeps its
// Number, which is its place in the order, and its state. It is another message
// from then on: if the original is stored once more, it becomes a letter of its own
// and replaces nothing. A dead letter is replayed to its work queue whatever its
// Exchange and Key are, unless ReplayOptions.To says otherwise. A Due moves along with
// the Delay of the message. Edit fails
// if change fails, if the changed message is faulty, or if the letter does not exist
// or is being published.
func (s *Store) Edit(ctx context.Context, number int64, change func(*producer.Message) error) error {
	return s.writer.do(ctx, func(ctx context.Context, tx querier) error {
		suffix := ""
		if s.dialect != SQLite {
			suffix = " FOR UPDATE"
		}
		letters, err := s.read(ctx, tx, "WHERE seq = ? AND (lease = '' OR next_try <= ?)"+suffix, number, s.now().UnixMilli())
		if err != nil {
			return err
		}
		if len(letters) == 0 {
			return fmt.Errorf("store: letter %d: %w", number, errIsNoLetter)
		}
		m := letters[0].Message
		if err := change(&m); err != nil {
			return fmt.Errorf("store: letter %d: %w", number, err)
		}
		r, err := s.edited(letters[0], m)
		if err != nil {
			return connection.WithClass(fmt.Errorf("store: letter %d: %w", number, err), connection.Bug)
		}
		body := m.Body
		if body == nil {
			body = []byte{}
		}
		_, err = tx.ExecContext(ctx, s.sql("UPDATE {letters} SET id = ?, due = ?, next_try = ?, message_id = ?, exchange = ?, routing_key = ?, properties = ?, headers = ?, body = ?, size = ? WHERE seq = ?"),
			rand.Text(), millis(r.l.Due), millis(r.l.NextTry), letter.Armour(m.ID), letter.Armour(m.Exchange), letter.Armour(m.Key), r.properties, r.headers, body, r.size, number)
		return err
	})
}

// edited is the row of a letter with another message.
func (s *Store) edited(l Letter, m producer.Message) (*row, error) {
	if !l.Due.IsZero() && m.Delay != l.Message.Delay {
		l.Due = wholeMillis(l.Due.Add(m.Delay - l.Message.Delay))
		l.NextTry = l.Due
	}
	l.Message = m
	if err := m.Validate(); err != nil {
		return nil, err
	}
	return newRow(l)
}

// Prune deletes archived letters that were stored before a time, and returns
// how many. Forward does so by itself if Config.KeepArchived is set.
func (s *Store) Prune(ctx context.Context, before time.Time) (int, error) {
	return s.Delete(ctx, Query{States: []State{Archived}, Before: before})
}
