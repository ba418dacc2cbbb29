package desk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/internal/confirm"
	"github.com/rehop/rehop/internal/pause"
	"github.com/rehop/rehop/topology"
)

// canary is the first letter of a redrive with Redrive.Canary.
type canary struct {
	until time.Time // zero: it has not arrived
	over  bool      // or there is none
}

// wait returns how long nothing is to be sent.
func (r *liveRedrive) wait() time.Duration {
	switch {
	case !r.canary.over && !r.canary.until.IsZero():
		return max(time.Until(r.canary.until), time.Millisecond)
	case r.group() > 0:
		return max(time.Until(r.next), time.Until(r.soonest), time.Millisecond)
	}
	return 0
}

// group returns how many letters may be sent now, but for the rate. They are sent in groups, each
// of which is synced to the journal: when none is under way, or half as many as may be.
func (r *liveRedrive) group() int {
	if r.flying > 0 && r.outcomes.ending() {
		return 0
	}
	n := len(r.outcomes.some(len(r.pending), r.live.inFlight, r.flying, func(i int) topology.Address { return r.redrive.target(r.pending[i].letter) }))
	if r.redrive.Rate == 0 && r.flying > 0 && n < r.live.inFlight/2 {
		return 0
	}
	return n
}

// pick takes the first n letters that may be sent now.
func (r *liveRedrive) pick(n int) []*transfer {
	places := r.outcomes.some(len(r.pending), r.live.inFlight, r.flying, func(i int) topology.Address { return r.redrive.target(r.pending[i].letter) })[:n]
	transfers := make([]*transfer, n)
	for i, place := range places {
		transfers[i] = r.pending[place]
	}
	if places[n-1] == n-1 { // nearly always
		r.pending = r.pending[n:]
		return transfers
	}
	var rest []*transfer
	for i, p := range r.pending {
		if _, picked := slices.BinarySearch(places, i); !picked {
			rest = append(rest, p)
		}
	}
	r.pending = rest
	return transfers
}

// send sends what may be sent now. Somebody may have asked for a stop since the last group.
func (r *liveRedrive) send(ctx context.Context) {
	if r.canary.passes(time.Now()) {
		r.passed(ctx)
	}
	if !r.canary.ready(r.flying) {
		return
	}
	n := r.group()
	if !r.canary.over {
		n = min(n, 1)
	}
	if rate := r.redrive.Rate; rate > 0 {
		now := time.Now()
		if now.Before(r.next) || now.Before(r.soonest) {
			return
		}
		if r.next.Before(now.Add(-maxLag)) {
			r.next = now // what was missed before is not made up for
		}
		n = min(n, max(int(rate/25), 1), max(int(rate/4), 1)-r.flying) // 25 groups a second, each of which is synced
		if n <= 0 {
			return
		}
		takes := time.Duration(float64(n) / rate * float64(time.Second))
		r.next, r.soonest = r.next.Add(takes), now.Add(takes*4/5)
	}
	if n <= 0 {
		return
	}
	if r.book.stopped() {
		r.stop(errStopped)
		return
	}
	transfers := r.pick(n)
	e := entry{Seen: r.firstSeen}
	for _, p := range transfers {
		if p.again {
			r.begins(p, &e)
		}
		e.Try = append(e.Try, p.key)
		if id := p.letter.Publishing.MessageId; id != "" {
			r.sent[id] = true
		} else {
			r.namelessSent++
		}
		if r.book.past.open[p.key] {
			r.book.past.again[p.key] = true
		}
	}
	r.flying += n
	for _, p := range transfers {
		r.outcomes.sent(r.redrive.target(p.letter))
	}
	r.at("matched")
	r.firstSeen = nil
	err := r.book.write(e)
	if err == nil && r.originals != nil {
		transfers, err = r.keepOriginals(transfers)
	}
	if err != nil {
		for _, p := range transfers {
			p.err = &unsendableError{err}
			r.arrivals <- p
		}
		r.stop(pause.Own(err)) // nor does it take the next ones
		return
	}
	r.at("tried")
	r.destination.deliver(context.WithoutCancel(ctx), transfers) // each has its end within sendTimeout
}

// findOriginals compares the file with the journal. An earlier process may have died before it noted an original, and somebody
// may have taken the file away.
func (r *liveRedrive) findOriginals() error {
	found, err := r.originals.digests()
	if err != nil {
		return err
	}
	kept := r.book.past.kept
	for key := range kept {
		if digest := digestOf(key); found[digest] > 0 {
			found[digest]--
		} else {
			delete(kept, key)
		}
	}
	r.found = found
	return nil
}

// keepOriginals writes letters down as they are, before they are sent with an edit. Each is written once. One that cannot be
// written is not sent.
func (r *liveRedrive) keepOriginals(transfers []*transfer) (kept []*transfer, err error) {
	var e entry
	var first []*transfer
	for _, p := range transfers {
		switch digest := digestOf(p.key); {
		case r.book.past.kept[p.key]:
		case r.found[digest] > 0:
			r.found[digest]--
			r.book.past.kept[p.key] = true
			e.Kept = append(e.Kept, p.key)
		default:
			first = append(first, p)
		}
	}
	if first == nil && e.Kept == nil {
		return transfers, nil
	}
	if first != nil {
		if err := r.originals.write(first); err != nil { // those that are in the file are sent all the same
			r.stop(pause.Own(err))
		}
		r.at("copied")
	}
	for _, p := range first {
		if p.err == nil {
			r.book.past.kept[p.key] = true
			e.Kept = append(e.Kept, p.key)
		}
	}
	for _, p := range transfers {
		if r.book.past.kept[p.key] {
			kept = append(kept, p)
			continue
		}
		p.err = &unsendableError{p.err}
		r.arrivals <- p
	}
	return kept, r.book.write(e)
}

// land notes the end of a transfer, and acks its letter if it has arrived.
func (r *liveRedrive) land(p *transfer) error {
	r.flying--
	transfers := []*transfer{p}
	for len(transfers) < r.live.inFlight { // those that have arrived together are noted together
		select {
		case p := <-r.arrivals:
			r.flying--
			transfers = append(transfers, p)
			continue
		default:
		}
		break
	}
	var e entry
	for _, p := range transfers {
		to := r.redrive.target(p.letter)
		r.progress.LastID = p.letter.Publishing.MessageId
		switch {
		case p.err == nil:
			e.Sent = append(e.Sent, p.key)
			r.book.past.sent[p.key] = true
			r.progress.Done++
			if p.twice {
				r.book.past.again[p.key] = true
			}
			r.outcomes.taken(to)
		case hasNoTarget(p.err):
			r.outcomes.untold(to)
			e.Left = append(e.Left, p.key)
			r.progress.Skipped++
			r.ended[p.key] = true
			r.targetless, r.noTarget = r.targetless+1, cmp.Or(r.noTarget, p.err)
			r.leave(r.left)
		case rehop.ClassOf(p.err) == rehop.ClassTransient && !errors.Is(p.err, confirm.ErrNacked) && !isUnsendable(p.err) && p.tries < maxTries:
			r.outcomes.untold(to)
			p.tries++
			if errors.Is(p.err, confirm.ErrUnconfirmed) {
				r.book.past.open[p.key] = true
			} else if !r.book.past.open[p.key] { // or who reads the journal would take the next try for a second one
				e.Left = append(e.Left, p.key)
			}
			r.pending = append(r.pending, p)
		default:
			if errors.Is(p.err, confirm.ErrUnconfirmed) {
				r.book.past.open[p.key] = true
			} else if !r.book.past.open[p.key] {
				e.Left = append(e.Left, p.key)
			}
			r.progress.Failed++
			r.ended[p.key] = true
			r.progress.Error = p.err.Error()
			if isUnsendable(p.err) {
				r.outcomes.untold(to)
			} else {
				r.outcomes.failed(to, p.err)
			}
		}
	}
	r.progress.MaybeDuplicate = r.book.past.twice()
	r.at("confirmed")
	if err := r.book.write(e); err != nil {
		return err
	}
	r.at("noted")
	for _, p := range transfers {
		if p.err == nil {
			if err := r.ack(p.key, p.tag); err != nil {
				return err
			}
		}
	}
	r.at("acked")
	return r.decide(transfers)
}

// decide ends the redrive if its canary did not arrive, or if nothing does.
func (r *liveRedrive) decide(transfers []*transfer) error {
	last := transfers[len(transfers)-1]
	if !r.canary.over && r.canary.until.IsZero() {
		switch {
		case last.err == nil:
			r.canary.until = time.Now().Add(r.redrive.Canary)
		case !hasNoTarget(last.err) && !slices.Contains(r.pending, last): // else another letter is the canary, or it is sent again
			return fmt.Errorf("desk: the canary could not be sent: %w", last.err)
		}
	}
	r.leaveUntried()
	if r.flying > 0 { // the number of failures is not known yet
		return nil
	}
	return r.outcomes.end()
}

// leaveUntried takes the letters out of pending that go to queues which take none.
func (r *liveRedrive) leaveUntried() {
	if r.outcomes.shut == 0 {
		return
	}
	left := map[string]bool{}
	r.pending = slices.DeleteFunc(r.pending, func(p *transfer) bool {
		if !r.outcomes.leaves(r.redrive.target(p.letter)) {
			return false
		}
		r.freed = true
		if p.again {
			r.stays(p)
			return true
		}
		r.untried[p.key], left[p.identity] = true, true
		delete(r.counted, p.identity)
		if r.book.past.open[p.key] {
			r.unanswered++ // it may have been sent, and keeps its place in the limit
		}
		return true
	})
	if len(left) == 0 {
		return
	}
	for key, identity := range r.skipped {
		if left[identity] {
			delete(r.skipped, key)
			r.untried[key] = true
			r.progress.Skipped--
		}
	}
}

// passes reports whether the canary's time is over now, and it has not come back.
func (c *canary) passes(now time.Time) bool {
	return !c.over && !c.until.IsZero() && !now.Before(c.until)
}

// passed notes that the canary has passed. Where the queue has other consumers, one of them
// may have taken it when it came back.
func (r *liveRedrive) passed(ctx context.Context) {
	r.canary.over = true
	if err := r.book.write(entry{CanaryOver: true}); err != nil {
		return // the next letter meets the same error
	}
	ctx, cancel := context.WithTimeout(ctx, canaryTimeout)
	defer cancel()
	if q, err := r.counter.ask(ctx); err == nil && q.Consumers > r.hand.consumers {
		r.warning = noted(r.warning, "the queue has other consumers: one of them may have taken the canary when it came back")
	}
}

// ready reports whether a transfer may be sent, with n under way.
func (c *canary) ready(n int) bool {
	return c.over || c.until.IsZero() && n == 0
}

// done reports whether nothing has to be waited for.
func (c *canary) done() bool { return c.over || c.until.IsZero() }

// together is errors.Join, without an error whose text another one has: the end of a connection
// is the error of all that was about to use it.
func together(errs ...error) error {
	var told []error
	for _, err := range errs {
		if err == nil || slices.ContainsFunc(told, func(other error) bool { return strings.Contains(other.Error(), err.Error()) }) {
			continue
		}
		told = append(told, err)
	}
	return errors.Join(told...)
}
