package elastic

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/elastic/go-elasticsearch/v8/esapi"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/internal/letter"
)

// Query selects letters. A letter must match each field that is set. The zero Query
// selects all letters for Find and Count. Replay refuses a Query that names nothing but
// times or After, unless All is set. A list that is empty and not nil selects nothing.
type Query struct {
	All bool // allows Replay to publish every letter of the times that are named

	MessageIDs  []string // any of these
	IDs         []string // of documents: Document.ID; any of these
	Queue       string
	Exchange    string
	RoutingKey  string
	Cause       rehop.Cause
	ErrorType   string
	Fingerprint string

	// Text selects letters that have all its words in the error, all in the
	// headers, all in the properties or all in the body.
	Text string

	// From and Before bound when the letter was stored; From is included.
	From, Before time.Time

	// Clause is a further clause in Elasticsearch's query language, such as {"prefix":
	// {"routing_key": "order."}}.
	Clause json.RawMessage

	// After is the Cursor of the last letter of the page before.
	After string

	// Limit is how many Find returns, 1 to 10000. Defaults to 100.
	Limit int
}

// cursor is a place in the order of Find.
type cursor struct{ stored, tie int64 }

func (c cursor) String() string { return fmt.Sprintf("%d-%d", c.stored, c.tie) }

func parseCursor(text string) (cursor, error) {
	stored, tie, _ := strings.Cut(text, "-")
	var c cursor
	var errStored, errTie error
	c.stored, errStored = strconv.ParseInt(stored, 10, 64)
	c.tie, errTie = strconv.ParseInt(tie, 10, 64)
	if errStored != nil || errTie != nil {
		return c, fmt.Errorf("elastic: Query.After is %.60q, want the Cursor of a Document", text)
	}
	return c, nil
}

func (q Query) validate() error {
	var errs []error
	if q.Limit < 0 || q.Limit > 10_000 {
		errs = append(errs, fmt.Errorf("elastic: Query.Limit is %d, want 1 to 10000", q.Limit))
	}
	if len(q.Clause) > 0 && !json.Valid(q.Clause) {
		errs = append(errs, fmt.Errorf("elastic: Query.Clause is %.60q, which is not JSON", q.Clause))
	}
	if q.After != "" {
		_, err := parseCursor(q.After)
		errs = append(errs, err)
	}
	return rehop.WithClass(errors.Join(errs...), rehop.ClassBug)
}

// validateReplay is validate for Replay, which deletes.
func (q Query) validateReplay() error {
	errs := []error{q.validate()}
	if q.Limit != 0 {
		errs = append(errs, fmt.Errorf("elastic: Query.Limit is %d, want 0: ReplayOptions has a Limit of its own", q.Limit))
	}
	named := q.MessageIDs != nil || q.IDs != nil || len(q.Clause) > 0 || q.Text != "" ||
		q.Queue+q.Exchange+q.RoutingKey+string(q.Cause)+q.ErrorType+q.Fingerprint != ""
	if !named && !q.All {
		errs = append(errs, errors.New("elastic: Query names no letters but by time or After; want another condition, or All"))
	}
	return rehop.WithClass(errors.Join(errs...), rehop.ClassBug)
}

// instant is a time as date fields are compared with.
func instant(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z07:00") }

// clause is a valid Query in Elasticsearch's language.
func (q Query) clause() object {
	var filter []any
	term := func(field, value string) {
		if value != "" {
			filter = append(filter, object{"term": object{field: value}})
		}
	}
	if q.MessageIDs != nil {
		ids := []string{}
		for _, id := range q.MessageIDs {
			ids = append(ids, letter.Armour(id))
		}
		filter = append(filter, object{"terms": object{"message_id": ids}})
	}
	if q.IDs != nil {
		filter = append(filter, object{"ids": object{"values": q.IDs}})
	}
	term("queue", letter.Armour(q.Queue))
	term("exchange", letter.Armour(q.Exchange))
	term("routing_key", letter.Armour(q.RoutingKey))
	term("cause", string(q.Cause))
	term("error_type", q.ErrorType)
	term("fingerprint", q.Fingerprint)
	if q.Text != "" {
		var any []object
		for _, field := range []string{"error", "headers", "properties", "body"} {
			any = append(any, object{"match": object{field: object{"query": q.Text, "operator": "and"}}})
		}
		filter = append(filter, object{"bool": object{"should": any, "minimum_should_match": 1}})
	}
	stored := object{}
	if !q.From.IsZero() {
		stored["gte"] = instant(q.From)
	}
	if !q.Before.IsZero() {
		stored["lt"] = instant(q.Before)
	}
	if len(stored) > 0 {
		filter = append(filter, object{"range": object{"stored": stored}})
	}
	if len(q.Clause) > 0 {
		filter = append(filter, q.Clause)
	}
	if q.After != "" {
		filter = append(filter, q.after())
	}
	if len(filter) == 0 {
		return object{"match_all": object{}}
	}
	return object{"bool": object{"filter": filter}}
}

// after selects what is behind the cursor. It is a condition on fields and no
// search_after, so that it needs no point in time that ends.
func (q Query) after() object {
	c, _ := parseCursor(q.After) // validated
	at := instant(time.UnixMilli(c.stored))
	return object{"bool": object{"minimum_should_match": 1, "should": []any{
		object{"range": object{"stored": object{"gt": at}}},
		object{"bool": object{"filter": []any{
			object{"range": object{"stored": object{"gte": at, "lte": at}}},
			object{"range": object{"tie": object{"gt": c.tie}}},
		}}},
	}}}
}

// Find returns letters in the order of storing, up to Query.Limit. The next page begins
// after the last Cursor. Letters that were stored within the refresh interval of the
// index may be missing. A document that is no letter, or has been edited so that it
// cannot be read, is a Document with a Fault. Large letters are read a few at a time.
func (s *Store) Find(ctx context.Context, q Query) ([]Document, error) {
	if err := q.validate(); err != nil {
		return nil, err
	}
	var letters []Document
	for p := s.pages(q); len(letters) < cmp.Or(q.Limit, 100); {
		page, err := p.next(ctx, cmp.Or(q.Limit, 100)-len(letters))
		if err != nil {
			return nil, err
		}
		if letters = append(letters, page...); !p.more {
			break
		}
	}
	return letters, nil
}

// pages reads letters a page at a time. The first page is short; the others have about
// pageBytes, by the size of the letters so far. One that takes too long is read again in
// halves.
type pages struct {
	store *Store
	query Query // After moves on
	size  int   // of the next page, in letters
	more  bool  // there may be letters behind the last page
}

const (
	firstPage = 10
	pageBytes = 8 << 20
)

func (s *Store) pages(q Query) *pages { return &pages{store: s, query: q, size: firstPage, more: true} }

// next returns up to n letters more.
func (p *pages) next(ctx context.Context, n int) ([]Document, error) {
	n = min(n, p.size)
	hits, _, err := p.store.search(ctx, p.query, n, "asc")
	for err != nil && ctx.Err() == nil && n > 1 && errors.Is(err, context.DeadlineExceeded) {
		n = (n + 1) / 2
		p.size = n
		hits, _, err = p.store.search(ctx, p.query, n, "asc")
	}
	if err != nil {
		return nil, err
	}
	after, bytes := p.query.After, 0
	letters := make([]Document, len(hits))
	for i, h := range hits {
		bytes += len(h.Source)
		l, err := h.letter()
		l.Fault = err
		if l.Cursor != "" {
			p.query.After = l.Cursor
		}
		letters[i] = l
	}
	// Documents without a place in the order come last, and there is no going on behind them.
	p.more = len(hits) >= n && p.query.After != after
	if len(hits) > 0 {
		p.size = max(1, min(4*len(hits), pageBytes/max(bytes/len(hits), 1)))
	}
	return letters, nil
}

// Count returns how many letters a Query selects.
func (s *Store) Count(ctx context.Context, q Query) (int, error) {
	if err := q.validate(); err != nil {
		return 0, err
	}
	_, n, err := s.search(ctx, q, 0, "asc")
	return n, err
}

// search returns the first documents in an order, "asc" or "desc", and how many there are.
func (s *Store) search(ctx context.Context, q Query, size int, order string) ([]hit, int, error) {
	sort := []any{object{"stored": object{"order": order}}, object{"tie": object{"order": order}}}
	body, err := lines(object{"query": q.clause(), "sort": sort, "size": size, "track_total_hits": true, "seq_no_primary_term": true})
	if err != nil {
		return nil, 0, fmt.Errorf("elastic: %w", err)
	}
	var answer struct {
		TimedOut bool                 `json:"timed_out"`
		Shards   struct{ Failed int } `json:"_shards"`
		Hits     struct {
			Total struct{ Value int }
			Hits  []hit
		}
	}
	err = s.do(ctx, esapi.SearchRequest{Index: []string{s.cfg.Index}, Body: bytes.NewReader(body)}, &answer)
	if s.noIndex(err) {
		return nil, 0, nil // no letter was stored yet
	}
	if err == nil && (answer.TimedOut || answer.Shards.Failed > 0) {
		err = rehop.WithClass(errors.New("some shards of the index have not answered"), rehop.ClassTransient)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("elastic: %w", err)
	}
	return answer.Hits.Hits, answer.Hits.Total.Value, nil
}

// refresh makes what is stored findable.
func (s *Store) refresh(ctx context.Context) error {
	var answer struct {
		Shards struct{ Failed int } `json:"_shards"`
	}
	err := s.do(ctx, esapi.IndicesRefreshRequest{Index: []string{s.cfg.Index}}, &answer)
	if err == nil && answer.Shards.Failed > 0 {
		err = rehop.WithClass(fmt.Errorf("%d shards of the index have failed", answer.Shards.Failed), rehop.ClassTransient)
	}
	if err != nil && !s.noIndex(err) {
		return fmt.Errorf("elastic: refreshing: %w", err)
	}
	return nil
}
