package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/letter"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
)

// ReplayOptions are for [Store.Replay]. The zero value replays everything that the
// Query selects, without a bound on the rate.
type ReplayOptions struct {
	// Rate is how many messages are published per second, in groups of a tenth of
	// that. If zero, there is no bound.
	Rate int

	Limit int // letters to try; zero: no bound

	// Canary, if set, publishes one letter first and waits for this long. If the
	// letter is back in the store by then, dead again, Replay publishes no more.
	// It can only be back if a consumer of the dead-letter queue runs meanwhile, with
	// [Store.Collect], and if Canary is longer than all waits of the work queue.
	Canary time.Duration

	// To is where the messages go. If nil, a dead letter goes to the work queue
	// that gave it up, by the queue's name and no exchange, so that no other queue
	// gets it again. Its handler sees that as Delivery.Exchange and Key. Any other
	// letter goes to its own exchange and key.
	To *topology.Address

	// Edit changes a message, which has the address it is about to be sent to, before
	// it is published. If it returns an error, the letter stays.
	Edit func(*producer.Message) error

	// DryRun only counts.
	DryRun bool

	// Progress is called after each batch.
	Progress func(ReplayReport)
}

func (o ReplayOptions) validate() error {
	var errs []error
	if o.Rate < 0 {
		errs = append(errs, fmt.Errorf("store: ReplayOptions.Rate is %d, want 0 or more", o.Rate))
	}
	if o.Limit < 0 {
		errs = append(errs, fmt.Errorf("store: ReplayOptions.Limit is %d, want 0 or more", o.Limit))
	}
	if o.Canary < 0 {
		errs = append(errs, fmt.Errorf("store: ReplayOptions.Canary is %v, want 0 or more", o.Canary))
	}
	return errors.Join(errs...)
}

// ReplayReport says what a replay has done.
type ReplayReport struct {
	Matched        int // letters that the Query meant at the beginning; what is neither Sent nor Failed was being published, or not reached
	Sent           int // confirmed, and deleted here
	MaybeDuplicate int // of Sent: perhaps there twice
	Failed         int // still here, with the error in TryError
	Last           error
	LastID         string // message id of what was tried last
	Took           time.Duration
}

// ErrCanary is returned by Replay when the first letter came back.
var ErrCanary = errors.New("store: the canary came back: nothing more was replayed")

// replayBatch is how many letters a replay publishes together.
const replayBatch = 200

// replayLease is how long it has them.
const replayLease = time.Minute

// Replay publishes the letters that a Query selects, in the order of storing, and
// deletes each once it is confirmed. It is for a person who has looked at them.
// Query.States defaults to [Held] and [Parked]. Letters that are being published
// already are left alone. Each letter is tried once; one that comes back into the
// store meanwhile waits for the next Replay. While the broker is away letters
// fail after the Publisher's timeout.
//
// The zero Query replays every held and every parked letter. Replay wants no
// Query.All and ignores Query.Limit. To try a few letters set ReplayOptions.Limit, to
// count them first ReplayOptions.DryRun.
//
// Replay may be stopped at any time by ctx, and started again with the same Query,
// because what was sent is deleted. It returns an error if ctx or the database ends
// it, if the canary came back ([ErrCanary]), or if the canary could not be
// published. Letters that failed are not an error; they are in the report.
func (s *Store) Replay(ctx context.Context, p Publisher, q Query, o ReplayOptions) (report ReplayReport, err error) {
	errs := []error{o.validate()}
	if p == nil && !o.DryRun {
		errs = append(errs, errors.New("store: the Publisher is nil"))
	}
	if err := errors.Join(errs...); err != nil {
		return report, connection.WithClass(err, connection.Bug)
	}
	if len(q.States) == 0 {
		q.States = []State{Held, Parked}
	}
	last, err := s.lastNumber(ctx)
	if err != nil {
		return report, err
	}
	letters, err := s.numbers(ctx, s.where(q), math.MaxInt64)
	if report.Matched = len(letters); err != nil || o.DryRun {
		return report, err
	}
	r := replay{store: s, publisher: p, query: q, last: last, next: letters, options: o, report: &report, pace: pace{rate: o.Rate}}
	began := time.Now()
	err = r.run(ctx)
	report.Took = time.Since(began)
	return report, err
}

// replay is one call of Replay.
type replay struct {
	store     *Store
	publisher Publisher
	query     Query
	last      int64   // letter that was there at the beginning
	next      []int64 // letters to be tried if they still meet the query
	options   ReplayOptions
	report    *ReplayReport
	pace      pace
	tried     int
	number    int64 // of the letter tried last
	fatal     error
}

func (r *replay) run(ctx context.Context) error {
	if r.options.Canary > 0 {
		if err := r.canary(ctx); err != nil {
			return err
		}
	}
	for {
		n := replayBatch
		if r.options.Rate > 0 {
			n = min(max(r.options.Rate/10, 1), n)
		}
		more, err := r.some(ctx, n)
		if err != nil || !more {
			return err
		}
	}
}

// canary publishes one letter and sees what becomes of it.
func (r *replay) canary(ctx context.Context) error {
	for r.report.Sent+r.report.Failed == 0 { // others may have changed the first ones
		if more, err := r.some(ctx, 1); err != nil || !more {
			return err
		}
	}
	if r.report.Sent == 0 {
		return fmt.Errorf("store: the canary could not be published: %w", r.report.Last)
	}
	over := time.NewTimer(r.options.Canary)
	defer over.Stop()
	look := time.NewTicker(min(max(r.options.Canary/10, 10*time.Millisecond), time.Second))
	defer look.Stop()
	for last := false; ; {
		back, err := r.isBack(ctx)
		switch {
		case err != nil:
			return err
		case back:
			return fmt.Errorf("%w: message %q", ErrCanary, r.report.LastID)
		case last:
			return nil
		}
		select {
		case <-look.C:
		case <-over.C:
			last = true
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// isBack reports whether the letter tried last is here again, in a new row or in its
// own. Others with its message id may have been here before.
func (r *replay) isBack(ctx context.Context) (bool, error) {
	c := r.store.where(Query{MessageIDs: []string{r.report.LastID}})
	c.add("(seq > ? OR seq = ?)", r.last, r.number)
	found, err := r.store.numbers(ctx, c, 1)
	return len(found) > 0, err
}

// unchanged are the endings of letters that go back as they were.
func unchanged(l leased) []ending {
	var endings []ending
	for _, one := range l.letters {
		endings = append(endings, ending{number: one.Number, token: l.token, state: one.State, next: one.Due})
	}
	return endings
}

// through returns the numbers up to the last one that was leased.
func through(numbers []int64, l leased) []int64 {
	last := int64(0)
	for _, one := range l.letters {
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

// some replays up to n letters and reports whether there may be more.
func (r *replay) some(ctx context.Context, n int) (more bool, err error) {
	if r.options.Limit > 0 {
		if n = min(n, r.options.Limit-r.tried); n <= 0 {
			return false, nil
		}
	}
	if len(r.next) == 0 {
		return false, nil
	}
	some := r.next[:min(n, len(r.next))]
	c := r.store.where(r.query)
	c.add("(lease = '' OR next_try <= ?)", r.store.now().UnixMilli())
	// A lease that ctx cut off would keep the letters from everybody until its end.
	l, err := r.store.take(context.WithoutCancel(ctx), replayLease, false, func(ctx context.Context, q querier, _ int64) ([]candidate, error) {
		return r.store.candidates(ctx, q, "{letters by number}", among("seq", some)+" AND "+c.String(), "seq", n, c.args...)
	})
	if err != nil {
		return false, err
	}
	if ctx.Err() != nil {
		return false, errors.Join(context.Cause(ctx), r.store.settle(context.WithoutCancel(ctx), unchanged(l)))
	}
	if len(l.letters)+len(l.broken) < len(some) && len(l.letters)+len(l.broken) > 0 {
		some = through(some, l) // the others were too large together, or have changed
	}
	r.next = r.next[len(some):]
	var endings []ending
	for number, err := range l.broken {
		endings = append(endings, ending{number: number, token: l.token, state: Parked, err: letter.Readable(err.Error(), letter.MaxError)})
		r.report.Failed++
		r.report.Last = err
	}
	letters := l.letters
	if len(letters) > 0 {
		r.number = letters[len(letters)-1].Number
		r.pace.wait(ctx, len(letters))
	}
	r.tried += len(letters) + len(l.broken)
	endings = append(endings, r.publish(ctx, letters, l.token)...)
	if err := r.store.settle(context.WithoutCancel(ctx), endings); err != nil {
		return false, err
	}
	if r.options.Progress != nil {
		r.options.Progress(*r.report)
	}
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	return true, r.fatal
}

// publish publishes letters and says what becomes of them.
func (r *replay) publish(ctx context.Context, letters []Letter, token string) []ending {
	var endings []ending
	var ready, stored []Letter
	keep := func(l Letter, e ending) {
		e.number, e.token = l.Number, token
		if !e.done {
			r.report.Failed++
			if e.state != Parked || l.State == Parked { // a person decides what becomes of it
				e.state = l.State
			}
			if e.state != Ready {
				e.next = time.Time{}
			}
			if e.next.Before(l.Due) { // Forward has it then, and not before
				e.next = l.Due
			}
		}
		endings = append(endings, e)
	}
	for _, l := range letters {
		addressed := l
		addressed.Message = r.message(l)
		addressed.Message.Delay, addressed.Due = l.delayLeft(r.store.now()), time.Time{} // Edit may change it
		if r.options.Edit != nil {
			if err := r.options.Edit(&addressed.Message); err != nil {
				r.report.Last, r.report.LastID = err, l.Message.ID
				keep(l, ending{state: l.State, err: letter.Readable(err.Error(), letter.MaxError), tried: true})
				continue
			}
		}
		ready, stored = append(ready, addressed), append(stored, l)
	}
	if len(ready) == 0 {
		return endings
	}
	limited, cancel := context.WithTimeout(ctx, replayLease/2)
	defer cancel()
	for i, receipt := range r.store.publish(limited, r.publisher, ready, func(err error) { r.fatal = fmt.Errorf("store: Replay: %w", err) }) {
		e := verdict(ready[i], receipt, r.store.cfg.Name, 1<<30, 0, r.store.now())
		r.report.LastID = receipt.ID
		if e.done {
			r.report.Sent++
			r.report.MaybeDuplicate += count(receipt.MaybeDuplicate)
		} else {
			r.report.Last = receipt.Err
		}
		keep(stored[i], e)
	}
	return endings
}

// message is what is published for a letter.
func (r *replay) message(l Letter) producer.Message {
	m := l.Message
	switch {
	case r.options.To != nil:
		m.Exchange, m.Key = r.options.To.Exchange, r.options.To.Key
	case l.Queue != "":
		m.Exchange, m.Key = "", l.Queue
	}
	return m
}
