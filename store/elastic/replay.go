package elastic

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/store"
	"github.com/rehop/rehop/topology"
)

// ReplayOptions are for [Store.Replay]. The zero value replays everything that the
// Query selects, without a bound on the rate.
type ReplayOptions struct {
	Rate  int // messages per second; zero: no bound
	Limit int // letters to try; zero: no bound

	// Canary, if set, publishes one letter first and waits for this long, for which
	// a consumer with [Store.Collect] has to run. If the
	// letter is back in the index by then, dead again, Replay publishes no more.
	Canary time.Duration

	// To is where the messages go. If nil, a dead letter goes to the work queue
	// that gave it up, and any other to its own exchange and key.
	To *topology.Address

	// Edit changes a message before it is published. If it returns an error, the
	// letter stays.
	Edit func(*producer.Message) error

	// DryRun only counts.
	DryRun bool

	// Progress is called after each batch.
	Progress func(ReplayReport)
}

func (o ReplayOptions) validate() error {
	var errs []error
	if o.Rate < 0 {
		errs = append(errs, fmt.Errorf("elastic: ReplayOptions.Rate is %d, want 0 or more", o.Rate))
	}
	if o.Limit < 0 {
		errs = append(errs, fmt.Errorf("elastic: ReplayOptions.Limit is %d, want 0 or more", o.Limit))
	}
	if o.Canary < 0 {
		errs = append(errs, fmt.Errorf("elastic: ReplayOptions.Canary is %v, want 0 or more", o.Canary))
	}
	return errors.Join(errs...)
}

// ReplayReport says what a replay has done.
type ReplayReport struct {
	Matched        int // letters that the Query meant at the beginning
	Sent           int // confirmed
	MaybeDuplicate int // of Sent: perhaps there twice
	Changed        int // of Sent: changed since it was read, so still here, or deleted by another
	Failed         int // not confirmed, still here
	Last           error
	LastID         string // message id of what was tried last
	Took           time.Duration
}

// replayBatch is how many letters a replay publishes together.
const replayBatch = 100

// Replay publishes the letters that a Query selects, in the order of storing, and
// deletes each once it is confirmed. Each letter is tried once; one that comes back
// meanwhile waits for the next Replay. p needs no Fallback:
// a letter that cannot be published stays.
//
// A letter is deleted as it was when Replay read it. One that was edited or stored
// again meanwhile stays and counts as Changed. Two replays of the same letters at
// the same time publish them twice, because Elasticsearch has no locks; both messages
// have the same message id.
//
// Replay may be stopped at any time by ctx, and started again with the same Query,
// because what was sent is deleted. It returns an error if ctx, the Publisher or
// Elasticsearch ends it, if the canary came back ([store.ErrCanary]), or if the canary
// could not be published. If letters were confirmed and could not be deleted, the
// error says how many: another Replay publishes them again. Letters that failed are
// not an error; they are in the report.
func (s *Store) Replay(ctx context.Context, p store.Publisher, q Query, o ReplayOptions) (report ReplayReport, err error) {
	errs := []error{o.validate(), q.validate()}
	if p == nil && !o.DryRun {
		errs = append(errs, errors.New("elastic: the Publisher is nil"))
	}
	if q.Limit != 0 {
		errs = append(errs, fmt.Errorf("elastic: Query.Limit is %d, want 0: ReplayOptions has a Limit of its own", q.Limit))
	}
	if err := errors.Join(errs...); err != nil {
		return report, connection.WithClass(err, connection.Bug)
	}
	if err := s.refresh(ctx); err != nil {
		return report, err
	}
	if report.Matched, err = s.Count(ctx, q); err != nil || o.DryRun {
		return report, err
	}
	if o.Limit == 0 || o.Limit > report.Matched {
		o.Limit = report.Matched // what comes back meanwhile is behind those in the order
	}
	if o.Limit == 0 {
		return report, nil
	}
	began := time.Now()
	r := replay{store: s, publisher: p, query: q, options: o, report: &report, next: began}
	err = r.run(ctx)
	report.Took = time.Since(began)
	return report, err
}

// replay is one call of Replay.
type replay struct {
	store     *Store
	publisher store.Publisher
	query     Query
	options   ReplayOptions
	report    *ReplayReport
	tried     int
	next      time.Time // when the next batch may leave, of a Rate
}

func (r *replay) run(ctx context.Context) error {
	if r.options.Canary > 0 {
		if more, err := r.canary(ctx); err != nil || !more {
			return err
		}
	}
	n := replayBatch
	if r.options.Rate > 0 {
		n = min(max(r.options.Rate/10, 1), n)
	}
	for {
		if more, err := r.some(ctx, n); err != nil || !more {
			return err
		}
	}
}

// canary publishes one letter and sees what becomes of it.
func (r *replay) canary(ctx context.Context) (more bool, err error) {
	more, err = r.some(ctx, 1)
	if err != nil || !more {
		return false, err
	}
	if r.report.Sent == 0 {
		return false, fmt.Errorf("elastic: the canary could not be published: %w", r.report.Last)
	}
	over := time.NewTimer(r.options.Canary)
	defer over.Stop()
	look := time.NewTicker(min(max(r.options.Canary/10, 100*time.Millisecond), time.Second))
	defer look.Stop()
	for last := false; ; {
		if err := r.store.refresh(ctx); err != nil {
			return false, err
		}
		found, err := r.store.Find(ctx, Query{MessageIDs: []string{r.report.LastID}})
		// The letter as it was sent may still be there: changed by hand, or not
		// deleted yet.
		back := slices.ContainsFunc(found, func(l Letter) bool { return l.Cursor != r.query.After })
		switch {
		case err != nil:
			return false, err
		case back:
			return false, fmt.Errorf("%w: message %q", store.ErrCanary, r.report.LastID)
		case last:
			return true, nil
		}
		select {
		case <-look.C:
		case <-over.C:
			last = true
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
}

// some replays up to n letters and reports whether there may be more.
func (r *replay) some(ctx context.Context, n int) (more bool, err error) {
	if r.options.Limit > 0 {
		if n = min(n, r.options.Limit-r.tried); n <= 0 {
			return false, nil
		}
	}
	hits, _, err := r.store.search(ctx, r.query, n)
	if err != nil || len(hits) == 0 {
		return false, err
	}
	r.tried += len(hits)
	letters, messages, err := r.ready(hits)
	if err != nil {
		return false, err
	}
	if err := r.pace(ctx, len(messages)); err != nil {
		return false, err
	}
	sent, err := r.publish(ctx, letters, messages)
	if errDelete := r.delete(ctx, sent); errDelete != nil {
		return false, errors.Join(err, errDelete)
	}
	if r.options.Progress != nil {
		r.options.Progress(*r.report)
	}
	switch {
	case err != nil:
		return false, err
	case ctx.Err() != nil:
		return false, context.Cause(ctx)
	}
	return true, nil
}

func (r *replay) failed(id string, err error) {
	r.report.Failed++
	r.report.Last, r.report.LastID = err, id
}

// ready returns the letters that can be published, with their messages. Its error
// is a document without a place in the order: there is no going on behind it.
func (r *replay) ready(hits []hit) (letters []Letter, messages []producer.Message, err error) {
	for _, h := range hits {
		l, err := h.letter()
		if l.Cursor == "" {
			return nil, nil, err
		}
		r.query.After = l.Cursor
		if err != nil {
			r.failed(l.Message.ID, err)
			continue
		}
		m := l.Message
		switch {
		case r.options.To != nil:
			m.Exchange, m.Key = r.options.To.Exchange, r.options.To.Key
		case l.Queue != "":
			m.Exchange, m.Key = "", l.Queue
		}
		m.Replays++
		if m.Delay > 0 && l.Queue == "" { // it ran on while the letter was here
			m.Delay = max(l.Failed.Add(m.Delay+time.Millisecond).Sub(r.store.now()), 0) // Failed was cut to milliseconds
		}
		if r.options.Edit != nil {
			err = r.options.Edit(&m)
		}
		if err = errors.Join(err, m.Validate()); err != nil {
			r.failed(m.ID, err)
			continue
		}
		letters, messages = append(letters, l), append(messages, m)
	}
	return letters, messages, nil
}

// pace waits until n more messages may leave.
func (r *replay) pace(ctx context.Context, n int) error {
	if r.options.Rate == 0 || n == 0 {
		return nil
	}
	now := time.Now()
	if r.next.Before(now) {
		r.next = now
	}
	timer := time.NewTimer(r.next.Sub(now))
	defer timer.Stop()
	r.next = r.next.Add(time.Duration(n) * time.Second / time.Duration(r.options.Rate))
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// publish publishes messages and returns the letters of those that arrived. Its
// error says that nothing more can be published.
func (r *replay) publish(ctx context.Context, letters []Letter, messages []producer.Message) (sent []Letter, err error) {
	if len(messages) == 0 {
		return nil, nil
	}
	receipts, err := r.publisher.PublishAll(ctx, messages)
	if len(receipts) != len(messages) {
		return nil, fmt.Errorf("elastic: Replay: %w", err)
	}
	for i, receipt := range receipts {
		arrived := receipt.Place == producer.PlaceQueue ||
			receipt.Place == producer.PlaceFallback && receipt.Sink != r.store.cfg.Name
		if !arrived {
			r.failed(receipt.ID, receipt.Err)
			continue
		}
		r.report.Sent++
		r.report.LastID = receipt.ID
		if receipt.MaybeDuplicate {
			r.report.MaybeDuplicate++
		}
		sent = append(sent, letters[i])
	}
	return sent, nil
}

// delete deletes letters that were confirmed. It has some time of its own when ctx
// has ended.
func (r *replay) delete(ctx context.Context, letters []Letter) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*r.store.cfg.Timeout)
	defer cancel()
	var left []*action
	for _, l := range letters {
		raw, err := deleteLines(l)
		if err != nil {
			return fmt.Errorf("elastic: %w", err)
		}
		left = append(left, &action{id: l.ID, lines: raw})
	}
	refused := 0
	var errRefused, errAgain error
	for try := 1; len(left) > 0; try++ {
		var again []*action
		for i, err := range r.store.send(ctx, left) {
			var answered *ResponseError
			errors.As(err, &answered)
			switch {
			case err == nil, errors.Is(err, errGone), r.store.noIndex(err):
			case answered != nil && answered.Status == http.StatusConflict:
				r.report.Changed++
			case answered != nil && answered.Class() != connection.Transient:
				refused, errRefused = refused+1, err
			default:
				again, errAgain = append(again, left[i]), err
			}
		}
		if left = again; len(left) > 0 {
			if errAgain = sleep(ctx, pauseAfter(errAgain, try), errAgain); errAgain != nil {
				break
			}
		}
	}
	if n := refused + len(left); n > 0 {
		return fmt.Errorf("elastic: %d letters were published and could not be deleted: %w", n, errors.Join(errRefused, errAgain))
	}
	return nil
}
