package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/rehop/rehop/topology"
)

// bodySize of every message, in bytes. The first eight are its number.
const bodySize = 256

// trial is one side of a row at work once: n messages, numbered from 0.
type trial struct {
	url  string
	work topology.WorkQueue
	n    int

	shards topology.Shards // in place of work, if there are any
	order  *inOrder        // with shards

	start, stop usage
	begun       chan struct{} // closed by begin
	once        sync.Once

	seen []atomic.Int32 // how often each message was handled
	sum  atomic.Int64   // of seen
	done chan struct{}  // closed when n messages were handled
}

func newTrial(url string, work topology.WorkQueue, n int) *trial {
	return &trial{
		url: url, work: work, n: n,
		begun: make(chan struct{}), done: make(chan struct{}),
		seen: make([]atomic.Int32, n),
	}
}

// begin starts the clock: with the first message, when everything is open.
func (t *trial) begin() {
	t.once.Do(func() {
		t.start = usageNow()
		close(t.begun)
	})
}

// finish stops the clock: when the broker knows all that the client has to say.
func (t *trial) finish() { t.stop = usageNow() }

func (t *trial) sample() sample { return t.stop.since(t.start, t.n) }

// handled is what handlers do.
func (t *trial) handled(body []byte) {
	if len(body) == bodySize {
		if i := binary.BigEndian.Uint64(body); i < uint64(t.n) {
			t.seen[i].Add(1)
		}
	}
	switch t.sum.Add(1) {
	case 1:
		t.begin()
	case int64(t.n):
		close(t.done)
	}
}

// missing returns an error unless each message was handled exactly once.
func (t *trial) missing() error {
	var never, often int
	for i := range t.seen {
		switch n := t.seen[i].Load(); {
		case n == 0:
			never++
		case n > 1:
			often++
		}
	}
	if never > 0 || often > 0 || t.sum.Load() != int64(t.n) {
		return fmt.Errorf("of %d messages %d were never handled and %d more than once, in %d deliveries", t.n, never, often, t.sum.Load())
	}
	return nil
}

// newBody returns a body without a number.
func newBody() []byte { return make([]byte, bodySize) }

// number writes the number of a message into its body.
func number(body []byte, i int) []byte {
	binary.BigEndian.PutUint64(body, uint64(i))
	return body
}

// publishFunc publishes one message and waits for its confirm.
type publishFunc func(ctx context.Context, body []byte) error

// publishAll publishes the messages from several goroutines. The first one goes
// ahead, before the clock starts.
func (t *trial) publishAll(ctx context.Context, goroutines int, publish publishFunc) error {
	if err := publish(ctx, number(newBody(), 0)); err != nil {
		return err
	}
	t.begin()
	return t.publishRest(ctx, goroutines, publish)
}

// publishRest publishes all but the first message.
func (t *trial) publishRest(ctx context.Context, goroutines int, publish publishFunc) error {
	var last atomic.Int64
	errs := make([]error, goroutines)
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			body := newBody()
			for {
				i := int(last.Add(1))
				if i >= t.n {
					return
				}
				if errs[g] = publish(ctx, number(body, i)); errs[g] != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// batches calls batch for the numbers from 1 up, size at a time, after first
// has published the message 0.
func (t *trial) batches(size int, batch func(from, to int) error) error {
	if err := batch(0, 1); err != nil {
		return err
	}
	t.begin()
	for i := 1; i < t.n; i += size {
		if err := batch(i, min(i+size, t.n)); err != nil {
			return err
		}
	}
	return nil
}
