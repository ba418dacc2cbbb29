package desk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/confirm"
)

const (
	// inFlight is how many letters are under way at a time: as many may be doubled
	// by a process that dies.
	inFlight = 128
	// failuresInARow end an order: its target takes nothing.
	failuresInARow = 10
	// turnLength is how long letters are held before they are handed back and taken
	// again. A broker takes them away after its consumer timeout, 30 min.
	turnLength = 10 * time.Minute
	// lookForStop is how often another process may have stopped the order.
	lookForStop = 250 * time.Millisecond
	// maxLag is how much of a delay is made up for, with Order.Rate, at a rate that is
	// higher by a quarter.
	maxLag = 10 * time.Second
	// noteEvery is how often progress is told and written down.
	noteEvery = 500 * time.Millisecond
	// maxTries is how often a letter is sent again whose connection was lost.
	maxTries = 3
	// steadyFor is how long other consumers of the queue are taken for one of a process
	// that has died.
	steadyFor = 10 * time.Second
	// losses is how many lost connections in a row, with nothing done between them,
	// an order bears.
	losses = 10
)

// Execute carries out an order on the letters that are in the queue when it begins.
func (l *Live) Execute(ctx context.Context, o Order, progress func(Progress)) (Progress, error) {
	o, err := o.check(l.About(), time.Now())
	if err != nil {
		return Progress{}, err
	}
	b, err := l.cfg.Journal.begin(o, false)
	if err != nil {
		return Progress{Order: o}, err
	}
	return l.carryOut(ctx, b, false, progress)
}

// Resume goes on with an order.
func (l *Live) Resume(ctx context.Context, id string, progress func(Progress)) (Progress, error) {
	b, err := reopen(l.cfg.Journal, l.About(), id)
	if err != nil {
		return Progress{}, err
	}
	return l.carryOut(ctx, b, true, progress)
}

// steady waits until what a process had in hand that has just died is back in the
// queue: until the queue has no consumer, or, if it has others, for steadyFor.
func (l *Live) steady(ctx context.Context) error {
	counter, _, err := countOf(ctx, l.conn, l.queue)
	if err != nil {
		return err
	}
	defer counter.close()
	for end := time.Now().Add(steadyFor); time.Now().Before(end); {
		q, err := counter.ask(ctx)
		if err != nil || q.Consumers == 0 {
			return err
		}
		if !pause(ctx, 50*time.Millisecond) {
			return context.Cause(ctx)
		}
	}
	return nil
}

// reopen takes an order of a source for this process.
func reopen(j *Journal, a About, id string) (*book, error) {
	p, err := j.Order(id)
	switch {
	case err != nil:
		return nil, err
	case p.Order.Source != a.Name:
		return nil, connection.WithClass(fmt.Errorf("desk: order %s is for %s, not for %s", id, p.Order.Source, a.Name), connection.Bug)
	case p.State == Done && p.Failed == 0:
		return nil, connection.WithClass(fmt.Errorf("desk: order %s is done", id), connection.Bug)
	}
	return j.begin(p.Order, true)
}

// liveOrder is an order that is carried out in a queue.
type liveOrder struct {
	live     *Live
	book     *book
	order    Order
	carrier  carrier
	arrivals chan *parcel
	tell     func(Progress)
	resumed  bool

	progress Progress
	next     time.Time // when the next parcel is due, with Order.Rate
	soonest  time.Time // it is not sent before, however late the order is
	failures int       // in a row
	expected int       // letters that were in hand when the session before was lost
	counted  map[string]bool
	canary   canary

	// Of one turn at the queue.
	hand    *hand
	held    map[uint64]amqp.Delivery // what is to be handed back, by tag
	pending []*parcel
	flying  int
	acked   []string
	alike   map[string]int // letters that look the same
}

// canary is the first letter of an order with Order.Canary.
type canary struct {
	until time.Time // zero: it has not arrived
	over  bool      // or there is none
}

func (l *Live) carryOut(ctx context.Context, b *book, resumed bool, tell func(Progress)) (Progress, error) {
	r := &liveOrder{
		live: l, book: b, order: b.order, resumed: resumed, arrivals: make(chan *parcel, l.inFlight), tell: tell,
		progress: b.past.progress, counted: map[string]bool{}, canary: canary{over: b.order.Canary == 0 || len(b.past.sent) > 0},
	}
	r.progress.Order, r.progress.State, r.progress.Error = b.order, Running, ""
	r.progress.Began = cmp.Or(r.progress.Began, time.Now().UTC())
	for key := range b.past.sent {
		r.counted[key] = true // the like of one that was sent is not sent
	}
	r.progress.Done, r.progress.Matched, r.progress.Failed, r.progress.Skipped = len(b.past.sent), len(b.past.sent), 0, 0
	if resumed {
		r.expected = r.progress.InHand
	}
	err := r.run(ctx)
	r.progress.InHand = 0
	switch {
	case err == nil:
		r.progress.State = Done
	case errors.Is(err, ErrStopped) || ctx.Err() != nil:
		r.progress.State, r.progress.Error = Stopped, ""
		if !errors.Is(err, ErrStopped) {
			err = fmt.Errorf("%w: %w", ErrStopped, err)
		}
	default:
		r.progress.State, r.progress.Error = Failed, err.Error()
	}
	r.progress.Updated = time.Now().UTC()
	l.mu.Lock()
	l.last = nil // it shows letters that are gone
	l.mu.Unlock()
	err = errors.Join(err, b.end(r.progress))
	if tell != nil {
		tell(r.progress)
	}
	return r.progress, err
}

func (r *liveOrder) run(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for pause(ctx, lookForStop) {
			if r.book.stopped() {
				stop(ErrStopped)
			}
		}
	}()
	defer func() { stop(nil); <-watched }()
	leave, err := r.live.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if err := r.open(ctx); err != nil {
		return err
	}
	if r.resumed {
		if err := r.live.steady(ctx); err != nil {
			return errors.Join(err, r.carrier.close())
		}
	}
	for lost := 0; ; {
		before := r.progress.Done
		more, err := r.turn(ctx)
		switch {
		case err == nil && !more:
			return r.carrier.close()
		case err == nil:
		case errors.Is(err, connection.ErrSessionLost) && ctx.Err() == nil:
			if lost++; r.progress.Done > before {
				lost = 0
			}
			r.expected = len(r.held)
			if lost < losses {
				pause(ctx, time.Duration(lost)*100*time.Millisecond)
				continue
			}
			fallthrough
		default:
			return errors.Join(err, r.carrier.close())
		}
	}
}

func (r *liveOrder) open(ctx context.Context) (err error) {
	arrived := func(p *parcel) { r.arrivals <- p }
	if r.order.Action == Drop {
		r.carrier, err = newCopying(r.order.CopyTo, r.order.Source, arrived)
		return err
	}
	user, err := userOf(ctx, r.live.conn)
	if err != nil {
		return err
	}
	r.carrier = &publishing{order: r.order, user: user, arrived: arrived, publisher: confirm.New(r.live.conn, confirm.Limits{Messages: r.live.inFlight})}
	return nil
}

// turn takes letters, sends those that are meant, and hands back the others. more
// says that it ended before the letters did.
func (r *liveOrder) turn(ctx context.Context) (more bool, err error) {
	facts, counter, total, err := r.live.prepare(ctx)
	if err != nil {
		return false, err
	}
	defer counter.close()
	if total < r.expected {
		if total, err = counter.atLeast(ctx, r.expected); err != nil {
			return false, err
		}
	}
	r.expected = 0
	window := r.live.cfg.Window
	if !r.canary.over && total > window {
		return false, connection.WithClass(fmt.Errorf("desk: a canary cannot be seen to come back behind %d letters, more than %d: collect them, or leave the canary out", total, window), connection.Configuration)
	}
	if total == 0 {
		return false, nil
	}
	limit, _ := facts.limit()
	r.hand, err = take(ctx, r.live.conn, r.live.queue, r.live.windowOf(limit)+1, total, r.live.cfg.WindowBytes, facts.size) // 1: room for the canary to come back
	if err != nil {
		return false, err
	}
	r.held, r.pending, r.flying, r.acked, r.alike = map[uint64]amqp.Delivery{}, nil, 0, nil, map[string]int{}
	more, err = r.work(ctx, counter, total)
	return more, errors.Join(err, r.giveBack(ctx, limit))
}

// giveBack ends a turn: what is under way arrives, acks reach the queue, and the rest
// goes back to its head.
func (r *liveOrder) giveBack(ctx context.Context, limit int) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sendTimeout)
	defer cancel()
	var errs []error
	for r.flying > 0 {
		errs = append(errs, r.land(<-r.arrivals)) // each has its end within sendTimeout
	}
	for _, p := range r.pending {
		delete(r.counted, p.key) // it may have another turn
	}
	if err := r.hand.arrived(ctx); err != nil {
		errs = append(errs, err)
	} else if len(r.acked) > 0 {
		r.at("arrived")
		for _, key := range r.acked {
			r.book.past.gone[key] = true
		}
		errs = append(errs, r.book.write(entry{Gone: r.acked}))
	}
	if limit != unlimited && r.hand.session.Err() == nil {
		var held []amqp.Delivery
		for _, tag := range slices.Sorted(maps.Keys(r.held)) {
			held = append(held, r.held[tag])
		}
		publisher := confirm.New(r.live.conn, confirm.Limits{Messages: 1})
		errs = append(errs, spare(ctx, r.hand, publisher, limit, held), publisher.Close())
	}
	return errors.Join(append(errs, r.hand.back())...)
}

// work handles deliveries until the letters that were in the queue have been seen and
// those that are meant have been sent. more says that it ended before that.
func (r *liveOrder) work(ctx context.Context, counter *counter, total int) (more bool, err error) {
	over := time.NewTimer(turnLength)
	defer over.Stop()
	quiet := time.NewTimer(idle)
	defer quiet.Stop()
	beat := time.NewTicker(noteEvery)
	defer beat.Stop()
	due := time.NewTimer(0)
	defer due.Stop()
	seen, taking, ending := 0, true, false
	for _, d := range r.hand.first {
		if err := r.take(d, &seen, total, &taking); err != nil {
			return false, err
		}
	}
	for {
		if !ending {
			r.send(ctx)
		}
		if r.flying == 0 && (ending || !taking && len(r.pending) == 0 && r.canary.done()) {
			return ending, nil
		}
		if wait := r.wait(); wait > 0 {
			due.Reset(wait)
		}
		select {
		case d, open := <-r.hand.deliveries:
			if !open {
				return false, r.hand.lost()
			}
			quiet.Reset(idle)
			if err := r.take(d, &seen, total, &taking); err != nil {
				return false, err
			}
		case p := <-r.arrivals:
			if err := r.land(p); err != nil {
				return false, err
			}
		case <-due.C:
		case <-quiet.C:
			quiet.Reset(idle)
			if !taking {
				continue
			}
			ready, err := counter.ready(ctx)
			switch {
			case err != nil:
				return false, err
			case ready == 0: // others have the rest
				taking = false
			case len(r.held) >= r.hand.prefetch-1: // the broker sends no more
				taking = false
				r.progress.Note = fmt.Sprintf("letters behind the first %d were not looked at: collect them", seen)
			}
		case <-beat.C:
			if err := r.note(); err != nil {
				return false, err
			}
		case <-over.C:
			ending = true
		case <-r.hand.session.Done():
			return false, r.hand.lost()
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
}

// take has a delivery in hand, and decides whether it is one of the order's letters.
func (r *liveOrder) take(d amqp.Delivery, seen *int, total int, taking *bool) error {
	r.held[d.DeliveryTag] = d
	letter := fromDelivery(d)
	if r.order.Action == Send && letter.SendOrder == r.order.ID { // it has come back
		if !r.canary.over {
			return fmt.Errorf("%w: message %q", ErrCanary, letter.Publishing.MessageId)
		}
		return nil
	}
	if *seen++; *seen <= total && *taking {
		if err := r.judge(letter, d.DeliveryTag); err != nil {
			return err
		}
	}
	if *seen >= total || r.limitReached() {
		*taking = false
	}
	return nil
}

// judge decides about a letter that is in hand. It is to be sent, or stays to be
// handed back.
func (r *liveOrder) judge(l Letter, tag uint64) error {
	key := l.digest()
	r.alike[key]++
	l.ID = numbered(key, r.alike[key])
	past := r.book.past
	if l.Publishing.MessageId == "" {
		key = l.ID
		if past.sent[key] && past.gone[key] { // nothing tells it from one that was sent: it is another
			delete(past.sent, key)
			delete(past.gone, key)
			delete(r.counted, key)
		}
	}
	switch {
	case past.sent[key] && !past.gone[key]:
		// It was confirmed where it went, and its ack did not arrive.
		past.gone[key] = true
		return r.ack(key, tag)
	case !r.order.Filter.Matches(l):
	case r.counted[key]: // its like was sent by this order
		r.progress.Matched++
		r.progress.Skipped++
	default:
		r.progress.Matched++
		r.counted[key] = true
		r.pending = append(r.pending, &parcel{letter: l, key: key, tag: tag})
	}
	return nil
}

func (r *liveOrder) ack(key string, tag uint64) error {
	if err := r.hand.ack(tag); err != nil {
		return fmt.Errorf("desk: queue %q: %w: %w", r.live.queue, connection.ErrSessionLost, err)
	}
	delete(r.held, tag)
	r.acked = append(r.acked, key)
	return nil
}

func (r *liveOrder) limitReached() bool {
	return r.order.Limit > 0 && r.progress.Done+r.progress.Failed+len(r.pending)+r.flying >= r.order.Limit
}

// wait returns how long nothing is to be sent.
func (r *liveOrder) wait() time.Duration {
	switch {
	case !r.canary.over && !r.canary.until.IsZero():
		return max(time.Until(r.canary.until), time.Millisecond)
	case len(r.pending) > 0 && r.flying < r.live.inFlight:
		return max(time.Until(r.next), time.Until(r.soonest), time.Millisecond)
	}
	return 0
}

// send sends what may be sent now.
func (r *liveOrder) send(ctx context.Context) {
	if !r.canary.ready(r.flying) {
		return
	}
	n := min(len(r.pending), r.live.inFlight-r.flying)
	if !r.canary.over {
		n = min(n, 1)
	}
	if rate := r.order.Rate; rate > 0 {
		now := time.Now()
		if now.Before(r.next) || now.Before(r.soonest) {
			return
		}
		if r.next.Before(now.Add(-maxLag)) {
			r.next = now // what was missed before is not made up for
		}
		n = min(n, max(rate/50, 1), max(rate/4, 1)-r.flying)
		if n <= 0 {
			return
		}
		takes := time.Duration(n) * time.Second / time.Duration(rate)
		r.next, r.soonest = r.next.Add(takes), now.Add(takes*4/5)
	}
	if n <= 0 {
		return
	}
	parcels := r.pending[:n]
	r.pending = r.pending[n:]
	keys := make([]string, n)
	for i, p := range parcels {
		keys[i] = p.key
		if r.book.past.open[p.key] {
			r.book.past.again[p.key] = true
		}
	}
	r.flying += n
	r.at("matched")
	if err := r.book.write(entry{Try: keys}); err != nil {
		for _, p := range parcels {
			p.err = err
			r.arrivals <- p
		}
		return
	}
	r.at("tried")
	r.carrier.carry(context.WithoutCancel(ctx), parcels) // each has its end within sendTimeout
}

// at tells a test that the order is between two steps.
func (r *liveOrder) at(moment string) {
	if r.live.gap != nil {
		r.live.gap(moment)
	}
}

// land notes the end of a parcel, and acks its letter if it has arrived.
func (r *liveOrder) land(p *parcel) error {
	r.flying--
	parcels := []*parcel{p}
	for len(parcels) < r.live.inFlight { // those that have arrived together are noted together
		select {
		case p := <-r.arrivals:
			r.flying--
			parcels = append(parcels, p)
			continue
		default:
		}
		break
	}
	var e entry
	for _, p := range parcels {
		r.progress.LastID = p.letter.Publishing.MessageId
		switch {
		case p.err == nil:
			e.Sent = append(e.Sent, p.key)
			r.book.past.sent[p.key] = true
			r.progress.Done++
			if p.twice {
				r.book.past.again[p.key] = true
			}
			r.failures = 0
		case errors.Is(p.err, errNoTarget):
			e.Left = append(e.Left, p.key)
			r.progress.Skipped++
			r.progress.Note = p.err.Error()
		case connection.ClassOf(p.err) == connection.Transient && !errors.Is(p.err, confirm.ErrNacked) && p.tries < maxTries:
			p.tries++
			if errors.Is(p.err, confirm.ErrUnconfirmed) {
				r.book.past.open[p.key] = true
			}
			r.pending = append(r.pending, p)
		default:
			if errors.Is(p.err, confirm.ErrUnconfirmed) {
				r.book.past.open[p.key] = true
			} else if !r.book.past.open[p.key] {
				e.Left = append(e.Left, p.key)
			}
			r.progress.Failed++
			r.progress.Error = p.err.Error()
			r.failures++
		}
	}
	r.progress.MaybeDuplicate = r.book.past.doubtful()
	r.at("confirmed")
	if err := r.book.write(e); err != nil {
		return err
	}
	r.at("noted")
	for _, p := range parcels {
		if p.err == nil {
			if err := r.ack(p.key, p.tag); err != nil {
				return err
			}
		}
	}
	r.at("acked")
	return r.decide(parcels)
}

// decide ends the order if its canary did not arrive, or if nothing does.
func (r *liveOrder) decide(parcels []*parcel) error {
	last := parcels[len(parcels)-1]
	if !r.canary.over && r.canary.until.IsZero() {
		switch {
		case last.err == nil:
			r.canary.until = time.Now().Add(r.order.Canary)
		case !errors.Is(last.err, errNoTarget) && !slices.Contains(r.pending, last): // else another letter is the canary, or it is sent again
			return fmt.Errorf("desk: the canary could not be sent: %w", last.err)
		}
	}
	if r.failures >= failuresInARow {
		return fmt.Errorf("%w: %s in a row, the last: %w", ErrTarget, count(r.failures, "letter"), last.err)
	}
	return nil
}

// ready reports whether a parcel may be sent, with n under way.
func (c *canary) ready(n int) bool {
	if !c.over && !c.until.IsZero() && !time.Now().Before(c.until) {
		c.over = true // it has not come back
	}
	return c.over || c.until.IsZero() && n == 0
}

// done reports whether nothing has to be waited for.
func (c *canary) done() bool { return c.over || c.until.IsZero() }

// note tells and writes down the progress.
func (r *liveOrder) note() error {
	r.progress.InHand = len(r.held)
	r.progress.Updated = time.Now().UTC()
	if r.tell != nil {
		r.tell(r.progress)
	}
	return r.book.write(entry{Progress: &r.progress})
}
