package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/store"
)

// tally follows each order.
type tally struct {
	began time.Time

	mu        sync.Mutex
	confirmed map[string]bool
	stored    map[string]bool
	forwarded map[string]bool
	maybe     map[string]bool // announced as perhaps there twice
	arrived   map[string]int
	refused   int // Publish returned an error: the customer was told
	took      []time.Duration
}

func newTally() *tally {
	return &tally{
		began:     time.Now(),
		confirmed: map[string]bool{}, stored: map[string]bool{}, forwarded: map[string]bool{}, maybe: map[string]bool{}, arrived: map[string]int{},
	}
}

// take notes the answer to a customer.
func (t *tally) take(r producer.Receipt, err error, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.took = append(t.took, took)
	switch {
	case err != nil:
		t.refused++
	case r.Place == producer.PlaceQueue:
		t.confirmed[r.ID] = true
	default:
		t.stored[r.ID] = true
	}
	if r.MaybeDuplicate {
		t.maybe[r.ID] = true
	}
}

// forward notes an order that has left the store.
func (t *tally) forward(_ context.Context, f store.Forwarded) {
	l, r := f.Entry, f.Receipt
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forwarded[l.Message.ID] = true
	if l.Unconfirmed > 0 || r.MaybeDuplicate {
		t.maybe[l.Message.ID] = true
	}
}

// arrive notes an order that the worker has handled.
func (t *tally) arrive(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.arrived[id]++
}

// show prints a line each second.
func (t *tally) show(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			t.mu.Lock()
			fmt.Printf("%4.0fs   confirmed %5d   stored %5d   forwarded %5d   arrived %5d\n",
				time.Since(t.began).Seconds(), len(t.confirmed), len(t.stored), len(t.forwarded), len(t.arrived))
			t.mu.Unlock()
		}
	}
}

// settle waits until the store is empty and every safe order has arrived.
func (t *tally) settle(ctx context.Context, outbox *store.Store) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		left, err := outbox.Count(ctx, store.Query{})
		if err != nil {
			return err
		}
		t.mu.Lock()
		done := left == 0 && len(t.arrived) >= len(t.confirmed)+len(t.stored)
		t.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return t.report() // names the missing orders
		}
	}
}

// report prints the table, and returns an error if an order is not accounted for.
func (t *tally) report() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	lost, announced, unexplained := 0, 0, 0
	for _, safe := range []map[string]bool{t.confirmed, t.stored} {
		for id := range safe {
			switch n := t.arrived[id]; {
			case n == 0:
				lost++
			case n > 1 && t.maybe[id]:
				announced++
			case n > 1:
				unexplained++
			}
		}
	}
	slices.Sort(t.took)
	at := func(share float64) time.Duration {
		if len(t.took) == 0 {
			return 0
		}
		return t.took[int(float64(len(t.took)-1)*share)].Round(time.Millisecond)
	}
	fmt.Printf(`
orders confirmed by the broker   %6d
orders stored, and forwarded     %6d
customers sent away              %6d
arrived twice, as announced      %6d
arrived twice, unexplained       %6d
lost                             %6d
a customer waited                %v (median), %v (99 %%), %v (longest)
`, len(t.confirmed), len(t.stored), t.refused, announced, unexplained, lost, at(0.5), at(0.99), at(1))
	if lost+unexplained > 0 {
		return fmt.Errorf("%d orders are lost and %d arrived twice unannounced", lost, unexplained)
	}
	return nil
}
