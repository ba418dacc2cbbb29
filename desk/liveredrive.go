package desk

import (
	"context"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/confirm"
	"github.com/rehop/rehop/internal/pause"
	"github.com/rehop/rehop/internal/transport"
)

const (
	// inFlight is how many letters are under way at a time: as many may be doubled
	// by a process that dies.
	inFlight = 128
	// turnLength is how long letters are held before they are handed back and taken
	// again. A broker takes them away after its consumer timeout, 30 min.
	turnLength = 10 * time.Minute
	// lookForStop is how often another process may have stopped the redrive.
	lookForStop = 250 * time.Millisecond
	// maxLag is how much of a delay is made up for, with Redrive.Rate, at a rate that is
	// higher by a quarter.
	maxLag = 10 * time.Second
	// noteEvery is how often progress is told and written down.
	noteEvery = 500 * time.Millisecond
	// maxTries is how often a letter is sent again whose connection was lost.
	maxTries = 3
	// steadyFor is how long other consumers of the queue are taken for one of a process
	// that has died, and backFor, if letters are missing that it had in hand.
	steadyFor = 10 * time.Second
	backFor   = 45 * time.Second
	// losses is how many lost connections in a row, with nothing done between them,
	// a redrive bears.
	losses = 10
)

// Execute carries out a redrive on the letters of its Look, or on those that are in the queue
// when it begins.
func (l *Live) Execute(ctx context.Context, r Redrive, progress func(Progress)) (Progress, error) {
	r, err := r.check(l.About(), time.Now())
	if err == nil {
		r.letters, err = l.lettersOf(r)
	}
	if err != nil {
		return Progress{}, err
	}
	l.mu.Lock()
	if l.last != nil {
		r.MessageIDs = r.Filter.messageIDs(l.last.letters)
	}
	l.mu.Unlock()
	r.broker = knownBroker(l.conn)
	l.copyTo(&r)
	b, err := l.cfg.Journal.begin(r, nil)
	if err != nil {
		return Progress{Redrive: r}, err
	}
	return l.carryOut(ctx, b, false, progress)
}

// Resume continues a redrive.
func (l *Live) Resume(ctx context.Context, id string, by By, progress func(Progress)) (Progress, error) {
	b, err := reopen(ctx, l.cfg.Journal, l.About(), l.conn, id, by)
	if err != nil {
		return Progress{}, err
	}
	l.copyTo(&b.redrive)
	return l.carryOut(ctx, b, true, progress)
}

// copyTo names a file for the originals of an edit, unless the redrive does.
func (l *Live) copyTo(r *Redrive) {
	if r.Edit != nil && r.CopyTo == "" {
		r.CopyTo = l.cfg.Journal.DroppedTo(r.ID)
	}
}

// liveRedrive is a redrive that is carried out in a queue.
type liveRedrive struct {
	live        *Live
	book        *book
	redrive     Redrive
	destination destination
	originals   *copying       // of letters that are sent with an edit; nil: there is none
	found       map[string]int // originals in the file that the journal does not have, by digest
	arrivals    chan *transfer
	tell        func(Progress)
	stop        context.CancelCauseFunc
	resumed     bool

	progress   Progress
	next       time.Time // when the next transfer is due, with Redrive.Rate
	soonest    time.Time // it is not sent before, however late the redrive is
	outcomes   outcomes
	expected   int  // letters that were in hand when the session before was lost
	elsewhere  int  // letters of the last turn that were counted and did not come
	others     bool // the queue had other consumers, which took them
	counted    map[string]bool
	matched    map[string]bool   // keys of letters that Progress.Matched counts
	ended      map[string]bool   // of those that it counts as failed, or as left out without a target
	untried    map[string]bool   // of those whose targets take none
	skipped    map[string]string // of those that it counts as left out for another one, and the identity of that
	canary     canary
	answer     Answer // about letters that may have been sent when this process began
	warning    string // Progress.Note is this one, and what was left out
	targetless int    // letters that were left until somebody names a target
	noTarget   error  // of the first of them
	left       string

	// Of one turn at the queue.
	counter   *counter
	consumers int // of the queue beside those of the turn
	owner     owner
	hand      *hand
	held      map[uint64]amqp.Delivery // what is to be handed back, by tag
	pending   []*transfer
	flying    int
	acked     []string
	alike     map[string]int    // letters of this turn by their digest
	keys      map[string]keys   // that they get in the journal
	maybeSent map[string]string // letters that stay, by their keys, as people know them
	deleting  int               // letters that were sent before, and whose ack is on its way
	sent      map[string]bool   // message ids
	back      int               // letters that an earlier turn sent, and that came back: the count has them

	namelessSent, namelessBack int // of those without an id: which turn sent them is not known

	firstSeen []string // digests of letters that are not in the journal yet

	unjudged bool // letters of this turn were not looked at, because others had reached the limit
	freed    bool // some of those others were not tried, and have left room

	undeleted  int // letters of an earlier turn that were sent and may be in the queue
	unanswered int // letters of an earlier turn of which that is not known
	room       room
}

func (l *Live) carryOut(ctx context.Context, b *book, resumed bool, tell func(Progress)) (Progress, error) {
	r := &liveRedrive{
		live: l, book: b, redrive: b.redrive, resumed: resumed, arrivals: make(chan *transfer, l.inFlight), tell: tell,
		progress: b.past.progress, counted: map[string]bool{}, matched: map[string]bool{}, ended: map[string]bool{}, skipped: map[string]string{}, untried: map[string]bool{},
		outcomes: outcomes{one: b.redrive.To != nil}, canary: canary{over: b.redrive.Canary == 0 || b.past.canaryOver},
	}
	if !r.canary.over && len(b.past.sent) > 0 { // it was sent, and the watch was cut off
		r.canary.until = time.Now().Add(b.redrive.Canary)
	}
	r.progress.Redrive, r.progress.State, r.progress.Error, r.progress.Note = b.redrive, Running, "", ""
	r.progress.Began, r.progress.DoneBefore = time.Now().UTC(), len(b.past.sent)
	for key := range b.past.sent {
		r.counted[key], r.matched[key] = true, true // a duplicate of one that was sent is not sent
	}
	r.progress.Done, r.progress.Matched, r.progress.Failed, r.progress.Skipped = len(b.past.sent), len(b.past.sent), 0, 0
	r.progress.MaybeSent = 0
	if resumed {
		r.expected, r.answer = b.past.inHand, b.past.run.By.MaybeSent
	}
	err := r.run(ctx)
	if err == nil && r.progress.Matched == 0 {
		r.warning = noMatch
	}
	missed := r.missed()
	switch {
	case err == nil && !r.redrive.Look.IsZero() && missed > 0 && !r.limitReached():
		r.leave(noted(r.left, fmt.Sprintf("%s of the look did not come: other consumers may have taken them, or they have expired", count(missed, "letter"))))
	case err == nil && r.hand == nil: // there was none to take
		r.leave(l.elsewhere(ctx))
	case err == nil && r.elsewhere > 0:
		if r.others {
			r.leave(noted(r.left, fmt.Sprintf("other consumers of the queue took %s meanwhile", count(r.elsewhere, "letter"))))
		} else {
			r.leave(noted(r.left, fmt.Sprintf("%s did not come, although the queue had counted them: other consumers may have taken them, or they have expired", count(r.elsewhere, "letter"))))
		}
	case err == nil && missed > 0 && !r.limitReached():
		r.leave(noted(r.left, fmt.Sprintf("%s that the redrive had seen did not come again: other consumers may have taken them, or they have expired", count(missed, "letter"))))
	case err == nil && r.redrive.Look.IsZero() && r.consumers > 0 && !r.limitReached() && !r.hasNamed(): // what they have in hand is in no count of the queue
		r.leave(noted(r.left, l.inOtherHands(ctx)))
	}
	if n := len(r.skipped); n > 0 {
		r.leave(noted(r.left, fmt.Sprintf("left out: %s like one that this redrive has sent or tried, with the same id, headers and body", count(n, "letter"))))
	}
	r.leave(noted(r.left, maybeSentNote(r.maybeSent)))
	r.progress.MaybeSent = len(r.maybeSent)
	r.progress.InHand = 0
	if err == nil {
		err = r.outcomes.err(len(r.untried))
	}
	switch {
	case err == nil:
		r.progress.State = Done
	case errors.Is(err, ErrRedriveStopped) || ctx.Err() != nil:
		r.progress.State, r.progress.Error = Stopped, ""
		if !errors.Is(err, ErrRedriveStopped) {
			err = fmt.Errorf("%w: %w", ErrRedriveStopped, err)
		}
	default:
		r.progress.State, r.progress.Error = Failed, err.Error()
	}
	r.progress.Updated = time.Now().UTC()
	if past := b.past; r.elsewhere > 0 || past.undeleted() > 0 || past.unanswered() > 0 {
		l.mu.Lock()
		l.last = nil // nobody knows which of its letters are there
		l.mu.Unlock()
	}
	err = errors.Join(err, b.end(r.progress))
	if tell != nil {
		tell(r.progress)
	}
	return r.progress, err
}

func (r *liveRedrive) run(ctx context.Context) (err error) {
	ctx, r.stop = context.WithCancelCause(ctx)
	watched := r.book.watch(ctx, r.stop)
	defer func() { r.stop(nil); <-watched }()
	leave, err := r.live.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	r.warn(ctx)
	if err := r.open(ctx); err != nil {
		return err
	}
	defer func() { err = together(err, r.destination.close()) }()
	if r.redrive.Edit != nil {
		if r.originals, err = newCopying(r.redrive.CopyTo, r.redrive.Source, nil); err != nil {
			return err
		}
		defer func() { err = together(err, r.originals.close()) }()
		if r.resumed {
			if err := r.findOriginals(); err != nil {
				return err
			}
		}
	}
	missing := 0
	if r.resumed {
		if missing, err = r.live.steady(ctx, r.expected); err != nil {
			return err
		}
		if missing > 0 {
			r.expected = 0 // they were waited for
		}
	}
	for lost, again := 0, 0; ; {
		before := r.progress.Done
		more, err := r.turn(ctx)
		switch {
		case err == nil && !more && r.resumed && r.elsewhere > 0 && again < maxTries:
			// A busy broker may have begun to serve the dead process after its death.
			again++
			if missing, err = r.live.steady(ctx, r.elsewhere); err != nil {
				return err
			}
		case err == nil && !more && missing > 0:
			return fmt.Errorf("desk: %s in the hands of an earlier process of this redrive did not come back: another consumer has them, or the broker has not noticed yet that the process has died", count(missing, "letter"))
		case err == nil && !more:
			return nil
		case err == nil:
		case errors.Is(err, connection.ErrSessionLost) && !errors.Is(err, ErrTarget) && ctx.Err() == nil:
			if lost++; r.progress.Done > before {
				lost = 0
			}
			r.expected, r.answer = len(r.held), "" // the person did not know of these
			if lost < losses {
				pause.For(ctx, time.Duration(lost)*100*time.Millisecond)
				continue
			}
			fallthrough
		default:
			return err
		}
	}
}

// elsewhere says what is known of letters that other consumers of the queue have taken;
// empty if it has no other consumer.
func (l *Live) elsewhere(ctx context.Context) string {
	q, err := QueueByName(ctx, l.conn, l.queue)
	if err != nil || q.Consumers == 0 { // what the management API says may be over
		return ""
	}
	return "none is ready: " + l.inOtherHands(ctx)
}

// inOtherHands says what is known of the letters of a queue that has other consumers. AMQP tells that
// it has some, and only the management API how many letters they have.
func (l *Live) inOtherHands(ctx context.Context) string {
	if api := transport.Inside.Conn(l.conn).Management(); api != nil {
		if i, err := api.Info(ctx, l.queue); err == nil && i.Unacked > 0 { // those of a look may be among them
			return fmt.Sprintf("other consumers had at most %s in hand when the management API counted them, up to 10 s ago", count(i.Unacked, "letter"))
		}
	}
	return "the queue has other consumers, which may have letters in hand" // one process may be several
}

func (r *liveRedrive) open(ctx context.Context) (err error) {
	arrived := func(p *transfer) { r.arrivals <- p }
	if r.redrive.Action == Drop {
		r.destination, err = newCopying(r.redrive.CopyTo, r.redrive.Source, arrived)
		return err
	}
	user, err := userOf(ctx, r.live.conn)
	if err != nil {
		return err
	}
	r.destination = &publishing{redrive: r.redrive, user: user, arrived: arrived, publisher: confirm.New(r.live.conn, confirm.Limits{Messages: r.live.inFlight})}
	return nil
}

// at tells a test that the redrive is between two steps.
func (r *liveRedrive) at(moment string) {
	if r.live.gap != nil {
		r.live.gap(moment)
	}
}

// warn tells if the canary cannot be back in its time.
func (r *liveRedrive) warn(ctx context.Context) {
	r.warning = r.redrive.targetNote(ctx, r.live.conn)
	if !r.canary.over {
		r.warning = noted(r.redrive.canaryNote(ctx, r.live.conn, func(q Queue) bool { return q.DeadLetters == r.live.queue }), r.warning)
	}
	if r.leave(""); r.warning != "" && r.tell != nil {
		r.tell(r.progress)
	}
}

// leave notes what the redrive leaves out.
func (r *liveRedrive) leave(what string) {
	r.left = what
	r.progress.Note = noted(r.warning, untargeted(r.targetless, r.noTarget), what)
}

// note tells and writes down the progress.
func (r *liveRedrive) note() error {
	r.progress.InHand = len(r.held)
	r.progress.MaybeSent = len(r.maybeSent)
	r.progress.Updated = time.Now().UTC()
	if err := r.noteSeen(); err != nil {
		return err
	}
	if r.tell != nil {
		r.tell(r.progress)
	}
	return r.book.write(entry{Progress: &r.progress})
}
