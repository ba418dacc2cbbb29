package consumer_test

import (
	"context"
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/topology"
)

var anything = flag.Int("anything", 3, "seeds of TestAnythingAtRandom")

// Outcomes, faults and configurations at random: nothing is lost, no key is handled by two at a
// time, what is told is so, and a stop ends in time.
func TestAnythingAtRandom(t *testing.T) {
	for seed := range *anything {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(seed), 7))
			version := versions[r.IntN(3)]
			kind := []topology.QueueType{topology.Classic, topology.Quorum}[r.IntN(2)]
			on(t, version, kind, func(w *fixture) { anyOutcome(w, r) })
		})
	}
}

func anyOutcome(w *fixture, r *rand.Rand) {
	const n = 60
	cfg := consumer.Config{Concurrency: []int{1, 2, 5, 40}[r.IntN(4)], KeyLimit: r.IntN(3), CopyTimeout: 3 * time.Second, DrainTimeout: 10 * time.Second,
		HandlerTimeout: time.Duration(r.IntN(2)) * 20 * time.Second}
	cfg.Outage.Off = r.IntN(3) == 0
	batch := r.IntN(2) == 0
	if !batch && cfg.KeyLimit > 0 && r.IntN(2) == 0 {
		cfg.RetryInPlace = true
	}
	var c *consumer.Consumer
	var mu sync.Mutex
	atWork := map[string]int{}
	done := map[string]bool{}
	doubled := atomic.Bool{}
	var calm atomic.Bool
	busyHook := func() {
		if c != nil {
			_ = c.Health()
		}
	}
	tr := consumer.Trace{
		Received: func(ctx context.Context, _ *consumer.Delivery) context.Context { busyHook(); return ctx },
		Settled:  func(context.Context, consumer.Settled) { busyHook() },
		Handled:  func(context.Context, consumer.Handled) { busyHook() },
	}
	if r.IntN(2) == 0 {
		tr.Copied = func(context.Context, consumer.Copied) { busyHook() }
		tr.Confirmed = func(context.Context, consumer.Copied) { busyHook(); c.Resume() }
	}
	cfg.Traces = []consumer.Trace{tr, {Settled: w.journal.note}}
	runs := atomic.Int64{}
	salt := r.Uint64()
	outcome := func(id string) (err error, goexit bool) {
		if calm.Load() {
			return nil, false
		}
		h := fnv.New64a()
		fmt.Fprint(h, id, salt, runs.Add(1))
		switch h.Sum64() % 12 {
		case 0, 1:
			return errBroken, false
		case 2, 3:
			return consumer.Hold(errBroken), false
		case 4:
			return consumer.RetryAfter(time.Duration(h.Sum64()>>8%90)*time.Second, errBroken), false
		case 5:
			return consumer.Snooze(time.Duration(1+h.Sum64()>>8%20)*time.Second, "later"), false
		case 6:
			return consumer.DeadLetter(errBroken), false
		case 7:
			return nil, h.Sum64()>>9%3 == 0
		case 8:
			panic("ouch")
		}
		return nil, false
	}
	enter := func(ds ...*consumer.Delivery) {
		mu.Lock()
		defer mu.Unlock()
		for _, d := range ds {
			if atWork[d.ID]++; atWork[d.ID] > 1 {
				doubled.Store(true) // allowed after a lost session only
			}
		}
	}
	leave := func(ds ...*consumer.Delivery) {
		mu.Lock()
		defer mu.Unlock()
		for _, d := range ds {
			atWork[d.ID]--
		}
	}
	var err error
	if batch {
		c, err = consumer.NewBatch(w.conn, w.orders, func(ctx context.Context, ds []*consumer.Delivery) error {
			enter(ds...)
			defer leave(ds...)
			time.Sleep(time.Duration(len(ds)) * 5 * time.Millisecond)
			for _, d := range ds {
				e, _ := outcome(d.ID)
				d.Fail(e)
			}
			e, gone := outcome(ds[0].ID)
			if gone {
				runtime.Goexit()
			}
			return e
		}, consumer.Batch{Size: 1 + r.IntN(8), Linger: time.Duration(r.IntN(2)) * 100 * time.Millisecond}, cfg)
	} else {
		c, err = consumer.New(w.conn, w.orders, func(ctx context.Context, d *consumer.Delivery) error {
			enter(d)
			defer leave(d)
			time.Sleep(time.Duration(rand.IntN(30)) * time.Millisecond)
			e, gone := outcome(d.ID)
			if gone {
				runtime.Goexit()
			}
			if e == nil {
				mu.Lock()
				done[d.ID] = true
				mu.Unlock()
			}
			return e
		}, cfg)
	}
	if err != nil {
		w.Fatal(err)
	}
	stop := running(c)
	w.begun()
	cuts := 0
	for w.sent < n {
		w.publish(1+r.IntN(8), keyed([]string{"", "a", "b", "c"}[r.IntN(4)]))
		time.Sleep(time.Duration(r.IntN(2000)) * time.Millisecond)
		switch r.IntN(12) {
		case 0:
			w.broker.Cut("")
			cuts++
		case 1:
			w.broker.Refuse("orders.dlq", true)
			cuts++ // copies may be there twice
		case 2:
			w.broker.Refuse("orders.dlq", false)
		case 3:
			w.broker.Block("memory")
			cuts++
		case 4:
			w.broker.Unblock()
		case 5:
			c.Pause()
			time.Sleep(time.Second)
			c.Resume()
		case 6:
			began := time.Now()
			if err := stop(); err != nil {
				w.Errorf("stop: %v", err)
			}
			if took := time.Since(began); took > 15*time.Second {
				w.Errorf("the stop took %v", took)
			}
			if cuts == 0 {
				w.truthful()
			}
			if cuts == 0 && doubled.Load() {
				w.Error("a message was handled by two at a time")
			}
			stop = running(c)
		}
	}
	w.broker.Unblock()
	w.broker.Refuse("orders.dlq", false)
	c.Resume()
	time.Sleep(30 * time.Minute)
	calm.Store(true)
	time.Sleep(2 * time.Hour)
	if got := w.in("orders"); len(got) > 0 {
		status, why := health(c)
		w.Errorf("still in the queue: %v; %s %v", got, status, why)
	}
	if status, why := health(c); status != "healthy" {
		w.Errorf("at the end: %s, %v", status, why)
	}
	w.stopped(stop)
	if cuts == 0 {
		w.truthful()
	}
	there := map[string]bool{}
	for _, id := range w.in("orders.dlq") {
		there[id] = true
	}
	for id, all := range w.journal.all() {
		isDone := there[id]
		for _, s := range all {
			isDone = isDone || s.Disposition == consumer.DispositionDone
		}
		if !isDone {
			w.Errorf("%s is lost: %v", id, all)
		}
	}
	if len(w.journal.all()) != w.sent {
		w.Errorf("%d messages told of, %d sent", len(w.journal.all()), w.sent)
	}
}
