package store

import (
	"errors"
	"fmt"
	"time"

	"github.com/rehop/rehop/internal/letter"
	"github.com/rehop/rehop/xdeath"
)

// columns of a letter, in the order of row.values and of scan.
var columns = []string{
	"id", "message_id", "state", "due", "next_try", "exchange", "routing_key", "queue",
	"properties", "headers", "body", "size", "cause", "error", "error_type", "fingerprint",
	"attempts", "tries", "try_error", "unconfirmed", "first_failed", "failed", "stored", "lease",
}

// replaced are the columns that a letter that comes again replaces. It keeps
// its place, and the time when it was first stored.
var replaced = []string{
	"state", "due", "next_try", "properties", "headers", "cause", "error", "error_type", "fingerprint",
	"attempts", "tries", "try_error", "failed", "lease",
}

// row is a letter as the database has it.
type row struct {
	l                   Letter
	properties, headers string
	size                int // about what it takes in memory
}

// newRow checks a letter and gives it its id and fingerprint.
func newRow(l Letter) (*row, error) {
	properties, err := letter.EncodeTable(letter.Properties(l.Message))
	if err != nil {
		return nil, fmt.Errorf("store: properties of message %q: %w", l.Message.ID, err)
	}
	headers, err := letter.EncodeTable(l.Message.Headers)
	if err != nil {
		return nil, fmt.Errorf("store: headers of message %q: %w", l.Message.ID, err)
	}
	l.ID = letter.Identity(l.Message, l.Queue)
	l.Error = letter.Readable(l.Error, letter.MaxError)
	l.ErrorType = letter.Readable(l.ErrorType, 255)
	l.Cause = xdeath.Cause(letter.Readable(string(l.Cause), 255))
	l.Fingerprint = letter.Fingerprint(l.Queue, l.Message.Exchange, l.Cause, l.ErrorType, l.Error)
	return &row{l: l, properties: properties, headers: headers, size: len(l.Message.Body) + len(headers) + len(properties) + 1024}, nil
}

func (r *row) values() []any {
	l, body := r.l, r.l.Message.Body
	if body == nil {
		body = []byte{} // nil would be NULL
	}
	return []any{
		l.ID, letter.Armour(l.Message.ID), string(l.State), millis(l.Due), millis(l.NextTry),
		letter.Armour(l.Message.Exchange), letter.Armour(l.Message.Key), letter.Armour(l.Queue),
		r.properties, r.headers, body, r.size, string(l.Cause), l.Error, l.ErrorType, l.Fingerprint,
		l.Attempts, l.Tries, l.TryError, l.Unconfirmed, millis(l.FirstFailed), millis(l.Failed), millis(l.Stored), l.Lease,
	}
}

// scan reads a row that begins with seq and goes on with columns.
func scan(from interface{ Scan(...any) error }) (Letter, error) {
	var (
		l                                                 Letter
		state, cause, properties, headers                 string
		due, nextTry, firstFailed, failed, stored, ignore int64
	)
	m := &l.Message
	err := from.Scan(&l.Number, &l.ID, &m.ID, &state, &due, &nextTry, &m.Exchange, &m.Key, &l.Queue,
		&properties, &headers, &m.Body, &ignore, &cause, &l.Error, &l.ErrorType, &l.Fingerprint,
		&l.Attempts, &l.Tries, &l.TryError, &l.Unconfirmed, &firstFailed, &failed, &stored, &l.Lease)
	if err != nil {
		return Letter{}, err
	}
	l.State, l.Cause = State(state), xdeath.Cause(cause)
	l.Due, l.NextTry, l.FirstFailed, l.Failed, l.Stored = instant(due), instant(nextTry), instant(firstFailed), instant(failed), instant(stored)
	var errs []error
	for _, text := range []*string{&m.ID, &m.Exchange, &m.Key, &l.Queue} {
		var err error
		*text, err = letter.Unarmour(*text)
		errs = append(errs, err)
	}
	table, err := letter.DecodeTable(properties)
	errs = append(errs, err, letter.SetProperties(m, table))
	m.Headers, err = letter.DecodeTable(headers)
	if err := errors.Join(append(errs, err)...); err != nil {
		return l, fmt.Errorf("store: letter %d is not readable: %w", l.Number, err)
	}
	return l, nil
}

// millis are the Unix milliseconds of the database; 0 is the zero time.
func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func instant(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}
