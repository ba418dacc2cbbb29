package consumer_test

import (
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/topology"
)

// On 3.10, a consumer of a queue that another process is declaring ends the connection
// of all consumers. An empty wait queue may be such a one.
func TestAWaitQueueThatMayBeNewIsNotConsumedAtOnce(t *testing.T) {
	for _, tt := range []struct {
		rule     string
		version  string
		messages int
		at       time.Duration // when it is consumed at the latest, and not long before
	}{
		{"an empty one: after the declaration is over", "3.10", 0, 2 * time.Second},
		{"one with messages", "3.10", 1, 0},
		{"later brokers", "4.0", 0, 0},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			on(t, tt.version, topology.Quorum, func(w *fixture) {
				w.carried(time.Minute)
				w.publish(tt.messages, func(m *rehoptest.Message) {
					m.RoutingKey = "carried.wait.1"
				})
				_, stop := w.start(succeed, consumer.Config{})
				carried := func() bool {
					found := false
					w.raw(func(ch *amqp.Channel) error {
						q, err := ch.QueueDeclarePassive("carried.wait.1", true, false, false, false, nil)
						found = q.Consumers > 0
						return err
					})
					return found
				}
				if tt.at > 0 {
					time.Sleep(tt.at - 100*time.Millisecond)
					synctest.Wait()
					if carried() {
						w.Error("it is consumed although it may be new")
					}
				}
				time.Sleep(200 * time.Millisecond)
				synctest.Wait()
				if !carried() {
					w.Errorf("it is not consumed after %v", tt.at)
				}
				w.stopped(stop)
			})
		})
	}
}

// On 3.10, a consumer of a quorum queue that another process is declaring ends the
// connection. A work queue that may be new is therefore not consumed at once, when Run
// begins.
func TestAWorkQueueThatMayBeNewIsNotConsumedAtOnce(t *testing.T) {
	for _, tt := range []struct {
		rule, version string
		kind          topology.QueueType
		begin         func(*fixture)
		after         time.Duration
	}{
		{"an empty one", "3.10", topology.Quorum, func(*fixture) {}, 2 * time.Second},
		{"one with messages", "3.10", topology.Quorum, func(w *fixture) { w.publish(1) }, 0},
		{"one with another consumer", "3.10", topology.Quorum, func(w *fixture) {
			w.start(succeed, consumer.Config{})
			w.begun()
		}, 0},
		{"a classic one", "3.10", topology.Classic, func(*fixture) {}, 0},
		{"later brokers", "4.0", topology.Quorum, func(*fixture) {}, 0},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			on(t, tt.version, tt.kind, func(w *fixture) {
				tt.begin(w)
				began := time.Now()
				var consumed []time.Duration
				_, stop := w.start(succeed, consumer.Config{Traces: []consumer.Trace{{Fetching: func(f consumer.Fetching) {
					if f.Prefetch > 0 {
						consumed = append(consumed, time.Since(began))
					}
				}}}})
				w.begun()
				if len(consumed) == 0 || consumed[0] != tt.after {
					w.Errorf("consumed after %v, want %v", consumed, tt.after)
				}
				consumed = nil
				w.broker.Cut("consume")
				time.Sleep(time.Second)
				synctest.Wait()
				if len(consumed) == 0 {
					w.Error("not consumed again at once after a lost connection")
				}
				w.stopped(stop)
			})
		})
	}
}
