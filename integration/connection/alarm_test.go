package connection_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/integration/faultproxy"
	"github.com/rehop/rehop/integration/poll"
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
	p := proxyTo(t, n.AMQPURL())
	cfg := config(p.url)
	cfg.OperationTimeout = heartbeat
	cfg.Dial = dialSmall
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
				_ = work.publishOne(work.ctx, "") // it is noted
			}
		})
	}
	all.Wait()

	t.Cleanup(func() { n.watermark(t, normal, time.Now()) }) // if the test fails before it does
	n.watermark(t, alarming, time.Now())
	began := time.Now()
	before := work.account.Counts().Handled
	work.load.body = large
	work.publishSoon("")
	poll.Until(t, slack*noticed, "publishers are blocked", func() bool { return conn.State(connection.Publish).Status == connection.Blocked })
	r.detected(time.Since(began), noticed)

	// The alarm ends when the patience of the write is about to end for the
	// third time, and what is first read then is a while on its way.
	end := began.Add(3*cfg.OperationTimeout - 100*time.Millisecond)
	for time.Until(end) > 2*time.Second {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		called := time.Now()
		err := work.account.Publish(ctx, work.out, producer.Message{RoutingKey: work.queue, ID: work.account.Next()})
		if took := time.Since(called); !errors.Is(err, context.DeadlineExceeded) || took > slack*time.Second {
			t.Errorf("Publish = %v after %v, want the end of its ctx after 1s", err, took)
		}
		cancel()
	}
	p.Throttle(faultproxy.ToBroker, 64<<10)
	n.watermark(t, normal, end)
	both.alive(t)
	if work.account.Counts().Handled == before {
		t.Error("nothing was handled during the alarm")
	}
	<-time.After(time.Until(end.Add(time.Second))) // how long the link is slow
	p.Throttle(faultproxy.ToBroker, 0)
	work.callers.Wait()
	r.recovered(time.Since(end), returned)
	work.settle(t, r)
	both.alive(t)
}

// Fractions of the memory above which the broker is short of it.
const alarming, normal = "0.0000001", "0.4"

// watermark sets the fraction at a time that need not have come yet: to start
// rabbitmqctl takes a second.
func (n *node) watermark(t *testing.T, fraction string, at time.Time) {
	t.Helper()
	n.ctl(t, "eval", fmt.Sprintf(
		"timer:sleep(max(0, %d - erlang:system_time(millisecond))), vm_memory_monitor:set_vm_memory_high_watermark(%s).",
		at.UnixMilli(), fraction))
}

// dialSmall makes a connection that holds little of what is written and not
// read, so that a slow link is felt.
func dialSmall(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return c, c.(*net.TCPConn).SetWriteBuffer(64 << 10)
}
