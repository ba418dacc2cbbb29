package store_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/integration/poll"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/store"
)

func TestAnOutageSpendsNoTries(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		s := p.store(t, store.Config{})
		const n = 200
		var ids []string
		for i := range n {
			ids = append(ids, fmt.Sprintf("m-%06d", i))
		}
		eachOf(t, n, func(i int) error { // each with a target of its own
			return s.Put(t.Context(), producer.Message{RoutingKey: fmt.Sprint("k-", i), ID: ids[i]}, errAway)
		})
		var mu sync.Mutex
		away, calls := true, 0
		broker := &peer{answer: func(context.Context, producer.Message) error {
			mu.Lock()
			defer mu.Unlock()
			if calls++; away {
				return fmt.Errorf("no session: %w", connection.ErrSessionLost)
			}
			return nil
		}}
		forward(t, s, broker, store.ForwardConfig{Tries: 1})
		poll.Until(t, patience, "five more tries", func() bool { mu.Lock(); defer mu.Unlock(); return calls > n+5 })
		mu.Lock()
		away = false
		if calls > n+100 {
			t.Errorf("%d tries while the broker is away: it must be asked with one letter at a time", calls)
		}
		mu.Unlock()
		empties(t, s, store.Query{}, patience)
		if got := slices.Sorted(slices.Values(broker.ids())); !slices.Equal(got, ids) {
			t.Errorf("%d messages were forwarded, want each of %d once", len(got), len(ids))
		}
	})
}

// connected is a peer that knows whether its broker is there.
type connected struct {
	peer
	mu    sync.Mutex
	there chan struct{} // closed while it is
	calls int
}

func (p *connected) set(there bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.there = make(chan struct{}); there {
		close(p.there)
	}
}

func (p *connected) AwaitConnection(ctx context.Context) error {
	p.mu.Lock()
	there := p.there
	p.mu.Unlock()
	select {
	case <-there:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (p *connected) PublishAll(ctx context.Context, messages []producer.Message) ([]producer.Receipt, error) {
	p.mu.Lock()
	p.calls++
	p.mu.Unlock()
	return p.peer.PublishAll(ctx, messages)
}

// TestNothingIsTriedWhileTheBrokerIsAway: Forward waits for the connection, and
// leaves the letters as they are.
func TestNothingIsTriedWhileTheBrokerIsAway(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		s := p.store(t, store.Config{})
		for i := range 50 { // each with a target of its own
			must(t, s.Put(t.Context(), producer.Message{RoutingKey: fmt.Sprint("k-", i), ID: fmt.Sprint(i)}, errAway))
		}
		broker := &connected{}
		broker.set(false)
		stop := forward(t, s, broker, store.ForwardConfig{})
		<-time.After(500 * time.Millisecond)
		broker.mu.Lock()
		if broker.calls != 0 {
			t.Errorf("%d calls of PublishAll", broker.calls)
		}
		broker.mu.Unlock()
		for _, l := range find(t, s, store.Query{}) {
			if l.Lease != "" || l.TryError != "" {
				t.Errorf("a letter was touched: %+v", l)
			}
		}
		broker.mu.Lock()
		close(broker.there)
		broker.mu.Unlock()
		empties(t, s, store.Query{}, patience)
		broker.set(false)
		stop() // ends although the broker is away
	})
}
