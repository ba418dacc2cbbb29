package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/integration/poll"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/store"
)

// peer is a broker as Forward sees it: what becomes of each message.
type peer struct {
	mu       sync.Mutex
	sent     []producer.Message
	answer   func(ctx context.Context, m producer.Message) error // nil error: confirmed
	receipts func(producer.Message) producer.Receipt             // if set, instead
}

func (p *peer) PublishAll(ctx context.Context, messages []producer.Message) ([]producer.Receipt, error) {
	receipts := make([]producer.Receipt, len(messages))
	var all sync.WaitGroup
	for i, m := range messages {
		if err := m.Validate(); err != nil {
			return nil, err
		}
		if p.receipts != nil {
			receipts[i] = p.receipts(m)
			continue
		}
		all.Go(func() {
			receipts[i] = producer.Receipt{ID: m.ID, Place: producer.PlaceQueue}
			if p.answer != nil {
				if err := p.answer(ctx, m); err != nil {
					receipts[i] = producer.Receipt{ID: m.ID, Err: err}
				}
			}
		})
	}
	all.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, r := range receipts {
		if r.Place == producer.PlaceQueue {
			p.sent = append(p.sent, messages[i])
		}
	}
	return receipts, nil
}

func (p *peer) ids() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var ids []string
	for _, m := range p.sent {
		ids = append(ids, m.ID)
	}
	return ids
}

// runForwarder runs a Forwarder until ctx ends.
func runForwarder(ctx context.Context, s *store.Store, p store.Publisher, cfg store.ForwardConfig) error {
	f, err := s.NewForwarder(p, cfg)
	if err != nil {
		return err
	}
	return f.Run(ctx)
}

// forward runs a Forwarder until the test is over, or stop is called.
func forward(t testing.TB, s *store.Store, p store.Publisher, cfg store.ForwardConfig) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- runForwarder(ctx, s, p, cfg) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Forward: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// patience is how long a condition may take to come true on a busy machine.
const patience = time.Minute

// empties waits until the store has no letter that q means.
func empties(t testing.TB, s *store.Store, q store.Query, limit time.Duration) {
	t.Helper()
	q.Limit = 1
	late := time.After(limit)
	for {
		letters, _, err := s.Find(t.Context(), q)
		if err == nil && len(letters) == 0 {
			return
		}
		select {
		case <-time.After(50 * time.Millisecond): // looking costs what it looks at its time
		case <-late:
			q.Limit = 0
			n, countErr := s.Count(t.Context(), q)
			t.Fatalf("after %v %d letters are left: %v", limit, n, errors.Join(err, countErr))
		}
	}
}

// eachOf calls do for 0 to n-1, up to 64 at a time.
func eachOf(t testing.TB, n int, do func(i int) error) {
	t.Helper()
	var next atomic.Int64
	var all sync.WaitGroup
	for range min(n, 64) {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if err := do(i); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

func fill(t testing.TB, s *store.Store, n int, m producer.Message) (ids []string) {
	t.Helper()
	for i := range n {
		ids = append(ids, fmt.Sprintf("m-%06d", i))
	}
	eachOf(t, n, func(i int) error {
		one := m
		one.ID = ids[i]
		return s.Put(t.Context(), one, errAway)
	})
	return ids
}

func TestForwarded(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		s := p.store(t, store.Config{})
		want := every("m")
		want.Headers["float64"] = -0.5 // infinity can be stored and not published
		must(t, s.Put(t.Context(), want, errAway))
		broker := &peer{}
		stop := forward(t, s, broker, store.ForwardConfig{})
		empties(t, s, store.Query{}, patience)
		// While it runs: by Put, which wakes it, and by another process.
		must(t, s.Put(t.Context(), producer.Message{RoutingKey: "k", ID: "n"}, errAway))
		must(t, p.store(t, store.Config{}).Put(t.Context(), producer.Message{RoutingKey: "k", ID: "o"}, errAway))
		_, err := s.PutAt(t.Context(), time.Now().Add(300*time.Millisecond), producer.Message{RoutingKey: "k", ID: "p"})
		must(t, err)
		empties(t, s, store.Query{}, patience)
		stop()
		if ids := broker.ids(); !slices.Equal(slices.Sorted(slices.Values(ids)), []string{"m", "n", "o", "p"}) || ids[3] != "p" {
			t.Errorf("forwarded %q", ids)
		}
		if m := broker.sent[0]; m.Replays != want.Replays+1 || m.Type != want.Type || m.Timestamp != want.Timestamp {
			t.Errorf("forwarded %+v, want the message as it was, and a replay more", m)
		}
	})
}

func TestWhatIsNotForwarded(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		s := p.store(t, store.Config{})
		must(t, s.Put(t.Context(), producer.Message{RoutingKey: "k", ID: "held"}, producer.ErrReturned))
		for _, id := range []string{"parked", "archived"} {
			must(t, s.Put(t.Context(), producer.Message{RoutingKey: "k", ID: id}, errAway))
		}
		_, err := s.Park(t.Context(), store.Query{MessageIDs: []string{"parked"}})
		must(t, err)
		_, err = s.Archive(t.Context(), store.Query{MessageIDs: []string{"archived"}})
		must(t, err)
		_, err = s.PutAt(t.Context(), time.Now().Add(time.Hour), producer.Message{RoutingKey: "k", ID: "later"})
		must(t, err)
		broker := &peer{}
		forward(t, s, broker, store.ForwardConfig{})
		must(t, s.Put(t.Context(), producer.Message{RoutingKey: "k", ID: "ready"}, errAway))
		empties(t, s, store.Query{MessageIDs: []string{"ready"}}, patience)
		if n, _ := s.Count(t.Context(), store.Query{}); n != 4 || len(broker.ids()) != 1 {
			t.Errorf("%d letters are left and %q forwarded", n, broker.ids())
		}
	})
}

func TestTwoForwardersShare(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		one, other := p.store(t, store.Config{}), p.store(t, store.Config{})
		ids := fill(t, one, 1000, producer.Message{RoutingKey: "k"})
		broker := &peer{}
		forward(t, one, broker, store.ForwardConfig{Batch: 50})
		forward(t, other, broker, store.ForwardConfig{Batch: 50})
		empties(t, one, store.Query{}, patience)
		if got := slices.Sorted(slices.Values(broker.ids())); !slices.Equal(got, ids) {
			t.Errorf("%d messages were forwarded, want each of %d once", len(got), len(ids))
		}
	})
}

func TestPoisonIsParked(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		s := p.store(t, store.Config{})
		must(t, s.Put(t.Context(), producer.Message{RoutingKey: "missing", ID: "poison"}, errAway))
		must(t, s.Put(t.Context(), producer.Message{RoutingKey: "k", ID: "good"}, errAway))
		// What no Publish takes, and what nobody can read.
		must(t, s.Put(t.Context(), producer.Message{RoutingKey: "k", ID: "faulty", Priority: 99}, errAway))
		must(t, s.Put(t.Context(), producer.Message{RoutingKey: "k", ID: "damaged"}, errAway))
		must(t, s.Put(t.Context(), producer.Message{RoutingKey: "k", ID: "behind"}, errAway))
		_, err := p.open(t).Exec(`UPDATE rehop_letters SET properties = '{"app_id":"leaked","colour":"red"}' WHERE message_id = 'damaged'`)
		must(t, err)
		broker := &peer{answer: func(_ context.Context, m producer.Message) error {
			if m.RoutingKey == "missing" {
				return producer.ErrReturned
			}
			return nil
		}}
		forward(t, s, broker, store.ForwardConfig{Tries: 2})
		empties(t, s, store.Query{States: []store.State{store.Ready}}, patience)
		if got := broker.ids(); !slices.Equal(got, []string{"good", "behind"}) || broker.sent[1].AppID != "" {
			t.Errorf("forwarded %q: %+v; want those that can be read, as they were stored", got, broker.sent)
		}
		parked := find(t, s, store.Query{States: []store.State{store.Parked}, MessageIDs: []string{"poison", "faulty"}})
		if len(parked) != 2 || parked[0].Tries != 2 || !strings.Contains(parked[0].TryError, "returned") || !strings.Contains(parked[1].TryError, "Priority") {
			t.Errorf("parked: %+v", parked)
		}
		if n, _ := s.Count(t.Context(), store.Query{States: []store.State{store.Parked}}); n != 3 {
			t.Errorf("%d parked, want the damaged one too", n)
		}
	})
}

func TestAStuckTargetHoldsUpItsOwn(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		s := p.store(t, store.Config{})
		for i := range 90 { // more of the stuck ones than all leases hold
			key := "good"
			if i%3 > 0 {
				key = "stuck"
			}
			must(t, s.Put(t.Context(), producer.Message{RoutingKey: key, ID: fmt.Sprint(i)}, errAway))
		}
		broker := &peer{answer: func(ctx context.Context, m producer.Message) error {
			if m.RoutingKey == "stuck" {
				<-ctx.Done()
				return producer.ErrUnconfirmed
			}
			return nil
		}}
		forward(t, s, broker, store.ForwardConfig{Batch: 5, Lease: 2 * time.Minute, DrainTimeout: time.Millisecond})
		empties(t, s, store.Query{RoutingKey: "good"}, 40*time.Second) // before the first one gives up
		if n, _ := s.Count(t.Context(), store.Query{RoutingKey: "stuck"}); n != 60 {
			t.Errorf("%d letters of the stuck target, want 60", n)
		}
	})
}

func TestAFallbackToTheSameStoreMovesNothing(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		s := p.store(t, store.Config{})
		must(t, s.Put(t.Context(), producer.Message{RoutingKey: "k", ID: "round"}, errAway))
		must(t, s.Put(t.Context(), producer.Message{RoutingKey: "l", ID: "elsewhere"}, errAway))
		calls := make(chan bool, 1000)
		broker := &peer{receipts: func(m producer.Message) producer.Receipt {
			if m.RoutingKey == "l" {
				return producer.Receipt{Place: producer.PlaceFallback, Sink: "another cluster"}
			}
			calls <- true
			m.Replays = 0
			must(t, s.Put(t.Context(), m, errAway))
			return producer.Receipt{Place: producer.PlaceFallback, Sink: s.Name(), Err: errAway}
		}}
		began := time.Now()
		stop := forward(t, s, broker, store.ForwardConfig{})
		for range 4 {
			<-calls
		}
		if took := time.Since(began); took < 600*time.Millisecond {
			t.Errorf("four tries in %v: a hot loop", took)
		}
		stop()
		if l := find(t, s, store.Query{}); len(l) != 1 || l[0].Message.ID != "round" || l[0].State != store.Ready {
			t.Errorf("%+v, want the one that came back", l)
		}
	})
}

func TestTheLeaseOfADeadProcessEnds(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		s := p.store(t, store.Config{})
		fill(t, s, 10, producer.Message{RoutingKey: "k"})
		db := p.open(t)
		_, err := db.Exec(fmt.Sprintf("UPDATE rehop_letters SET lease = 'dead/1', next_try = %d", time.Now().Add(1500*time.Millisecond).UnixMilli()))
		must(t, err)
		broker := &peer{}
		began := time.Now()
		forward(t, s, broker, store.ForwardConfig{})
		empties(t, s, store.Query{}, patience)
		if took := time.Since(began); took < time.Second {
			t.Errorf("forwarded after %v, want the lease to end first", took)
		}
	})
}

func TestAClockSetBackHoldsUpNothing(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		s := p.store(t, store.Config{})
		fill(t, s, 10, producer.Message{RoutingKey: "k"})
		_, err := s.PutAt(t.Context(), time.Now().Add(time.Hour), producer.Message{RoutingKey: "k", ID: "later"})
		must(t, err)
		// Leased and put off an hour ago by a clock that was an hour ahead.
		_, err = p.open(t).Exec(fmt.Sprintf("UPDATE rehop_letters SET lease = 'x', next_try = %d WHERE due = 0", time.Now().Add(time.Hour).UnixMilli()))
		must(t, err)
		broker := &peer{}
		forward(t, s, broker, store.ForwardConfig{})
		poll.Until(t, patience, "all but the one that is due later", func() bool { return len(find(t, s, store.Query{})) == 1 })
		if l := find(t, s, store.Query{}); l[0].Message.ID != "later" || len(broker.ids()) != 10 {
			t.Errorf("%+v are left, want the one that is due in an hour", l)
		}
	})
}

func TestForwardKeepsToItsRate(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		s := p.store(t, store.Config{})
		fill(t, s, 600, producer.Message{RoutingKey: "k"})
		broker := &peer{}
		began := time.Now()
		forward(t, s, broker, store.ForwardConfig{Rate: 200})
		empties(t, s, store.Query{}, patience)
		if took := time.Since(began); took < 2600*time.Millisecond {
			t.Errorf("600 messages at 200/s took %v", took)
		}
	})
}

// An entry is leased when its turn has come, so a pace slower than a lease doubles none.
func TestForwardAtARateThatIsSlowerThanALease(t *testing.T) {
	s := newPlace(t, store.SQLite).store(t, store.Config{})
	fill(t, s, 3, producer.Message{RoutingKey: "k"})
	broker := &peer{}
	began := time.Now()
	forward(t, s, broker, store.ForwardConfig{Rate: 0.4, Lease: 2 * time.Second})
	empties(t, s, store.Query{}, patience)
	if took := time.Since(began); took < 4500*time.Millisecond {
		t.Errorf("3 messages at 0.4/s took %v", took)
	}
	if ids := broker.ids(); len(ids) != 3 {
		t.Errorf("%q were published, want 3 messages, each once", ids)
	}
}

func TestForwardRefuses(t *testing.T) {
	p := newPlace(t, store.SQLite)
	_, err := p.store(t, store.Config{}).NewForwarder(nil, store.ForwardConfig{Rate: -1, Batch: 5000, Tries: -1, Lease: time.Hour, Poll: -1, DrainTimeout: -1})
	for _, want := range []string{"Publisher is nil", "Rate", "Batch", "Tries", "Lease", "Poll", "DrainTimeout"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want a word of %s", err, want)
		}
	}
}

type closedPeer struct{}

func (closedPeer) PublishAll(context.Context, []producer.Message) ([]producer.Receipt, error) {
	return nil, rehop.WithClass(errors.New("closed"), rehop.ClassBug)
}

func TestForwardEndsWithItsPublisher(t *testing.T) {
	s := newPlace(t, store.SQLite).store(t, store.Config{})
	fill(t, s, 3, producer.Message{RoutingKey: "k"})
	if err := runForwarder(t.Context(), s, closedPeer{}, store.ForwardConfig{}); rehop.ClassOf(err) != rehop.ClassBug {
		t.Errorf("Forward: %v, want that of the closed Publisher", err)
	}
	if n, _ := s.Count(t.Context(), store.Query{}); n != 3 {
		t.Errorf("%d letters, want 3", n)
	}
}

// TestALetterThatComesAgainIsNotDeleted: while the broker confirms the message
// the same one is stored anew, and somebody parks it.
func TestALetterThatComesAgainIsNotDeleted(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		s := p.store(t, store.Config{})
		m := producer.Message{RoutingKey: "k", ID: "again"}
		must(t, s.Put(t.Context(), m, errAway))
		parked := 0
		broker := &peer{answer: func(context.Context, producer.Message) error {
			must(t, s.Put(t.Context(), m, producer.ErrReturned))
			var err error
			parked, err = s.Park(t.Context(), store.Query{All: true})
			return err
		}}
		stop := forward(t, s, broker, store.ForwardConfig{})
		poll.Until(t, patience, "the first one is forwarded", func() bool { return len(broker.ids()) == 1 })
		stop()
		if n, err := s.Count(t.Context(), store.Query{States: []store.State{store.Parked}}); n != 1 || parked != 1 || err != nil {
			t.Errorf("%d letters of %d that were parked, %v", n, parked, err)
		}
	})
}
