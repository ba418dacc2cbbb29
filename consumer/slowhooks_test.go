package consumer_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/topology"
)

// A hook that takes its time holds up its own message, and none that comes later: the handlers of
// a lost session return, and the hook for one of them blocks. The worker that runs the hook is
// neither called for other messages, nor has it one.
func TestASlowHookAfterALostSessionHoldsUpNoOtherMessage(t *testing.T) {
	for _, n := range []int{1, 5} { // that come at that time
		onNewest(t, func(w *fixture) {
			release, blocked := make(chan struct{}), make(chan struct{})
			var first atomic.Bool
			first.Store(true)
			var handled atomic.Int32
			_, stop := w.start(func(ctx context.Context, d *consumer.Delivery) error {
				if d.ID == "m0" && first.Load() {
					first.Store(false)
					time.Sleep(time.Minute) // over the end of its session
					return nil
				}
				handled.Add(1)
				return nil
			}, consumer.Config{Concurrency: 4, Traces: []consumer.Trace{{Settled: func(_ context.Context, s consumer.Settled) {
				if s.Delivery.ID == "m0" && s.Settlement.Disposition == consumer.DispositionRequeued {
					close(blocked)
					<-release
				}
			}}}})
			w.begun()
			w.publish(1)
			time.Sleep(time.Second)
			w.broker.Cut("")
			<-blocked
			time.Sleep(time.Second)
			w.publish(n)
			time.Sleep(time.Minute)
			if got := int(handled.Load()); got != n+1 {
				w.Errorf("%d messages handled while a hook of another one blocks, want %d", got, n+1)
			}
			close(release)
			time.Sleep(time.Second)
			w.stopped(stop)
		})
	}
}

// blockingLog blocks at a record with a text until it is released.
type blockingLog struct {
	text    string
	release chan struct{}
	once    sync.Once
	blocks  atomic.Bool
}

func (l *blockingLog) Write(p []byte) (int, error) {
	if strings.Contains(string(p), l.text) {
		block := false
		l.once.Do(func() { block = true })
		if block {
			l.blocks.Store(true)
			<-l.release
		}
	}
	return len(p), nil
}

// unlocked is a handler of slog that has no lock, so that one record that blocks does not block others.
type unlocked struct {
	slog.Handler
	to *blockingLog
}

func (h unlocked) Handle(_ context.Context, r slog.Record) error {
	_, err := h.to.Write([]byte(r.Message))
	return err
}
func (h unlocked) Enabled(context.Context, slog.Level) bool { return true }
func (h unlocked) WithAttrs([]slog.Attr) slog.Handler       { return h }
func (h unlocked) WithGroup(string) slog.Handler            { return h }

// The Logger blocks where it is told that an outage has begun because no slot is left. The other
// held messages go on.
func TestALoggerThatBlocksAtAnOutageHoldsUpNoOtherMessage(t *testing.T) {
	onNewest(t, func(w *fixture) {
		l := w.lanes()
		log := &blockingLog{text: "outage, one message", release: make(chan struct{})}
		var handled atomic.Int32
		var works atomic.Bool
		_, stop := w.startOn(l, func(ctx context.Context, d *consumer.Delivery) error {
			if !works.Load() {
				return consumer.Hold(errBroken)
			}
			handled.Add(1)
			return nil
		}, consumer.Config{Concurrency: 4, Logger: slog.New(unlocked{slog.DiscardHandler, log})})
		w.begun()
		w.fill("bulk", 2)
		w.fill("vip", 2)
		time.Sleep(10 * time.Second)
		if !log.blocks.Load() {
			w.Error("no outage was told")
		}
		works.Store(true)
		time.Sleep(2 * time.Minute)
		if got := handled.Load(); got < 3 {
			w.Errorf("%d messages handled, want 3 of 4: the log blocks one", got)
		}
		close(log.release)
		w.stopped(stop)
	})
}

// A hook Fetching of one lane that blocks does not hold up the others.
func TestAHookFetchingThatBlocksHoldsUpNoOtherLane(t *testing.T) {
	onNewest(t, func(w *fixture) {
		l := topology.Lanes{Name: "sms", Type: topology.Quorum, Lanes: []topology.Lane{{Name: "high"}, {Name: "low"}}}
		w.declare(l)
		release := make(chan struct{})
		var once sync.Once
		var handled atomic.Int32
		_, stop := w.startOn(l, func(context.Context, *consumer.Delivery) error {
			handled.Add(1)
			return nil
		}, consumer.Config{Concurrency: 4, Traces: []consumer.Trace{{Fetching: func(f consumer.Fetching) {
			if f.Queue == "sms.high" && f.Prefetch > 0 {
				once.Do(func() { <-release })
			}
		}}}})
		synctest.Wait()
		w.fill("low", 3)
		time.Sleep(time.Minute)
		if got := handled.Load(); got != 3 {
			w.Errorf("%d messages of another lane handled, want 3", got)
		}
		close(release)
		w.stopped(stop)
	})
}
