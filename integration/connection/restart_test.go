package connection_test

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/integration/nodes"
	"github.com/rehop/rehop/integration/poll"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
)

var (
	clients      = flag.Int("clients", 20, "how many clients a restarted broker has")
	plainClients = flag.Bool("plain", false, "the clients are plain programs: what this machine and its broker are capable of")
)

// backBound is threefold the second within which 95 of 100 clients are back.
const backBound = 3 * time.Second

// restartedQueue is shared by the clients of a broker that is restarted.
func restartedQueue(i int) topology.WorkQueue {
	return topology.WorkQueue{Name: fmt.Sprintf("restarted.%d", i), Type: topology.Quorum}
}

const restartedQueues = 5

// backs are the times at which clients of a restarted broker were back.
type backs struct {
	mu    sync.Mutex
	gone  bool // the broker is away, or has been
	times map[string]map[int]time.Time
}

func (b *backs) note(role string, client int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, known := b.times[role][client]; b.gone && !known {
		b.times[role][client] = time.Now()
	}
}

func (b *backs) begin() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gone, b.times = true, map[string]map[int]time.Time{"publishing": {}, "consuming": {}}
}

func (b *backs) all(n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.times["publishing"]) == n && len(b.times["consuming"]) == n
}

// after returns how long after the broker was usable the clients were back, sorted.
func (b *backs) after(usable time.Time, role string) (late []time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, at := range b.times[role] {
		late = append(late, max(0, at.Sub(usable)).Round(time.Millisecond))
	}
	slices.Sort(late)
	return late
}

// Clients of a broker that was away for less than a minute publish and consume soon
// after a plain program does that dials every 100 ms.
func TestClientsAreBackSoonAfterARestart(t *testing.T) {
	eachVersion(t, func(t *testing.T, version string) {
		n := nodeOf(t, version)
		b := &backs{}
		ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
		var running sync.WaitGroup
		defer running.Wait()
		defer stop()
		start := startClient
		if *plainClients {
			start = startPlainClient
		}
		for i := range *clients {
			start(ctx, t, &running, n.AMQPURL(), i, b)
		}
		n.Aged(t)
		for _, fault := range []struct {
			name  string
			begin func(context.Context) error
		}{{"stop", n.Stop}, {"kill", n.Kill}} {
			b.begin()
			nodes.Must(t, fault.name, fault.begin)
			b.begin() // an orderly stop answers for a while
			published, consumed := make(chan time.Time, 1), make(chan time.Time, 1)
			running.Go(func() { plain(ctx, n.AMQPURL(), published, consumed) })
			<-time.After(5 * time.Second)
			nodes.Must(t, "start", n.Start)
			poll.Until(t, 5*time.Minute, "all clients are back", func() bool { return b.all(*clients) })
			for role, usable := range map[string]time.Time{"publishing": <-published, "consuming": <-consumed} {
				late := b.after(usable, role)
				p50, p95 := late[len(late)/2], late[(len(late)*95-1)/100]
				t.Logf("%s, %d clients: %s is back after it was usable: p50 %v, p95 %v, last %v", fault.name, *clients, role, p50, p95, late[len(late)-1])
				if p95 > backBound && !*plainClients {
					t.Errorf("%s: %s: p95 is %v, want 1 s, and %v at most", fault.name, role, p95, backBound)
				}
			}
			<-time.After(nodes.YoungQueue / 3) // the queues have settled
		}
	})
}

// startClient publishes and consumes until ctx ends.
func startClient(ctx context.Context, t *testing.T, running *sync.WaitGroup, url string, i int, b *backs) {
	t.Helper()
	queue := restartedQueue(i % restartedQueues)
	conn, err := connection.Open(ctx, connection.Config{URLs: []string{url}, OpenTimeout: 2 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	publisher, err := producer.New(conn, producer.Config{Timeout: 10 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	c, err := consumer.New(conn, queue, func(context.Context, *consumer.Delivery) error { return nil }, consumer.Config{
		Concurrency: 4,
		Traces: []consumer.Trace{{Fetching: func(f consumer.Fetching) {
			if f.Prefetch > 0 {
				b.note("consuming", i)
			}
		}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	var both sync.WaitGroup
	both.Go(func() {
		if err := c.Run(ctx); err != nil {
			t.Errorf("client %d: %v", i, err)
		}
	})
	both.Go(func() {
		tick := time.NewTicker(500 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			if _, err := publisher.Publish(ctx, producer.Message{RoutingKey: queue.Name}); err == nil {
				b.note("publishing", i)
			} else if ctx.Err() == nil {
				t.Errorf("client %d: %v", i, err)
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	})
	running.Go(func() {
		both.Wait()
		_ = publisher.Close()
		_ = conn.Close()
	})
}

// startPlainClient publishes and consumes until ctx ends, as startClient does. It dials
// every 100 ms.
func startPlainClient(ctx context.Context, _ *testing.T, running *sync.WaitGroup, url string, i int, b *backs) {
	queue := restartedQueue(i % restartedQueues).Name
	again := func(use func(*amqp.Channel, <-chan *amqp.Error)) {
		running.Go(func() {
			for ; ctx.Err() == nil; <-time.After(100 * time.Millisecond) {
				conn, err := amqp.DialConfig(url, amqp.Config{Dial: amqp.DefaultDial(10 * time.Second), Heartbeat: 10 * time.Second})
				if err != nil {
					continue
				}
				lost := conn.NotifyClose(make(chan *amqp.Error, 1))
				if ch, err := conn.Channel(); err == nil {
					use(ch, lost)
				}
				_ = conn.CloseDeadline(time.Now().Add(time.Second))
			}
		})
	}
	again(func(ch *amqp.Channel, lost <-chan *amqp.Error) {
		if ch.Qos(10, 0, false) != nil {
			return
		}
		deliveries, err := ch.Consume(queue, "", true, false, false, false, nil)
		if err != nil {
			return
		}
		b.note("consuming", i)
		for {
			select {
			case _, ok := <-deliveries:
				if !ok {
					return
				}
			case <-lost:
				return
			case <-ctx.Done():
				return
			}
		}
	})
	again(func(ch *amqp.Channel, lost <-chan *amqp.Error) {
		if ch.Confirm(false) != nil {
			return
		}
		for {
			confirm, err := ch.PublishWithDeferredConfirmWithContext(ctx, "", queue, true, false, amqp.Publishing{DeliveryMode: amqp.Persistent})
			if err != nil {
				return
			}
			select {
			case <-confirm.Done():
			case <-lost:
				return
			case <-ctx.Done():
				return
			}
			if !confirm.Acked() {
				return
			}
			b.note("publishing", i)
			select {
			case <-time.After(500 * time.Millisecond):
			case <-lost:
				return
			case <-ctx.Done():
				return
			}
		}
	})
}

// plain dials every 100 ms, and says when it has published a message and when it was
// given one.
func plain(ctx context.Context, url string, published, consumed chan<- time.Time) {
	for ; ctx.Err() == nil; <-time.After(100 * time.Millisecond) {
		if plainOnce(ctx, url, published, consumed) {
			return
		}
	}
}

func plainOnce(ctx context.Context, url string, published, consumed chan<- time.Time) bool {
	conn, err := amqp.DialConfig(url, amqp.Config{Dial: amqp.DefaultDial(time.Second), Heartbeat: 2 * time.Second})
	if err != nil {
		return false
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil || ch.Confirm(false) != nil {
		return false
	}
	confirm, err := ch.PublishWithDeferredConfirmWithContext(ctx, "", plainQueue.Name, true, false, amqp.Publishing{Body: []byte("plain")})
	if err != nil {
		return false
	}
	if acked, err := confirm.WaitContext(ctx); err != nil || !acked {
		return false
	}
	at := time.Now()
	deliveries, err := ch.Consume(plainQueue.Name, "", true, false, false, false, nil)
	if err != nil {
		return false
	}
	if _, ok := <-deliveries; !ok {
		return false
	}
	published <- at
	consumed <- time.Now()
	return true
}

// plainQueue is that of the plain program.
var plainQueue = topology.WorkQueue{Name: "restarted.plain", Type: topology.Quorum}
