package desk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/confirm"
	"github.com/rehop/rehop/internal/pause"
	"github.com/rehop/rehop/store"
)

// steady waits until what a process had in hand that has just died is back in the
// queue: until the queue has no consumer, or, if it has others, for steadyFor. A busy
// broker is slow to notice a death, so it waits for backFor while fewer are ready than the
// process may have had. It returns how many these are fewer.
func (l *Live) steady(ctx context.Context, inHand int) (missing int, err error) {
	counter, _, err := countOf(ctx, l.conn, l.queue)
	if err != nil {
		return 0, err
	}
	defer counter.close()
	for began := time.Now(); ; {
		q, err := counter.ask(ctx)
		if err != nil || q.Consumers == 0 {
			return 0, err
		}
		missing = max(inHand-q.Messages, 0)
		if since := time.Since(began); since >= backFor || since >= steadyFor && missing == 0 {
			return missing, nil
		}
		if !pause.For(ctx, 50*time.Millisecond) {
			return 0, pause.Ended(ctx)
		}
	}
}

// turn takes letters, sends those that are meant, and hands back the others. more
// says that it ended before the letters did.
func (r *liveRedrive) turn(ctx context.Context) (more bool, err error) {
	facts, counter, queue, err := r.live.prepare(ctx)
	if err != nil {
		return false, err
	}
	defer counter.close()
	if err := r.book.isAt(ctx, r.live.conn, brokerOf(r.live.conn, counter.session.Server())); err != nil {
		return false, err
	}
	total := queue.Messages
	if total < r.expected {
		if total, err = counter.atLeast(ctx, r.expected); err != nil {
			return false, err
		}
	}
	r.expected, r.elsewhere, r.maybeSent = 0, 0, map[string]string{}
	window := r.live.cfg.Window
	if !r.canary.over && total > window {
		return false, rehop.WithClass(fmt.Errorf("desk: a canary cannot be seen to come back behind %d letters, more than %d: collect them, or leave the canary out", total, window), rehop.ClassConfiguration)
	}
	past := &r.book.past
	if total == 0 {
		r.room = past.room(r.redrive) // of a look: none of them came
		return false, nil
	}
	if past.there == 0 && r.redrive.Look.IsZero() {
		past.there = len(past.sent) + total
		if err := r.book.write(entry{There: past.there}); err != nil {
			return false, err
		}
	}
	r.undeleted, r.unanswered = past.undeleted(), past.unanswered()
	r.room, r.progress.Bound = past.room(r.redrive), past.bound(r.redrive)
	if r.enough() {
		return false, nil
	}
	limit, _ := facts.limit()
	n := r.live.windowOf(limit) + 1 // room for the canary to come back
	r.at("counted")
	if err := r.book.write(entry{Taking: min(n, total)}); err != nil {
		return false, err
	}
	r.hand, err = take(ctx, r.live.conn, r.live.queue, n, r.live.tookBefore(), total, r.live.cfg.WindowBytes, facts.size)
	if err != nil {
		return false, err
	}
	r.held, r.pending, r.flying, r.acked, r.alike = map[uint64]amqp.Delivery{}, nil, 0, nil, map[string]int{}
	r.unjudged, r.freed = false, false
	r.sent, r.back, r.namelessSent, r.namelessBack = map[string]bool{}, 0, 0, 0
	r.counter, r.consumers, r.owner = counter, queue.Consumers, facts.owner
	r.keys = map[string]keys{}
	more, err = r.work(ctx, counter, total)
	return more, together(err, r.giveBack(ctx, limit))
}

// giveBack ends a turn: what is under way arrives, acks reach the queue, and the rest
// goes back to its head.
func (r *liveRedrive) giveBack(ctx context.Context, limit int) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sendTimeout)
	defer cancel()
	errs := []error{r.noteSeen()}
	for r.flying > 0 {
		errs = append(errs, r.land(<-r.arrivals)) // each has its end within sendTimeout
	}
	for _, p := range r.pending {
		if p.again {
			r.stays(p)
		}
		delete(r.counted, p.identity) // it may have another turn; matched keeps it
	}
	if err := r.hand.arrived(ctx); err != nil {
		errs = append(errs, err)
	} else if len(r.acked) > 0 {
		r.at("arrived")
		for _, key := range r.acked {
			r.book.past.gone[key] = true
		}
		r.progress.Deleted += r.deleting
		r.live.depart(r.acked)
		errs = append(errs, r.book.write(entry{Gone: r.acked}))
	}
	r.deleting = 0
	if limit != unlimited && r.hand.session.Err() == nil {
		var held []amqp.Delivery
		for _, tag := range slices.Sorted(maps.Keys(r.held)) {
			held = append(held, r.held[tag])
		}
		publisher := confirm.New(r.live.conn, confirm.Limits{Messages: 1})
		errs = append(errs, spare(ctx, r.hand, publisher, limit, held), publisher.Close())
	}
	err := r.hand.end(ctx, r.counter, 0, r.consumers)
	if err == nil { // that of a process which died may have ended meanwhile
		if q, failed := r.counter.ask(ctx); failed == nil {
			r.consumers = q.Consumers
		}
	}
	return together(append(errs, err)...)
}

// work handles deliveries until the letters that were in the queue have been seen and
// those that are meant have been sent. more says that it ended before that.
func (r *liveRedrive) work(ctx context.Context, counter *counter, total int) (more bool, err error) {
	over := time.NewTimer(turnLength)
	defer over.Stop()
	quiet := time.NewTimer(idle)
	defer quiet.Stop()
	beat := time.NewTicker(noteEvery)
	defer beat.Stop()
	due := time.NewTimer(0)
	defer due.Stop()
	seen, silences, taking, timeUp := 0, 0, true, false
	for _, d := range r.hand.first {
		if err := r.take(d, &seen, total, &taking); err != nil {
			return false, err
		}
	}
	for {
		if !timeUp {
			r.send(ctx)
		}
		if r.flying == 0 && (timeUp || !taking && len(r.pending) == 0 && r.canary.done()) {
			return timeUp || r.unjudged && r.freed && !r.limitReached(), nil
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
			silences = 0
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
			silences++
			q, err := counter.ask(ctx)
			switch {
			case err != nil:
				return false, err
			case q.Messages == 0 && q.Consumers <= r.hand.consumers && seen+r.cameBack() >= total:
				taking = false
			case q.Messages == 0 && (q.Consumers > r.hand.consumers && silences >= othersSilences || silences >= maxSilences): // the rest does not come
				taking = false
				r.others = q.Consumers > r.hand.consumers
				r.elsewhere = max(total-seen-r.cameBack(), 0)
			case len(r.held) >= r.hand.prefetch-1: // the broker sends no more
				taking = false
				r.leave(fmt.Sprintf("letters behind the first %d were not looked at: collect them", seen))
			}
		case <-beat.C:
			if err := r.note(); err != nil {
				return false, err
			}
		case <-over.C:
			timeUp = true
		case <-r.hand.session.Done():
			return false, r.hand.lost()
		case <-ctx.Done():
			return false, pause.Ended(ctx)
		}
	}
}

// take has a delivery in hand, and decides whether it is one of the redrive's letters.
func (r *liveRedrive) take(d amqp.Delivery, seen *int, total int, taking *bool) error {
	r.held[d.DeliveryTag] = d
	letter := fromDelivery(d, r.live.queue, r.owner)
	if r.redrive.Action == Send && letter.RedriveID == r.redrive.ID { // it has come back
		if !r.canary.over {
			return errors.Join(fmt.Errorf("%w: message %q", store.ErrCanary, letter.Publishing.MessageId), r.book.write(entry{CanaryOver: true}))
		}
		switch id := letter.Publishing.MessageId; {
		case id == "":
			r.namelessBack++
		case !r.sent[id]:
			r.back++
		}
		return nil
	}
	if *seen++; *seen <= total && *taking {
		if err := r.judge(letter, d.DeliveryTag); err != nil {
			return err
		}
	}
	if *seen >= total {
		*taking = false
	} else if *taking && r.enough() {
		*taking, r.unjudged = false, true
	}
	return nil
}

// cameBack returns how many letters, at least, an earlier turn sent and are letters again. One
// that this turn has sent is no part of the count.
func (r *liveRedrive) cameBack() int { return r.back + max(r.namelessBack-r.namelessSent, 0) }

// judge decides about a letter that is in hand. It is to be sent, or stays to be
// handed back.
func (r *liveRedrive) judge(l Letter, tag uint64) error {
	digest := l.digest()
	r.alike[digest]++
	l.ID = numbered(digest, r.alike[digest])
	past := r.book.past
	key := r.keyOf(digest)
	doubt, matches := past.sent[key], r.redrive.Filter.Matches(l)
	leaves := r.outcomes.leaves(r.redrive.target(l))
	if !matches && !r.redrive.Look.IsZero() {
		return nil // a look has no room for it: that of its digest is for a letter that is like it
	}
	if !doubt && !r.admits(digest) && (l.Publishing.MessageId == "" || !past.sent[digest]) {
		return nil
	}
	if !matches { // nor was it sent, and the number of the letters that were there counts it
		return nil
	}
	if doubt {
		if r.answer != "" && r.book.stopped() {
			return ErrRedriveStopped
		}
		r.undeleted--
		one, full := &transfer{letter: l, key: key, tag: tag, again: true}, r.limitReached()
		switch {
		case r.answer == Delete:
			r.deleting++
			return r.ack(key, tag)
		case r.answer != Again || leaves:
			r.stays(one)
		case full:
			r.unjudged = true
			r.stays(one)
		default:
			r.pending = append(r.pending, one)
		}
		return nil
	}
	if past.open[key] {
		if !leaves || r.ended[key] { // a letter that has failed has its place in the limit already
			r.unanswered--
		}
	} else if r.limitReached() {
		r.unjudged = true
		return nil
	}
	if r.ended[key] {
		return nil
	}
	if !r.matched[key] {
		r.matched[key] = true
		r.progress.Matched++
	}
	identity := key
	if l.Publishing.MessageId != "" && !past.open[key] {
		identity = digest
	}
	if r.counted[identity] {
		if r.skipped[key] == "" {
			r.skipped[key] = identity
			r.progress.Skipped++
		}
		return nil
	}
	if leaves {
		r.untried[key] = true
		return nil
	}
	r.counted[identity] = true
	r.pending = append(r.pending, &transfer{letter: l, key: key, identity: identity, tag: tag})
	return nil
}

// stays notes that a letter which may have been sent is not sent again.
func (r *liveRedrive) stays(p *transfer) {
	r.maybeSent[p.key] = cmp.Or(p.letter.Publishing.MessageId, p.letter.ID)
}

// missed returns how many letters that are known did not come. One that may have been sent is in the place of a letter
// like it, whether it stays or was sent again.
func (r *liveRedrive) missed() int {
	n := r.room.known
	came := map[string]int{}
	for key := range r.maybeSent {
		came[digestOf(key)]++
	}
	for key := range r.book.past.doubted {
		if r.book.past.sent[key] || r.ended[key] {
			came[digestOf(key)]++
		}
	}
	for digest, alike := range came {
		n -= min(alike, r.room.alike[digest])
	}
	return n
}

// begins gives a letter that may have been sent, and is about to be sent again, a key of its own.
func (r *liveRedrive) begins(p *transfer, e *entry) {
	past := &r.book.past
	e.Gone = append(e.Gone, p.key)
	past.gone[p.key] = true
	p.key = r.newKey(digestOf(p.key))
	p.identity, p.again = p.key, false
	e.Doubted = append(e.Doubted, p.key)
	past.open[p.key], past.doubted[p.key] = true, true
	r.counted[p.key], r.matched[p.key] = true, true
	r.progress.Matched++
}

// admits reports whether the redrive is about a letter that it has not sent, and has it in the
// journal from now on.
func (r *liveRedrive) admits(digest string) bool {
	takes, first := r.room.takes(digest)
	if first {
		r.firstSeen = append(r.firstSeen, digest)
		r.book.past.seen = append(r.book.past.seen, digest)
	}
	return takes
}

// noteSeen writes down the letters that were not seen before.
func (r *liveRedrive) noteSeen() error {
	if len(r.firstSeen) == 0 {
		return nil
	}
	e := entry{Seen: r.firstSeen}
	r.firstSeen = nil
	return r.book.write(e)
}

// keys are those that a turn has not given yet to letters with one digest.
type keys struct {
	begun []string // with numbers up to last
	last  int
}

// keyOf returns the key of a letter in the journal. Nothing tells a letter from its like, so
// each gets a number. The first get the numbers of letters that were not sent, which are in
// the queue for certain. As many as were sent, and are not known to have left the queue, get the
// numbers of these: each may be one of them. The others get new numbers.
func (r *liveRedrive) keyOf(digest string) (key string) {
	of, seen := r.keys[digest]
	if !seen {
		past := r.book.past
		of.last = max(past.last[digest], 1)
		var doubt []string
		for n := range of.last {
			switch key := numbered(digest, n+1); {
			case past.gone[key]:
			case past.sent[key]:
				doubt = append(doubt, key)
			default:
				of.begun = append(of.begun, key)
			}
		}
		of.begun = append(of.begun, doubt...)
	}
	if len(of.begun) == 0 {
		r.keys[digest] = of
		return r.newKey(digest)
	}
	key, of.begun = of.begun[0], of.begun[1:]
	r.keys[digest] = of
	return key
}

// newKey returns a key that no letter has had.
func (r *liveRedrive) newKey(digest string) string {
	of := r.keys[digest]
	of.last++
	r.keys[digest] = of
	r.book.past.last[digest] = of.last
	return numbered(digest, of.last)
}

// maybeSentNote names letters that may have been sent; empty if there are none.
func maybeSentNote(maybeSent map[string]string) string {
	if len(maybeSent) == 0 {
		return ""
	}
	const most = 5
	names := slices.Sorted(maps.Values(maybeSent))
	more := ""
	if len(names) > most {
		names, more = names[:most], fmt.Sprintf(" and %d more", len(names)-most)
	}
	for i, one := range names {
		names[i] = fmt.Sprintf("%.80q", one)
	}
	return fmt.Sprintf("perhaps sent: %s%s stayed in the queue; each may be a letter that this redrive has sent, or another one like it", strings.Join(names, ", "), more)
}

func (r *liveRedrive) ack(key string, tag uint64) error {
	if err := r.hand.ack(tag); err != nil {
		return fmt.Errorf("desk: queue %q: %w: %w", r.live.queue, connection.ErrSessionLost, err)
	}
	delete(r.held, tag)
	r.acked = append(r.acked, key)
	return nil
}

// limitReached reports whether the redrive may take no letter but those that it has begun
// with, which an earlier process may have left.
func (r *liveRedrive) limitReached() bool {
	return r.redrive.Limit > 0 && r.progress.Done+r.progress.Failed+len(r.pending)+r.flying+r.unanswered >= r.redrive.Limit
}

// hasNamed reports whether all letters have been met that the redrive is for, because it names them.
func (r *liveRedrive) hasNamed() bool {
	ids := len(r.redrive.Filter.IDs)
	return ids > 0 && r.progress.Matched >= ids
}

// enough reports whether no letter further back is one of the redrive's.
func (r *liveRedrive) enough() bool {
	return (r.limitReached() || r.room.left() <= 0) && r.undeleted <= 0 && r.unanswered <= 0
}
