package faults

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/integration/child"
	"github.com/rehop/rehop/integration/nodes"
	"github.com/rehop/rehop/integration/poll"
	"github.com/rehop/rehop/topology"
)

// A process is suspended with a message in each handler, and goes on when another one has handled all of its
// messages. Its handlers end, and begin with none of these messages.
func TestASuspendedProcessBeginsNothingThatOthersHavePassed(t *testing.T) {
	for _, version := range versions {
		for _, queueType := range queueTypes {
			t.Run(fmt.Sprintf("%s %s", version, queueType), func(t *testing.T) {
				t.Parallel()
				n := pool.Of(t, version)
				table.Cell(t, ruleSuspended, n.Column, string(queueType))
				testSuspended(t, n, queueType)
			})
		}
	}
}

func testSuspended(t *testing.T, n *nodes.Node, queueType topology.QueueType) {
	const keys, each = 8, 5
	conn := open(t, n, connection.Config{})
	shards := topology.Shards{Name: fmt.Sprintf("suspended.%s.%s", n.Column, queueType), Count: 1, Type: queueType, Waits: delay.Schedule{time.Second}, SingleActiveConsumer: true}
	plan, err := topology.DeclarePlan(t.Context(), conn, shards)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { deleteAll(t, conn, plan) })
	raw, err := amqp.Dial(n.AMQPURL())
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	out, err := raw.Channel()
	if err == nil {
		err = out.Confirm(false)
	}
	if err != nil {
		t.Fatal(err)
	}
	send := func(from, to int) {
		for i := from; i < to; i++ {
			for k := range keys {
				key := fmt.Sprint("key ", k)
				confirm, err := out.PublishWithDeferredConfirm("", shards.Queue(key), true, false, amqp.Publishing{
					MessageId: fmt.Sprintf("%s/%d", key, i), DeliveryMode: amqp.Persistent, Headers: amqp.Table{orderKey: key}})
				if err != nil || !confirm.Wait() {
					t.Fatalf("a message is not confirmed: %v", err)
				}
			}
		}
	}
	var mu sync.Mutex
	events := map[string][]string{} // of each process: "begin key 1/0"
	count := func(process, what string) (n int) {
		mu.Lock()
		defer mu.Unlock()
		for _, e := range events[process] {
			if strings.HasPrefix(e, what) {
				n++
			}
		}
		return n
	}
	start := func(process string, takes time.Duration) *child.Process {
		job := task{URL: n.AMQPURL() + "?heartbeat=1", Shards: &shards, Concurrency: keys, Prefetch: 50, Takes: takes}
		return child.Start(t, job, func(_ *child.Process, e event) {
			mu.Lock()
			defer mu.Unlock()
			events[process] = append(events[process], e.What+" "+e.ID)
		})
	}
	send(0, each)
	first := start("first", 2*time.Second)
	poll.Until(t, time.Minute, "every handler has a message", func() bool { return count("first", "begin") == keys })
	if err := first.Suspend(); err != nil {
		t.Fatal(err)
	}
	second := start("second", 0)
	poll.Until(t, time.Minute, "another process handles all", func() bool { return count("second", "end") == keys*each })
	queue := shards.WorkQueues()[0].Name
	poll.Until(t, time.Minute, "the broker has all acks", func() bool {
		all, err := n.Exec(t.Context(), "rabbitmqctl", "--silent", "list_queues", "name", "messages")
		if err != nil {
			t.Fatal(err)
		}
		return slices.Contains(strings.Split(all, "\n"), queue+"\t0")
	})
	if err := first.Continue(); err != nil {
		t.Fatal(err)
	}
	poll.Until(t, time.Minute, "the handlers end", func() bool { return count("first", "end") >= keys })
	second.Kill()
	if err := second.Wait(); err != nil {
		t.Error(err)
	}
	send(each, each+1)
	poll.Until(t, time.Minute, "the process that was suspended handles what comes", func() bool { return count("first", fmt.Sprintf("end key %d/%d", keys-1, each)) == 1 })
	mu.Lock()
	defer mu.Unlock()
	for _, e := range events["first"][keys:] {
		if strings.HasPrefix(e, "begin") && !strings.HasSuffix(e, fmt.Sprint("/", each)) {
			t.Errorf("%s, although another process has handled it", e)
		}
	}
	if began := events["first"][:keys]; slices.ContainsFunc(began, func(e string) bool { return !strings.HasPrefix(e, "begin") || !strings.HasSuffix(e, "/0") }) {
		t.Errorf("it was suspended when its handlers had begun %q", began)
	}
}
