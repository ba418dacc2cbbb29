package connection_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/integration/faultproxy"
	"github.com/rehop/rehop/integration/poll"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
	"github.com/rehop/rehop/xdeath"
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

// An alarm lasts until a message whose copy is not confirmed has come back almost as often
// as its quorum queue allows. It is left in the queue, and becomes a letter by its handler
// when the alarm is over.
func alarmBeyondTheLimit(t *testing.T, n *node, r *row) {
	const before = 18 // returns; a quorum queue allows 20
	conn := open(t, config(n.AMQPURL()))
	w := topology.WorkQueue{Name: "alarm", Type: topology.Quorum}
	session, err := conn.Session(t.Context(), connection.Consume)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	version := session.Server().Version
	counts := version.AtLeast(4, 0) && !version.AtLeast(4, 3) // every return
	if counts {
		w.ConsumerTimeout = 10 * time.Second // and so a message is held for 5
	}
	if err := topology.Declare(t.Context(), conn, w); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = topology.Delete(context.WithoutCancel(t.Context()), conn, w, w.DeadLetterQueue()) })
	ch := session.Channel()
	if err := ch.PublishWithContext(t.Context(), "", w.Name, true, false, amqp.Publishing{MessageId: "one", DeliveryMode: amqp.Persistent, Body: []byte("one")}); err != nil {
		t.Fatal(err)
	}
	for returned := 0; returned < before; {
		m, ok, err := ch.Get(w.Name, false)
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			if err := m.Nack(false, true); err != nil {
				t.Fatal(err)
			}
			returned++
		}
	}
	c, err := consumer.New(conn, w, func(context.Context, *consumer.Delivery) error { return consumer.DeadLetter(errors.New("no")) }, consumer.Config{CopyTimeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { n.watermark(t, normal, time.Now()) }) // if the test fails before it does
	n.watermark(t, alarming, time.Now())
	poll.Until(t, time.Minute, "an alarm", func() bool { return n.ctl(t, "eval", "rabbit_alarm:get_alarms().") != "[]" })
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	defer stop()
	says := "confirmed" // a message is held, or all slots are taken
	if counts {
		says = "left in their queue until the broker confirms copies"
	}
	began := time.Now()
	poll.Until(t, time.Minute, "its health says "+says, func() bool {
		err = c.Health()
		return err != nil && strings.Contains(err.Error(), says)
	})
	t.Log(err)
	if counts {
		n.ctl(t, "close_all_connections", "as an operator")
		poll.Until(t, time.Minute, "the next connection is blocked", func() bool { return conn.State(connection.Publish).Status == connection.Blocked })
		<-time.After(3 * time.Second) // in which it would consume, had it taken the alarm for over
		if err := c.Health(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("with the next connection its health says %v", err)
		}
		if session, err = conn.Session(t.Context(), connection.Consume); err != nil {
			t.Fatal(err)
		}
		defer session.Close()
		ch = session.Channel()
	}
	r.detected(time.Since(began), 10*time.Second)
	end := time.Now()
	n.watermark(t, normal, end)
	var letter amqp.Delivery
	poll.Until(t, time.Minute, "a letter", func() (ok bool) {
		letter, ok, err = ch.Get(w.DeadLetterQueue().Name, true)
		return ok || err != nil
	})
	if err != nil {
		t.Fatal(err)
	}
	r.recovered(time.Since(end), returned)
	if h, err := xdeath.Parse(letter.Headers); err != nil || h.Failure.Cause != rehop.CausePermanent {
		t.Errorf("a letter because of %q, %v, want %q; headers %v", h.Failure.Cause, err, rehop.CausePermanent, letter.Headers)
	}
	// The letter may be a copy whose confirm came too late: the consumer then waits for another.
	poll.Until(t, time.Minute, "no message is held", func() bool { return c.Health() == nil })
	stop()
	if q, err := ch.QueueDeclarePassive(w.Name, true, false, false, false, nil); err != nil || q.Messages != 0 {
		t.Errorf("%d messages are left, %v", q.Messages, err)
	}
}
