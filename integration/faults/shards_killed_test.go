package faults

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/integration/child"
	"github.com/rehop/rehop/integration/nodes"
	"github.com/rehop/rehop/integration/poll"
	"github.com/rehop/rehop/topology"
)

// consumeShards is what the child does that shares shards with others.
func consumeShards(ctx context.Context, conn *connection.Conn, t task) error {
	c, err := consumer.New(conn, *t.Shards, func(_ context.Context, d *consumer.Delivery) error {
		child.Say(event{What: "begin", ID: d.ID, Redelivered: d.Redelivered, At: time.Now()})
		<-time.After(5 * time.Millisecond)
		child.Say(event{What: "end", ID: d.ID, At: time.Now()})
		return nil
	}, consumer.Config{Concurrency: t.Concurrency, Prefetch: t.Prefetch, KeyLimit: 1})
	if err != nil {
		return err
	}
	return fmt.Errorf("the consumer ended: %w", c.Run(ctx))
}

// Processes that share shards are killed, and others take their place. Every message is handled, those
// of a key in their order, and the work is even again.
func TestProcessesOfShardsKilled(t *testing.T) {
	for _, version := range versions {
		for _, queueType := range queueTypes {
			for _, prefetch := range []int{1, 50, 500} {
				t.Run(fmt.Sprintf("%s %s, prefetch %d", version, queueType, prefetch), func(t *testing.T) {
					t.Parallel()
					n := pool.Of(t, version)
					if prefetch == 50 {
						table.Cell(t, ruleShards, n.Column, string(queueType))
					}
					testProcessesOfShardsKilled(t, n, queueType, prefetch)
				})
			}
		}
	}
}

// shared is a run of processes that share shards.
type shared struct {
	*testing.T
	shards topology.Shards
	job    task
	out    *amqp.Channel
	keys   int

	mu        sync.Mutex
	processes []*child.Process  // by number
	killed    map[int]time.Time // by number
	events    []sharedEvent
	sent      int // of each key
	ended     map[string]bool
}

type sharedEvent struct {
	event
	by int // process
}

func testProcessesOfShardsKilled(t *testing.T, n *nodes.Node, queueType topology.QueueType, prefetch int) {
	conn := open(t, n, connection.Config{})
	r := &shared{T: t, keys: 40, ended: map[string]bool{}, killed: map[int]time.Time{}}
	r.shards = topology.Shards{Name: fmt.Sprintf("shared.%s.%s.%d", n.Column, queueType, prefetch), Count: 8, Type: queueType, Waits: delay.Schedule{time.Second}, SingleActiveConsumer: true}
	plan, err := topology.DeclarePlan(t.Context(), conn, r.shards)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { deleteAll(t, conn, plan) })
	raw, err := amqp.Dial(n.AMQPURL())
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	if r.out, err = raw.Channel(); err == nil {
		err = r.out.Confirm(false)
	}
	if err != nil {
		t.Fatal(err)
	}
	r.job = task{URL: n.AMQPURL(), Shards: &r.shards, Concurrency: 16, Prefetch: prefetch}
	for range 4 {
		r.start()
	}
	r.share(0, 1, 2, 3)
	r.kill(2)
	r.share(0, 1, 3)
	r.start()
	r.share(0, 1, 3, 4)
	r.kill(0, 4)
	r.share(1, 3)
	r.start()
	r.start()
	r.share(1, 3, 5, 6)
	poll.Until(t, time.Minute, "all are handled", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.ended) == r.keys*r.sent
	})
	r.order()
}

func (r *shared) start() {
	by := len(r.processes)
	p := child.Start(r.T, r.job, func(_ *child.Process, e event) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.events = append(r.events, sharedEvent{e, by})
		if e.What == "end" {
			r.ended[e.ID] = true
		}
	})
	r.processes = append(r.processes, p)
}

func (r *shared) kill(numbers ...int) {
	r.Helper()
	r.send(50) // so that messages are in hand
	for _, by := range numbers {
		r.killed[by] = time.Now()
		r.processes[by].Kill()
	}
	for _, by := range numbers {
		if err := r.processes[by].Wait(); err != nil {
			r.Error(err)
		}
	}
}

// send sends so many messages of each key. A Producer would send a message again, behind others, that a busy
// broker does not confirm at once.
func (r *shared) send(each int) {
	r.Helper()
	r.mu.Lock()
	first := r.sent
	r.sent += each
	r.mu.Unlock()
	var confirms []*amqp.DeferredConfirmation
	for i := range each {
		for k := range r.keys {
			key := fmt.Sprint("key ", k)
			confirm, err := r.out.PublishWithDeferredConfirm("", r.shards.Queue(key), true, false, amqp.Publishing{
				MessageId: fmt.Sprintf("%s/%d", key, first+i), DeliveryMode: amqp.Persistent, Headers: amqp.Table{orderKey: key}})
			if err != nil {
				r.Fatal(err)
			}
			confirms = append(confirms, confirm)
		}
	}
	for _, c := range confirms {
		if !c.Wait() {
			r.Fatal("a message is not confirmed")
		}
	}
}

// orderKey is the header of Message.OrderKey.
const orderKey = "x-rehop-order-key"

// share sends until these processes handle the shards in even shares, and nobody else does.
func (r *shared) share(numbers ...int) {
	r.Helper()
	least, most := r.shards.Count/len(numbers), (r.shards.Count+len(numbers)-1)/len(numbers)
	began := time.Now()
	poll.Until(r.T, 2*time.Minute, fmt.Sprintf("processes %v share the shards", numbers), func() bool {
		r.mu.Lock()
		behind := r.keys*r.sent - len(r.ended)
		r.mu.Unlock()
		if behind < r.keys {
			r.send(2)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		of, shards := map[int]map[string]bool{}, map[string]bool{}
		for _, e := range slices.Backward(r.events) {
			if time.Since(e.At) > time.Second {
				break
			}
			shard := r.shards.Queue(keyOfID(e.ID))
			if of[e.by] == nil {
				of[e.by] = map[string]bool{}
			}
			of[e.by][shard], shards[shard] = true, true
		}
		for p, queues := range of {
			if !slices.Contains(numbers, p) || len(queues) < least || len(queues) > most {
				return false
			}
		}
		return len(shards) == r.shards.Count && len(of) == len(numbers)
	})
	r.Logf("processes %v share the shards after %v", numbers, time.Since(began).Round(time.Millisecond))
}

func keyOfID(id string) string { return id[:strings.LastIndex(id, "/")] }

// order checks that the messages of each key are handled in their order, one at a time. What a process that
// was killed had in hand comes again, in order, and never before the message behind it.
func (r *shared) order() {
	r.Helper()
	slices.SortStableFunc(r.events, func(a, b sharedEvent) int { return a.At.Compare(b.At) })
	last, again := map[string]int{}, 0
	running := map[string]sharedEvent{}
	for _, e := range r.events {
		key := keyOfID(e.ID)
		number, err := strconv.Atoi(e.ID[len(key)+1:])
		if err != nil {
			r.Fatal(err)
		}
		if e.What == "end" {
			delete(running, key)
			continue
		}
		if other, runs := running[key]; runs && e.At.Before(r.killed[other.by]) {
			r.Errorf("%s begins in process %d while %s is handled in process %d", e.ID, e.by, other.ID, other.by)
		}
		running[key] = e
		next := last[key] // the numbers begin with 0
		switch {
		case number > next:
			r.Errorf("%s begins in process %d, and the next of its key is %d", e.ID, e.by, next)
		case number < next:
			if again++; !e.Redelivered {
				r.Errorf("%s begins again in process %d, and is not redelivered", e.ID, e.by)
			}
		}
		last[key] = number + 1
	}
	for key, next := range last {
		if next != r.sent {
			r.Errorf("%s ends with %d, want %d", key, next-1, r.sent-1)
		}
	}
	r.Logf("%d messages of %d keys, %d of which were handled again", r.keys*r.sent, r.keys, again)
}
