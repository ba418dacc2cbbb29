package store

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"time"

	"github.com/rehop/rehop/internal/confirm"
	"github.com/rehop/rehop/internal/letter"
	"github.com/rehop/rehop/internal/resend"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
)

// group is the entries of one lease that go to one address, or stand in one line.
type group struct {
	line  int64
	to    topology.Address // unless they stand in a line
	alone bool             // each on a channel of its own
}

// groups keeps the order of the entries of each group. Mostly there is one group, and
// nothing to copy.
func groups(entries []Entry) map[group][]Entry {
	sizes := map[group]int{}
	for i := range entries {
		sizes[entries[i].group()]++
	}
	all := make(map[group][]Entry, len(sizes))
	for i := range entries {
		g := entries[i].group()
		if sizes[g] == len(entries) {
			return map[group][]Entry{g: entries}
		}
		if all[g] == nil {
			all[g] = make([]Entry, 0, sizes[g])
		}
		all[g] = append(all[g], entries[i])
	}
	return all
}

func (l *Entry) group() group {
	if l.line != 0 {
		return group{line: l.line}
	}
	return group{to: resend.Address(l.Message, l.Queue), alone: l.alone}
}

// patience is how long entries wait for others to the same address that do not get
// on, and how long an answer may take until those of other leases do not wait for it.
const patience = 250 * time.Millisecond

// abreast is how many groups go to one address at a time: while the answers to
// one are awaited, the next is written.
const abreast = 2

// dispatch starts a goroutine for each group of a lease. The lease gives its slot back
// when each of its groups has ended or does not get an answer.
func (f *forwarder) dispatch(work context.Context, l leased, all *sync.WaitGroup) (ended *sync.WaitGroup) {
	own := &sync.WaitGroup{}
	f.suspect(l.entries)
	groups := groups(l.entries)
	slot := &slot{groups: len(groups), free: func() { <-f.slots }}
	for number, err := range l.broken {
		f.store.cfg.Logger.Error("store: an entry is parked", "entry", number, "error", err)
		f.results <- []result{{number: number, token: l.token, state: Parked, err: letter.Readable(err.Error(), letter.MaxError)}}
	}
	if len(groups) == 0 {
		slot.free()
	}
	for g, entries := range groups {
		own.Add(1)
		all.Go(func() {
			defer own.Done()
			s := &sending{forwarder: f, work: work, lease: l, leave: sync.OnceFunc(slot.leave)}
			defer s.leave()
			if g.line != 0 {
				s.line(entries)
			} else {
				s.address(g, entries)
			}
		})
	}
	return own
}

// suspect finds the entries that the broker may refuse because of their user id: until
// it has taken one with the same id they go alone.
func (f *forwarder) suspect(entries []Entry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range entries {
		if id := entries[i].Message.UserID; id != "" && !f.trusted[id] {
			entries[i].alone = true
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

// maxSilent bounds the entries whose answers are awaited without a slot.
const maxSilent = 10_000

// sending is the sending of one group.
type sending struct {
	*forwarder
	work  context.Context
	lease leased
	leave func() // gives up the group's part of the slot
}

// line publishes entries of a line one by one. One that fails holds up the others.
func (s *sending) line(entries []Entry) {
	ctx, cancel := s.bounded()
	defer cancel()
	deadline, _ := ctx.Deadline()
	for i := range entries {
		rest := entries[i+1:]
		if time.Until(deadline) < s.cfg.Lease/8 { // one that began now might be cut off
			s.results <- returned(entries[i:], s.lease, time.Time{})
			return
		}
		var once sync.Once
		giveBack := func() { once.Do(func() { s.results <- returned(rest, s.lease, time.Time{}) }) }
		one := ctx
		if entries[i].alone {
			one = confirm.Alone(ctx)
		}
		silent := false
		results := s.publish(one, entries[i:i+1], 3, func() { // the first pause is 0.8 s
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

// putOff ends the leases of entries that are not published now.
func (s *sending) putOff(entries []Entry, long time.Duration) {
	s.results <- returned(entries, s.lease, coarse(s.store.now().Add(max(long, time.Second))))
}

// coarse rounds the end of a pause up, so that one statement changes the entries of many
// addresses.
func coarse(t time.Time) time.Time {
	const grain = 100 * time.Millisecond
	return t.Add(grain - time.Nanosecond).Truncate(grain)
}

// returned are the results of entries that are not published, until next.
func returned(entries []Entry, l leased, next time.Time) []result {
	results := make([]result, len(entries))
	for i, entry := range entries {
		results[i] = result{number: entry.Number, token: l.token, state: Ready, next: next}
	}
	return results
}

// bounded is the ctx of publishing: an entry that is confirmed at the last moment is
// still to be deleted in time.
func (s *sending) bounded() (context.Context, context.CancelFunc) {
	return context.WithTimeout(s.work, min(s.cfg.Lease/2, s.lease.until.Sub(s.store.now())-s.cfg.Lease/8))
}

// publish publishes entries and returns what becomes of each. If the answers take
// longer than patience it calls silent, once, and leaves the slot, so that they hold up
// no other group.
func (s *sending) publish(ctx context.Context, entries []Entry, failures int, silent func()) []result {
	var waiting sync.Mutex // silent has ended when publish returns
	over, counted := false, 0
	timer := time.AfterFunc(patience, func() {
		waiting.Lock()
		defer waiting.Unlock()
		if over {
			return
		}
		silent()
		counted = len(entries)
		if s.silentLetters.Add(int64(counted)) <= maxSilent {
			s.leave()
		}
	})
	ctx = s.store.publishing(ctx)
	receipts := s.store.publish(ctx, s.publisher, entries, s.failed)
	timer.Stop()
	waiting.Lock()
	over = true
	s.silentLetters.Add(-int64(counted))
	waiting.Unlock()
	results := make([]result, 0, len(entries))
	answered, failed := false, failure{}
	for i, receipt := range receipts {
		r := verdict(entries[i], receipt, resend.Arrived(ctx, receipt, s.store.cfg.Name), s.cfg.Tries, failures, s.store.now())
		r.token = s.lease.token
		if !r.next.IsZero() {
			r.next = coarse(r.next)
		}
		s.report(entries[i], receipt, r)
		results = append(results, r)
		answered = answered || r.done || r.tried
		if !r.done && r.state != Parked { // one that is parked waits for a person
			failed = failure{id: entries[i].Message.ID, number: entries[i].Number, inLine: entries[i].line != 0, err: r.err, next: r.next}
		}
	}
	s.health.published(resend.Address(entries[0].Message, entries[0].Queue), failed, time.Now())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fruitless++
	if answered {
		s.fruitless = 0
	}
	for i, r := range results {
		if id := entries[i].Message.UserID; id != "" && r.done {
			if len(s.trusted) >= maxAddresses {
				clear(s.trusted)
			}
			s.trusted[id] = true
		}
	}
	return results
}

// report tells the Traces and the Logger what became of an entry.
func (s *sending) report(l Entry, receipt producer.Receipt, r result) {
	if r.done {
		if s.hooks.forwarded != nil {
			s.hooks.forwarded(s.work, Forwarded{l, receipt})
		}
		return
	}
	about := []any{"message", l.Message.ID, "exchange", l.Message.Exchange, "routing_key", l.Message.RoutingKey, "tries", l.Tries + count(r.tried)}
	switch {
	case errors.Is(receipt.Err, resend.ErrOwn):
		s.own.Do(func() { s.store.cfg.Logger.Error("store: "+resend.ErrOwn.Error(), about...) })
	case r.state == Parked:
		s.store.cfg.Logger.Error("store: an entry is parked", append(about, "error", r.err)...)
	default:
		s.again.WarnOf(string(producer.CauseOf(receipt.Err)), "store: an entry could not be forwarded", append(about, "error", r.err)...)
	}
	if s.hooks.failed != nil {
		s.hooks.failed(s.work, ForwardFailure{l, receipt.Err, r.state})
	}
}

// table is what two Stores on the same letters have in common.
type table struct {
	db   *sql.DB
	name string
}

// own reports whether ctx is that of an entry of this Store that is being published.
func (s *Store) own(ctx context.Context) bool { return resend.IsFrom(ctx, table{s.db, s.cfg.Table}) }

// publish publishes the messages of entries as they are sent, and returns a
// receipt for each. ctx is one of publishing. failed is called with an error that concerns no
// message.
func (s *Store) publish(ctx context.Context, p Publisher, entries []Entry, failed func(error)) []producer.Receipt {
	receipts := make([]producer.Receipt, len(entries))
	messages := make([]producer.Message, 0, len(entries))
	for i := range entries {
		if err := resend.Doubted(entries[i].Message, entries[i].Queue); err != nil { // Release names no target
			receipts[i] = producer.Receipt{ID: entries[i].Message.ID, Err: &resend.FaultyError{Err: err}}
			continue
		}
		messages = append(messages, entries[i].resent(s.now()))
	}
	if len(messages) == 0 {
		return receipts
	}
	published := resend.Publish(ctx, p, messages, failed)
	for i := range receipts {
		if receipts[i].Err == nil {
			receipts[i], published = published[0], published[1:]
		}
	}
	return receipts
}

// publishing returns a ctx by which the Store knows its own entries.
func (s *Store) publishing(ctx context.Context) context.Context {
	return resend.From(ctx, table{s.db, s.cfg.Table})
}
