package store_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rehop/rehop/integration/poll"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/store"
)

// copies makes each letter of a table n times as many, each with the line and the address
// of the one that it is a copy of.
func copies(t *testing.T, p place, n int) {
	t.Helper()
	columns := "state, line, due, next_try, exchange, routing_key, order_key, queue, properties, headers, body, size, cause, error, error_type, " +
		"fingerprint, attempts, redrives, redrive_id, tries, try_error, alone, unconfirmed, first_failed, failed, stored, lease"
	concat := "id || '-' || i, message_id || '-' || i"
	if p.dialect == store.MySQL {
		concat = "CONCAT(id, '-', i), CONCAT(message_id, '-', i)"
	}
	_, err := p.open(t).Exec(fmt.Sprintf(`INSERT INTO rehop_letters (id, message_id, %s)
		WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d) SELECT %s, %s FROM n, rehop_letters`, columns, n-1, concat, columns))
	must(t, err)
}

// Whatever waits for addresses that fail, and however many they are, a good one is served
// within seconds.
func TestFaultsOfAddresses(t *testing.T) {
	t.Parallel()
	for _, keepOrder := range []bool{false, true} {
		for _, dialect := range each(t) {
			// One after the other: each alone keeps a core busy.
			t.Run(fmt.Sprintf("KeepOrder %v, %v", keepOrder, dialect), func(t *testing.T) {
				p := newPlace(t, dialect)
				s := p.store(t, store.Config{KeepOrder: keepOrder})
				eachOf(t, 1100, func(i int) error { // more than one look at the lines sees
					return s.Put(t.Context(), producer.Message{RoutingKey: fmt.Sprint("missing ", i), ID: fmt.Sprint("bad ", i)}, errAway)
				})
				copies(t, p, 5)
				broker := &peer{answer: func(_ context.Context, m producer.Message) error {
					if strings.HasPrefix(m.RoutingKey, "missing") {
						return producer.ErrReturned
					}
					return nil
				}}
				forward(t, s, broker, store.ForwardConfig{})
				<-time.After(2 * time.Second)
				for i := range 3 {
					began := time.Now()
					for j := range 30 {
						must(t, s.Put(t.Context(), producer.Message{RoutingKey: fmt.Sprint("good ", j), ID: fmt.Sprint("good ", i, j)}, errAway))
					}
					limit := time.After(time.Minute)
					for len(broker.ids()) < 30*(i+1) {
						select {
						case <-time.After(10 * time.Millisecond):
						case <-limit:
							t.Fatalf("after a minute %d of %d good ones were forwarded", len(broker.ids()), 30*(i+1))
						}
					}
					t.Logf("30 good letters took %v", time.Since(began))
				}
			})
		}
	}
}

// Queues that do not answer keep no lease from others, known or not, and those that
// come behind their letters are served.
func TestQueuesThatDoNotAnswerHoldUpNoOther(t *testing.T) {
	t.Parallel()
	for _, keepOrder := range []bool{false, true} {
		t.Run(fmt.Sprint("KeepOrder ", keepOrder), func(t *testing.T) {
			p := newPlace(t, store.SQLite)
			s := p.store(t, store.Config{KeepOrder: keepOrder})
			eachOf(t, 600, func(i int) error { // of more leases than there may be
				return s.Put(t.Context(), producer.Message{RoutingKey: fmt.Sprint("silent ", i), ID: fmt.Sprint("bad ", i)}, errAway)
			})
			copies(t, p, 5)
			must(t, s.Put(t.Context(), producer.Message{RoutingKey: "good", ID: "behind all"}, errAway))
			broker := &peer{answer: func(ctx context.Context, m producer.Message) error {
				if strings.HasPrefix(m.RoutingKey, "silent") {
					<-ctx.Done()
					return producer.ErrUnconfirmed
				}
				return nil
			}}
			began := time.Now()
			// A lease that waited for its silent queues would do so for half of its time.
			forward(t, s, broker, store.ForwardConfig{DrainTimeout: time.Millisecond, Lease: 10 * time.Minute, Batch: 50})
			empties(t, s, store.Query{MessageIDs: []string{"behind all"}}, time.Minute)
			t.Logf("the letter behind 3,000 of silent queues took %v", time.Since(began))
			began = time.Now()
			must(t, s.Put(t.Context(), producer.Message{RoutingKey: "good", ID: "later"}, errAway))
			empties(t, s, store.Query{MessageIDs: []string{"later"}}, time.Minute)
			t.Logf("a later one took %v", time.Since(began))
		})
	}
}

// aware is a peer that knows when its broker is there.
type aware struct{ *peer }

func (aware) AwaitConnection(context.Context) error { return nil }

// An entry whose address does not answer holds up no other one, also where each is leased
// alone because of a low rate or a small batch.
func TestASilentAddressHoldsUpNoOtherOneAtALowRate(t *testing.T) {
	for rule, cfg := range map[string]store.ForwardConfig{"low rate": {Rate: 10}, "small batch": {Batch: 1}} {
		t.Run(rule, func(t *testing.T) {
			t.Parallel()
			const n = 5
			s := newPlace(t, store.SQLite).store(t, store.Config{})
			var arrived atomic.Int32
			all := make(chan struct{})
			broker := &peer{answer: func(ctx context.Context, m producer.Message) error {
				if m.RoutingKey != "silent" {
					if arrived.Add(1) == n {
						close(all)
					}
					return nil
				}
				select {
				case <-all:
				case <-ctx.Done():
					t.Error("the entries behind one without an answer waited until it was given up")
				}
				return producer.ErrUnconfirmed
			}}
			must(t, s.Put(t.Context(), producer.Message{RoutingKey: "silent", ID: "bad"}, errAway))
			for i := range n {
				must(t, s.Put(t.Context(), producer.Message{RoutingKey: "good", ID: fmt.Sprint("good ", i)}, errAway))
			}
			forward(t, s, aware{broker}, cfg)
			poll.Until(t, patience, "the good ones are there", func() bool { return arrived.Load() == n })
		})
	}
}
