package elastic

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"time"

	"github.com/elastic/go-elasticsearch/v8/esapi"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/internal/pause"
	"github.com/rehop/rehop/internal/resend"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/store"
)

// replayBatch is how many letters a replay publishes together, at most.
const replayBatch = 100

// Replay publishes the letters that a Query selects, in the order of storing, and
// deletes each once it is confirmed. Each letter is tried once; one that comes back
// meanwhile waits for the next Replay. p needs no Fallback: a letter that cannot be
// published stays. A document that is no letter, or cannot be read, is left where it is
// and counts as Failed. A dead letter goes to the same address as a dead letter of a
// store.Store, see store.ReplayOptions.To.
//
// A letter is deleted as it was when Replay read it. One that was edited or stored
// again meanwhile stays and counts as Changed. Two replays of the same letters at
// the same time publish them twice, because Elasticsearch has no locks; both messages
// have the same message id.
//
// Replay may be stopped at any time by ctx, and started again with the same Query,
// because letters that were sent are deleted. It awaits the answers to the messages on
// their way then, for up to 10 s; a letter without an answer stays, and the next Replay
// may publish it twice. Replay returns an error if ctx, the Publisher
// or Elasticsearch ends it, if the canary came back ([store.ErrCanary]), or if the
// canary could not be published. If letters were confirmed and could not be deleted,
// the error says how many: another Replay publishes them again. Letters that failed are
// not an error; they are in the report.
func (s *Store) Replay(ctx context.Context, p store.Publisher, q Query, o store.ReplayOptions) (report store.ReplayReport, err error) {
	errs := []error{resend.Validate(o.Rate, o.Limit, o.Canary), q.validateReplay()}
	if p == nil && !o.DryRun {
		errs = append(errs, errors.New("elastic: the Publisher is nil"))
	}
	if err := errors.Join(errs...); err != nil {
		return report, rehop.WithClass(err, rehop.ClassBug)
	}
	if err := s.refresh(ctx); err != nil {
		return report, err
	}
	if report.Matched, err = s.Count(ctx, q); err != nil || o.DryRun || report.Matched == 0 {
		return report, err
	}
	began := time.Now()
	last, err := s.last(ctx, q)
	if err != nil {
		return report, err
	}
	r := replay{last: last, store: s, sender: resend.Sender{Publisher: p}, pages: s.pages(q), options: o, report: &report, tried: map[string]bool{}}
	err = resend.Replay{
		Batch: replayBatch, Rate: o.Rate, Limit: o.Limit, Canary: o.Canary,
		Some: r.some, Back: r.isBack,
		Sent: func() error {
			if report.Sent == 0 {
				return report.Last
			}
			return nil
		},
		Returned: func() error { return fmt.Errorf("%w: message %q", store.ErrCanary, report.LastID) },
	}.Run(ctx)
	report.Took = time.Since(began)
	return report, err
}

// replay is one call of Replay.
type replay struct {
	store   *Store
	sender  resend.Sender
	pages   *pages
	options store.ReplayOptions
	report  *store.ReplayReport
	last    cursor          // of the letters that were there at the beginning
	tried   map[string]bool // documents, by index and id
	before  map[string]bool // with a canary: the letters with its message id when it was sent
}

// some replays up to n letters and reports how many it has tried, and whether there may
// be more.
func (r *replay) some(ctx context.Context, n int) (tried int, more bool, err error) {
	page, err := r.pages.next(ctx, n)
	if err != nil {
		return 0, false, err
	}
	letters, messages := r.ready(page)
	tried = len(page)
	if r.options.Canary > 0 && r.before == nil && len(messages) > 0 {
		if r.before, err = r.like(ctx, messages[0].ID); err != nil {
			return tried, false, err
		}
	}
	if ctx.Err() != nil {
		return tried, false, pause.Ended(ctx)
	}
	sent, err := r.publish(ctx, letters, messages)
	if errDelete := r.delete(ctx, sent); errDelete != nil {
		return tried, false, errors.Join(err, errDelete)
	}
	if r.options.Progress != nil {
		r.options.Progress(*r.report)
	}
	switch {
	case err != nil:
		return tried, false, err
	case ctx.Err() != nil:
		return tried, false, pause.Ended(ctx)
	}
	return tried, r.pages.more, nil
}

// like returns the letters with a message id as they are now.
func (r *replay) like(ctx context.Context, messageID string) (map[string]bool, error) {
	found, err := r.store.Find(ctx, Query{MessageIDs: []string{messageID}, Limit: 1000})
	if err != nil {
		return nil, err
	}
	versions := map[string]bool{}
	for _, l := range found {
		versions[l.state()] = true
	}
	return versions, nil
}

// state is the same as long as a document has not changed.
func (l Document) state() string {
	if l.version.seqNo != nil {
		return fmt.Sprintf("%s/%s %d", l.Index, l.ID, *l.version.seqNo)
	}
	return fmt.Sprintf("%s/%s %s", l.Index, l.ID, l.Cursor)
}

// isBack reports whether there is a letter with the message id of the canary that is new
// or has changed since the canary was sent.
func (r *replay) isBack(ctx context.Context) (bool, error) {
	if err := r.store.refresh(ctx); err != nil {
		return false, err
	}
	now, err := r.like(ctx, r.report.LastID)
	for state := range now {
		if !r.before[state] {
			return true, err
		}
	}
	return false, err
}

func (r *replay) failed(id string, err error) {
	r.report.Failed++
	r.report.Last, r.report.LastID = err, id
}

// ready returns the letters that can be published and were not tried yet, with their
// messages.
func (r *replay) ready(page []Document) (letters []Document, messages []producer.Message) {
	for _, l := range page {
		if r.tried[l.Index+"/"+l.ID] || r.isNew(l) { // it came back, behind the others in the order
			r.pages.more = r.pages.more && !r.isNew(l)
			continue
		}
		r.tried[l.Index+"/"+l.ID] = true
		if l.Fault != nil {
			r.failed(l.Message.ID, l.Fault)
			continue
		}
		m := resend.Message(l.Message, l.Queue)
		m.Replays++
		if m.Delay > 0 && l.Queue == "" { // it ran on while the letter was here
			m.Delay = max(l.Failed.Add(m.Delay+time.Millisecond).Sub(r.store.now()), 0) // Failed was cut to milliseconds
		}
		m, err := resend.Edited(m, l.Queue, r.options.To, r.options.Edit)
		if err != nil {
			r.failed(m.ID, err)
			continue
		}
		letters, messages = append(letters, l), append(messages, m)
	}
	return letters, messages
}

// isNew reports whether a letter was stored after the Replay began.
func (r *replay) isNew(l Document) bool {
	at, err := parseCursor(l.Cursor)
	return err == nil && (at.stored > r.last.stored || at.stored == r.last.stored && at.tie > r.last.tie)
}

// last returns the place of the last letter that a Query selects now.
func (s *Store) last(ctx context.Context, q Query) (cursor, error) {
	hits, _, err := s.search(ctx, q, 1, "desc")
	if err != nil {
		return cursor{}, err
	}
	var last cursor
	for _, h := range hits {
		l, _ := h.letter() // a place in the order is all that is wanted
		if at, err := parseCursor(l.Cursor); err == nil && at.stored >= last.stored {
			last = at
		}
	}
	if last == (cursor{}) {
		return cursor{math.MaxInt64, math.MaxInt64}, nil
	}
	return last, nil
}

// publish publishes messages and returns the letters of those that arrived. Its
// error says that nothing more can be published.
func (r *replay) publish(ctx context.Context, letters []Document, messages []producer.Message) (sent []Document, err error) {
	if len(messages) == 0 {
		return nil, nil
	}
	refused := func(i int) bool { return letters[i].Cause == rehop.CauseRefused }
	ctx = resend.From(ctx, r.store)
	receipts := r.sender.Publish(ctx, messages, refused, func(failed error) { err = fmt.Errorf("elastic: Replay: %w", failed) })
	for i, receipt := range receipts { // some may be confirmed in spite of err
		if !resend.Arrived(ctx, receipt, r.store.cfg.Name) {
			r.failed(receipt.ID, receipt.Err)
			continue
		}
		r.report.Sent++
		r.report.LastID = receipt.ID
		if receipt.MaybeDuplicate || letters[i].Unconfirmed {
			r.report.MaybeDuplicate++
		}
		sent = append(sent, letters[i])
	}
	return sent, err
}

// deletion is a letter that is to be deleted.
type deletion struct {
	*action
	letter Document
	lost   bool // an answer: it may be deleted already
}

// delete deletes letters that were confirmed. It has some time of its own when ctx
// has ended.
func (r *replay) delete(ctx context.Context, letters []Document) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*r.store.cfg.Timeout)
	defer cancel()
	var left []deletion
	for _, l := range letters {
		raw, err := deleteLines(l)
		if err != nil {
			return fmt.Errorf("elastic: %w", err)
		}
		left = append(left, deletion{&action{id: l.ID, lines: raw}, l, false})
	}
	refused := 0
	var errRefused, errAgain error
	for try := 1; len(left) > 0; try++ {
		var again []deletion
		batch := make([]*action, len(left))
		for i, d := range left {
			batch[i] = d.action
		}
		for i, err := range r.store.send(ctx, batch) {
			d := left[i]
			var answered *responseError
			errors.As(err, &answered)
			switch {
			case err == nil, errors.Is(err, errGone), r.store.noIndex(err):
			case answered != nil && answered.Status == http.StatusConflict:
				if !d.lost || !r.store.gone(ctx, d.letter) {
					r.report.Changed++
				}
			case answered != nil && answered.Class() != rehop.ClassTransient:
				refused, errRefused = refused+1, err
			default:
				d.lost = d.lost || doubtful(err)
				again, errAgain = append(again, d), err
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

// gone reports whether a document is not there any more.
func (s *Store) gone(ctx context.Context, l Document) bool {
	var answered *responseError
	err := s.do(ctx, esapi.ExistsRequest{Index: l.Index, DocumentID: l.ID}, nil)
	return errors.As(err, &answered) && answered.Status == http.StatusNotFound
}
