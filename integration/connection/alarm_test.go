package connection_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/producer"
)

// While a broker is short of memory it does not read from publishers, and
// hears their heartbeats no more than their messages. That lasts longer here
// than either end bears with a peer that is dead, and than a write may last
// without progress.
func memoryAlarm(t *testing.T, n *node, r *row) {
	const (
		backlog = 1500 // for the consumer, during the alarm
		each    = 15 * time.Millisecond
		callers = 50
		large   = 12 << 20 // more than the buffers of the sockets on its way hold
	)
	cfg := config(n.AMQPURL())
	cfg.OperationTimeout = heartbeat
	conn := open(t, cfg)
	work := startPlainWork(t, conn, r.fault, load{
		onDemand:    true,
		concurrency: 2,
		handler: func(context.Context, *consumer.Delivery) error {
			<-time.After(each) // it is work
			return nil
		},
	})
	both := socketsOf(t, conn)
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for range backlog / callers {
				_ = work.publishOne(work.ctx, "") // the ledger has the error
			}
		})
	}
	all.Wait()

	lift := sync.OnceFunc(func() { n.ctl(t, "set_vm_memory_high_watermark", "0.4") })
	t.Cleanup(lift) // if the test fails before it does
	n.ctl(t, "set_vm_memory_high_watermark", "0.0000001")
	began := time.Now()
	_, before := work.ledger.count()
	work.load.body = large
	work.publishSoon("")
	until(t, slack*noticed, "publishers are blocked", func() bool { _, _, blocked := conn.Blocked(); return blocked })
	r.detected(time.Since(began), noticed)
	for time.Since(began) < 3*heartbeat {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		called := time.Now()
		_, err := work.out.Publish(ctx, producer.Message{Key: work.queue, ID: "never sent"})
		if took := time.Since(called); !errors.Is(err, context.DeadlineExceeded) || took > slack*time.Second {
			t.Errorf("Publish = %v after %v, want the end of its ctx after 1s", err, took)
		}
		cancel()
	}
	both.alive(t)
	if _, after := work.ledger.count(); after == before {
		t.Error("nothing was handled during the alarm")
	}

	lift()
	lifted := time.Now()
	work.callers.Wait()
	r.recovered(time.Since(lifted), returned)
	work.settle(t, r)
	both.alive(t)
}
