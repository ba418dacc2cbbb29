package desk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/internal/confirm"
	"github.com/rehop/rehop/internal/header"
	"github.com/rehop/rehop/internal/letter"
	"github.com/rehop/rehop/internal/pause"
	"github.com/rehop/rehop/internal/resend"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/store"
	"github.com/rehop/rehop/topology"
)

// Execute carries out a redrive on the letters of its Look, or on those that are in the store
// when it begins.
func (c *storeSource) Execute(ctx context.Context, r Redrive, progress func(Progress)) (Progress, error) {
	r, err := r.check(c.About(), time.Now())
	if err == nil && r.Action != Drop && c.conn == nil {
		err = rehop.WithClass(errors.New("desk: there is no Conn to send letters with"), rehop.ClassConfiguration)
	}
	if err != nil {
		return Progress{}, err
	}
	if n := len(r.Filter.IDs); n > 0 && n <= namedValues {
		var letters []Letter
		if _, _, _, err := c.scan(ctx, r.Filter, 0, unbound, func(l Letter) bool {
			letters = append(letters, l)
			return true
		}); err == nil { // else the redrive itself says what is wrong
			r.MessageIDs = r.Filter.messageIDs(letters)
		}
	}
	if r.Action != Drop {
		r.broker = knownBroker(c.conn)
	}
	b, err := c.cfg.Journal.begin(r, nil)
	if err != nil {
		return Progress{Redrive: r}, err
	}
	return c.carryOut(ctx, b, false, progress)
}

// Resume continues a redrive.
func (c *storeSource) Resume(ctx context.Context, id string, by By, progress func(Progress)) (Progress, error) {
	b, err := reopen(ctx, c.cfg.Journal, c.About(), c.conn, id, by)
	if err != nil {
		return Progress{}, err
	}
	return c.carryOut(ctx, b, true, progress)
}

// replayWindow is more than a replay publishes together: it waits for no answer before
// all are sent.
const replayWindow = 1000

// leases is how long letters are waited for that a process had leased which has died.
const leases = 75 * time.Second

// collectedRedrive is a redrive that is carried out in a store.
type collectedRedrive struct {
	source  *storeSource
	book    *book
	redrive Redrive
	tell    func(Progress)
	stop    context.CancelCauseFunc
	over    <-chan struct{} // closed by stop, or when the ctx of the process ends

	resumed    bool
	unanswered int // letters that an earlier process has tried, that are not there, and of which it is not known whether they arrived

	mu       sync.Mutex
	progress Progress
	warning  string // begins Progress.Note
	outcomes outcomes
	doubted  int            // letters of this replay that need a target
	noTarget error          // of the first of them
	untried  int            // letters of this replay whose targets take none
	maybe    int            // of these: an earlier process may have sent them, so that they keep their places in the limit
	known    int            // letters of this replay that were sent by an earlier process
	again    int            // letters of this replay that an earlier one has tried in vain
	failed   map[int64]bool // letters that this process has tried in vain, by their numbers
	sent     []string
	noted    time.Time

	failedBefore int // of failed, when this replay began
	unsendable   int // letters that cannot be sent, which each replay meets: the most that one has met
}

func (c *storeSource) carryOut(ctx context.Context, b *book, resumed bool, tell func(Progress)) (Progress, error) {
	r := &collectedRedrive{source: c, book: b, redrive: b.redrive, resumed: resumed, tell: tell, outcomes: outcomes{one: b.redrive.To != nil}, progress: b.past.progress, failed: map[int64]bool{}}
	r.progress.Redrive, r.progress.State, r.progress.Error, r.progress.Note = b.redrive, Running, "", ""
	if b.redrive.Action != Drop { // whose letters are counted when they are gone
		r.progress.Done = len(b.past.sent)
	}
	r.progress.Matched, r.progress.Failed, r.progress.Skipped = r.progress.Done, 0, 0
	r.progress.Began, r.progress.DoneBefore = time.Now().UTC(), r.progress.Done
	run, stop := context.WithCancelCause(ctx)
	r.stop, r.over = stop, run.Done()
	watched := b.watch(run, stop)
	err := r.run(run)
	if err != nil && run.Err() != nil {
		err = pause.Ended(run)
	}
	stop(nil)
	<-watched
	switch {
	case err == nil:
		r.progress.State = Done
		if r.progress.Matched == 0 {
			r.progress.Note = noMatch
		}
	case errors.Is(err, ErrRedriveStopped) || ctx.Err() != nil:
		r.progress.State = Stopped
		if !errors.Is(err, ErrRedriveStopped) {
			err = fmt.Errorf("%w: %w", ErrRedriveStopped, err)
		}
	default:
		r.progress.State, r.progress.Error = Failed, err.Error()
	}
	r.progress.Updated = time.Now().UTC()
	err = errors.Join(err, b.end(r.progress))
	if tell != nil {
		tell(r.progress)
	}
	return r.progress, err
}

func (r *collectedRedrive) run(ctx context.Context) error {
	f := r.redrive.Filter
	if f.selectsNone() {
		return nil
	}
	if r.redrive.Action == Drop {
		return r.drop(ctx)
	}
	q, err := r.source.narrow(ctx, f, r.before())
	if err == nil {
		err = r.countAll(ctx, q)
	}
	if err != nil {
		return err
	}
	user, broker, err := loginOf(ctx, r.source.conn)
	if err == nil {
		err = r.book.isAt(ctx, r.source.conn, broker)
	}
	if err != nil {
		return err
	}
	publisher := confirm.New(r.source.conn, confirm.Limits{Messages: replayWindow})
	options := store.ReplayOptions{Rate: r.redrive.Rate, Canary: r.redrive.Canary, To: r.redrive.To, Edit: r.targeted}
	switch {
	case options.Canary == 0:
	case r.book.past.canaryOver:
		options.Canary = 0
	case len(r.book.past.sent) > 0: // it was sent, and the watch was cut off
		options.Canary = 0
		if err := r.watch(ctx); err != nil {
			return err
		}
	default:
		r.warn(r.canaryNote(ctx))
	}
	r.warn(r.redrive.targetNote(ctx, r.source.conn))
	done := r.progress.Done
	options.Progress = func(report store.ReplayReport) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.settled(done, report)
		_ = r.note(false) // a journal that fails ends the redrive at its next letter
		r.heed()
	}
	began := time.Now()
	var report store.ReplayReport
	others := 0 // letters in the hands of another process
	replay := func(q store.Query) (err error) {
		for {
			r.mu.Lock()
			done, r.known, r.doubted, r.untried, r.maybe, r.again = r.progress.Done, 0, 0, 0, 0, 0
			r.failedBefore = len(r.failed)
			r.mu.Unlock()
			if r.heed() {
				return ErrRedriveStopped
			}
			report, err = r.source.store.Replay(ctx, &marking{redrive: r, user: user, publisher: publisher}, q, options)
			r.mu.Lock()
			r.settled(done, report)
			r.mu.Unlock()
			tried := report.Sent + report.Failed
			if others = report.Matched - tried - r.untried - r.again; options.Limit > 0 {
				others = min(others, options.Limit-tried)
				options.Limit -= report.Sent + len(r.failed) - r.failedBefore // each replay tries those again that cannot be sent
			}
			// A process that has died has leased letters, which are free in a while.
			if err != nil || others <= 0 || !r.resumed || time.Since(began) > leases || !pause.For(ctx, noteEvery) {
				return err
			}
		}
	}
	_, bounded := r.left()
	if bounded && r.resumed {
		// Until they are settled it is not known how many letters are left to the bound, and
		// a letter that was sent and stays in the store would be sent again one day.
		first := q
		if first.Numbers, err = r.begun(ctx, q); err == nil && len(first.Numbers) > 0 {
			err = replay(first)
			r.unanswered += r.maybe
		}
	}
	if options.Limit, _ = r.left(); err == nil && (!bounded || options.Limit > 0) {
		err = replay(q)
	}
	if err == nil && others > 0 {
		r.progress.Note = noted(r.progress.Note, fmt.Sprintf("%s in the hands of another process were left", count(others, "letter")))
	}
	if err == nil {
		err = r.outcomes.err(r.untried)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if errors.Is(err, store.ErrCanary) {
		err = errors.Join(err, r.canaryIsOver())
	}
	err = errors.Join(err, r.note(true), publisher.Close())
	return err
}

// heed stops the redrive if somebody has asked for that, and reports whether it is over: before the first
// letters go, and between others.
func (r *collectedRedrive) heed() bool {
	if r.book.stopped() {
		r.stop(errStopped)
		return true
	}
	select {
	case <-r.over:
		return true
	default:
		return false
	}
}

// before is the time before which the letters of the redrive were stored, in whole
// milliseconds, as a store has them.
func (r *collectedRedrive) before() time.Time {
	look := r.redrive.Look.Add(time.Millisecond - 1).Truncate(time.Millisecond) // that of a List is whole
	if r.redrive.Look.IsZero() || look.After(r.redrive.Created) {
		return r.redrive.Created
	}
	return look
}

// countAll counts the letters of the redrive, unless an earlier process has: a store may still
// have letters that the redrive has done.
func (r *collectedRedrive) countAll(ctx context.Context, q store.Query) error {
	past := &r.book.past
	if past.there == 0 {
		n, err := r.source.count(ctx, q)
		if err != nil {
			return err
		}
		past.there = r.progress.Done + n
		if err := r.book.write(entry{There: past.there}); err != nil {
			return err
		}
	}
	r.progress.Bound = r.redrive.least(past.there)
	return nil
}

// targeted counts a letter that the replay leaves until somebody names its target.
func (r *collectedRedrive) targeted(m *producer.Message) error {
	if r.redrive.To != nil {
		return nil
	}
	queue := ""
	if m.Exchange == "" {
		queue = m.RoutingKey
	}
	err := resend.Doubted(*m, queue)
	if err == nil && m.Exchange == "" && m.RoutingKey == "" {
		err = errNoTarget
	}
	if err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.doubted++
		r.noTarget = cmp.Or(r.noTarget, err)
		r.progress.Note = noted(r.warning, untargeted(max(r.doubted, r.progress.Skipped), r.noTarget))
	}
	return err
}

// canaryIsOver notes that the canary has passed, or has come back.
func (r *collectedRedrive) canaryIsOver() error {
	if r.redrive.Canary == 0 || r.book.past.canaryOver {
		return nil
	}
	r.book.past.canaryOver = true
	return r.book.write(entry{CanaryOver: true})
}

// watch watches a canary that an earlier process has sent, for the whole of its time: it is
// not known for how long that process has watched it.
func (r *collectedRedrive) watch(ctx context.Context) error {
	id := r.progress.LastID
	if id == "" { // the message of the canary has none, and nobody would know it again
		return r.canaryIsOver()
	}
	back, err := resend.Watch(ctx, r.redrive.Canary, func(ctx context.Context) (bool, error) {
		found, _, err := r.source.store.Find(ctx, store.Query{MessageIDs: []string{id}})
		if err != nil {
			return false, fmt.Errorf("desk: %w", err)
		}
		return slices.ContainsFunc(found, func(one store.Entry) bool { return one.RedriveID == r.redrive.ID }), nil
	})
	if err != nil {
		return err
	}
	if back {
		err = fmt.Errorf("%w: message %q", store.ErrCanary, id)
	}
	return errors.Join(err, r.canaryIsOver())
}

// warn tells what a person should know before letters are sent.
func (r *collectedRedrive) warn(note string) {
	if note == "" {
		return
	}
	r.warning = noted(r.warning, note)
	if r.progress.Note = r.warning; r.tell != nil {
		r.tell(r.progress)
	}
}

// canaryNote returns a note if the canary, which is the first letter, cannot be back in its time.
func (r *collectedRedrive) canaryNote(ctx context.Context) string {
	list, err := r.source.List(ctx, r.redrive.Filter, Page{Limit: 1})
	if err != nil || len(list.Letters) == 0 {
		return "" // nothing is sent, or the replay says why
	}
	to, _ := list.Letters[0].Target()
	return r.redrive.canaryNote(ctx, r.source.conn, func(q Queue) bool { return to.Exchange == "" && q.Name == to.RoutingKey })
}

// begun returns the letters of the store that an earlier process of the redrive has sent, or
// may have sent, and notes how many of these are not there any more.
func (r *collectedRedrive) begun(ctx context.Context, q store.Query) (numbers []int64, err error) {
	past := r.book.past
	r.unanswered = past.unanswered()
	wanted := past.undeleted() + past.unanswered()
	for q := range parts(q) {
		q.Limit = scanPage
		for len(numbers) < wanted {
			found, next, err := r.source.store.Find(ctx, q)
			if err != nil {
				return nil, fmt.Errorf("desk: %w", err)
			}
			for _, one := range found {
				m, err := resend.Edited(resend.Message(one.Message, one.Queue), one.Queue, r.redrive.To, nil)
				if err != nil {
					continue // it was refused then, too
				}
				switch key := identityOf(m, one.Number); {
				case past.open[key] && !past.sent[key]:
					r.unanswered--
					numbers = append(numbers, one.Number)
				case past.sent[key] && !past.gone[key]:
					numbers = append(numbers, one.Number)
				}
			}
			if q.After = next; next == 0 {
				break
			}
		}
	}
	return numbers, nil
}

// left is how many letters the redrive may still try, and false if it has no bound.
func (r *collectedRedrive) left() (n int, bounded bool) {
	if r.redrive.Limit == 0 {
		return 0, false
	}
	return r.redrive.Limit - r.progress.Done - r.progress.Failed - r.unanswered, true
}

// settled takes over how far a replay is, whose letters have left the store.
func (r *collectedRedrive) settled(before int, report store.ReplayReport) {
	before -= r.known
	r.progress.Matched, r.progress.Done = before+report.Matched, before+report.Sent
	r.unsendable = max(r.unsendable, report.Failed-r.doubted-(len(r.failed)-r.failedBefore))
	r.progress.Failed, r.progress.Skipped = len(r.failed)+r.unsendable, max(r.progress.Skipped, r.doubted)
	r.progress.LastID = report.LastID
	if report.Last != nil && !hasNoTarget(report.Last) {
		r.progress.Error = report.Last.Error()
	}
}

// note tells and writes down the progress.
func (r *collectedRedrive) note(always bool) error {
	if len(r.sent) > 0 {
		if err := r.book.write(entry{Gone: r.sent}); err != nil {
			return err
		}
		for _, key := range r.sent {
			r.book.past.gone[key] = true
		}
		r.sent = nil
	}
	if !always && time.Since(r.noted) < noteEvery {
		return nil
	}
	r.noted = time.Now()
	r.progress.Updated = r.noted.UTC()
	if r.tell != nil {
		r.tell(r.progress)
	}
	return r.book.write(entry{Progress: &r.progress})
}

// recount counts the letters that an earlier process was about to delete when it ended. Those that
// are gone count as deleted by it, so that no more are deleted than the limit says.
func (r *collectedRedrive) recount(ctx context.Context) error {
	keys := slices.Sorted(maps.Keys(r.book.past.open))
	if len(keys) == 0 {
		return nil
	}
	numbers := make([]int64, 0, len(keys))
	for _, key := range keys {
		number, err := strconv.ParseInt(key, 10, 64)
		if err != nil {
			return fmt.Errorf("desk: the journal: redrive %s: letter %.40q has no number", r.redrive.ID, key)
		}
		numbers = append(numbers, number)
	}
	there, err := r.source.count(ctx, store.Query{Numbers: numbers})
	if err != nil {
		return err
	}
	gone := len(keys) - there
	if err := r.deleted(keys, gone, gone); err != nil {
		return err
	}
	clear(r.book.past.open)
	return nil
}

// deleted notes that of these letters so many are deleted, in one line, so that none is counted twice.
// If the journal does not take it, they are not counted, and the next process counts them.
func (r *collectedRedrive) deleted(keys []string, n, matched int) error {
	before := r.progress
	r.progress.Done += n
	r.progress.Matched += matched
	err := r.book.write(entry{Left: keys, Progress: &r.progress})
	if err != nil {
		r.progress = before
	}
	return err
}

// cutOff counts the letters of a page that are deleted, of which some are not: the redrive was stopped
// between, or the store has failed.
func (r *collectedRedrive) cutOff(ctx context.Context, keys []string, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sendTimeout)
	defer cancel()
	r.progress.Matched -= len(keys)
	for _, key := range keys {
		r.book.past.open[key] = true
	}
	return errors.Join(fmt.Errorf("desk: %w", err), r.recount(ctx))
}

// keysOf are the letters with these numbers, in the journal.
func keysOf(numbers []int64) (keys []string) {
	for _, number := range numbers {
		keys = append(keys, strconv.FormatInt(number, 10))
	}
	return keys
}

// drop copies letters to the file and deletes them, a page at a time. It leaves a letter
// that has changed since it was copied.
func (r *collectedRedrive) drop(ctx context.Context) error {
	out, err := newCopying(r.redrive.CopyTo, r.redrive.Source, func(*transfer) {})
	if err != nil {
		return err
	}
	defer out.close()
	q, look, err := r.redrive.Filter.query()
	if q.Before = r.before(); err == nil && !look { // else nobody has counted before all are read
		err = r.countAll(ctx, q)
	}
	if err == nil {
		err = r.recount(ctx)
	}
	if err != nil {
		return err
	}
	after := int64(0)
	for {
		if r.heed() {
			return pause.Ended(ctx)
		}
		var transfers []*transfer
		limit := scanPage
		if rate := r.redrive.Rate; rate > 0 {
			limit = min(limit, max(int(rate), 1)) // those of a second
		}
		if left, bounded := r.left(); bounded {
			limit = min(limit, left)
		}
		if limit <= 0 {
			return nil
		}
		page := r.redrive.Filter
		page.IDs = []string{}
		var marked []int64
		_, last, more, err := r.source.scanBefore(ctx, r.redrive.Filter, r.before(), after, scanBound, func(l Letter) bool {
			page.IDs, marked = append(page.IDs, l.ID), append(marked, l.Place)
			return len(marked) < limit
		})
		if err != nil {
			return err
		}
		marks, err := letter.Marked(ctx, r.source.store, marked)
		if err != nil {
			return fmt.Errorf("desk: %w", err)
		}
		if _, _, _, err := r.source.scan(ctx, page, 0, unbound, func(l Letter) bool { // as they are since they have marks
			transfers = append(transfers, &transfer{letter: l})
			return true
		}); err != nil {
			return err
		}
		after = last
		r.progress.Matched += len(transfers)
		out.deliver(ctx, transfers)
		var numbers []int64
		for _, p := range transfers {
			if p.err != nil {
				r.progress.Failed++
				r.progress.Error = p.err.Error()
				continue
			}
			numbers = append(numbers, p.letter.Place)
		}
		if len(numbers) > 0 {
			keys := keysOf(numbers)
			if err := r.book.write(entry{Try: keys}); err != nil {
				return err
			}
			r.source.at("tried")
			n, err := marks.Delete(ctx, numbers)
			r.source.at("deleted")
			if err != nil {
				return r.cutOff(ctx, keys, err)
			}
			if kept := len(numbers) - n; kept > 0 {
				r.progress.Skipped += kept
				r.progress.Note = "letters that somebody has changed or is publishing were left"
			}
			if err := r.deleted(keys, n, 0); err != nil {
				return err
			}
		}
		if err := r.note(true); err != nil || !more {
			return err
		}
		if rate := r.redrive.Rate; rate > 0 && !pause.For(ctx, time.Duration(float64(len(transfers))/rate*float64(time.Second))) {
			return pause.Ended(ctx)
		}
	}
}

// marking publishes what a replay sends, with the marks of the redrive, and notes it.
type marking struct {
	redrive   *collectedRedrive
	user      string
	publisher *confirm.Publisher
}

// PublishAll is the method of store.Publisher. It sends in rounds, each of as many messages as outcomes allows.
func (m *marking) PublishAll(ctx context.Context, messages []producer.Message) ([]producer.Receipt, error) {
	r := m.redrive
	receipts := make([]producer.Receipt, len(messages))
	keys := make([]string, len(messages))
	var rest []int
	known, again, numbers := 0, 0, resend.Numbers(ctx)
	for i, message := range messages {
		keys[i] = identityOf(message, numbers[i])
		receipts[i] = producer.Receipt{ID: message.ID}
		if r.book.past.sent[keys[i]] && !r.book.past.gone[keys[i]] {
			receipts[i].Place = producer.PlaceQueue // confirmed before its letter was deleted
			known++
			continue
		}
		if r.failed[numbers[i]] {
			receipts[i].Err = resend.ErrUntried
			again++
			continue
		}
		rest = append(rest, i)
	}
	r.mu.Lock()
	r.known, r.again = r.known+known, r.again+again
	r.mu.Unlock()
	if len(r.book.past.sent) > 0 { // the replay goes on behind the canary
		if err := r.canaryIsOver(); err != nil {
			return nil, err
		}
	}
	target := func(i int) topology.Address {
		return topology.Address{Exchange: messages[i].Exchange, RoutingKey: messages[i].RoutingKey}
	}
	for {
		rest = slices.DeleteFunc(rest, func(i int) bool {
			leaves := r.outcomes.leaves(target(i))
			if leaves {
				receipts[i].Err = resend.ErrUntried
				r.leaveUntried(keys[i])
			}
			return leaves
		})
		err := r.outcomes.end()
		if err == nil && len(rest) == 0 {
			return receipts, nil
		}
		if err == nil && r.heed() {
			err = ErrRedriveStopped
		}
		if err == nil {
			var now []int
			for _, place := range slices.Backward(r.outcomes.some(len(rest), replayWindow, 0, func(n int) topology.Address { return target(rest[n]) })) {
				now, rest = append(now, rest[place]), slices.Delete(rest, place, place+1)
			}
			slices.Reverse(now)
			err = m.publish(ctx, messages, now, keys, numbers, receipts)
		}
		if err != nil {
			for i := range receipts {
				if receipts[i].Place == "" && receipts[i].Err == nil {
					receipts[i].Err = resend.ErrUntried
				}
			}
			r.stop(pause.Own(err))
			return receipts, nil
		}
	}
}

// publish publishes messages, and notes what becomes of each.
func (m *marking) publish(ctx context.Context, messages []producer.Message, places []int, keys []string, numbers []int64, receipts []producer.Receipt) error {
	r := m.redrive
	var try []string
	for _, i := range places {
		try = append(try, keys[i])
		if r.book.past.open[keys[i]] {
			r.book.past.again[keys[i]] = true
		}
	}
	if err := r.book.write(entry{Try: try}); err != nil {
		return err
	}
	var batch []*confirm.Message
	for _, i := range places {
		exchange, key, p := m.publishing(messages[i])
		batch = append(batch, &confirm.Message{Exchange: exchange, RoutingKey: key, Publishing: p, Number: i, Timeout: sendTimeout})
		r.outcomes.sent(topology.Address{Exchange: exchange, RoutingKey: key})
	}
	m.publisher.Send(ctx, batch...)
	for _, one := range batch {
		receipts[one.Number].Err = one.Wait(ctx)
	}
	var e entry
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range batch {
		receipt, key, to := &receipts[one.Number], keys[one.Number], topology.Address{Exchange: one.Exchange, RoutingKey: one.RoutingKey}
		if receipt.Err == nil {
			receipt.Place = producer.PlaceQueue
			if one.Repeated {
				r.book.past.again[key] = true
			}
			receipt.MaybeDuplicate = r.book.past.again[key]
			e.Sent = append(e.Sent, key)
			r.outcomes.taken(to)
			continue
		}
		r.failed[numbers[one.Number]] = true
		r.outcomes.failed(to, receipt.Err)
		if errors.Is(receipt.Err, confirm.ErrUnconfirmed) {
			r.book.past.open[key] = true
		} else if !r.book.past.open[key] {
			e.Left = append(e.Left, key)
		}
	}
	for _, key := range e.Sent {
		r.book.past.sent[key] = true
	}
	r.progress.MaybeDuplicate = r.book.past.twice()
	r.sent = append(r.sent, e.Sent...)
	return r.book.write(e)
}

// leaveUntried counts a letter whose target takes none.
func (r *collectedRedrive) leaveUntried(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.untried++
	if r.book.past.open[key] {
		r.maybe++
	}
}

// publishing returns what is published for a message that a replay sends.
func (m *marking) publishing(message producer.Message) (exchange, key string, p amqp.Publishing) {
	redrive := m.redrive.redrive
	l := read(asItLies(message))
	l.hasOrigin = true
	if redrive.Action == Move {
		header.Relay(&l.Publishing, m.user)
		return message.Exchange, message.RoutingKey, l.Publishing
	}
	to := topology.Address{Exchange: message.Exchange, RoutingKey: message.RoutingKey}
	if message.Origin != (topology.Address{}) {
		message.Exchange, message.RoutingKey = message.Origin.Exchange, message.Origin.RoutingKey
	}
	redrive.Edit.apply(&message)
	p = published(message, l, to, redrive.ID)
	header.Relay(&p, m.user)
	return to.Exchange, to.RoutingKey, p
}
