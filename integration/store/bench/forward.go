package main

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/store"
	"github.com/rehop/rehop/topology"
)

// fill stores n letters by many callers.
func fill(ctx context.Context, s *store.Store, n int, key string) error {
	var next atomic.Int64
	var all sync.WaitGroup
	errs := make(chan error, 256)
	body := make([]byte, 256)
	for range 256 {
		all.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				cause := fmt.Errorf("order %d: broker %d is away: %w", i, i%97, errAway)
				if i%20 == 0 {
					cause = fmt.Errorf("kind %c: %w", 'a'+rune(i/20%26), errAway)
				}
				if err := s.Put(ctx, producer.Message{RoutingKey: key, ID: fmt.Sprint("m-", i), Body: body}, cause); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	all.Wait()
	select {
	case err := <-errs:
		return err
	default:
		return nil
	}
}

// runForwarder runs a Forwarder until ctx ends.
func runForwarder(ctx context.Context, s *store.Store, p store.Publisher, cfg store.ForwardConfig) error {
	f, err := s.NewForwarder(p, cfg)
	if err != nil {
		return err
	}
	return f.Run(ctx)
}

// forward forwards until the store is empty.
func forward(ctx context.Context, s *store.Store, p store.Publisher, cfg store.ForwardConfig, each func()) (time.Duration, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	began := time.Now()
	go func() { done <- runForwarder(ctx, s, p, cfg) }()
	for {
		each()
		left, _, err := s.Find(ctx, store.Query{Limit: 1})
		if err != nil {
			return 0, err
		}
		if len(left) == 0 {
			took := time.Since(began)
			cancel()
			return took, <-done
		}
		<-time.After(20 * time.Millisecond)
	}
}

// taken confirms everything.
type taken struct{}

func (taken) PublishAll(_ context.Context, messages []producer.Message) ([]producer.Receipt, error) {
	receipts := make([]producer.Receipt, len(messages))
	for i, m := range messages {
		receipts[i] = producer.Receipt{ID: m.ID, Place: producer.PlaceQueue}
	}
	return receipts, nil
}

func (b *bench) paced(ctx context.Context) error {
	db, s, err := b.open(ctx, "paced.db")
	if err != nil {
		return err
	}
	defer db.Close()
	const n, rate = 100_000, 5_000
	if err := fill(ctx, s, n, "k"); err != nil {
		return err
	}
	took, err := forward(ctx, s, taken{}, store.ForwardConfig{Rate: rate}, func() {})
	row("100,000 letters forwarded at 5,000/s", "%.0f/s (%+.1f %%)", n/took.Seconds(), 100*(n/took.Seconds()/rate-1))
	return err
}

// own is what the store costs by itself.
func (b *bench) own(ctx context.Context) error {
	db, s, err := b.open(ctx, "own.db")
	if err != nil {
		return err
	}
	defer db.Close()
	const n = 100_000
	began := time.Now()
	if err := fill(ctx, s, n, "k"); err != nil {
		return err
	}
	row("100,000 letters of 256 B stored, 256 goroutines", "%.0f/s", n/time.Since(began).Seconds())
	var took time.Duration
	err = b.profiled("forward", func() (err error) {
		took, err = forward(ctx, s, taken{}, store.ForwardConfig{}, func() {})
		return err
	})
	row("Forward of the same, without a broker", "%.0f/s", n/took.Seconds())
	return err
}

// producer returns a producer and a queue of its own, and an end for both.
func (b *bench) producer(ctx context.Context, queue string) (*producer.Producer, func(), error) {
	conn, err := b.connect(ctx)
	if err != nil {
		return nil, nil, err
	}
	if err := topology.Declare(ctx, conn, topology.DeadLetterQueue{Name: queue}); err != nil {
		conn.Close()
		return nil, nil, err
	}
	p, err := producer.New(conn, producer.Config{})
	if err != nil {
		conn.Close()
		return nil, nil, err
	}
	return p, func() { p.Close(); conn.Close() }, nil
}

// plain publishes what fill stores, without a store, and returns the messages
// per second.
func plain(ctx context.Context, p *producer.Producer, n int, queue string) (float64, error) {
	batch := make([]producer.Message, 500)
	body := make([]byte, 256)
	began := time.Now()
	for i := 0; i < n; i += len(batch) {
		for k := range batch {
			batch[k] = producer.Message{RoutingKey: queue, ID: fmt.Sprint("p-", i+k), Body: body}
		}
		if _, err := p.PublishAll(ctx, batch); err != nil {
			return 0, err
		}
	}
	return float64(n) / time.Since(began).Seconds(), nil
}

// forwarding compares Forward and plain publishing, taking turns, because a broker
// is faster one minute than the next.
func (b *bench) forwarding(ctx context.Context) error {
	db, s, err := b.open(ctx, "forward.db")
	if err != nil {
		return err
	}
	defer db.Close()
	const queue, n = "store-bench-forward", 50_000
	p, end, err := b.producer(ctx, queue)
	if err != nil {
		return err
	}
	defer end()
	if _, err := plain(ctx, p, n, queue); err != nil { // warms up
		return err
	}
	var plains, forwards, ratios []float64
	for range 3 {
		if err := fill(ctx, s, n, queue); err != nil {
			return err
		}
		direct, err := plain(ctx, p, n, queue)
		if err != nil {
			return err
		}
		var took time.Duration
		if err := b.profiled("forward", func() (err error) {
			took, err = forward(ctx, s, p, store.ForwardConfig{}, func() {})
			return err
		}); err != nil {
			return err
		}
		stored := n / took.Seconds()
		plains, forwards, ratios = append(plains, direct), append(forwards, stored), append(ratios, stored/direct)
	}
	for _, figures := range [][]float64{plains, forwards, ratios} {
		slices.Sort(figures)
	}
	row("PublishAll of 500, 256 B, no store, median of 3", "%.0f/s", plains[1])
	row("Forward of the same, median of 3", "%.0f/s, %.2f (%.2f to %.2f) of PublishAll", forwards[1], ratios[1], ratios[0], ratios[2])
	return nil
}

func (b *bench) large(ctx context.Context) error {
	db, s, err := b.open(ctx, "large.db")
	if err != nil {
		return err
	}
	defer db.Close()
	const queue = "store-bench-large"
	p, end, err := b.producer(ctx, queue)
	if err != nil {
		return err
	}
	defer end()
	began := time.Now()
	if err := fill(ctx, s, b.rows, queue); err != nil {
		return err
	}
	row(fmt.Sprintf("%d letters stored, 256 goroutines", b.rows), "%.0f/s", float64(b.rows)/time.Since(began).Seconds())
	began = time.Now()
	groups, _, err := s.Groups(ctx, store.Query{States: []store.State{store.Ready}})
	if err != nil {
		return err
	}
	row(fmt.Sprintf("Groups over %d letters", b.rows), "%v (%d groups)", time.Since(began).Round(time.Millisecond), len(groups))

	heap := newHeap()
	took, err := forward(ctx, s, p, store.ForwardConfig{}, heap.look)
	if err != nil {
		return err
	}
	row(fmt.Sprintf("%d letters forwarded", b.rows), "%.0f/s", float64(b.rows)/took.Seconds())
	row("heap in use: before, highest while forwarding", "%v", heap)
	return nil
}

// heap is how much memory was in use at first, and at most.
type heap struct{ before, highest uint64 }

func newHeap() *heap {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return &heap{m.HeapInuse, m.HeapInuse}
}

func (h *heap) look() {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	h.highest = max(h.highest, m.HeapInuse)
}

func (h *heap) String() string {
	return fmt.Sprintf("%d MiB, %d MiB", h.before>>20, h.highest>>20)
}
