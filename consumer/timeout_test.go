package consumer_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/topology"
)

// A handler that takes longer than the broker's consumer timeout, and ends with
// its ctx: attempts are spent, and it ends in the dead-letter queue.
// No wait is as long as the timeout: a message that is due at the moment when the
// broker takes it back may be doubled.
func TestAHandlerBeyondTheConsumerTimeout(t *testing.T) {
	for _, version := range sampled(t, versions) {
		onBroker(t, rehoptest.Config{Version: version, ConsumerTimeout: 4 * time.Minute}, topology.Quorum, func(w *fixture) {
			w.publish(1)
			var causes []error
			_, stop := w.start(func(ctx context.Context, _ *consumer.Delivery) error {
				<-ctx.Done()
				causes = append(causes, context.Cause(ctx))
				return context.Cause(ctx)
			}, consumer.Config{})
			time.Sleep(2 * time.Hour)
			w.has("orders.dlq", "m0")
			w.truthful()
			// From 4.3 on the broker does not tell its timeout, and the session ends.
			if n := len(causes); n > 6 || errors.Is(causes[n-1], consumer.ErrConsumerTimeout) != (version != "4.3") {
				w.Errorf("%d runs, ended by %v", n, causes)
			}
			w.stopped(stop)
		})
	}
}

// The same, for a handler that ignores its ctx: bounded all the same.
func TestAHandlerThatIgnoresTheConsumerTimeout(t *testing.T) {
	for _, version := range sampled(t, versions) {
		onBroker(t, rehoptest.Config{Version: version, ConsumerTimeout: 4 * time.Minute}, topology.Quorum, func(w *fixture) {
			w.publish(1)
			runs := 0
			var log lines
			_, stop := w.start(func(ctx context.Context, _ *consumer.Delivery) error {
				runs++
				time.Sleep(7 * time.Minute)
				return nil
			}, consumer.Config{Logger: log.logger()})
			time.Sleep(2 * time.Hour)
			w.has("orders.dlq", "m0")
			// Late handlers of former deliveries say that it is back in its queue.
			if !slices.Contains(w.journal.of("m0"), consumer.Settlement{Disposition: consumer.DispositionDeadLetter, Cause: rehop.CauseExhausted}) {
				w.Errorf("told %v", w.journal.of("m0"))
			}
			if runs > 6 {
				w.Errorf("%d runs", runs)
			}
			if len(log.with("consumer timeout of 4m0s")) == 0 && version != "4.3" {
				w.Errorf("the log does not tell: %s", log.all)
			}
			w.stopped(stop)
		})
	}
}

// A dead-letter queue has no wait and no other place: the handler gets a message that
// the broker took away from it once more, until it is done in time.
func TestAHandlerOfADeadLetterQueueBeyondTheConsumerTimeout(t *testing.T) {
	for _, version := range sampled(t, versions) {
		onBroker(t, rehoptest.Config{Version: version, ConsumerTimeout: 4 * time.Minute}, topology.Quorum, func(w *fixture) {
			_, err := w.broker.Publish(rehoptest.Message{RoutingKey: "orders.dlq", Publishing: amqp.Publishing{MessageId: id(0), DeliveryMode: amqp.Persistent}})
			if err != nil {
				w.Fatal(err)
			}
			runs := 0
			_, stop := w.startOn(w.orders.DeadLetterQueue(), func(context.Context, *consumer.Delivery) error {
				if runs++; runs <= 4 {
					time.Sleep(7 * time.Minute)
				}
				return nil
			}, consumer.Config{})
			time.Sleep(2 * time.Hour)
			w.has("orders.dlq")
			if runs != 5 {
				w.Errorf("%d runs, want four that take too long and one that does not", runs)
			}
			w.stopped(stop)
		})
	}
}

// A queue that is deleted and declared again, at the same age of a message each
// time, says nothing about a timeout: no handler is cut short by it.
func TestAQueueThatIsDeclaredAgainTwiceTeachesNoTimeout(t *testing.T) {
	on(t, "4.3", topology.Quorum, func(w *fixture) {
		var cut atomic.Int32
		_, stop := w.start(func(ctx context.Context, _ *consumer.Delivery) error {
			select {
			case <-time.After(90 * time.Second):
			case <-ctx.Done():
				cut.Add(1)
			}
			return context.Cause(ctx)
		}, consumer.Config{Concurrency: 8})
		time.Sleep(time.Second)
		for range 2 {
			w.publish(1)
			time.Sleep(time.Minute)
			if err := topology.DeleteAll(w.Context(), w.conn, w.orders); err != nil {
				w.Fatal(err)
			}
			w.declare(w.orders)
			time.Sleep(5 * time.Minute)
		}
		if cut.Load() != 2 {
			w.Fatalf("%d handlers were cut by the end of the queue, want 2", cut.Load())
		}
		w.publish(8)
		time.Sleep(10 * time.Minute)
		if cut.Load() != 2 || len(w.in("orders")) > 0 || len(w.in("orders.dlq")) > 0 {
			w.Errorf("%d handlers were cut; left %v, dead %v", cut.Load()-2, w.in("orders"), w.in("orders.dlq"))
		}
		w.stopped(stop)
	})
}

// The cause of a handler's ctx says which limit has ended it.
func TestTheCtxOfAHandlerSaysWhyItHasEnded(t *testing.T) {
	for _, tt := range []struct {
		name string
		cfg  consumer.Config
		ends func(w *fixture, stop func() error)
		want error
	}{
		{"handler timeout", consumer.Config{HandlerTimeout: time.Minute}, func(*fixture, func() error) { time.Sleep(time.Minute) }, consumer.ErrHandlerTimeout},
		{"stop", consumer.Config{HandlerTimeout: time.Hour}, func(_ *fixture, stop func() error) { _ = stop() }, consumer.ErrStopped},
		{"lost connection", consumer.Config{HandlerTimeout: time.Hour}, func(w *fixture, _ func() error) { w.broker.Cut(""); time.Sleep(time.Second) }, connection.ErrSessionLost},
		{"consumer timeout", consumer.Config{HandlerTimeout: time.Hour}, func(*fixture, func() error) { time.Sleep(5 * time.Minute) }, consumer.ErrConsumerTimeout},
	} {
		t.Run(tt.name, func(t *testing.T) {
			on(t, "4.3", topology.Quorum, func(w *fixture) {
				if errors.Is(tt.want, consumer.ErrConsumerTimeout) {
					w.orders = topology.WorkQueue{Name: "slow", Type: topology.Quorum, ConsumerTimeout: 5 * time.Minute}
					w.declare(w.orders)
				}
				causes := make(chan error, 8)
				_, stop := w.start(func(ctx context.Context, _ *consumer.Delivery) error {
					<-ctx.Done()
					causes <- context.Cause(ctx)
					return context.Cause(ctx)
				}, tt.cfg)
				w.publish(1)
				synctest.Wait()
				tt.ends(w, stop)
				synctest.Wait()
				if len(causes) == 0 {
					w.Fatal("the ctx has not ended")
				}
				cause := <-causes
				for _, limit := range []error{consumer.ErrHandlerTimeout, consumer.ErrStopped, connection.ErrSessionLost, consumer.ErrConsumerTimeout} {
					if errors.Is(cause, limit) != errors.Is(tt.want, limit) {
						w.Errorf("the cause %q: errors.Is says %t of %q", cause, errors.Is(cause, limit), limit)
					}
				}
				_ = stop()
			})
		})
	}
}

// A hook holds a message up until the broker takes it away. No handler has had it: it spends no attempt.
func TestAMessageThatNoHandlerHadSpendsNoAttempt(t *testing.T) {
	for _, version := range sampled(t, versions) {
		onBroker(t, rehoptest.Config{Version: version, ConsumerTimeout: 4 * time.Minute}, topology.Quorum, func(w *fixture) {
			var held atomic.Bool
			var mu sync.Mutex
			var attempts []int
			w.publish(1)
			_, stop := w.start(func(_ context.Context, d *consumer.Delivery) error {
				mu.Lock()
				defer mu.Unlock()
				attempts = append(attempts, d.Attempt)
				return nil
			}, consumer.Config{Concurrency: 2, Traces: []consumer.Trace{{Received: func(ctx context.Context, _ *consumer.Delivery) context.Context {
				if held.CompareAndSwap(false, true) {
					time.Sleep(10 * time.Minute)
				}
				return ctx
			}}}})
			time.Sleep(2 * time.Hour)
			w.stopped(stop)
			mu.Lock()
			defer mu.Unlock()
			if len(attempts) != 1 || attempts[0] != 1 {
				w.Errorf("attempts %v, want 1", attempts)
			}
		})
	}
}
