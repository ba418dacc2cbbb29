package store_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/integration/broker"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/store"
)

// account is what is known of each message that a Publish call called safe.
type account struct {
	mu      sync.Mutex
	queue   map[string]bool // confirmed
	store   map[string]bool
	maybe   map[string]bool // may be there twice, as a receipt said
	unsafe  int
	slowest time.Duration
}

func (a *account) note(r producer.Receipt, err error, took time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.slowest = max(a.slowest, took)
	switch {
	case err != nil:
		a.unsafe++
	case r.Place == producer.PlaceQueue:
		a.queue[r.ID] = true
	default:
		a.store[r.ID] = true
	}
	if r.MaybeDuplicate {
		a.maybe[r.ID] = true
	}
}

// TestFaultsOfTheBroker: on a broker of its own of each version.
func TestFaultsOfTheBroker(t *testing.T) {
	if os.Getenv("AMQP_URL") != "" {
		t.Log("AMQP_URL is set: that broker is not ours to kill")
		return
	}
	t.Parallel()
	all, err := versions()
	must(t, err)
	dialects := each(t)
	for i, version := range all {
		t.Run("RabbitMQ "+version, func(t *testing.T) {
			t.Parallel()
			own, err := broker.Start(t.Context(), broker.Options{Version: version, Name: "rehop-store-outage"})
			must(t, err)
			defer own.Close(context.WithoutCancel(t.Context()))
			dialect := dialects[i%len(dialects)]
			t.Run("killed under load, "+string(dialect), func(t *testing.T) { killedUnderLoad(t, own, dialect) })
			t.Run("alarm", func(t *testing.T) { alarm(t, realBroker{own}) })
		})
	}
}

// killedUnderLoad: producers go on through an outage, and all that they were told
// is safe is in the queue afterwards.
func killedUnderLoad(t *testing.T, own *broker.Broker, dialect store.Dialect) {
	ctx := t.Context()
	b := realBroker{own}
	q := b.queue(t, amqp.Table{})
	declared := time.Now()
	s := newPlace(t, dialect).store(t, store.Config{})

	conn := b.connect(t, connection.Config{})
	publisher, err := producer.New(conn, producer.Config{Fallback: []producer.Sink{s}})
	must(t, err)
	forwarder, err := producer.New(conn, producer.Config{})
	must(t, err)
	var doubtful sync.Map // ids whose forwarding may have doubled them
	stop := forward(t, s, forwarder, store.ForwardConfig{Traces: []store.ForwardTrace{{
		Forwarded: func(_ context.Context, f store.Forwarded) {
			if f.Entry.Unconfirmed > 0 || f.Receipt.MaybeDuplicate {
				doubtful.Store(f.Entry.Message.ID, true)
			}
		},
	}}})

	a := &account{queue: map[string]bool{}, store: map[string]bool{}, maybe: map[string]bool{}}
	load, end := context.WithCancel(ctx)
	var callers sync.WaitGroup
	for g := range 20 {
		callers.Go(func() {
			tick := time.NewTicker(40 * time.Millisecond) // 500 messages a second by all
			defer tick.Stop()
			for i := 0; load.Err() == nil; i++ {
				began := time.Now()
				r, err := publisher.Publish(ctx, producer.Message{RoutingKey: q, ID: fmt.Sprintf("%d-%d", g, i), Body: []byte("order")})
				a.note(r, err, time.Since(began))
				<-tick.C
			}
		})
	}
	// A quorum queue that is killed young may be wiped by the broker itself.
	<-time.After(time.Until(declared.Add(15 * time.Second)))
	must(t, own.Kill(ctx))
	<-time.After(5 * time.Second)
	must(t, own.Start(ctx))
	<-time.After(2 * time.Second)
	end()
	callers.Wait()
	empties(t, s, store.Query{States: []store.State{store.Ready}}, patience)
	stop()
	must(t, publisher.Close())
	must(t, forwarder.Close())

	got := b.drain(t, q, len(a.queue)+len(a.store))
	twice, unexplained := 0, 0
	for _, safe := range []map[string]bool{a.queue, a.store} {
		for id := range safe {
			if got[id] == 0 {
				t.Errorf("%s was called safe and is lost", id)
			}
		}
	}
	for id, n := range got {
		if n > 1 {
			twice++
			if _, maybe := doubtful.Load(id); !maybe && !a.maybe[id] {
				unexplained++
			}
		}
	}
	if unexplained > 0 {
		t.Errorf("%d messages arrived twice without a word about it", unexplained)
	}
	if a.unsafe > 0 || len(a.store) == 0 {
		t.Errorf("%d messages were not safe, %d were stored", a.unsafe, len(a.store))
	}
	if held, _ := s.Count(ctx, store.Query{}); held != 0 {
		t.Errorf("%d letters are left", held)
	}
	t.Logf("%s: %d confirmed, %d stored and forwarded, %d twice (all announced), slowest call %v", own.Version(), len(a.queue), len(a.store), twice, a.slowest.Round(time.Millisecond))
}

// TestFaultsOfTwoClusters: the first is down, the second takes the messages; both are
// down, and the store does; the store is locked as well, and one error names
// all causes.
func TestFaultsOfTwoClusters(t *testing.T) {
	if os.Getenv("AMQP_URL") != "" {
		t.Log("AMQP_URL is set: that broker is not ours to stop")
		return
	}
	t.Parallel()
	ctx := t.Context()
	var clusters [2]realBroker
	for i := range clusters {
		own, err := broker.Start(ctx, broker.Options{Name: fmt.Sprintf("rehop-store-cluster%d", i)})
		must(t, err)
		defer own.Close(context.WithoutCancel(ctx))
		clusters[i] = realBroker{own}
	}
	first, second := clusters[0], clusters[1]
	q := first.queue(t, nil)
	ch := second.channel(t)
	spare := second.queue(t, nil)
	must(t, ch.ExchangeDeclare("spare", "fanout", true, false, false, false, nil))
	must(t, ch.QueueBind(spare, "", "spare", false, nil))

	p := newPlace(t, store.SQLite)
	s := p.store(t, store.Config{Timeout: 5 * time.Second})
	other, err := connection.Open(ctx, connection.Config{URLs: []string{second.AMQPURL()}, Lazy: true})
	must(t, err)
	defer other.Close()
	sink, err := producer.NewExchangeSink(other, "spare")
	must(t, err)
	publisher, err := producer.New(first.connect(t, connection.Config{}), producer.Config{Timeout: 20 * time.Second, FallbackAfter: 4 * time.Second, Fallback: []producer.Sink{sink, s}})
	must(t, err)
	defer publisher.Close()
	publish := func(id string) (producer.Receipt, error) {
		return publisher.Publish(ctx, producer.Message{RoutingKey: q, ID: id})
	}
	expect := func(id string, place producer.Place, sink string) {
		t.Helper()
		if r, err := publish(id); err != nil || r.Place != place || r.Sink != sink {
			t.Errorf("%s: %+v, %v; want %v %q", id, r, err, place, sink)
		}
	}
	expect("both up", producer.PlaceQueue, "")
	must(t, first.Stop(ctx))
	expect("first down", producer.PlaceFallback, "exchange spare")
	if got := second.drain(t, spare, 1); got["first down"] != 1 {
		t.Errorf("the second cluster has %v", got)
	}
	must(t, second.Stop(ctx))
	expect("both down", producer.PlaceFallback, s.Name())
	unlock := lock(t, p)
	r, err := publish("nowhere")
	if err == nil || r.Place != "" {
		t.Errorf("%+v, %v; want an error", r, err)
	}
	for _, want := range []string{`fallback "exchange spare"`, `fallback "store"`, "nowhere"} {
		if err == nil || !contains(err, want) {
			t.Errorf("%v\nsays nothing of %s", err, want)
		}
	}
	unlock()
	must(t, first.Start(ctx))
	forward(t, s, first.producer(t), store.ForwardConfig{})
	empties(t, s, store.Query{MessageIDs: []string{"both down"}}, patience)
	if got := first.drain(t, q, 2); got["both up"] != 1 || got["both down"] != 1 {
		t.Errorf("the first cluster has %v", got)
	}
}
