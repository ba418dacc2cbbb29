package store_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rehop/rehop/integration/poll"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/store"
)

// onceThere is a broker that is there for one lease only, so that Forward takes no other.
type onceThere struct {
	*peer
	asked atomic.Bool
}

func (o *onceThere) AwaitConnection(ctx context.Context) error {
	if o.asked.Swap(true) {
		<-ctx.Done()
	}
	return ctx.Err()
}

// A clock that jumps ahead ends the leases of others: their letters are published by
// somebody else too, and the answer that comes too late changes nothing.
func TestAClockThatJumpsAheadLosesNothing(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		s := p.store(t, store.Config{})
		fill(t, p.store(t, store.Config{}), 10, producer.Message{RoutingKey: "k"}) // by another process, which wakes nobody here
		answer := make(chan struct{})
		slow := &onceThere{peer: &peer{answer: func(ctx context.Context, _ producer.Message) error {
			select {
			case <-answer:
				return nil
			case <-ctx.Done():
				return producer.ErrUnconfirmed
			}
		}}}
		stop := forward(t, s, slow, store.ForwardConfig{DrainTimeout: time.Millisecond})
		poll.Until(t, patience, "all are leased", func() bool {
			return !slices.ContainsFunc(find(t, s, store.Query{}), func(l store.Entry) bool { return l.Lease == "" })
		})
		_, err := p.open(t).Exec("UPDATE rehop_letters SET next_try = 1") // that is past for a clock an hour ahead
		must(t, err)
		other := &peer{answer: func(_ context.Context, m producer.Message) error {
			if m.ID == "m-000003" {
				return producer.ErrReturned
			}
			return nil
		}}
		forward(t, p.store(t, store.Config{}), other, store.ForwardConfig{Tries: 1})
		poll.Until(t, patience, "the other process has published them", func() bool { return len(other.ids()) == 9 })
		poll.Until(t, patience, "and parked one", func() bool { return len(find(t, s, store.Query{States: []store.State{store.Parked}})) == 1 })
		close(answer)
		poll.Until(t, patience, "the late answers are there", func() bool { return len(slow.ids()) == 10 })
		stop()
		if l := find(t, s, store.Query{}); len(l) != 1 || l[0].State != store.Parked {
			t.Errorf("%+v, want the letter that the other process has parked", l)
		}
	})
}

// A lease of ten minutes by a clock that is ahead is a lease: nobody else publishes its
// letters.
func TestALeaseOfAClockThatIsAhead(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		s := p.store(t, store.Config{})
		must(t, s.Put(t.Context(), producer.Message{RoutingKey: "k", ID: "leased"}, errAway))
		_, err := p.open(t).Exec(fmt.Sprintf("UPDATE rehop_letters SET lease = 'another process', next_try = %d", time.Now().Add(14*time.Minute).UnixMilli()))
		must(t, err)
		must(t, s.Put(t.Context(), producer.Message{RoutingKey: "k", ID: "free"}, errAway))
		broker := &peer{}
		stop := forward(t, s, broker, store.ForwardConfig{}) // it begins with a look for leases that a clock has put too far ahead
		poll.Until(t, patience, "a letter is published", func() bool { return len(broker.ids()) > 0 })
		stop()
		if l := find(t, s, store.Query{}); len(l) != 1 || l[0].Message.ID != "leased" || l[0].Lease == "" {
			t.Errorf("published %q, left %+v", broker.ids(), l)
		}
	})
}

// Messages of PutAt outlive their process and the next one, are not published before
// they are due, and can be cancelled by another process.
func TestPutAtOverRestarts(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		told := runChild(t, p.task("schedule", ""), 20)
		for range 2 { // processes that come and go before that
			s := p.store(t, store.Config{})
			broker := &peer{}
			stop := forward(t, s, broker, store.ForwardConfig{})
			if n, err := s.Cancel(t.Context(), "far"); err != nil || n > 1 {
				t.Errorf("cancelled %d, %v", n, err)
			}
			stop()
			if ids := broker.ids(); len(ids) != 0 {
				t.Errorf("published before they are due: %q", ids)
			}
			letters := find(t, s, store.Query{Scheduled: true})
			if len(letters) != len(told)-1 {
				t.Fatalf("%d letters are scheduled, want %d", len(letters), len(told)-1)
			}
		}
		s := p.store(t, store.Config{})
		due := time.Now().Add(time.Second).Truncate(time.Millisecond)
		_, err := p.open(t).Exec(fmt.Sprintf("UPDATE rehop_letters SET due = %[1]d, next_try = %[1]d", due.UnixMilli()))
		must(t, err)
		var early atomic.Int64
		broker := &peer{answer: func(context.Context, producer.Message) error {
			if time.Now().Before(due) {
				early.Add(1)
			}
			return nil
		}}
		stop := forward(t, s, broker, store.ForwardConfig{})
		empties(t, s, store.Query{}, patience)
		stop()
		if n := len(broker.ids()); n != len(told)-1 || early.Load() > 0 {
			t.Errorf("%d of %d messages were published, %d of them early", n, len(told)-1, early.Load())
		}
	})
}

// A process that has opened the table goes on while a later version of this package
// changes it, as in a rollout: later versions add tables, and columns with a default.
func TestTwoVersionsOnOneTable(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		ctx := t.Context()
		s := p.store(t, store.Config{KeepOrder: true})
		must(t, s.Put(ctx, producer.Message{RoutingKey: "k", ID: "before"}, errAway))
		db := p.open(t)
		for _, statement := range []string{
			"ALTER TABLE rehop_letters ADD COLUMN later INTEGER NOT NULL DEFAULT 7",
			"CREATE INDEX rehop_letters_later ON rehop_letters (later, seq)",
			"INSERT INTO rehop_letters_schema VALUES (2)",
		} {
			_, err := db.Exec(statement)
			must(t, err)
		}
		must(t, s.Put(ctx, producer.Message{RoutingKey: "k", ID: "after"}, errAway))
		must(t, s.Put(ctx, producer.Message{RoutingKey: "k", ID: "after"}, errAway)) // written over
		commit(t, p, func(tx store.Tx) error {
			_, err := s.PutTx(ctx, tx, producer.Message{RoutingKey: "k", ID: "tx"})
			return err
		})
		must(t, s.Put(ctx, producer.Message{RoutingKey: "k", ID: "held"}, producer.ErrReturned))
		held := find(t, s, store.Query{States: []store.State{store.Held}})
		must(t, s.Edit(ctx, held[0].Number, func(m *producer.Message) error { m.Body = []byte("b"); return nil }))
		_, _, err := s.Groups(ctx, store.Query{})
		must(t, err)
		broker := &peer{}
		forward(t, s, broker, store.ForwardConfig{})
		empties(t, s, store.Query{States: []store.State{store.Ready}}, patience)
		if ids := fmt.Sprint(broker.ids()); ids != "[before after tx]" {
			t.Errorf("forwarded %s", ids)
		}
		report, err := s.Replay(ctx, broker, store.Query{All: true}, store.ReplayOptions{})
		if report.Sent != 1 || err != nil {
			t.Errorf("replayed %+v, %v", report, err)
		}
	})
}
