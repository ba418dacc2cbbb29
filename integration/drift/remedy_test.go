package drift

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/integration/nodes"
	"github.com/rehop/rehop/integration/poll"
	"github.com/rehop/rehop/topology"
)

// Somebody follows the remedy for a work queue of another type, while messages wait: none is lost and none becomes a
// dead letter. If he does not heed the waits, each message in them becomes one.
func TestTheRemedyForAQueueThatDiffers(t *testing.T) {
	onEachVersion(t, func(t *testing.T, n *nodes.Node) {
		for _, heeds := range []bool{false, true} {
			t.Run(fmt.Sprintf("waits are empty: %t", heeds), func(t *testing.T) {
				const messages = 60
				v := newVhost(t, n, fmt.Sprint("remedy ", heeds))
				have := topology.WorkQueue{Name: "orders", Type: topology.Classic, Engine: topology.EngineRepublish, Waits: delay.Schedule{4 * time.Second, 6 * time.Second}}
				want := have
				want.Type, want.Engine = topology.Quorum, topology.EngineAuto
				if err := topology.Declare(t.Context(), v.conn, have); err != nil {
					t.Fatal(err)
				}
				var conflict *topology.ConflictError
				if err := topology.Declare(t.Context(), v.conn, want); !errors.As(err, &conflict) || !strings.Contains(conflict.Advice, "let its consumers empty it and its waits") {
					t.Fatalf("Declare of another type: %v", err)
				}
				session, err := v.conn.Session(t.Context(), connection.Publish)
				if err != nil {
					t.Fatal(err)
				}
				err = session.Do(t.Context(), func(ch *amqp.Channel) error {
					if err := ch.Confirm(false); err != nil {
						return err
					}
					for i := range messages {
						c, err := ch.PublishWithDeferredConfirm("", "orders", true, false, amqp.Publishing{DeliveryMode: amqp.Persistent, MessageId: fmt.Sprint(i)})
						if err != nil {
							return err
						}
						c.Wait()
					}
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				var mu sync.Mutex
				failed, done := 0, map[string]bool{}
				consume := func(w topology.WorkQueue) (stop func()) {
					t.Helper()
					c, err := consumer.New(v.conn, w, func(_ context.Context, d *consumer.Delivery) error {
						mu.Lock()
						defer mu.Unlock()
						if d.Attempt < 3 {
							failed++
							return errors.New("not yet")
						}
						done[d.ID] = true
						return nil
					}, consumer.Config{Concurrency: 8})
					if err != nil {
						t.Fatal(err)
					}
					ctx, cancel := context.WithCancel(t.Context())
					ended := make(chan error, 1)
					go func() { ended <- c.Run(ctx) }()
					return func() {
						cancel()
						if err := <-ended; err != nil {
							t.Error(err)
						}
					}
				}
				counts := func() (all map[string]int) {
					all = map[string]int{}
					var list []struct {
						Name     string
						Messages int
					}
					if err := json.Unmarshal(v.must(http.MethodGet, "queues/"+v.path()+"?columns=name,messages", nil), &list); err != nil {
						t.Fatal(err)
					}
					for _, q := range list {
						all[q.Name] = q.Messages
					}
					return all
				}
				stop := consume(have)
				if heeds {
					empty := func() bool { c := counts(); return c["orders"]+c["orders.wait.1"]+c["orders.wait.2"] == 0 }
					for first := (time.Time{}); first.IsZero() || time.Since(first) < 10*time.Second; { // twice, 10 s apart
						poll.Until(t, 2*time.Minute, "orders and its waits are empty", empty)
						if first.IsZero() {
							first = time.Now()
						}
						poll.Until(t, time.Minute, "10 s have passed, or one is not empty", func() bool { return time.Since(first) >= 10*time.Second || !empty() })
						if !empty() {
							first = time.Time{}
						}
					}
				} else {
					poll.Until(t, time.Minute, "each message waits", func() bool { mu.Lock(); defer mu.Unlock(); return failed >= messages })
				}
				stop()
				v.must(http.MethodDelete, "queues/"+v.path()+"/orders", nil)
				if !heeds {
					poll.Until(t, time.Minute, "each message that waited is a dead letter", func() bool { return counts()["orders.dlq"] == messages })
					return
				}
				for {
					err := topology.Declare(t.Context(), v.conn, want)
					if err == nil {
						break
					}
					if !errors.As(err, &conflict) || conflict.Kind != "queue" || counts()[conflict.Name] > 0 { // of 3.10 the other queues differ too
						t.Fatal(err)
					}
					v.must(http.MethodDelete, "queues/"+v.path()+"/"+conflict.Name, nil)
				}
				stop = consume(want)
				defer stop()
				poll.Until(t, time.Minute, "each message is done", func() bool { mu.Lock(); defer mu.Unlock(); return len(done) == messages })
				if c := counts(); c["orders.dlq"] > 0 || failed != 2*messages {
					t.Errorf("%d letters, and %d failures, want none and %d", c["orders.dlq"], failed, 2*messages)
				}
				if drift := v.verify(v.conn, want); !drift.OK() {
					t.Errorf("after the remedy:\n%s", drift)
				}
			})
		}
	})
}
