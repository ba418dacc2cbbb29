package main

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// A bill is one of the bills of a customer, who gets them in the order of their numbers.
type bill struct {
	Customer string
	Number   int // from 1
}

// What a process tells.
const (
	ready  = "ready" // it has declared the shards and begins to consume them
	begin  = "begin"
	failed = "failed"
	done   = "done"
)

// An event is a line that a process prints about a bill.
type event struct {
	What string
	bill
	Queue       string
	Attempt     int
	Redelivered bool
	At          time.Time
	Process     int
}

// books are about all bills and processes.
type books struct {
	mu     sync.Mutex
	sent   map[bill]time.Time
	copies map[bill]bool // perhaps published twice, as the producer has announced
	events []event
	done   map[bill]bool
	killed map[int]time.Time // by process
}

func newBooks() *books {
	return &books{sent: map[bill]time.Time{}, copies: map[bill]bool{}, done: map[bill]bool{}, killed: map[int]time.Time{}}
}

// publish notes a bill that the broker has confirmed.
func (b *books) publish(x bill, at time.Time, perhapsTwice bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sent[x], b.copies[x] = at, perhapsTwice
}

func (b *books) note(e event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events = append(b.events, e)
	if e.What == done {
		b.done[e.bill] = true
	}
}

func (b *books) kill(process int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.killed[process] = time.Now()
}

// open returns how many bills are published and not handled.
func (b *books) open() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for x := range b.sent {
		if !b.done[x] {
			n++
		}
	}
	return n
}

// look returns how many bills were handled since a time, and by process the bills that it has begun and not
// finished and the shards that it handles.
func (b *books) look(since time.Time) (bills int, inHand, shards map[int]int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	hands, queues := map[bill]int{}, map[string]int{}
	for _, e := range b.events {
		switch e.What {
		case begin:
			hands[e.bill], queues[e.Queue] = e.Process, e.Process
		case done:
			delete(hands, e.bill)
			if e.At.After(since) {
				bills++
			}
		}
	}
	inHand, shards = map[int]int{}, map[int]int{}
	for _, process := range hands {
		inHand[process]++
	}
	for _, process := range queues {
		shards[process]++
	}
	return bills, inHand, shards
}

// account is what became of the bills.
type account struct {
	published, handled, retried, lost int
	redelivered                       int // begun again after a kill
	again, unexplained                int // handled more than once: after a kill, or for no known reason
	outOfOrder                        int

	// From Publish to the end of the handler, for the bills behind a failed one of their customer and for other
	// bills. Failed bills are in neither.
	behind, other []time.Duration
}

// turn says where a customer's bills are.
type turn struct {
	number int // of the bill that began last
	state  string
	by     int // process
}

// account reads the books.
//
// A bill is in order if it begins after the one before it was handled. A bill may begin again if a process had it
// in hand: the same process retries it in place, or the broker redelivers it after a kill or a stop. From that
// bill on the customer's bills must again come one after the other.
func (b *books) account() account {
	lost := b.open()
	b.mu.Lock()
	defer b.mu.Unlock()
	slices.SortStableFunc(b.events, func(x, y event) int { return x.At.Compare(y.At) })
	a := account{published: len(b.sent), handled: len(b.done), lost: lost}
	turns, begunBy, doneBy := map[string]turn{}, map[bill]int{}, map[bill]int{} // processes by number
	wasFailed, failedUntil := map[bill]bool{}, map[string]time.Time{}
	for _, e := range b.events {
		t := turns[e.Customer]
		switch e.What {
		case begin:
			if !b.inOrder(t, e) {
				a.outOfOrder++
			}
			if by, was := begunBy[e.bill]; was && !b.killed[by].IsZero() && by != e.Process {
				a.redelivered++
			}
			begunBy[e.bill] = e.Process
			turns[e.Customer] = turn{e.Number, begin, e.Process}
			continue
		case failed:
			wasFailed[e.bill] = true
		case done:
			if by, was := doneBy[e.bill]; was {
				if b.killed[by].IsZero() && !b.copies[e.bill] {
					a.unexplained++
				} else {
					a.again++
				}
				break
			}
			doneBy[e.bill] = e.Process
			switch sent := b.sent[e.bill]; {
			case wasFailed[e.bill]:
				a.retried++
				failedUntil[e.Customer] = e.At
			case sent.Before(failedUntil[e.Customer]):
				a.behind = append(a.behind, e.At.Sub(sent))
			default:
				a.other = append(a.other, e.At.Sub(sent))
			}
		}
		if t.number == e.Number && t.by == e.Process {
			turns[e.Customer] = turn{e.Number, e.What, e.Process}
		}
	}
	return a
}

// inOrder reports whether a bill may begin after what came before it.
func (b *books) inOrder(t turn, e event) bool {
	killed := b.killed[t.by]
	gone := !killed.IsZero() && killed.Before(e.At)
	switch {
	case e.Number == t.number+1:
		return t.number == 0 || t.state == done
	case e.Number == t.number && e.Process == t.by && t.state == failed:
		return e.Attempt > 1
	case e.Number == t.number && t.state == done && b.copies[e.bill]:
		return true
	}
	return e.Number <= t.number && e.Redelivered && (t.state != begin || gone)
}

// fault returns what is wrong.
func (a account) fault() error {
	if a.published == 0 || a.handled != a.published || a.lost > 0 || a.unexplained > 0 || a.outOfOrder > 0 {
		return errors.New("the account is not in order")
	}
	return nil
}

func (a account) String() string {
	return fmt.Sprintf(`
bills published, confirmed      %7d
handled                         %7d
failed, and retried in place    %7d
begun again after a kill        %7d
handled twice, by a kill        %7d
handled twice, unexplained      %7d
lost                            %7d
out of order                    %7d
a bill took                     %7v (median)
a bill behind a failed one      %7v (median)
`, a.published, a.handled, a.retried, a.redelivered, a.again, a.unexplained, a.lost, a.outOfOrder, median(a.other), median(a.behind))
}

func median(of []time.Duration) time.Duration {
	if len(of) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(of))[len(of)/2].Round(time.Millisecond)
}
