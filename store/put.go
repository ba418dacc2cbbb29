package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/internal/letter"
	"github.com/rehop/rehop/producer"
)

var _ producer.Sink = (*Store)(nil)

// Put stores a message that could not be published, and returns nil once that
// is committed. A message that was returned, nacked or refused is [Held], because
// the next try would end in the same way and a person has to look. With any other
// cause it is [Ready], and [Store.Forward] publishes it when the broker is back. If it
// turns out then that there is no queue for it, it is tried again, as
// ForwardConfig.Tries says, and Parked in the end; Letter.TryError tells.
//
// A message that is in the store already (same message id, exchange, key and body)
// is stored once. It keeps its place in the order, and the rest is replaced.
//
// The Delay of a message runs on here: the letter is due when it has passed, see
// Letter.Due.
//
// If ctx ends before the database answers, the message may be stored or not. The
// same is true of an error that matches [producer.ErrUnconfirmed]: the connection
// was lost during a COMMIT, and during the second one that is tried then. Any other
// error says that the message is not stored.
func (s *Store) Put(ctx context.Context, m producer.Message, cause error) error {
	f := letter.Unpublished(m, cause, s.now())
	l := fromLetter(f)
	l.State = Held
	if f.Cause.Passes() {
		l.State = Ready
	}
	l.Unconfirmed = count(f.Unconfirmed)
	l.Due = dueAfter(f.Stored, m.Delay)
	l.NextTry = l.Due
	if !s.cfg.KeepOrder || l.State != Ready || m.Delay > 0 {
		_, err := s.put(ctx, l)
		return err
	}
	end := s.tails.begin(target{m.Exchange, m.Key})
	stored, err := s.put(ctx, l)
	end(stored, err)
	return err
}

// dueAfter is when a message is due whose Delay begins at from, in whole
// milliseconds as the table has them, and not before; zero without a Delay.
func dueAfter(from time.Time, delay time.Duration) time.Time {
	if delay <= 0 {
		return time.Time{}
	}
	return wholeMillis(from.Add(delay))
}

// wholeMillis rounds up, because what is due must not come early.
func wholeMillis(t time.Time) time.Time {
	if whole := t.Truncate(time.Millisecond); !whole.Equal(t) {
		return whole.Add(time.Millisecond)
	}
	return t
}

// fromLetter is a letter of the table for one that is in none yet.
func fromLetter(l letter.Letter) Letter {
	return Letter{
		Message: l.Message, Queue: l.Queue, Cause: l.Cause, Error: l.Error, ErrorType: l.ErrorType,
		Attempts: l.Attempts, FirstFailed: l.FirstFailed, Failed: l.Failed, Stored: l.Stored,
	}
}

// Collect stores a dead letter. It is a handler for the consumer of a dead-letter
// queue, which acks the letter once it is committed.
//
//	consumer.New(conn, orders.DeadLetterQueue(), letters.Collect, consumer.Config{})
//
// A letter that is delivered twice is stored once, unless it has no message id.
// While the database does not take it the letter is held and tried again, as by
// [consumer.Requeue].
func (s *Store) Collect(ctx context.Context, d *consumer.Delivery) error {
	l := fromLetter(letter.Dead(d, s.now()))
	l.State = Held
	if _, err := s.put(ctx, l); err != nil {
		return consumer.Requeue(err)
	}
	return nil
}

// put returns the identity of the row, unless it cannot be one.
func (s *Store) put(ctx context.Context, l Letter) (identity, error) {
	r, err := newRow(l)
	if err != nil {
		return identity{}, connection.WithClass(err, connection.Bug)
	}
	if err := s.writer.put(ctx, r); err != nil {
		return r.identity(), fmt.Errorf("store: storing message %q: %w", l.Message.ID, err)
	}
	if l.State == Ready {
		s.nudge()
	}
	return r.identity(), nil
}

// PutTx stores messages in a transaction of the caller, on the database of the
// Store. [Store.Forward] publishes them once the transaction is committed, and only
// then. This is the transactional outbox. A Delay counts from PutTx, which returns
// the messages' ids in their order; a message without an id gets one. If any message
// is faulty, nothing is written and the error names all faults of all messages.
func (s *Store) PutTx(ctx context.Context, tx *sql.Tx, messages ...producer.Message) (ids []string, err error) {
	now := s.now()
	var rows []*row
	var errs []error
	if tx == nil {
		errs = append(errs, errors.New("store: tx is nil"))
	}
	for i, m := range messages {
		r, err := s.fresh(m, now, time.Time{})
		if err != nil {
			errs = append(errs, fmt.Errorf("store: messages[%d]: %w", i, err))
			continue
		}
		rows, ids = append(rows, r), append(ids, r.l.Message.ID)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, connection.WithClass(err, connection.Bug)
	}
	var batch []*write
	for _, r := range rows {
		batch = append(batch, &write{row: r})
	}
	if err := s.writer.run(ctx, tx, batch); err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	return ids, nil
}

// PutAt stores a message that [Store.Forward] publishes when it is due, or at once
// if due has passed. A Delay is added to that. Until then the message can be found,
// changed and cancelled.
// PutAt returns the message's id; a message without an id gets one.
func (s *Store) PutAt(ctx context.Context, due time.Time, m producer.Message) (id string, err error) {
	r, err := s.fresh(m, s.now(), due)
	if err != nil {
		return "", connection.WithClass(fmt.Errorf("store: %w", err), connection.Bug)
	}
	if err := s.writer.put(ctx, r); err != nil {
		return "", fmt.Errorf("store: storing message %q: %w", r.l.Message.ID, err)
	}
	s.nudge()
	return r.l.Message.ID, nil
}

// fresh is the row of a message that was never published.
func (s *Store) fresh(m producer.Message, now, due time.Time) (*row, error) {
	if err := m.Validate(); err != nil {
		return nil, err
	}
	if m.ID == "" {
		m.ID = rand.Text()
	}
	if m.Timestamp.IsZero() {
		m.Timestamp = now
	}
	if due = wholeMillis(due); m.Delay > 0 {
		from := now
		if due.After(now) {
			from = due
		}
		due = dueAfter(from, m.Delay)
	}
	return newRow(Letter{State: Ready, Message: m, Due: due, NextTry: due, Stored: now})
}

// Cancel takes back the messages of PutAt and PutTx with this message id that
// are not being published yet, and returns how many there were.
func (s *Store) Cancel(ctx context.Context, messageID string) (int, error) {
	return s.exec(ctx, "DELETE FROM {letters} WHERE message_id = ? AND state = 'ready' AND cause = '' AND (lease = '' OR next_try <= ?)",
		letter.Armour(messageID), s.now().UnixMilli())
}
