package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/internal/letter"
	"github.com/rehop/rehop/internal/resend"
	"github.com/rehop/rehop/producer"
)

var _ producer.Sink = (*Store)(nil)

// Put stores a message that could not be published, and returns nil once it is
// committed. A message that was returned, nacked or refused is [Held], because the
// next try would end in the same way and a person has to look. With any other cause it
// is [Ready], and a [Forwarder] publishes it when the broker is back. If no queue
// takes it then, the Forwarder tries again, up to ForwardConfig.Tries, and then parks it;
// Entry.TryError has the reason.
//
// A message that is in the store already is stored once: one with the same message id,
// exchange, routing key, body, order key, own headers but for those of tracing
// (traceparent, tracestate, baggage), type, content type and encoding, correlation id,
// reply-to and app id. The entry keeps its place in the order and the times when it was
// stored and failed first; everything else is replaced. An entry that is [Parked] does not
// become Ready by this, but becomes Held if the message was returned, nacked or refused.
//
// The Delay of a message runs on here: the entry is due when it has passed, see
// Entry.Due.
//
// If ctx ends before the database answers, the message may be stored or not. The same
// is true of an error that matches [producer.ErrUnconfirmed]: the connection was lost
// during a COMMIT, and again during the second try. Any other error says that the
// message is not stored.
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
	if s.own(ctx) {
		return fmt.Errorf("store: %w", resend.ErrOwn)
	}
	if s.cfg.KeepOrder && l.State == Ready && m.Delay <= 0 {
		l.line = lineOf(m)
	}
	_, err := s.put(ctx, l)
	if err == nil {
		resend.Took(ctx, table{s.db, s.cfg.Table}, m.ID)
	}
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

// fromLetter is an entry of the table for one that is in none yet.
func fromLetter(l letter.Letter) Entry {
	return Entry{
		Message: l.Message, Queue: l.Queue, workQueue: l.WorkQueue, Cause: l.Cause, Error: l.Error, ErrorType: l.ErrorType,
		Attempts: l.Attempts, Redrives: l.Redrives, RedriveID: l.RedriveID, FirstFailed: l.FirstFailed, Failed: l.Failed, Stored: l.Stored,
	}
}

// Collect stores a dead letter. It is a handler for the consumer of a dead-letter
// queue, which acks the entry once it is committed.
//
//	consumer.New(conn, orders.DeadLetterQueue(), letters.Collect, consumer.Config{})
//
// An entry that is delivered twice is stored once, unless it has no message id. While
// the database does not take the entry, the consumer holds it and tries again, as with
// [consumer.Hold].
func (s *Store) Collect(ctx context.Context, d *consumer.Delivery) error {
	l := fromLetter(letter.Dead(d, s.now()))
	l.State = Held
	if _, err := s.put(ctx, l); err != nil {
		return consumer.Hold(err)
	}
	return nil
}

// put stores an entry and returns the message's id.
func (s *Store) put(ctx context.Context, l Entry) (id string, err error) {
	r, err := newRow(l)
	if err != nil {
		return "", rehop.WithClass(err, rehop.ClassBug)
	}
	if l.line != 0 {
		ctx = counted(ctx, func() (end func()) { return s.waiting.begin(l.line) })
	}
	if err := s.writer.put(ctx, r); err != nil {
		return "", fmt.Errorf("store: storing message %q: %w", l.Message.ID, err)
	}
	if l.State == Ready {
		s.nudge()
	}
	return l.Message.ID, nil
}

// PutTx stores messages in a transaction of the caller, on the database of the
// Store. A [Forwarder] publishes them once the transaction is committed, and only
// then. This is the transactional outbox. A message with a Delay stays in the database
// until it is due, which counts from PutTx; it needs no topology.Delays. PutTx returns the
// messages' ids in their order; a message without an id gets one. If any message is faulty,
// or is the same as another one by the rule of [Store.Put], nothing is
// written and the error names all faults of all messages.
//
// On a server, an open transaction delays no other call. SQLite has one writer at a
// time: all other writes to the file wait until the transaction ends. If a *sql.Tx is
// still open after a minute, a later PutTx logs it, because its Commit may have been
// forgotten.
func (s *Store) PutTx(ctx context.Context, tx Tx, messages ...producer.Message) (ids []string, err error) {
	now := s.now()
	var batch []*write
	var errs []error
	if tx == nil || tx == Tx((*sql.Tx)(nil)) {
		errs = append(errs, errors.New("store: tx is nil"))
	}
	first := map[rowKey]int{}
	for i, m := range messages {
		l, err := s.newEntry(ctx, m, now, time.Time{})
		if err != nil {
			errs = append(errs, fmt.Errorf("store: messages[%d]: %w", i, err))
			continue
		}
		if s.cfg.KeepOrder && m.Delay <= 0 {
			l.line = lineOf(m)
		}
		r, err := newRow(l)
		if err != nil {
			errs = append(errs, fmt.Errorf("store: messages[%d]: %w", i, err))
			continue
		}
		if before, same := first[r.key()]; same {
			errs = append(errs, fmt.Errorf("store: messages[%d] is the same as messages[%d]: its id %q, its address and its body", i, before, l.Message.ID))
		}
		first[r.key()] = i
		batch, ids = append(batch, &write{row: r}), append(ids, l.Message.ID)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, rehop.WithClass(err, rehop.ClassBug)
	}
	s.lastTx.Store(now.UnixNano())
	for _, one := range batch {
		if line := one.row.l.line; line != 0 {
			s.waiting.mark(line, now.Add(longestTx))
		}
	}
	if err := s.writer.run(ctx, tx, batch); err != nil {
		return nil, fmt.Errorf("store: %w", s.inTx(err))
	}
	if len(batch) > 0 && len(s.running.list()) > 0 {
		s.uncommitted.add(batch[len(batch)-1].row.key(), now)
	}
	s.openTxs.note(tx, now, s.cfg.Logger)
	return ids, nil
}

// inTx explains an error of a statement in a transaction of the caller.
func (s *Store) inTx(err error) error {
	text := strings.ToLower(err.Error())
	if strings.Contains(text, s.cfg.Table) && (strings.Contains(text, "no such table") || strings.Contains(text, "exist")) {
		return rehop.WithClass(fmt.Errorf("%w: the transaction is one of another database than that of the Store, which has its table %s", err, s.cfg.Table), rehop.ClassBug)
	}
	return err
}

// PutAt stores a message that a [Forwarder] publishes when it is due, or at once if
// due has passed. A Delay of the message is added to due. Until then the message can be
// found, changed and cancelled. The same message, by the rule of [Store.Put], is stored once,
// and is due at the time that the last call gave. PutAt
// refuses a message that is due after the year 9999.
//
// PutAt returns the message's id; a message without an id gets one.
func (s *Store) PutAt(ctx context.Context, due time.Time, m producer.Message) (id string, err error) {
	l, err := s.newEntry(ctx, m, s.now(), due)
	if err != nil {
		return "", rehop.WithClass(fmt.Errorf("store: %w", err), rehop.ClassBug)
	}
	return s.put(ctx, l)
}

// endOfTime is when no message is due any more: a later year has no JSON, and a much later
// one no milliseconds.
var endOfTime = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)

// newEntry is the entry of a message that was never published.
func (s *Store) newEntry(ctx context.Context, m producer.Message, now, due time.Time) (Entry, error) {
	if m.ID == "" {
		m.ID = rand.Text()
	}
	if m.Timestamp.IsZero() {
		m.Timestamp = now
	}
	if s.storing != nil {
		s.storing(ctx, &m)
	}
	if err := m.Validate(); err != nil {
		return Entry{}, err
	}
	if due = wholeMillis(due); m.Delay > 0 && due.Before(endOfTime) {
		from := now
		if due.After(now) {
			from = due
		}
		due = dueAfter(from, m.Delay)
	}
	if !due.Before(endOfTime) {
		return Entry{}, fmt.Errorf("due is %v, want a time before %v", due, endOfTime)
	}
	return Entry{State: Ready, Message: m, Due: due, NextTry: due, Stored: now}, nil
}

// Cancel takes back the messages of PutAt and PutTx with this message id that
// are not being published yet, and returns how many it took back. They are never
// published.
//
// If an earlier publish had no answer, or its process died before it noted the answer,
// the message may have been published: see Entry.Unconfirmed. Cancel deletes its entry,
// so that the Forwarder does not publish it again, and does not count it.
func (s *Store) Cancel(ctx context.Context, messageID string) (cancelled int, err error) {
	err = s.write(ctx, func(ctx context.Context, tx Tx) error {
		cancelled, err = s.cancel(ctx, tx, messageID)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("store: %w", err)
	}
	return cancelled, nil
}

// CancelTx is Cancel in a transaction of the caller, on the database of the Store: the
// messages are taken back once it is committed, and only then. Until it ends they are
// not published.
func (s *Store) CancelTx(ctx context.Context, tx Tx, messageID string) (cancelled int, err error) {
	if tx == nil || tx == Tx((*sql.Tx)(nil)) {
		return 0, rehop.WithClass(errors.New("store: tx is nil"), rehop.ClassBug)
	}
	s.lastTx.Store(s.now().UnixNano())
	if cancelled, err = s.cancel(ctx, tx, messageID); err != nil {
		return 0, fmt.Errorf("store: %w", s.inTx(err))
	}
	return cancelled, nil
}

// cancel deletes entries by their numbers: in a transaction that keeps what it has
// read, as those of MySQL do, a DELETE by message id would lock the places beside it,
// and with them the Put of others.
func (s *Store) cancel(ctx context.Context, tx Tx, messageID string) (cancelled int, err error) {
	now := s.now().UnixMilli()
	which := "state = 'ready' AND cause = '' AND (lease = '' OR next_try <= ?)"
	rows, err := tx.QueryContext(ctx, s.sql("SELECT seq FROM {letters} WHERE message_id = ? AND "+which), letter.Armour(messageID), now)
	if err != nil {
		return 0, err
	}
	numbers, err := scanNumbers(rows)
	if err != nil {
		return 0, err
	}
	for _, number := range numbers {
		one := s.sql("DELETE FROM {letters} WHERE seq = ? AND " + which)
		result, err := tx.ExecContext(ctx, one+" AND unconfirmed = 0 AND lease = ''", number, now)
		if err != nil {
			return 0, err
		}
		n, err := result.RowsAffected()
		if err != nil {
			return 0, err
		}
		cancelled += int(n)
		if n == 0 {
			if _, err := tx.ExecContext(ctx, one, number, now); err != nil {
				return 0, err
			}
		}
	}
	return cancelled, nil
}
