package desk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/foreign"
	"github.com/rehop/rehop/internal/header"
	"github.com/rehop/rehop/internal/letter"
	"github.com/rehop/rehop/internal/pause"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/store"
)

// The bounds of an answer that a person waits for.
const (
	// scanBound is how many letters a question looks through that the database cannot
	// answer by itself, and scanPage how many of them are in memory at a time.
	scanBound = 5000
	scanPage  = 500

	// maxMatched is how far the letters that match are counted.
	maxMatched = 10_000

	// asideTimeout bounds the count of letters that are left out: of a text that none of a million has, the store reads all.
	asideTimeout = 5 * time.Second

	// maxNumbers is how many numbers store.Query.Numbers may have where letters are read or counted.
	maxNumbers = 10_000
)

// unbound is the bound of a scan of all letters.
const unbound = int(^uint(0) >> 1)

// CollectedConfig is for [NewCollected]. Journal is required.
type CollectedConfig struct {
	Journal *Journal

	// Name of the store for people. Defaults to "store".
	Name string
}

// storeSource is a store of letters.
type storeSource struct {
	store *store.Store
	conn  *connection.Conn
	cfg   CollectedConfig

	gap func(moment string) // of tests: called between the steps of a drop
}

// at tells a test that a drop is between two steps.
func (c *storeSource) at(moment string) {
	if c.gap != nil {
		c.gap(moment)
	}
}

// NewCollected returns the letters in a store, which [store.Store.Collect] has put
// there. Redrives publish on conn; without one the letters can only be looked at, kept
// and dropped.
func NewCollected(s *store.Store, conn *connection.Conn, cfg CollectedConfig) (Keeper, error) {
	if cfg.Name == "" {
		cfg.Name = "store"
	}
	var errs []error
	if s == nil {
		errs = append(errs, errors.New("desk: the Store is nil"))
	}
	if cfg.Journal == nil {
		errs = append(errs, errors.New("desk: CollectedConfig.Journal is nil"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, rehop.WithClass(err, rehop.ClassBug)
	}
	return &storeSource{store: s, conn: conn, cfg: cfg}, nil
}

// About describes the source.
func (c *storeSource) About() About { return About{Name: c.cfg.Name, Keeper: true} }

// Journal returns the journal of the source.
func (c *storeSource) Journal() *Journal { return c.cfg.Journal }

func (c *storeSource) isSource() {}

// waiting are the states of letters that wait for a person.
var waiting = []store.State{store.Held, store.Parked}

// query returns what the database can answer of a Filter, and whether the letters
// that it finds have to be looked at one by one.
func (f Filter) query() (q store.Query, look bool, err error) {
	q = store.Query{
		States: waiting, MessageIDs: f.MessageIDs, Queue: f.Queue, Exchange: f.Exchange, RoutingKey: f.RoutingKey, Cause: f.Cause,
		ErrorType: f.ErrorType, Fingerprint: f.Fingerprint, Text: f.Text, FailedFrom: wholeMillis(f.From), FailedBefore: wholeMillis(f.Before),
	}
	if f.States != nil {
		q.States = []store.State{}
		for _, state := range f.States {
			q.States = append(q.States, store.State(state))
		}
	}
	if f.IDs != nil {
		q.Numbers = []int64{}
		for _, id := range f.IDs {
			n, err := strconv.ParseInt(id, 10, 64)
			if err != nil {
				return q, false, fmt.Errorf("%w: %.80q", ErrNoLetter, id)
			}
			q.Numbers = append(q.Numbers, n)
		}
	}
	return q, f.Error != "" || len(f.Headers) > 0, nil
}

// wholeMillis is the first millisecond that is not before a time: the times of a
// store are milliseconds.
func wholeMillis(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.Add(time.Millisecond - time.Nanosecond).Truncate(time.Millisecond)
}

// selectsNone reports whether a list of the Filter is there and empty.
func (f Filter) selectsNone() bool {
	for _, list := range [][]string{f.IDs, f.MessageIDs, f.States} {
		if list != nil && len(list) == 0 {
			return true
		}
	}
	return false
}

// asItLies returns a message of a store as it lay in its queue, as far as the store
// keeps that.
func asItLies(m producer.Message) amqp.Publishing {
	p := amqp.Publishing{
		Headers: m.Headers, ContentType: m.ContentType, ContentEncoding: m.ContentEncoding, DeliveryMode: amqp.Persistent,
		Priority: m.Priority, CorrelationId: m.CorrelationID, ReplyTo: m.ReplyTo, MessageId: m.ID, Timestamp: m.Timestamp,
		Type: m.Type, UserId: m.UserID, AppId: m.AppID, Body: m.Body,
	}
	if letter.Lay(&p) {
		return p
	}
	if m.Expiration > 0 {
		p.Expiration = strconv.FormatInt(m.Expiration.Milliseconds(), 10)
	}
	// A dead letter has them in its headers already. Of a message that has never reached
	// its queue the store keeps them as fields.
	add := func(name string, value any, set bool) {
		if _, has := p.Headers[name]; set && !has {
			if p.Headers = maps.Clone(p.Headers); p.Headers == nil {
				p.Headers = amqp.Table{}
			}
			p.Headers[name] = value
		}
	}
	add(header.OrderKey, m.OrderKey, m.OrderKey != "")
	add(header.Priority, int64(m.Priority), m.Priority != 0)
	add(header.Replays, int64(m.Replays), m.Replays != 0)
	return p
}

// collected returns a letter of a store.
func collected(s store.Entry) Letter {
	m := s.Message
	l := read(asItLies(m))
	l.Doubt = letter.Doubt(m.Headers, s.Queue)
	l.ID, l.Place, l.State = strconv.FormatInt(s.Number, 10), s.Number, string(s.State)
	l.Exchange, l.RoutingKey, l.hasOrigin = m.Exchange, m.RoutingKey, true
	l.Queue, l.Cause, l.Error, l.ErrorType, l.Attempts = s.Queue, s.Cause, s.Error, s.ErrorType, s.Attempts
	l.FirstFailed, l.Failed, l.Fingerprint = s.FirstFailed, s.Failed, s.Fingerprint
	l.Redrives, l.RedriveID, l.Tries, l.TryError = s.Redrives, s.RedriveID, s.Tries, s.TryError
	if s.State == store.Ready && s.Lease == "" {
		l.NextTry = s.NextTry
	}
	return l
}

// scan calls do with each letter that a Filter selects, in the order of their
// numbers, behind one of them, until do returns false or bound letters were looked at.
// With a bound it also ends where the store has ended a page early.
func (c *storeSource) scan(ctx context.Context, f Filter, after int64, bound int, do func(Letter) bool) (looked int, last int64, more bool, err error) {
	return c.scanBefore(ctx, f, time.Time{}, after, bound, do)
}

// scanBefore is scan for letters that were stored before a time.
func (c *storeSource) scanBefore(ctx context.Context, f Filter, before time.Time, after int64, bound int, do func(Letter) bool) (looked int, last int64, more bool, err error) {
	q, _, err := f.query()
	q.Before = before
	if err != nil || f.selectsNone() {
		return 0, after, false, err
	}
	q.After, q.Limit = after, scanPage
	for {
		found, next, err := c.store.Find(ctx, q)
		if err != nil {
			return looked, q.After, false, fmt.Errorf("desk: %w", err)
		}
		for _, s := range found {
			looked++
			if l := collected(s); f.Matches(l) && !do(l) {
				return looked, s.Number, true, nil
			}
		}
		if q.After = next; next == 0 {
			return looked, 0, false, nil
		}
		if looked >= bound || bound != unbound && len(found) < scanPage {
			return looked, next, true, nil
		}
	}
}

// parts returns queries that select the letters of q together, each with as many numbers as a store
// looks for at once.
func parts(q store.Query) iter.Seq[store.Query] {
	return func(yield func(store.Query) bool) {
		if q.Numbers == nil {
			yield(q)
			return
		}
		part := q
		for part.Numbers = range slices.Chunk(q.Numbers, maxNumbers) {
			if !yield(part) {
				return
			}
		}
	}
}

// count counts the letters that a query selects, however many numbers it has.
func (c *storeSource) count(ctx context.Context, q store.Query) (n int, err error) {
	for part := range parts(q) {
		some, err := c.store.Count(ctx, part)
		if err != nil {
			return 0, fmt.Errorf("desk: %w", err)
		}
		n += some
	}
	return n, nil
}

// aside says which letters fit a Filter and do not wait for a person. The Filter is that of the query q; part says that
// the database does not answer all of its conditions.
func (c *storeSource) aside(ctx context.Context, f Filter, q store.Query, part bool) (string, error) {
	if f.States != nil {
		return "", nil
	}
	counting, cancel := context.WithTimeout(ctx, asideTimeout)
	defer cancel()
	var found []string
	for _, state := range []store.State{store.Archived, store.Ready} {
		q.States = []store.State{state}
		n, more, err := c.store.CountUpTo(counting, q, maxMatched)
		if err != nil && (ctx.Err() != nil || counting.Err() == nil) {
			return "", fmt.Errorf("desk: %w", err)
		}
		if text := leftOut(state, n, more, part, err != nil); text != "" {
			found = append(found, text)
		}
	}
	return strings.Join(found, ", "), nil
}

// leftOut says of n letters of a state that they are left out. more says that there may be others, part that not all of the n
// need to fit, and unknown that nobody has counted.
func leftOut(state store.State, n int, more, part, unknown bool) string {
	switch {
	case unknown, more && (n == 0 || part):
		return fmt.Sprintf("perhaps some %s", state)
	case n == 0:
		return ""
	case more:
		return fmt.Sprintf("%d+ %s", n, state)
	case part:
		return fmt.Sprintf("perhaps some of %d %s", n, state)
	}
	return fmt.Sprintf("%d %s", n, state)
}

// List returns a page of letters.
func (c *storeSource) List(ctx context.Context, f Filter, p Page) (List, error) {
	// A store tells milliseconds. A letter that comes after the look is to be of a later one.
	at := time.Now().UTC().Truncate(time.Millisecond).Add(time.Millisecond)
	pause.For(ctx, time.Until(at))
	list := List{Seen: Seen{At: at}}
	if err := p.check(); err != nil {
		return list, err
	}
	q, look, err := f.query()
	if err != nil || f.selectsNone() {
		return list, err
	}
	if list.Aside, err = c.aside(ctx, f, q, look); err != nil {
		return list, err
	}
	if look {
		return c.listOfScan(ctx, f, p, list)
	}
	limit := p.limit()
	page := q
	page.After, page.Limit = p.After, limit
	found, next, err := c.store.Find(ctx, page)
	if err != nil {
		return list, fmt.Errorf("desk: %w", err)
	}
	for _, s := range found {
		list.Letters = append(list.Letters, collected(s))
	}
	if list.Next = next; next > 0 && len(found) < limit {
		list.Bound = fmt.Sprintf("the letters up to number %d: one page looks at no more", next)
	}
	switch {
	case p.CountAll:
		list.Matched, err = c.store.Count(ctx, q)
	case p.After == 0 && len(found) < limit:
		list.Matched, list.More = len(found), next > 0
	default:
		list.Matched, list.More, err = c.store.CountUpTo(ctx, q, maxMatched)
	}
	if err != nil {
		return list, fmt.Errorf("desk: %w", err)
	}
	list.Total, list.Seen.Seen = list.Matched, list.Matched
	return list, nil
}

func (c *storeSource) listOfScan(ctx context.Context, f Filter, p Page, list List) (List, error) {
	limit := p.limit()
	further := 0 // letters behind the page
	looked, last, more, err := c.scan(ctx, f, p.After, scanBound, func(l Letter) bool {
		switch {
		case len(list.Letters) < limit:
			list.Letters = append(list.Letters, l)
		case p.CountAll:
			further++
		default:
			return false
		}
		return true
	})
	switch {
	case err != nil || !more && further == 0:
	case len(list.Letters) == limit:
		list.Next = list.Letters[limit-1].Place
	default:
		list.Next = last
		list.Bound = fmt.Sprintf("the %d letters behind number %d: a question that the database cannot answer looks through no more at once", looked, p.After)
	}
	list.Matched, list.More, list.Seen.Seen, list.Total = len(list.Letters)+further, more, looked, looked
	if p.CountAll && more && err == nil {
		q, _, _ := f.query() // it was read before
		if list.Total, err = c.store.Count(ctx, q); err != nil {
			err = fmt.Errorf("desk: %w", err)
		}
	}
	return list, err
}

// Groups returns the letters that a Filter selects by fingerprint.
func (c *storeSource) Groups(ctx context.Context, f Filter) (Groups, error) {
	groups := Groups{Seen: Seen{At: time.Now().UTC()}}
	q, look, err := f.query()
	if err != nil || f.selectsNone() {
		return groups, err
	}
	if groups.Aside, err = c.aside(ctx, f, q, look); err != nil {
		return groups, err
	}
	if look {
		return c.groupsOfScan(ctx, f, groups)
	}
	if groups.Total, groups.More, err = c.store.CountUpTo(ctx, q, maxMatched); err != nil {
		return groups, fmt.Errorf("desk: %w", err)
	}
	groups.Seen.Seen = groups.Total
	q.Limit = maxGroups
	found, more, err := c.store.Groups(ctx, q)
	if err != nil {
		return groups, fmt.Errorf("desk: %w", err)
	}
	if more {
		groups.Bound = "the largest of the groups that were looked at: there are more letters"
	}
	for _, g := range found {
		groups.Groups = append(groups.Groups, Group{
			Fingerprint: g.Fingerprint, Count: g.Count, More: g.More, First: g.First, Last: g.Last, Redriven: -1, Example: collected(g.Example),
		})
	}
	return groups, nil
}

func (c *storeSource) groupsOfScan(ctx context.Context, f Filter, groups Groups) (Groups, error) {
	var letters []Letter
	looked, _, more, err := c.scan(ctx, f, 0, scanBound, func(l Letter) bool {
		l.Publishing.Body = nil // they are many
		letters = append(letters, l)
		return true
	})
	groups.Seen.Seen, groups.Total, groups.More = looked, looked, more
	if more {
		groups.Bound = fmt.Sprintf("the first %d letters: a question that the database cannot answer looks through no more", looked)
	}
	groups.Groups = groupsOf(letters, f)
	return groups, err
}

// Trend returns how many letters failed in each of n parts of a time.
func (c *storeSource) Trend(ctx context.Context, f Filter, from, to time.Time, n int) (counts []int, more bool, err error) {
	q, look, err := f.query()
	if err != nil || f.selectsNone() {
		return make([]int, max(n, 0)), false, err
	}
	counts, more, err = c.store.Trend(ctx, q, from, to, n)
	if err != nil {
		return nil, false, fmt.Errorf("desk: %w", err)
	}
	return counts, more || look, nil
}

// Letter returns one letter.
func (c *storeSource) Letter(ctx context.Context, id string) (Letter, error) {
	n, err := strconv.ParseInt(id, 10, 64)
	if err != nil {
		return Letter{}, fmt.Errorf("%w: %.80q", ErrNoLetter, id)
	}
	found, _, err := c.store.Find(ctx, store.Query{Numbers: []int64{n}})
	switch {
	case err != nil:
		return Letter{}, fmt.Errorf("desk: %w", err)
	case len(found) == 0:
		return Letter{}, fmt.Errorf("%w: %.80q", ErrNoLetter, id)
	}
	return collected(found[0]), c.cfg.Journal.shown(ctx, c.About(), id)
}

// Export writes letters as lines of JSON. If it cannot write a letter, it goes on, and
// returns an error that names each of these.
func (c *storeSource) Export(ctx context.Context, f Filter, limit int, w io.Writer, by By) (n int, err error) {
	if err := checkLimit(limit); err != nil {
		return 0, err
	}
	a, err := c.cfg.Journal.undertake(Record{By: by, Action: "export", Source: c.cfg.Name, Which: f.String()})
	if err != nil {
		return 0, err
	}
	if q, look, bad := f.query(); bad == nil && !f.selectsNone() && limit == 0 {
		var aside string
		if aside, err = c.aside(ctx, f, q, look); err != nil {
			return 0, a.end(0, err)
		}
		if aside != "" {
			a.note = "without " + aside
		}
	}
	var failed error
	var left []error
	_, _, _, err = c.scan(ctx, f, 0, unbound, func(l Letter) bool {
		line, err := marshalLetter(l, c.cfg.Name)
		if err != nil {
			left = append(left, err)
			return true
		}
		if _, failed = w.Write(append(line, '\n')); failed == nil {
			n++
			failed = a.reached(n)
		}
		return failed == nil && n != limit
	})
	if err = errors.Join(err, failed, errors.Join(left...)); err != nil {
		err = fmt.Errorf("desk: export: %w", err)
	}
	return n, a.end(n, err)
}

// identityOf names a message of a store in a journal. What has no message id is named by
// its number, too.
func identityOf(m producer.Message, number int64) string {
	if m.ID == "" {
		m.ID = fmt.Sprintf("\x00%d", number)
	}
	return letter.Identity(m, foreign.Text(m.Headers[header.Queue]))
}
