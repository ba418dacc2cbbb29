package store

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/rehop/rehop/internal/confirm"
	"github.com/rehop/rehop/internal/letter"
	"github.com/rehop/rehop/internal/resend"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
)

// group is the letters of one lease that go to one address, or stand in one line.
type group struct {
	line  int64
	to    topology.Address // unless they stand in a line
	alone bool             // each on a channel of its own
}

// groups keeps the order of the letters of each group. Mostly there is one group, and
// nothing to copy.
func groups(letters []Entry) map[group][]Entry {
	sizes := map[group]int{}
	for i := range letters {
		sizes[letters[i].group()]++
	}
	all := make(map[group][]Entry, len(sizes))
	for i := range letters {
		g := letters[i].group()
		if sizes[g] == len(letters) {
			return map[group][]Entry{g: letters}
		}
		if all[g] == nil {
			all[g] = make([]Entry, 0, sizes[g])
		}
		all[g] = append(all[g], letters[i])
	}
	return all
}

func (l *Entry) group() group {
	if l.line != 0 {
		return group{line: l.line}
	}
	return group{to: resend.Address(l.Message, l.Queue), alone: l.alone}
}

// patience is how long letters wait for others to the same address that do not get
// on, and how long an answer may take until those of other leases do not wait for it.
const patience = 250 * time.Millisecond

// abreast is how many groups go to one address at a time: while the answers to
// one are awaited, the next is written.
const abreast = 2

// dispatch starts a goroutine for each group of a lease. The lease gives its slot back
// when each of its groups has ended or does not get an answer.
func (f *forwarder) dispatch(work context.Context, l leased, all *sync.WaitGroup) (ended *sync.WaitGroup) {
	own := &sync.WaitGroup{}
	f.suspect(l.letters)
	groups := groups(l.letters)
	slot := &slot{groups: len(groups), free: func() { <-f.slots }}
	for number, err := range l.broken {
		f.store.cfg.Logger.Error("store: a letter is parked", "letter", number, "error", err)
		f.results <- []result{{number: number, token: l.token, state: Parked, err: letter.Readable(err.Error(), letter.MaxError)}}
	}
	if len(groups) == 0 {
		slot.free()
	}
	for g, letters := range groups {
		own.Add(1)
		all.Go(func() {
			defer own.Done()
			s := &sending{forwarder: f, work: work, lease: l, leave: sync.OnceFunc(slot.leave)}
			defer s.leave()
			if g.line != 0 {
				s.line(letters)
			} else {
				s.address(g, letters)
			}
		})
	}
	return own
}

// suspect finds the letters that the broker may refuse because of their user id: until
// it has taken one with the same id they go alone.
func (f *forwarder) suspect(letters []Entry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range letters {
		if id := letters[i].Message.UserID; id != "" && !f.trusted[id] {
			letters[i].alone = true
		}
	}
}

// slot is the right of a lease to be there.
type slot struct {
	mu     sync.Mutex
	groups int
	free   func()
}

func (s *slot) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.groups--; s.groups == 0 {
		s.free()
	}
}

// maxSilent bounds the letters whose answers are awaited without a slot.
const maxSilent = 10_000

// sending is the sending of one group.
type sending struct {
	*forwarder
	work  context.Context
	lease leased
	leave func() // gives up the group's part of the slot
}

// line publishes letters of a line one by one. One that fails holds up the others.
func (s *sending) line(letters []Entry) {
	ctx, cancel := s.bounded()
	defer cancel()
	deadline, _ := ctx.Deadline()
	for i := range letters {
		rest := letters[i+1:]
		if time.Until(deadline) < s.cfg.Lease/8 { // one that began now might be cut off
			s.results <- returned(letters[i:], s.lease, time.Time{})
			return
		}
		var once sync.Once
		giveBack := func() { once.Do(func() { s.results <- returned(rest, s.lease, time.Time{}) }) }
		one := ctx
		if letters[i].alone {
			one = confirm.Alone(ctx)
		}
		silent := false
		results := s.publish(one, letters[i:i+1], 3, func() { // the first pause is 0.8 s
			giveBack() // nobody has them before the first has its result: the line waits for its lease
			silent = true
		})
		if !results[0].done && len(rest) > 0 {
			// In one transaction with the one that failed: none overtakes it.
			once.Do(func() { results = append(results, returned(rest, s.lease, time.Time{})...) })
		}
		s.results <- results
		if !results[0].done || silent {
			return
		}
	}
}

// putOff ends the leases of letters that are not published now.
func (s *sending) putOff(letters []Entry, long time.Duration) {
	s.results <- returned(letters, s.lease, coarse(s.store.now().Add(max(long, time.Second))))
}

// coarse rounds the end of a pause up, so that one statement changes the letters of many
// addresses.
func coarse(t time.Time) time.Time {
	const grain = 100 * time.Millisecond
	return t.Add(grain - time.Nanosecond).Truncate(grain)
}

// returned are the results of letters that are not published, until next.
func returned(letters []Entry, l leased, next time.Time) []result {
	results := make([]result, len(letters))
	for i, letter := range letters {
		results[i] = result{number: letter.Number, token: l.token, state: Ready, next: next}
	}
	return results
}

// bounded is the ctx of publishing: a letter that is confirmed at the last moment is
// still to be deleted in time.
func (s *sending) bounded() (context.Context, context.CancelFunc) {
	return context.WithTimeout(s.work, min(s.cfg.Lease/2, s.lease.until.Sub(s.store.now())-s.cfg.Lease/8))
}

// publish publishes letters and returns what becomes of each. If the answers take
// longer than patience it calls silent, once, and leaves the slot, so that they hold up
// no other group.
func (s *sending) publish(ctx context.Context, letters []Entry, failures int, silent func()) []result {
	var waiting sync.Mutex // silent has ended when publish returns
	over, counted := false, 0
	timer := time.AfterFunc(patience, func() {
		waiting.Lock()
		defer waiting.Unlock()
		if over {
			return
		}
		silent()
		counted = len(letters)
		if s.silentLetters.Add(int64(counted)) <= maxSilent {
			s.leave()
		}
	})
	receipts := s.store.publish(ctx, s.publisher, letters, s.failed)
	timer.Stop()
	waiting.Lock()
	over = true
	s.silentLetters.Add(-int64(counted))
	waiting.Unlock()
	results := make([]result, 0, len(letters))
	answered, failed := false, ""
	for i, receipt := range receipts {
		r := verdict(letters[i], receipt, s.store.cfg.Name, s.cfg.Tries, failures, s.store.now())
		r.token = s.lease.token
		if !r.next.IsZero() {
			r.next = coarse(r.next)
		}
		s.report(letters[i], receipt, r)
		results = append(results, r)
		answered = answered || r.done || r.tried
		if !r.done && r.state != Parked { // one that is parked waits for a person
			failed = r.err
		}
	}
	s.health.published(resend.Address(letters[0].Message, letters[0].Queue), failed, time.Now())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fruitless++
	if answered {
		s.fruitless = 0
	}
	for i, r := range results {
		if id := letters[i].Message.UserID; id != "" && r.done {
			if len(s.trusted) >= maxAddresses {
				clear(s.trusted)
			}
			s.trusted[id] = true
		}
	}
	return results
}

// report tells the Traces and the Logger what became of a letter.
func (s *sending) report(l Entry, receipt producer.Receipt, r result) {
	if r.done {
		if s.hooks.forwarded != nil {
			s.hooks.forwarded(s.work, Forwarded{l, receipt})
		}
		return
	}
	about := []any{"message", l.Message.ID, "exchange", l.Message.Exchange, "routing_key", l.Message.RoutingKey, "tries", l.Tries + count(r.tried)}
	switch {
	case errors.Is(receipt.Err, errOwn):
		s.own.Do(func() { s.store.cfg.Logger.Error("store: "+errOwn.Error(), about...) })
	case r.state == Parked:
		s.store.cfg.Logger.Error("store: a letter is parked", append(about, "error", r.err)...)
	default:
		s.again.WarnOf(string(producer.CauseOf(receipt.Err)), "store: a letter could not be forwarded", append(about, "error", r.err)...)
	}
	if s.hooks.failed != nil {
		s.hooks.failed(s.work, ForwardFailure{l, receipt.Err, r.state})
	}
}

// errOwn is for a Publisher that wants to store a letter where it comes from.
var errOwn = errors.New("the Publisher of the Forwarder or Replay has the Store itself in its Fallback: give it a Producer without one; a letter that cannot be published stays where it is")

type publishingKey struct{}

// own reports whether ctx is that of a letter of this Store that is being published.
func (s *Store) own(ctx context.Context) bool {
	from, ok := ctx.Value(publishingKey{}).(*Store)
	return ok && from.db == s.db && from.cfg.Table == s.cfg.Table
}

// publish publishes the messages of letters as they are sent, and returns a
// receipt for each. failed is called with an error that concerns no message.
func (s *Store) publish(ctx context.Context, p Publisher, letters []Entry, failed func(error)) []producer.Receipt {
	messages := make([]producer.Message, len(letters))
	for i := range letters {
		messages[i] = letters[i].resent(s.now())
	}
	return resend.Publish(s.publishing(ctx), p, messages, failed)
}

// publishing returns a ctx by which the Store knows its own letters.
func (s *Store) publishing(ctx context.Context) context.Context {
	return context.WithValue(ctx, publishingKey{}, s)
}
