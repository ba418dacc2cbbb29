package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/internal/letter"
	"github.com/rehop/rehop/internal/pause"
	"github.com/rehop/rehop/internal/resend"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
)

// ReplayOptions are for [Store.Replay]. The zero value replays everything that the
// Query selects, without a bound on the rate.
type ReplayOptions struct {
	// Rate is how many messages are published per second, in groups of a tenth of
	// that; at least 0.001. If zero, there is no bound.
	Rate float64

	Limit int // entries to try; zero: no bound

	// Canary, if set, publishes one entry first and waits for this long. If the entry
	// is back in the store by then, dead again, Replay publishes no more. It can be
	// back only if a consumer with [Store.Collect] runs on the dead-letter queue
	// meanwhile, and if Canary is longer than all waits of the work queue together.
	Canary time.Duration

	// To is where the messages go. If nil, a dead letter goes to the work queue
	// that gave it up, by the queue's name and no exchange, so that no other queue
	// gets it again; its handler sees the exchange and the routing key that it was
	// first published to. Any other entry goes to its own exchange and routing key.
	To *topology.Address

	// Edit changes a message before it is published. The message has the address that
	// it is about to be sent to. If Edit returns an error, or the message is faulty
	// then, the entry stays as it is.
	//
	// Store.Replay leases a batch of entries for a minute, and publishes those that Edit
	// has returned within the first 30 s. It leases the other entries again, and calls
	// Edit again for the first of them. If Edit takes more than 30 s for one entry,
	// Replay ends with an error.
	Edit func(*producer.Message) error

	// DryRun only counts.
	DryRun bool

	// Progress is called after each batch.
	Progress func(ReplayReport)
}

// ReplayReport is the result of a replay.
type ReplayReport struct {
	Matched        int // entries that the Query selected at the beginning; an entry neither Sent nor Failed was being published, or not reached
	Sent           int // confirmed
	MaybeDuplicate int // of Sent: perhaps there twice, because of this publish or an earlier one
	Changed        int // of Sent: changed while they were being published, so they are still here
	Failed         int // still here
	Last           error
	LastID         string // message id of the entry that was tried last
	Took           time.Duration
}

// ErrCanary is returned by Replay, and by a redrive of package desk, when the first message
// came back.
var ErrCanary = errors.New("store: the canary came back: nothing more was sent")

// replayBatch is how many entries a replay publishes together.
const replayBatch = 200

// replayLease is how long it has them. In the first half Edit runs.
const replayLease = time.Minute

// settling is how much of a lease is left for the results, after the last answer.
const settling = 5 * time.Second

// Replay publishes the entries that a Query selects, in the order of storing, and
// deletes each once it is confirmed. It is meant for entries that a person has
// looked at. Query.States defaults to [Held] and [Parked]. Entries that are being
// published already are left alone. Each entry is tried once; one that comes
// back into the store meanwhile waits for the next Replay. While the broker is
// away entries fail after the Publisher's timeout.
//
// Like all calls that change entries, Replay refuses a Query that does not narrow the
// entries down, see [Query]. To try a few entries set ReplayOptions.Limit, to count
// them first ReplayOptions.DryRun.
//
// Replay may be stopped at any time by ctx, and started again with the same Query,
// because entries that were sent are deleted. It awaits the answers to the messages on
// their way then, for up to 10 s; an entry without an answer stays, and the next Replay
// may publish it twice. Replay returns an error if ctx or the
// database ends it, if the canary came back ([ErrCanary]), if the canary could not
// be published, or if Edit is too slow. Entries that failed are not an error; they are in the report.
func (s *Store) Replay(ctx context.Context, p Publisher, q Query, o ReplayOptions) (report ReplayReport, err error) {
	errs := []error{resend.Validate(o.Rate, o.Limit, o.Canary), q.validateChange()}
	if p == nil && !o.DryRun {
		errs = append(errs, errors.New("store: the Publisher is nil"))
	}
	if err := errors.Join(errs...); err != nil {
		return report, rehop.WithClass(err, rehop.ClassBug)
	}
	if q.States == nil {
		q.States = []State{Held, Parked}
	}
	last, err := s.lastNumber(ctx)
	if err != nil {
		return report, err
	}
	entries, err := s.selected(ctx, q)
	if report.Matched = len(entries); err != nil || o.DryRun {
		return report, err
	}
	r := replay{store: s, sender: resend.Sender{Publisher: p}, query: q, last: last, next: entries, options: o, report: &report}
	began := time.Now()
	err = resend.Replay{
		Batch: replayBatch, Rate: o.Rate, Limit: o.Limit, Canary: o.Canary,
		Some: r.some, Back: r.isBack,
		Sent: func() error {
			if report.Sent == 0 {
				return report.Last
			}
			return nil
		},
		Returned: func() error { return fmt.Errorf("%w: message %q", ErrCanary, report.LastID) },
	}.Run(ctx)
	report.Took = time.Since(began)
	return report, err
}

// replay is one call of Replay.
type replay struct {
	store   *Store
	sender  resend.Sender
	query   Query
	last    int64   // entry that was there at the beginning
	next    []int64 // entries to be tried if they still meet the query
	options ReplayOptions
	report  *ReplayReport
	number  int64 // of the entry tried last
	fatal   error
}

// isBack reports whether the entry tried last is here again, in a new row or in its
// own. Others with its message id may have been here before.
func (r *replay) isBack(ctx context.Context) (bool, error) {
	c := r.store.where(Query{MessageIDs: []string{r.report.LastID}})
	c.add("(seq > ? OR seq = ?)", r.last, r.number)
	found, err := r.store.numbers(ctx, c)
	return len(found) > 0, err
}

// unchanged are the results of entries that go back as they were.
func unchanged(entries []Entry, token string) []result {
	var results []result
	for _, one := range entries {
		results = append(results, result{number: one.Number, token: token, state: one.State, next: one.Due})
	}
	return results
}

// through returns the numbers up to the last one that was leased.
func through(numbers []int64, l leased) []int64 {
	last := int64(0)
	for _, one := range l.entries {
		last = max(last, one.Number)
	}
	for number := range l.broken {
		last = max(last, number)
	}
	n := 0
	for n < len(numbers) && numbers[n] <= last {
		n++
	}
	return numbers[:n]
}

// some replays up to n entries and reports how many it has tried, and whether there may
// be more.
func (r *replay) some(ctx context.Context, n int) (tried int, more bool, err error) {
	if len(r.next) == 0 {
		return 0, false, nil
	}
	some := r.next[:min(n, len(r.next))]
	c := r.store.unleased(r.query)
	// A lease that ctx cut off would keep the entries from everybody until its end.
	l, err := r.store.take(context.WithoutCancel(ctx), replayLease, false, func(ctx context.Context, tx Tx, _ int64) ([]sized, error) {
		return r.store.free(ctx, tx, "{letters by number}", r.store.dialect.among("seq", some)+" AND "+c.String(), "seq", n, c.args...)
	})
	if err != nil {
		return 0, false, err
	}
	if ctx.Err() != nil {
		return 0, false, errors.Join(pause.Ended(ctx), r.store.settle(context.WithoutCancel(ctx), unchanged(l.entries, l.token)))
	}
	tried = len(l.entries) + len(l.broken)
	if tried > 0 && tried < len(some) {
		some = through(some, l) // the other entries were too large together, or have changed
	}
	r.next = r.next[len(some):]
	var results []result
	for number, err := range l.broken {
		results = append(results, result{number: number, token: l.token, state: Parked, err: letter.Readable(err.Error(), letter.MaxError)})
		r.report.Failed++
		r.report.Last = err
	}
	if len(l.entries) > 0 {
		r.number = l.entries[len(l.entries)-1].Number
	}
	published, left, untried := r.publish(ctx, l)
	tried -= untried
	results = append(results, published...)
	if len(left) > 0 {
		results = append(results, unchanged(left, l.token)...)
		var again []int64
		for _, one := range left {
			again = append(again, one.Number)
		}
		r.next = append(again, r.next...)
		tried -= len(left)
	}
	if err := r.store.settle(context.WithoutCancel(ctx), results); err != nil {
		return tried, false, err
	}
	if r.options.Progress != nil {
		r.options.Progress(*r.report)
	}
	if ctx.Err() != nil {
		return tried, false, pause.Ended(ctx)
	}
	return tried, true, r.fatal
}

// publish publishes entries and returns a result for each, except for the last ones that
// are left because Edit has taken too long: somebody else might have their lease when they
// arrive. Of the others so many were not tried, see resend.ErrUntried.
func (r *replay) publish(ctx context.Context, l leased) (results []result, left []Entry, untried int) {
	var entries []Entry
	var messages []producer.Message
	var numbers []int64
	for i, one := range l.entries {
		began := r.store.now()
		m, err := resend.Edited(one.resent(began), one.Queue, r.options.To, r.options.Edit)
		if now := r.store.now(); l.until.Sub(now) < replayLease/2 {
			if left = l.entries[i:]; i == 0 {
				r.fatal = fmt.Errorf("store: Replay: message %q was not published: when ReplayOptions.Edit returned, after %v, %v of the lease of %v were left, want %v", one.Message.ID, now.Sub(began), l.until.Sub(now), replayLease, replayLease/2)
			}
			break
		}
		if err != nil {
			r.report.Last, r.report.LastID = err, one.Message.ID
			results = append(results, r.kept(one, result{err: letter.Readable(err.Error(), letter.MaxError), tried: true}, l.token))
			continue
		}
		entries, messages, numbers = append(entries, one), append(messages, m), append(numbers, one.Number)
	}
	if len(messages) == 0 {
		return results, left, 0
	}
	limited, cancel := context.WithTimeout(ctx, min(replayLease/2, l.until.Sub(r.store.now())-resend.Drain-settling))
	defer cancel()
	refused := func(i int) bool { return entries[i].alone }
	from := r.store.publishing(limited)
	for i, receipt := range r.sender.Publish(resend.Numbered(from, numbers), messages, refused, func(err error) { r.fatal = fmt.Errorf("store: Replay: %w", err) }) {
		if errors.Is(receipt.Err, resend.ErrUntried) {
			results = append(results, unchanged(entries[i:i+1], l.token)...)
			untried++
			continue
		}
		v := verdict(entries[i], receipt, resend.Arrived(from, receipt, r.store.cfg.Name), math.MaxInt, 0, r.store.now())
		r.report.LastID = receipt.ID
		if !v.done {
			r.report.Last = receipt.Err
			results = append(results, r.kept(entries[i], v, l.token))
			continue
		}
		r.report.Sent++
		r.report.MaybeDuplicate += count(receipt.MaybeDuplicate || entries[i].Unconfirmed > 0)
		v.token = l.token
		results = append(results, v)
	}
	return results, left, untried
}

// kept is the result of an entry that was not published: a person decides what becomes
// of it, so it stays in its state. The Forwarder has one that is Ready when it is due.
func (r *replay) kept(l Entry, v result, token string) result {
	r.report.Failed++
	v.number, v.token, v.state = l.Number, token, l.State
	if v.state != Ready {
		v.next = time.Time{}
	}
	if v.next.Before(l.Due) {
		v.next = l.Due
	}
	return v
}
