package store

import (
	"cmp"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/internal/letter"
)

// columns of an entry, in the order of row.values and of scan.
var columns = []string{
	"id", "message_id", "state", "line", "due", "next_try", "exchange", "routing_key", "order_key", "queue",
	"properties", "headers", "body", "size", "cause", "error", "error_type", "fingerprint",
	"attempts", "redrives", "redrive_id", "tries", "try_error", "alone", "unconfirmed", "first_failed", "failed", "stored", "lease",
}

// replaced are the columns that an entry that comes again replaces, beside its state.
// It keeps its number, and the time when it was first stored.
var replaced = []string{
	"line", "due", "next_try", "order_key", "properties", "headers", "cause", "error", "error_type", "fingerprint",
	"attempts", "redrives", "redrive_id", "tries", "try_error", "alone", "failed", "lease",
}

// row is an entry as the database has it.
type row struct {
	l                   Entry
	id                  string
	properties, headers string
	size                int // about what it takes in memory
}

// newRow checks an entry and gives it its id and fingerprint.
func newRow(l Entry) (*row, error) {
	properties, err := letter.EncodeTable(letter.Properties(l.Message))
	if err != nil {
		return nil, fmt.Errorf("store: properties of message %q: %w", l.Message.ID, err)
	}
	headers, err := letter.EncodeTable(l.Message.Headers)
	if err != nil {
		return nil, fmt.Errorf("store: headers of message %q: %w", l.Message.ID, err)
	}
	l.Error = letter.Readable(l.Error, letter.MaxError)
	l.ErrorType = letter.Readable(l.ErrorType, letter.MaxName)
	l.Cause = rehop.Cause(letter.Readable(string(l.Cause), letter.MaxName))
	if l.Fingerprint == "" || l.Queue == "" { // an edit changes no reason, but the exchange of what was in no queue
		l.Fingerprint = letter.Fingerprint(cmp.Or(l.workQueue, l.Queue), l.Message.Exchange, l.Cause, l.ErrorType, l.Error)
	}
	l.alone = l.Cause == rehop.CauseRefused
	return &row{l: l, id: letter.Identity(l.Message, l.Queue), properties: properties, headers: headers, size: len(l.Message.Body) + len(headers) + len(properties) + 1024}, nil
}

func (r *row) values() []any {
	l, body := r.l, r.l.Message.Body
	if body == nil {
		body = []byte{} // nil would be NULL
	}
	return []any{
		r.id, letter.Armour(l.Message.ID), string(l.State), l.line, millis(l.Due), millis(l.NextTry),
		letter.Armour(l.Message.Exchange), letter.Armour(l.Message.RoutingKey), letter.Armour(l.Message.OrderKey), letter.Armour(l.Queue),
		r.properties, r.headers, body, r.size, string(l.Cause), l.Error, l.ErrorType, l.Fingerprint,
		l.Attempts, l.Redrives, letter.Armour(l.RedriveID), l.Tries, l.TryError, count(l.alone), l.Unconfirmed, millis(l.FirstFailed), millis(l.Failed), millis(l.Stored), l.Lease,
	}
}

// rowKey is what no two rows have in common, as the table has it. The message id
// comes first: those of one producer are neighbours, and so in the index as well.
type rowKey struct{ messageID, id string }

func (r *row) key() rowKey { return rowKey{letter.Armour(r.l.Message.ID), r.id} }

// whole are the columns of a whole Entry.
const whole = "seq, message_id, state, line, due, next_try, exchange, routing_key, queue, properties, headers, body, " +
	"cause, error, error_type, fingerprint, attempts, redrives, redrive_id, tries, try_error, alone, unconfirmed, first_failed, failed, stored, lease"

// brief are the columns of a Ready entry that are enough to publish it.
const brief = "seq, message_id, line, due, exchange, routing_key, queue, properties, headers, body, cause, tries, alone, unconfirmed"

// scanner scans the rows of one query, one after the other.
type scanner struct {
	brief bool

	state, cause, properties, headers         string
	due, nextTry, firstFailed, failed, stored int64
	alone                                     int
	fields                                    []any
}

func (s *scanner) columns() string {
	if s.brief {
		return brief
	}
	return whole
}

// scan reads a row into an Entry, which has its Number even if the rest cannot be
// decoded.
func (s *scanner) scan(rows *sql.Rows, l *Entry) error {
	m := &l.Message
	if s.brief {
		s.state = string(Ready)
		s.fields = append(s.fields[:0], &l.Number, &m.ID, &l.line, &s.due, &m.Exchange, &m.RoutingKey, &l.Queue, &s.properties, &s.headers, &m.Body, &s.cause, &l.Tries, &s.alone, &l.Unconfirmed)
	} else {
		s.fields = append(s.fields[:0], &l.Number, &m.ID, &s.state, &l.line, &s.due, &s.nextTry, &m.Exchange, &m.RoutingKey, &l.Queue,
			&s.properties, &s.headers, &m.Body, &s.cause, &l.Error, &l.ErrorType, &l.Fingerprint,
			&l.Attempts, &l.Redrives, &l.RedriveID, &l.Tries, &l.TryError, &s.alone, &l.Unconfirmed, &s.firstFailed, &s.failed, &s.stored, &l.Lease)
	}
	if err := rows.Scan(s.fields...); err != nil {
		*l = Entry{}
		return err
	}
	l.State, l.Cause, l.alone = State(s.state), rehop.Cause(s.cause), s.alone != 0
	l.Due, l.NextTry, l.FirstFailed, l.Failed, l.Stored = instant(s.due), instant(s.nextTry), instant(s.firstFailed), instant(s.failed), instant(s.stored)
	var errs []error
	for _, text := range [...]*string{&m.ID, &m.Exchange, &m.RoutingKey, &l.Queue, &l.RedriveID} {
		var err error
		if *text, err = letter.Unarmour(*text); err != nil {
			errs = append(errs, err)
		}
	}
	table, err := letter.DecodeTable(s.properties)
	if err = errors.Join(err, letter.SetProperties(m, table)); err != nil {
		errs = append(errs, err)
	}
	if m.Headers, err = letter.DecodeTable(s.headers); err != nil {
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("store: entry %d is not readable: %w", l.Number, err)
	}
	return nil
}

// millis are the Unix milliseconds of the database; 0 is the zero time. A time before
// 1970 is the first one that there is.
func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return max(t.UnixMilli(), 1)
}

func instant(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}
