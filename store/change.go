package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/internal/letter"
	"github.com/rehop/rehop/producer"
)

// Park sets entries aside: nothing forwards them until somebody replays or releases
// them. Park returns how many entries it has set aside. Park and the other calls that
// change entries leave alone entries that are being published right now. They change
// some thousand entries at a time, so that others can write meanwhile. A call that
// returns an error has changed as many entries as it returns.
func (s *Store) Park(ctx context.Context, q Query) (int, error) { return s.setState(ctx, q, Parked) }

// Archive moves entries to state [Archived], and returns how many. They are
// kept for Config.KeepArchived, and neither forwarded nor replayed by default.
func (s *Store) Archive(ctx context.Context, q Query) (int, error) {
	return s.setState(ctx, q, Archived)
}

// Release gives entries to the Forwarder, and returns how many. The Forwarder publishes them when
// they are due: a dead letter to the work queue that gave it up, any other to its own
// exchange and routing key.
func (s *Store) Release(ctx context.Context, q Query) (int, error) {
	if s.cfg.KeepOrder { // new messages of their lines stay behind the entries
		defer s.waiting.beginAny()()
		ctx = counted(ctx, s.waiting.beginAny)
	}
	n, err := s.setState(ctx, q, Ready)
	s.nudge()
	return n, err
}

func (s *Store) setState(ctx context.Context, q Query, state State) (int, error) {
	return s.change(ctx, q, "UPDATE {letters by number} SET "+noteEnded+"state = ?, lease = '', tries = 0, next_try = due WHERE ", string(state))
}

// Delete removes entries, and returns how many.
func (s *Store) Delete(ctx context.Context, q Query) (int, error) {
	return s.change(ctx, q, "DELETE FROM {letters by number} WHERE ")
}

// change runs a statement for the entries that a Query selects now.
func (s *Store) change(ctx context.Context, q Query, statement string, args ...any) (changed int, err error) {
	if err := q.validateChange(); err != nil {
		return 0, err
	}
	numbers, err := s.selected(ctx, q)
	if err != nil {
		return 0, err
	}
	return s.inPieces(ctx, numbers, statement, args, s.unleased(q))
}

// piece is how many entries one transaction changes: the writes of others wait for
// it.
const piece = 5000

// inPieces runs a statement for these entries where they still meet a condition, a
// piece at a time. After an error the entries of former pieces are changed.
func (s *Store) inPieces(ctx context.Context, numbers []int64, statement string, args []any, c *condition) (changed int, err error) {
	for some := range slices.Chunk(numbers, piece) {
		n, err := s.exec(ctx, statement+s.dialect.among("seq", some)+" AND "+c.String(), slices.Concat(args, c.args)...)
		changed += n
		if err != nil {
			return changed, err
		}
		s.changed(some...)
	}
	return changed, nil
}

// numbers returns the entries that meet a condition, in the order of storing.
func (s *Store) numbers(ctx context.Context, c *condition) ([]int64, error) {
	rows, err := s.db.QueryContext(ctx, s.sql("SELECT seq FROM {letters} WHERE "+c.String()+" ORDER BY seq"), c.args...)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	numbers, err := scanNumbers(rows)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	return numbers, nil
}

// scanNumbers reads rows of one number, and closes them.
func scanNumbers(rows *sql.Rows) (numbers []int64, err error) {
	defer rows.Close()
	for rows.Next() {
		var number int64
		if err := rows.Scan(&number); err != nil {
			return nil, err
		}
		numbers = append(numbers, number)
	}
	return numbers, rows.Err()
}

// Edit changes the message of the entry with this Number. The entry keeps its Number,
// which is its place in the order, and its state. It is another message from then on:
// if the original is stored once more, it becomes an entry of its own and replaces
// nothing. A dead letter is replayed to its work queue, not to its Exchange and
// RoutingKey, unless ReplayOptions.To says otherwise. If change alters the Delay, the
// entry's Due moves by the same time.
//
// change is called once, or again if the entry is changed by others meanwhile. Edit
// fails if change fails, if the changed message is faulty, or if the entry does not
// exist or is being published.
func (s *Store) Edit(ctx context.Context, number int64, change func(*producer.Message) error) error {
	for {
		done, err := s.edit(ctx, number, change)
		if done || err != nil {
			return err
		}
	}
}

// edit returns false if the entry was changed while change ran.
func (s *Store) edit(ctx context.Context, number int64, change func(*producer.Message) error) (done bool, err error) {
	var id string
	var failed int64
	err = s.db.QueryRowContext(ctx, s.sql("SELECT id, failed FROM {letters} WHERE seq = ?"), number).Scan(&id, &failed)
	if errors.Is(err, sql.ErrNoRows) {
		return false, fmt.Errorf("store: entry %d: %w", number, errNoEntry)
	}
	if err != nil {
		return false, fmt.Errorf("store: %w", err)
	}
	entries, err := s.read(ctx, whole, "WHERE seq = ? AND (lease = '' OR next_try <= ?)", number, s.now().UnixMilli())
	if err != nil {
		return false, err
	}
	if len(entries) == 0 {
		return false, fmt.Errorf("store: entry %d: %w", number, errNoEntry)
	}
	m := entries[0].Message
	if err := change(&m); err != nil {
		return false, fmt.Errorf("store: entry %d: %w", number, err)
	}
	r, err := s.edited(entries[0], m)
	if err != nil {
		return false, rehop.WithClass(fmt.Errorf("store: entry %d: %w", number, err), rehop.ClassBug)
	}
	if r.l.line != 0 && s.cfg.KeepOrder { // it may be in another line now
		begin := func() (end func()) { return s.waiting.begin(r.l.line) }
		defer begin()()
		ctx = counted(ctx, begin)
	}
	body := m.Body
	if body == nil {
		body = []byte{}
	}
	n, err := s.exec(ctx, "UPDATE {letters by number} SET "+noteEnded+"lease = '', id = ?, line = ?, due = ?, next_try = ?, message_id = ?, exchange = ?, routing_key = ?, order_key = ?, properties = ?, headers = ?, body = ?, size = ? WHERE seq = ? AND id = ? AND failed = ? AND (lease = '' OR next_try <= ?)",
		rand.Text(), r.l.line, millis(r.l.Due), millis(r.l.Due), letter.Armour(m.ID), letter.Armour(m.Exchange), letter.Armour(m.RoutingKey), letter.Armour(m.OrderKey), r.properties, r.headers, body, r.size,
		number, id, failed, s.now().UnixMilli())
	if err == nil {
		s.changed(number)
	}
	return n > 0, err
}

// edited is the row of an entry with another message.
func (s *Store) edited(l Entry, m producer.Message) (*row, error) {
	if !l.Due.IsZero() && m.Delay != l.Message.Delay {
		l.Due = wholeMillis(l.Due.Add(m.Delay - l.Message.Delay))
	}
	if l.Message = m; l.line != 0 {
		l.line = lineOf(m)
	}
	if err := m.Validate(); err != nil {
		return nil, err
	}
	return newRow(l)
}
