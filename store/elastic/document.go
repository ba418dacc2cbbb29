package elastic

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"
	"unicode/utf8"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/internal/letter"
	"github.com/rehop/rehop/producer"
)

// Document is a message in the index.
type Document struct {
	ID    string // of the document
	Index string // that it is in

	// Message as it is published again. Its Headers are as they arrived; a Producer
	// leaves the headers of the broker and of rehop out.
	Message producer.Message

	Queue       string      // of a dead letter: the work queue that gave it up
	Cause       rehop.Cause // why it is here
	Error       string      // cut to 4 KiB
	ErrorType   string
	Fingerprint string // the same for all letters of one reason
	Attempts    int    // of the handlers, of a dead letter
	Redrives    int    // times that a person had sent the message back before
	RedriveID   string // id of the redrive by which a person sent it back last
	Unconfirmed bool   // the message may be in its queue

	FirstFailed time.Time
	Failed      time.Time
	Stored      time.Time

	// Cursor is for Query.After: the next page begins after this letter.
	Cursor string

	// Fault says why the document is not a letter or cannot be read completely. Nil for
	// a letter.
	Fault error

	version version
}

// version of a document, as Elasticsearch counts; nil from a server that does not.
type version struct{ seqNo, primaryTerm *int64 }

// document is a letter as the index has it.
type document struct {
	MessageID   string     `json:"message_id,omitempty"`
	Exchange    string     `json:"exchange,omitempty"`
	RoutingKey  string     `json:"routing_key,omitempty"`
	Queue       string     `json:"queue,omitempty"`
	Cause       string     `json:"cause,omitempty"`
	Error       string     `json:"error,omitempty"`
	ErrorType   string     `json:"error_type,omitempty"`
	Fingerprint string     `json:"fingerprint,omitempty"`
	Attempts    int        `json:"attempts,omitempty"`
	Redrives    int        `json:"redrives,omitempty"`
	RedriveID   string     `json:"redrive_id,omitempty"`
	OrderKey    string     `json:"order_key,omitempty"`
	Unconfirmed bool       `json:"unconfirmed,omitempty"`
	Properties  string     `json:"properties,omitempty"`
	Headers     string     `json:"headers,omitempty"`
	Body        string     `json:"body,omitempty"`
	BodyBase64  []byte     `json:"body_base64,omitempty"`
	FirstFailed *time.Time `json:"first_failed,omitempty"`
	Failed      *time.Time `json:"failed,omitempty"`
	Stored      *time.Time `json:"stored,omitempty"`
	Tie         int64      `json:"tie"`
}

// newDocument returns the document of a letter with this id.
func newDocument(id string, l letter.Letter) (document, error) {
	l.Cut()
	m := l.Message
	properties, errProperties := letter.EncodeTable(letter.Properties(m))
	headers, errHeaders := letter.EncodeTable(m.Headers)
	if errHeaders != nil {
		errHeaders = fmt.Errorf("headers: %w", errHeaders)
	}
	d := document{
		MessageID: letter.Armour(m.ID), Exchange: letter.Armour(m.Exchange), RoutingKey: letter.Armour(m.RoutingKey), Queue: letter.Armour(l.Queue),
		Cause: string(l.Cause), Error: l.Error, ErrorType: l.ErrorType,
		Fingerprint: letter.Fingerprint(cmp.Or(l.WorkQueue, l.Queue), m.Exchange, l.Cause, l.ErrorType, l.Error),
		Attempts:    l.Attempts, Redrives: l.Redrives, RedriveID: letter.Armour(l.RedriveID), OrderKey: letter.Armour(m.OrderKey), Unconfirmed: l.Unconfirmed, Properties: properties, Headers: headers,
		FirstFailed: date(l.FirstFailed), Failed: date(l.Failed), Stored: date(l.Stored), Tie: tie(id),
	}
	if utf8.Valid(m.Body) {
		d.Body = string(m.Body)
	} else {
		d.BodyBase64 = m.Body
	}
	return d, errors.Join(errProperties, errHeaders)
}

// date is a time that every date field takes; nil for others.
func date(t time.Time) *time.Time {
	t = t.UTC().Truncate(time.Millisecond)
	if t.IsZero() || t.Year() < 1 || t.Year() > 9999 {
		return nil
	}
	return &t
}

// tie orders documents of one millisecond. It has 52 bits, which is what a server
// that keeps numbers as float64 gives back.
func tie(id string) int64 {
	sum := sha256.Sum256([]byte(id))
	return int64(binary.BigEndian.Uint64(sum[:8]) >> 12)
}

// indexLines are the lines of a bulk request that write a letter.
func indexLines(index, id string, l letter.Letter) ([]byte, error) {
	d, err := newDocument(id, l)
	if err != nil {
		return nil, err
	}
	return lines(object{"index": object{"_index": index, "_id": id}}, d)
}

// deleteLines is the line of a bulk request that deletes a letter, unless it was
// changed since it was read.
func deleteLines(l Document) ([]byte, error) {
	meta := object{"_index": l.Index, "_id": l.ID}
	if l.version.seqNo != nil && l.version.primaryTerm != nil {
		meta["if_seq_no"], meta["if_primary_term"] = *l.version.seqNo, *l.version.primaryTerm
	}
	return lines(object{"delete": meta})
}

func lines(values ...any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	for _, v := range values {
		if err := e.Encode(v); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), nil
}

// hit is a document that a search has found.
type hit struct {
	Index       string          `json:"_index"`
	ID          string          `json:"_id"`
	SeqNo       *int64          `json:"_seq_no"`
	PrimaryTerm *int64          `json:"_primary_term"`
	Source      json.RawMessage `json:"_source"`
	Sort        []json.Number   `json:"sort"`
}

// cursor is the place of a document in the order as Elasticsearch sees it; empty if it
// has none, or the server does not say.
func (h hit) cursor() string {
	if len(h.Sort) != 2 {
		return ""
	}
	stored, errStored := h.Sort[0].Int64()
	tie, errTie := h.Sort[1].Int64()
	if errStored != nil || errTie != nil || stored == math.MaxInt64 { // which is that of a missing field
		return ""
	}
	return cursor{stored, tie}.String()
}

// letter is the inverse of newDocument.
func (h hit) letter() (Document, error) {
	l := Document{ID: h.ID, Index: h.Index, Cursor: h.cursor(), version: version{h.SeqNo, h.PrimaryTerm}}
	var d document
	if err := json.Unmarshal(h.Source, &d); err != nil {
		return l, fmt.Errorf("elastic: letter %q is not readable: %w", h.ID, err)
	}
	if d.Stored == nil {
		return l, fmt.Errorf("elastic: document %q has no time in its field stored: it is not a letter", h.ID)
	}
	l.Cursor = cursor{d.Stored.UnixMilli(), d.Tie}.String()
	l.Cause, l.Error, l.ErrorType, l.Fingerprint = rehop.Cause(d.Cause), d.Error, d.ErrorType, d.Fingerprint
	l.Attempts, l.Redrives, l.Unconfirmed = d.Attempts, d.Redrives, d.Unconfirmed
	for from, to := range map[*time.Time]*time.Time{d.FirstFailed: &l.FirstFailed, d.Failed: &l.Failed, d.Stored: &l.Stored} {
		if from != nil {
			*to = *from
		}
	}
	m := &l.Message
	var errs []error
	for text, to := range map[*string]*string{&d.MessageID: &m.ID, &d.Exchange: &m.Exchange, &d.RoutingKey: &m.RoutingKey, &d.Queue: &l.Queue, &d.RedriveID: &l.RedriveID} {
		var err error
		*to, err = letter.Unarmour(*text)
		errs = append(errs, err)
	}
	table, err := letter.DecodeTable(d.Properties)
	errs = append(errs, err, letter.SetProperties(m, table))
	m.Headers, err = letter.DecodeTable(d.Headers)
	if m.Body = []byte(d.Body); len(d.BodyBase64) > 0 {
		m.Body = d.BodyBase64
	}
	if err := errors.Join(append(errs, err)...); err != nil {
		return l, fmt.Errorf("elastic: letter %q is not readable: %w", h.ID, err)
	}
	return l, nil
}
