package store_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/integration/poll"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/store"
)

// commit runs do in a transaction and commits it.
func commit(t *testing.T, p place, do func(tx store.Tx) error) {
	t.Helper()
	tx, err := p.open(t).BeginTx(t.Context(), nil)
	must(t, err)
	defer tx.Rollback()
	must(t, do(tx))
	must(t, tx.Commit())
}

// Messages of PutTx and of Publish with one OrderKey arrive in the order of the calls,
// whatever their routing keys are.
func TestPutTxAndPublishShareAnOrder(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		ctx := t.Context()
		_, conn, queue, ids := inProcess(t)
		session, err := conn.Session(ctx, connection.Consume)
		must(t, err)
		must(t, session.Channel().ExchangeDeclare("shop", "topic", true, false, false, false, nil))
		must(t, session.Channel().QueueBind(queue, "#", "shop", false, nil))
		s := p.store(t, store.Config{KeepOrder: true})
		publisher := newProducer(t, conn, producer.Config{Fallback: []producer.Sink{s}})
		forward(t, s, newProducer(t, conn, producer.Config{}), store.ForwardConfig{Poll: time.Second})
		var want []string
		message := func() producer.Message {
			want = append(want, fmt.Sprint(len(want)))
			return producer.Message{Exchange: "shop", RoutingKey: "order." + want[len(want)-1], OrderKey: "customer 7", ID: want[len(want)-1]}
		}
		for range 20 {
			commit(t, p, func(tx store.Tx) error { _, err := s.PutTx(ctx, tx, message(), message()); return err })
			_, err := publisher.Publish(ctx, message())
			must(t, err)
			// One whose transaction is open while others look for it.
			tx, err := p.open(t).BeginTx(ctx, nil)
			must(t, err)
			late := message()
			_, err = s.PutTx(ctx, tx, late)
			must(t, err)
			if p.dialect != store.SQLite { // which has one writer
				_, err = s.PutBehind(ctx, producer.Message{Exchange: "shop", OrderKey: "customer 7", RoutingKey: "order", ID: "looks"})
				must(t, err)
			}
			must(t, tx.Commit())
			_, err = publisher.Publish(ctx, message())
			must(t, err)
		}
		empties(t, s, store.Query{}, patience)
		var got []string
		for _, id := range ids() {
			if id != "looks" {
				got = append(got, id)
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("arrived: %v", got)
		}
	})
}

// Forward sees what this process has committed at once, and not at its next Poll.
func TestForwardWakesAfterACommit(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		s := p.store(t, store.Config{})
		broker := &peer{}
		forward(t, s, broker, store.ForwardConfig{Poll: time.Hour})
		for i, after := range []time.Duration{0, 300 * time.Millisecond} {
			poll.Until(t, patience, "Forward is idle", func() bool { return len(broker.ids()) == i })
			<-time.After(200 * time.Millisecond) // else it may see the letter by chance
			commit(t, p, func(tx store.Tx) error {
				_, err := s.PutTx(t.Context(), tx, producer.Message{RoutingKey: "k", ID: fmt.Sprint(after)})
				<-time.After(after)
				return err
			})
			began := time.Now()
			poll.Until(t, patience, "the letter is forwarded", func() bool { return len(broker.ids()) == i+1 })
			t.Logf("open for %v, then forwarded after %v", after, time.Since(began))
		}
	})
}

// CancelTx takes a message back with its transaction, and until that has ended the
// message is not published.
func TestCancelInATransaction(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		ctx := t.Context()
		s := p.store(t, store.Config{})
		cancel := func(id string) func(store.Tx) error {
			return func(tx store.Tx) error {
				if n, err := s.CancelTx(ctx, tx, id); n != 1 || err != nil {
					return fmt.Errorf("cancelled %d of %q: %w", n, id, err)
				}
				return nil
			}
		}
		due := time.Now().Add(time.Second)
		for _, id := range []string{"rolled back", "committed"} {
			_, err := s.PutAt(ctx, due, producer.Message{RoutingKey: "k", ID: id})
			must(t, err)
		}
		commit(t, p, cancel("committed"))
		tx, err := p.open(t).BeginTx(ctx, nil)
		must(t, err)
		must(t, cancel("rolled back")(tx))
		broker := &peer{}
		forward(t, s, broker, store.ForwardConfig{})
		<-time.After(time.Until(due.Add(500 * time.Millisecond)))
		if ids := broker.ids(); len(ids) != 0 {
			t.Errorf("published while a transaction that cancels is open, or after it was committed: %q", ids)
		}
		must(t, tx.Rollback())
		empties(t, s, store.Query{}, patience)
		if ids := broker.ids(); len(ids) != 1 || ids[0] != "rolled back" {
			t.Errorf("published: %q", ids)
		}
	})
}

// Health of a Forwarder.
func TestHealthOfForward(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		s := p.store(t, store.Config{})
		b, conn, queue, _ := inProcess(t)
		f, err := s.NewForwarder(newProducer(t, conn, producer.Config{}), store.ForwardConfig{})
		must(t, err)
		health := func(rule string, degraded bool, text string) {
			t.Helper()
			poll.Until(t, patience, rule, func() bool {
				err := f.Health()
				var h *rehop.HealthError
				return text == "" && err == nil || text != "" && errors.As(err, &h) && h.Degraded == degraded && contains(h, text) && !h.Since.IsZero()
			})
		}
		health("it has not begun", false, "not running")
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- f.Run(ctx) }()
		health("it runs", false, "")
		if err := f.Run(ctx); rehop.ClassOf(err) != rehop.ClassBug {
			t.Errorf("Run beside Run: %v", err)
		}
		b.Stop()
		health("the broker is away", true, "waits for the broker")
		b.Start()
		health("it is back", false, "")
		must(t, s.Put(ctx, producer.Message{RoutingKey: "missing", ID: "m"}, errAway))
		health("an address fails", true, `routing key "missing"`)
		b.DeleteQueue(queue)
		_, err = s.Delete(ctx, store.Query{All: true})
		must(t, err)
		cancel()
		must(t, <-done)
		health("it was stopped", false, "not running")
	})
}
