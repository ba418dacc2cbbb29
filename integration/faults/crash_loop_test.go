package faults

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/integration/child"
	"github.com/rehop/rehop/integration/nodes"
	"github.com/rehop/rehop/integration/queues"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
)

// guilty is the type of messages that kill each process that handles them.
const guilty = "guilty"

// consumeUntilGuilty is what the child does that lives until it handles a guilty message, with other messages
// in hand if its handlers are slow.
func consumeUntilGuilty(ctx context.Context, conn *connection.Conn, t task) error {
	var source topology.Source = t.Shards
	if t.Shards == nil {
		source = t.Queues[0]
	}
	limit := 0
	if t.InOrder {
		limit = 1
	}
	c, err := consumer.New(conn, source, func(_ context.Context, d *consumer.Delivery) error {
		child.Say(event{What: "begin", ID: d.ID, Redelivered: d.Redelivered})
		if d.Type == guilty {
			<-time.After(t.Slow / 4)
			_ = syscall.Kill(syscall.Getpid(), syscall.SIGKILL)
			select {}
		}
		<-time.After(max(10*time.Millisecond, t.Slow))
		child.Say(event{What: "end", ID: d.ID, Redelivered: d.Redelivered})
		return nil
	}, consumer.Config{Concurrency: t.Concurrency, KeyLimit: limit})
	if err != nil {
		return err
	}
	return fmt.Errorf("the consumer ended: %w", c.Run(ctx))
}

// In order, a message that kills its process again and again takes no other message along.
func TestACrashLoopInOrder(t *testing.T) {
	for _, single := range []bool{false, true} {
		for _, version := range versions {
			t.Run(fmt.Sprintf("%s, single %t", version, single), func(t *testing.T) {
				t.Parallel()
				n := pool.Of(t, version)
				if !single {
					table.Cell(t, ruleCrashLoop, n.Column, string(topology.Quorum))
				}
				testACrashLoopInOrder(t, n, single)
			})
		}
	}
}

func testACrashLoopInOrder(t *testing.T, n *nodes.Node, single bool) {
	const messages, keys, kills = 120, 6, 20
	conn := open(t, n, connection.Config{})
	w := topology.WorkQueue{Name: fmt.Sprintf("loop.%s.%t", n.Column, single), Type: topology.Quorum, Waits: delay.Schedule{time.Second}, SingleActiveConsumer: single}
	plan, err := topology.DeclarePlan(t.Context(), conn, w)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { deleteAll(t, conn, plan) })
	out, err := producer.New(conn, producer.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	keyOf := func(i int) string { return fmt.Sprint("key ", i%keys) }
	id := func(i int) string { return fmt.Sprintf("%s/%d", w.Name, i) }
	want := map[string][]string{} // by key
	key := map[string]string{}    // by id
	all := make([]producer.Message, messages)
	for i := range all {
		all[i] = producer.Message{RoutingKey: w.Name, ID: id(i), OrderKey: keyOf(i)}
		key[id(i)] = keyOf(i)
		if i == kills {
			all[i].Type = guilty
			continue
		}
		want[keyOf(i)] = append(want[keyOf(i)], id(i))
	}
	if _, err := out.PublishAll(t.Context(), all); err != nil {
		t.Fatal(err)
	}

	var mu sync.Mutex
	got := map[string][]string{} // by key, in the order of their first ends
	ended := map[string]bool{}
	again := 0 // messages that came for the first time more than once
	begun := map[string]bool{}
	overtaken := false // the guilty message, by one of its key
	heard := func(_ *child.Process, e event) {
		mu.Lock()
		defer mu.Unlock()
		if e.ID == id(kills) {
			overtaken = overtaken || ended[id(kills+keys)]
		}
		switch {
		case e.What == "begin" && !e.Redelivered:
			if begun[e.ID] {
				again++
			}
			begun[e.ID] = true
		case e.What == "end" && !ended[e.ID]:
			ended[e.ID] = true
			got[key[e.ID]] = append(got[key[e.ID]], e.ID)
		}
	}
	job := task{URL: n.AMQPURL(), Queues: []topology.WorkQueue{w}, Concurrency: 8, InOrder: true}
	letters := untilSettled(t, conn, job, heard, w.DeadLetterQueue().Name, messages, func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(ended)
	})
	if !slices.Equal(letters, []string{id(kills)}) {
		t.Errorf("%d letters: %s, want the guilty message", len(letters), few(letters))
	}
	for k, ids := range want {
		if !slices.Equal(got[k], ids) {
			t.Errorf("%s: handled %v, want %v", k, got[k], ids)
		}
	}
	if !overtaken {
		t.Error("no later message of its key has overtaken the guilty one, and docs/order.md says that it loses its place")
	}
	if again > 0 {
		t.Errorf("%d messages came for the first time more than once", again)
	}
}

// untilSettled runs one process after the other until nothing is left to be handled, and returns the letters.
func untilSettled(t *testing.T, conn *connection.Conn, job task, heard func(*child.Process, event), letterQueue string, messages int, done func() int) (letters []string) {
	t.Helper()
	settled := func() bool {
		ended := done()
		letters, err := queues.Ready(t.Context(), conn, letterQueue)
		return err == nil && letters > 0 && ended+letters >= messages
	}
	processes := 0
	for limit := time.Now().Add(2 * time.Minute); !settled(); {
		if processes++; time.Now().After(limit) {
			t.Fatalf("%d processes have not settled all messages", processes)
		}
		p := child.Start(t, job, heard)
		dead := make(chan error, 1)
		go func() { dead <- p.Wait() }()
		look := time.NewTicker(50 * time.Millisecond)
		for alive := true; alive; {
			select {
			case err := <-dead:
				if alive = false; err != nil {
					t.Fatal(err)
				}
			case <-look.C:
				if settled() || time.Now().After(limit) {
					p.Kill()
				}
			}
		}
		look.Stop()
	}
	t.Logf("%d processes", processes)
	if err := queues.Take(t.Context(), conn, func(_ string, m amqp.Delivery) error {
		letters = append(letters, m.MessageId)
		return nil
	}, letterQueue); err != nil {
		t.Error(err)
	}
	return letters
}

// A message that kills its process again and again takes no message of another shard along, although their
// handlers take longer than the process lives.
func TestACrashLoopInShards(t *testing.T) {
	for _, inOrder := range []bool{false, true} {
		for _, version := range versions {
			t.Run(fmt.Sprintf("%s, in order %t", version, inOrder), func(t *testing.T) {
				t.Parallel()
				n := pool.Of(t, version)
				if !inOrder {
					table.Cell(t, ruleCrashApart, n.Column, string(topology.Quorum))
				}
				testACrashLoopInShards(t, n, inOrder)
			})
		}
	}
}

func testACrashLoopInShards(t *testing.T, n *nodes.Node, inOrder bool) {
	const shards, each = 4, 3
	conn := open(t, n, connection.Config{})
	s := topology.Shards{Name: fmt.Sprintf("loops.%s.%t", n.Column, inOrder), Count: shards, Type: topology.Quorum, Waits: delay.Schedule{time.Second}, SingleActiveConsumer: inOrder}
	plan, err := topology.DeclarePlan(t.Context(), conn, s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { deleteAll(t, conn, plan) })
	out, err := producer.New(conn, producer.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	var all []producer.Message
	for i := range shards {
		for j := range each {
			m := producer.Message{RoutingKey: fmt.Sprintf("%s.%02d", s.Name, i), ID: fmt.Sprintf("%s/%d.%d", s.Name, i, j), OrderKey: fmt.Sprint("key ", i, j)}
			if i == 1 && j == 0 {
				m.Type = guilty
			}
			all = append(all, m)
		}
	}
	if _, err := out.PublishAll(t.Context(), all); err != nil {
		t.Fatal(err)
	}

	var mu sync.Mutex
	ended := map[string]bool{}
	heard := func(_ *child.Process, e event) {
		mu.Lock()
		defer mu.Unlock()
		if e.What == "end" {
			ended[e.ID] = true
		}
	}
	job := task{URL: n.AMQPURL(), Shards: &s, Concurrency: 8, InOrder: inOrder, Slow: 500 * time.Millisecond}
	letters := untilSettled(t, conn, job, heard, s.Name+".dlq", len(all), func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(ended)
	})
	if want := []string{s.Name + "/1.0"}; !slices.Equal(letters, want) {
		t.Errorf("%d letters: %s, want the guilty message", len(letters), few(letters))
	}
}
