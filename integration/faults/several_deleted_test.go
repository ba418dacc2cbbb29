package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/integration/nodes"
	"github.com/rehop/rehop/integration/poll"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
)

// Somebody deletes several exchanges of a work queue at once, again and again, while
// messages fail and come back, and each time they are declared again at once. What
// meets an exchange that is gone is kept: no message is lost, and none with attempts
// left becomes a letter.
func TestSeveralExchangesDeleted(t *testing.T) {
	for _, version := range ownVersions() {
		for _, queueType := range queueTypes {
			t.Run(version+" "+string(queueType), func(t *testing.T) {
				t.Parallel()
				testSeveralExchangesDeleted(t, pool.Of(t, version), queueType)
			})
		}
	}
}

func testSeveralExchangesDeleted(t *testing.T, n *nodes.Node, queueType topology.QueueType) {
	const cycles, each = 20, 20
	conn := open(t, n, connection.Config{})
	w := topology.WorkQueue{
		Name: fmt.Sprintf("deleted.%s.%s.several", n.Column, queueType), Type: queueType,
		Waits: delay.Schedule{300 * time.Millisecond, 200 * time.Millisecond, 100 * time.Millisecond},
	}
	plan, err := topology.DeclarePlan(t.Context(), conn, w)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { deleteAll(t, conn, plan) })
	var mu sync.Mutex
	handled, letters := map[string]int{}, map[string]int{}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	run := func(source topology.Source, h consumer.Handler) {
		c, err := consumer.New(conn, source, h, consumer.Config{Concurrency: 10})
		if err != nil {
			t.Fatal(err)
		}
		running.Go(func() {
			if err := c.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	run(w, func(_ context.Context, d *consumer.Delivery) error {
		if d.Attempt < 3 {
			return errFailed
		}
		mu.Lock()
		defer mu.Unlock()
		handled[d.ID]++
		return nil
	})
	run(w.DeadLetterQueue(), func(_ context.Context, d *consumer.Delivery) error {
		mu.Lock()
		defer mu.Unlock()
		letters[d.ID]++
		return nil
	})
	publisher, err := producer.New(conn, producer.Config{})
	if err != nil {
		t.Fatal(err)
	}
	exchanges := []part{dlxExchange, delayExchange, firstDelayExchange, spareDelayExchange, returnExchange, spareReturnExchange, unroutedExchange}
	random := rand.New(rand.NewPCG(1, 2))
	for cycle := range cycles {
		messages := make([]producer.Message, each)
		for i := range messages {
			messages[i] = producer.Message{RoutingKey: w.Name, ID: fmt.Sprintf("%d.%d", cycle, i)}
		}
		if _, err := publisher.PublishAll(t.Context(), messages); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Duration(random.IntN(300)) * time.Millisecond)
		session, err := conn.Session(t.Context(), connection.Consume)
		if err != nil {
			t.Fatal(err)
		}
		if err := session.Do(t.Context(), func(ch *amqp.Channel) error {
			for _, i := range random.Perm(len(exchanges))[:2+random.IntN(len(exchanges)-1)] {
				if _, err := exchanges[i].remove(ch, w); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if err := session.Close(); err != nil {
			t.Fatal(err)
		}
		if err := topology.Declare(t.Context(), conn, w); err != nil {
			t.Fatal(err)
		}
	}
	// The broker tries again after three minutes what it could not dead-letter.
	poll.Until(t, 8*time.Minute, "all messages are handled", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(handled)+len(letters) >= cycles*each
	})
	stop()
	running.Wait()
	if err := publisher.Close(); err != nil {
		t.Error(err)
	}
	mu.Lock()
	defer mu.Unlock()
	t.Logf("%d messages handled, %d letters", len(handled), len(letters))
	if len(letters) > 0 {
		t.Errorf("%d letters of messages with attempts left: %v", len(letters), letters)
	}
}
