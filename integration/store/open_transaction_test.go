package store_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/store"
)

// A transaction of a user that is open, with messages of PutTx and with a letter that it
// cancels, holds up neither Put nor Forward: on a server, which has more than one writer.
func TestAnOpenTransactionHoldsUpNobody(t *testing.T) {
	t.Parallel()
	for _, dialect := range eachServer(t) {
		for _, keepOrder := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v, KeepOrder %v", dialect, keepOrder), func(t *testing.T) {
				t.Parallel()
				ctx := t.Context()
				p := newPlace(t, dialect)
				// A call that waits for the transaction does so for all of this time.
				s := p.store(t, store.Config{KeepOrder: keepOrder, Timeout: time.Minute})
				_, err := s.PutAt(ctx, time.Now().Add(time.Hour), producer.Message{RoutingKey: "k", ID: "m-5"})
				must(t, err)
				_, err = s.PutAt(ctx, time.Now().Add(time.Hour), producer.Message{RoutingKey: "k", ID: "delayed", Delay: time.Minute})
				must(t, err)
				tx, err := p.open(t).BeginTx(ctx, nil)
				must(t, err)
				defer tx.Rollback()
				for i := range 20 {
					_, err = s.PutTx(ctx, tx, producer.Message{RoutingKey: "k", ID: fmt.Sprint("open ", i)})
					must(t, err)
				}
				if n, err := s.CancelTx(ctx, tx, "m-5"); n != 1 || err != nil {
					t.Errorf("cancelled %d, %v", n, err)
				}
				if n, err := s.CancelTx(ctx, tx, "no such message"); n != 0 || err != nil {
					t.Errorf("cancelled %d, %v", n, err)
				}
				broker := &peer{}
				forward(t, s, broker, store.ForwardConfig{})
				var took []time.Duration
				for i := range 200 {
					began := time.Now()
					must(t, s.Put(ctx, producer.Message{RoutingKey: fmt.Sprint("other ", i%3), ID: fmt.Sprint("m-", i)}, errAway))
					took = append(took, time.Since(began))
					<-time.After(5 * time.Millisecond)
				}
				var forwarded []string
				for limit := time.Now().Add(30 * time.Second); len(forwarded) < 200 && time.Now().Before(limit); forwarded = broker.ids() {
					<-time.After(10 * time.Millisecond)
				}
				slices.Sort(took)
				t.Logf("Put took %v, p99 %v, at most %v", took[100], took[198], took[199])
				if took[199] > 20*time.Second || len(forwarded) != 200 {
					t.Errorf("one Put took %v, and %d of 200 letters were forwarded, while a transaction was open", took[199], len(forwarded))
				}
				must(t, tx.Commit())
				empties(t, s, store.Query{RoutingKey: "k", States: []store.State{store.Ready}, Before: time.Now(), MessageIDs: opened()}, patience)
			})
		}
	}
}

// The letter behind the last that Forward changes belongs to a transaction that is open:
// a range that ends before it would wait for it, on MySQL.
func TestForwardDoesNotWaitForTheNextLetter(t *testing.T) {
	t.Parallel()
	for _, dialect := range eachServer(t) {
		for _, keepOrder := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v, KeepOrder %v", dialect, keepOrder), func(t *testing.T) {
				t.Parallel()
				p := newPlace(t, dialect)
				s := p.store(t, store.Config{KeepOrder: keepOrder, Timeout: time.Minute})
				fill(t, s, 5, producer.Message{RoutingKey: "k"})
				tx, err := p.open(t).BeginTx(t.Context(), nil)
				must(t, err)
				defer tx.Rollback()
				_, err = s.PutTx(t.Context(), tx, producer.Message{RoutingKey: "next", ID: "next"})
				must(t, err)
				forward(t, s, &peer{}, store.ForwardConfig{})
				empties(t, s, store.Query{RoutingKey: "k"}, 20*time.Second) // a third of Timeout
			})
		}
	}
}

func opened() (ids []string) {
	for i := range 20 {
		ids = append(ids, fmt.Sprint("open ", i))
	}
	return ids
}

// While a transaction with the same message is open a Put of it waits, and holds up no
// other Put. (On MySQL it waits for a place in an index, and with it the messages whose
// ids are its neighbours.)
func TestAPutThatWaitsForALockHoldsUpNoOther(t *testing.T) {
	onOnly(t, store.PostgreSQL, othersGoOn)
}

func othersGoOn(t *testing.T, p place) {
	s := p.store(t, store.Config{})
	tx, err := p.open(t).BeginTx(t.Context(), nil)
	must(t, err)
	defer tx.Rollback()
	m := producer.Message{RoutingKey: "k", ID: "same"}
	_, err = s.PutTx(t.Context(), tx, m)
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	waiting := make(chan error, 1)
	go func() { waiting <- s.Put(ctx, m, errAway) }()
	<-time.After(300 * time.Millisecond)
	for i := range 20 {
		must(t, s.Put(t.Context(), producer.Message{RoutingKey: "k", ID: fmt.Sprint(i)}, errAway))
	}
	select {
	case err := <-waiting:
		t.Errorf("Put of a message that an open transaction has ended before the others: %v", err)
		return
	default:
	}
	cancel()
	if err := <-waiting; err == nil {
		t.Error("Put of a message that an open transaction has: nil")
	}
}
