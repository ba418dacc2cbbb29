package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/topology"
)

func succeed(context.Context, *consumer.Delivery) error { return nil }

// slowly takes its time, or ends with its ctx.
func slowly(d time.Duration) consumer.Handler {
	return func(ctx context.Context, _ *consumer.Delivery) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func TestAStopLetsHandlersFinishAndGivesBackTheRest(t *testing.T) {
	onEachEngine(t, func(w *fixture) {
		w.publish(50)
		_, stop := w.start(slowly(5*time.Second), consumer.Config{Concurrency: 4, Prefetch: 20})
		time.Sleep(time.Second)
		began := time.Now()
		w.stopped(stop)
		if took := time.Since(began); took < 4*time.Second || took > 5*time.Second {
			w.Errorf("the stop took %v, want as long as the handlers", took)
		}
		if done := w.journal.count(consumer.DispositionDone); done != 4 || len(w.in("orders")) != 46 {
			w.Errorf("%d done, %d in the queue, want 4 and 46", done, len(w.in("orders")))
		}
		w.truthful()
	})
}

// The consumer of a quorum queue is replaced after its first message. A stop may come
// in any round trip of that.
func TestAStopInterruptsNoHandlerWhileTheConsumerIsReplaced(t *testing.T) {
	on(t, "4.3", topology.Quorum, func(w *fixture) {
		w.broker.Slow(100 * time.Millisecond)
		for offset := time.Duration(0); offset < 3*time.Second; offset += 30 * time.Millisecond {
			w.publish(10)
			var interrupted atomic.Int32
			_, stop := w.start(func(ctx context.Context, d *consumer.Delivery) error {
				err := slowly(5*time.Second)(ctx, d)
				if err != nil {
					interrupted.Add(1)
				}
				return err
			}, consumer.Config{Concurrency: 4, Prefetch: 20})
			time.Sleep(offset)
			w.stopped(stop)
			if n := interrupted.Load(); n > 0 {
				w.Errorf("a stop after %v interrupted %d handlers", offset, n)
			}
			w.broker.Drain("orders")
		}
	})
}

func TestAHandlerThatIsStoppedSpendsNoAttempt(t *testing.T) {
	everywhere(t, func(w *fixture) {
		w.publish(1)
		var cause error
		_, stop := w.start(func(ctx context.Context, _ *consumer.Delivery) error {
			<-ctx.Done()
			cause = context.Cause(ctx)
			return errBroken
		}, consumer.Config{DrainTimeout: 3 * time.Second})
		time.Sleep(time.Second)
		w.stopped(stop)
		if !errors.Is(cause, consumer.ErrStopped) {
			w.Errorf("its ctx ended by %v, want %v", cause, consumer.ErrStopped)
		}
		w.has("orders", "m0")
		w.truthful()
		attempt := 0
		_, stop = w.start(func(_ context.Context, d *consumer.Delivery) error { attempt = d.Attempt; return nil }, consumer.Config{})
		synctest.Wait()
		w.stopped(stop)
		if attempt != 1 {
			w.Errorf("it comes again as attempt %d, want 1", attempt)
		}
	})
}

func TestAHandlerThatIgnoresItsCtxIsNamed(t *testing.T) {
	onNewest(t, func(w *fixture) {
		w.publish(1)
		release := make(chan struct{})
		var log lines
		_, stop := w.start(func(context.Context, *consumer.Delivery) error { <-release; return nil },
			consumer.Config{HandlerTimeout: time.Second, DrainTimeout: time.Second, Logger: log.logger()})
		time.Sleep(10 * time.Second)
		if len(log.with("level=ERROR", "past its timeout", "message=m0")) != 1 {
			w.Errorf("the log does not say that it is late: %s", log.all)
		}
		began := time.Now()
		err := stop()
		if err == nil || !strings.Contains(err.Error(), "1 message; handlers did not return") {
			w.Errorf("Run: %v", err)
		}
		if took := time.Since(began); took != 6*time.Second {
			w.Errorf("the stop took %v, want DrainTimeout and 5 s", took)
		}
		close(release) // it settles nothing
		synctest.Wait()
		w.has("orders", "m0")
		w.truthful()
	})
}

func TestWhatALostSessionDeliveredComesAgain(t *testing.T) {
	everywhere(t, func(w *fixture) {
		w.publish(30)
		var lost atomic.Int32
		c, stop := w.start(func(ctx context.Context, d *consumer.Delivery) error {
			err := slowly(time.Second)(ctx, d)
			if errors.Is(err, connection.ErrSessionLost) {
				lost.Add(1)
				return nil // too late: it is not done
			}
			return err
		}, consumer.Config{Concurrency: 5})
		time.Sleep(1500 * time.Millisecond)
		w.broker.Cut("")
		synctest.Wait()
		if status, err := health(c); status != "degraded" || !strings.Contains(err.Error(), "not consumed") {
			w.Errorf("while the session is lost: %s: %v", status, err)
		}
		time.Sleep(time.Minute)
		w.has("orders")
		if lost.Load() == 0 || w.journal.count(consumer.DispositionRequeued) != int(lost.Load()) {
			w.Errorf("%d handlers were cut off, %d told to be back in the queue", lost.Load(), w.journal.count(consumer.DispositionRequeued))
		}
		if status, err := health(c); status != "healthy" {
			w.Errorf("%s: %v", status, err)
		}
		w.truthful()
		w.stopped(stop)
	})
}

func TestAQueueThatIsDeletedIsConsumedAgainWhenItIsBack(t *testing.T) {
	onEachEngine(t, func(w *fixture) {
		var log lines
		c, stop := w.start(succeed, consumer.Config{Logger: log.logger()})
		w.begun()
		w.raw(func(ch *amqp.Channel) error {
			_, err := ch.QueueDelete("orders", false, false, false)
			return err
		})
		time.Sleep(5 * time.Second)
		if status, err := health(c); status != "degraded" || !strings.Contains(err.Error(), `"orders"`) {
			w.Errorf("5 s after: %s: %v", status, err)
		}
		time.Sleep(10 * time.Minute)
		if status, err := health(c); status != "unhealthy" || !strings.Contains(err.Error(), "does not exist") {
			w.Errorf("long after: %s: %v", status, err)
		}
		if said := log.with("level=WARN", "consuming was interrupted"); len(said) < 3 || len(said) > 6 {
			w.Errorf("the log says %d times: %s", len(said), strings.Join(said, ""))
		}
		w.declare(w.orders)
		w.publish(1)
		time.Sleep(time.Minute)
		w.has("orders")
		w.truthful()
		w.stopped(stop)
	})
}

func TestRunEndsWhereTheQueueCannotBeConsumedToBeginWith(t *testing.T) {
	onNewest(t, func(w *fixture) {
		for _, tt := range []struct {
			rule   string
			source topology.Source
			text   string
		}{
			{"no such queue", topology.Route{Queue: "nowhere"}, `"nowhere" does not exist`},
			{"no such work queue", topology.WorkQueue{Name: "nowhere"}, `"nowhere" does not exist`},
		} {
			_, stop := w.startOn(tt.source, succeed, consumer.Config{})
			synctest.Wait()
			if err := stop(); err == nil || !strings.Contains(err.Error(), tt.text) || rehop.ClassOf(err) != rehop.ClassConfiguration {
				w.Errorf("%s: Run: %v (%v)", tt.rule, err, rehop.ClassOf(err))
			}
		}
	})
}

func TestRunOnceAtATime(t *testing.T) {
	onNewest(t, func(w *fixture) {
		c, stop := w.start(succeed, consumer.Config{})
		synctest.Wait()
		if err := c.Run(w.Context()); rehop.ClassOf(err) != rehop.ClassBug {
			w.Errorf("a second Run: %v (%v)", err, rehop.ClassOf(err))
		}
		if err := c.Run(nil); rehop.ClassOf(err) != rehop.ClassBug { //nolint:staticcheck // that is the test
			w.Errorf("a nil ctx: %v (%v)", err, rehop.ClassOf(err))
		}
		w.stopped(stop)
		if status, err := health(c); status != "unhealthy" || !strings.Contains(err.Error(), "not running") {
			w.Errorf("after Run: %s: %v", status, err)
		}
		ctx, cancel := context.WithCancel(w.Context())
		cancel()
		if err := c.Run(ctx); err != nil {
			w.Errorf("Run with a ctx that has ended: %v", err)
		}
		if err := w.conn.Close(); err != nil {
			w.Error(err)
		}
		if err := c.Run(w.Context()); !errors.Is(err, connection.ErrClosed) || !strings.Contains(err.Error(), `queue "orders"`) || !strings.Contains(err.Error(), "the Conn is closed") {
			w.Errorf("Run on a Conn that is closed: %v", err)
		}
	})
}

func TestTheStartIsLogged(t *testing.T) {
	everywhere(t, func(w *fixture) {
		var log lines
		_, stop := w.start(succeed, consumer.Config{Logger: log.logger()})
		w.begun()
		w.stopped(stop)
		if said := log.with("level=INFO", "msg=consuming", "queue=orders", "engine=", "why="); len(said) != 1 {
			w.Errorf("the log says %s", log.all)
		}
	})
}

func TestLevelsOfAFailingMessage(t *testing.T) {
	onEachEngine(t, func(w *fixture) {
		w.publish(1)
		var log lines
		_, stop := w.start(func(context.Context, *consumer.Delivery) error { return errBroken }, consumer.Config{Logger: log.logger()})
		time.Sleep(10 * time.Minute)
		w.stopped(stop)
		for _, texts := range [][]string{
			{"level=INFO", "attempt failed", "attempt=1", "wait=1m0s"},
			{"level=WARN", "one attempt is left", "attempt=2", "wait=5m0s"},
			{"level=ERROR", "dead-lettered", "attempt=3", "cause=exhausted"},
		} {
			if len(log.with(texts...)) != 1 {
				w.Errorf("no line with %v in %s", texts, log.all)
			}
		}
	})
}

// A connection that is lost every half a minute, and a copy that is tried again
// and again, are told of at their first time and then with growing pauses, whatever
// sessions there were.
func TestWarningsOutliveSessions(t *testing.T) {
	on(t, "4.3", topology.Classic, func(w *fixture) {
		var log lines
		_, stop := w.start(func(context.Context, *consumer.Delivery) error { return consumer.DeadLetter(errBroken) }, consumer.Config{Logger: log.logger(), CopyTimeout: time.Second})
		time.Sleep(time.Second)
		w.broker.Refuse("orders.dlq", true)
		w.publish(1)
		for range 240 {
			time.Sleep(30 * time.Second)
			w.broker.Cut("")
		}
		w.stopped(stop)
		// A loss in the middle of a request is another cause, and has its own count.
		for text, cause := range map[string]string{"consuming was interrupted": "(501)", "copy not confirmed": ""} {
			said := log.with("level=WARN", text, cause)
			if n := len(said); n < 2 || n > 10 || !strings.Contains(said[n-1], "times=") {
				w.Errorf("%q was said %d times in two hours, want a few with a count: %s", text, n, few(said))
			}
		}
	})
}

func TestABrokerThatIsSilentIsNotHealthy(t *testing.T) {
	on(t, "4.3", topology.Quorum, func(w *fixture) {
		c, stop := w.start(succeed, consumer.Config{})
		time.Sleep(time.Minute)
		w.broker.Stall()
		time.Sleep(30 * time.Second)
		if status, err := health(c); status == "healthy" {
			w.Errorf("%s: %v", status, err)
		}
		w.broker.Resume()
		w.publish(1)
		time.Sleep(time.Minute)
		w.has("orders")
		if status, err := health(c); status != "healthy" {
			w.Errorf("%s: %v", status, err)
		}
		w.stopped(stop)
	})
}

func TestADeadLetterQueueIsConsumed(t *testing.T) {
	everywhere(t, func(w *fixture) {
		w.publish(1)
		_, stop := w.start(permanently, consumer.Config{})
		time.Sleep(time.Second)
		w.stopped(stop)
		var got *consumer.Delivery
		_, stop = w.startOn(w.orders.DeadLetterQueue(), func(_ context.Context, d *consumer.Delivery) error { got = d; return nil }, consumer.Config{})
		time.Sleep(time.Second)
		w.stopped(stop)
		if got == nil || got.History.Failure.Cause != rehop.CausePermanent || got.History.Queue != "orders" || got.RoutingKey != "orders" || got.Attempt != 1 || !got.LastAttempt {
			w.Errorf("the letter is %+v", got)
		}
		w.has("orders.dlq")
	})
}

func TestManyRunsThroughCutsLoseAndTellNothingWrong(t *testing.T) {
	everywhere(t, func(w *fixture) {
		var mu sync.Mutex
		runs := map[string]int{}
		_, stop := w.start(func(ctx context.Context, d *consumer.Delivery) error {
			mu.Lock()
			runs[d.ID]++
			n := runs[d.ID]
			mu.Unlock()
			if err := slowly(time.Duration(n*37)*time.Millisecond)(ctx, d); err != nil {
				return err
			}
			switch {
			case strings.HasSuffix(d.ID, "3"):
				return errBroken
			case strings.HasSuffix(d.ID, "7"):
				return consumer.DeadLetter(errBroken)
			}
			return nil
		}, consumer.Config{Concurrency: 10})
		for range 10 {
			w.publish(30)
			time.Sleep(3 * time.Second)
			w.broker.Cut("")
		}
		time.Sleep(20 * time.Minute)
		w.stopped(stop)
		w.has("orders")
		var want []string
		for n := range 300 {
			if n%10 == 3 || n%10 == 7 {
				want = append(want, fmt.Sprintf("m%d", n))
			}
		}
		slices.Sort(want)
		if got := slices.Compact(w.in("orders.dlq")); !slices.Equal(got, want) {
			w.Errorf("%d letters, want %d", len(got), len(want))
		}
	})
}

func TestRunWaitsForAQueueWhoseNodeIsDown(t *testing.T) {
	everywhere(t, func(w *fixture) {
		w.broker.Refuse("orders", true)
		w.publish(1)
		c, stop := w.start(func(context.Context, *consumer.Delivery) error { return nil }, consumer.Config{})
		time.Sleep(30 * time.Second)
		err := c.Health()
		if err == nil || !strings.Contains(err.Error(), "is not available: its node or its process is down") {
			w.Errorf("Health = %v", err)
		}
		w.broker.Refuse("orders", false)
		time.Sleep(30 * time.Second)
		if err := c.Health(); err != nil {
			w.Errorf("the queue is back: Health = %v", err)
		}
		w.stopped(stop)
		if done := w.journal.count(consumer.DispositionDone); done != 1 {
			w.Errorf("%d messages were handled, want 1", done)
		}
	})
}

func TestADeadLetterQueueWhoseNodeIsDownHoldsUpNoWork(t *testing.T) {
	everywhere(t, func(w *fixture) {
		w.broker.Refuse("orders.dlq", true)
		w.publish(1)
		c, stop := w.start(func(context.Context, *consumer.Delivery) error { return nil }, consumer.Config{})
		time.Sleep(time.Second)
		if err := c.Health(); err != nil || w.journal.count(consumer.DispositionDone) != 1 {
			w.Errorf("Health = %v, %d handled, want 1", err, w.journal.count(consumer.DispositionDone))
		}
		w.stopped(stop)
	})
}
