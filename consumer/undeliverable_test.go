package consumer_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/topology"
)

// hostile makes connections on which the broker cannot hand over a message of a queue: it
// ends the connection with an internal error instead.
type hostile struct {
	dial  func(ctx context.Context, network, address string) (net.Conn, error)
	queue string
	only  string // id of the message; "": every one of the queue
	cured atomic.Bool

	mu         sync.Mutex
	open, most int
	faults     int
}

func (h *hostile) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := h.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open++
	h.most = max(h.most, h.open)
	return &hostileConn{Conn: conn, of: h}, nil
}

// counts returns how many sockets are open, how many were at a time, and how many ended with
// an internal error.
func (h *hostile) counts() (open, most, faults int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.open, h.most, h.faults
}

// cannotHandOver gives w another Conn, whose broker cannot hand over the messages of the work
// queue: those with the id only, or all if it is "".
func (w *fixture) cannotHandOver(only string) *hostile {
	w.Helper()
	h := &hostile{dial: w.broker.Dial, queue: w.orders.Name, only: only}
	w.reopen(h.Dial)
	return h
}

// part publishes a message that cannot be handed over, and waits until each queue has a socket of its own.
func (w *fixture) part(h *hostile) {
	w.Helper()
	w.publish(1)
	for _, _, faults := h.counts(); faults < 2; _, _, faults = h.counts() {
		time.Sleep(time.Second)
	}
	time.Sleep(5 * time.Second)
}

type hostileConn struct {
	net.Conn
	of     *hostile
	rest   []byte      // of a frame
	ended  atomic.Bool // the broker has ended the connection
	closed sync.Once
}

func (c *hostileConn) Close() error {
	c.closed.Do(func() {
		c.of.mu.Lock()
		defer c.of.mu.Unlock()
		c.of.open--
	})
	return c.Conn.Close()
}

// Write has no error once the broker has ended the connection: the client is to see the reason.
func (c *hostileConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if c.ended.Load() {
		return len(p), nil
	}
	return n, err
}

func (c *hostileConn) Read(p []byte) (int, error) {
	if len(c.rest) == 0 {
		if c.ended.Load() {
			return 0, io.EOF
		}
		head := make([]byte, 7)
		if _, err := io.ReadFull(c.Conn, head); err != nil {
			return 0, err
		}
		payload := make([]byte, binary.BigEndian.Uint32(head[3:])+1)
		if _, err := io.ReadFull(c.Conn, payload); err != nil {
			return 0, err
		}
		c.rest = append(head, payload...)
		deliver := append([]byte{byte(len(c.of.queue))}, c.of.queue+"\xce"...)
		refused := head[0] == 1 && bytes.HasPrefix(payload, []byte{0, 60, 0, 60}) && bytes.HasSuffix(payload, deliver)
		if c.of.only != "" {
			refused = head[0] == 2 && bytes.Contains(payload, append([]byte{byte(len(c.of.only))}, c.of.only...))
		}
		if refused && !c.of.cured.Load() {
			c.ended.Store(true)
			c.Conn.Close()
			c.of.mu.Lock()
			c.of.faults++
			c.of.mu.Unlock()
			c.rest = []byte("\x01\x00\x00\x00\x00\x00\x19\x00\x0a\x00\x32\x02\x1d\x0eINTERNAL_ERROR\x00\x00\x00\x00\xce")
		}
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

func TestAMessageThatCannotBeHandedOver(t *testing.T) {
	onBroker(t, rehoptest.Config{Version: "4.3"}, topology.Classic, func(w *fixture) {
		other := topology.WorkQueue{Name: "other", Type: topology.Classic, Waits: w.orders.Waits}
		w.declare(other)
		h := w.cannotHandOver("")

		const concurrency, messages = 5, 3000
		var interrupted, handled atomic.Int32
		_, stopOther := w.startOn(other, func(ctx context.Context, _ *consumer.Delivery) error {
			select {
			case <-ctx.Done():
				interrupted.Add(1)
				return ctx.Err()
			case <-time.After(time.Second):
			}
			handled.Add(1)
			return nil
		}, consumer.Config{Concurrency: concurrency})
		defer w.stopped(stopOther)
		for range messages {
			w.publish(1, func(m *rehoptest.Message) { m.RoutingKey = other.Name })
		}
		var log lines
		c, stop := w.start(func(context.Context, *consumer.Delivery) error { return nil }, consumer.Config{Logger: log.logger()})
		defer w.stopped(stop)
		time.Sleep(time.Minute + time.Second/2)
		w.publish(1)

		time.Sleep(5 * time.Second)
		var health *rehop.HealthError
		if err := c.Health(); !errors.As(err, &health) || !health.Degraded || !strings.Contains(err.Error(), `"orders"`) || !strings.Contains(err.Error(), "AMQP 1.0") {
			w.Errorf("soon Health = %v, want a degraded one that names the queue and the remedy", err)
		}
		time.Sleep(10 * time.Minute)
		if err := c.Health(); !errors.As(err, &health) || health.Degraded {
			w.Errorf("Health = %v, want an unhealthy one", err)
		}
		if n := len(log.with("level=ERROR", "cannot hand over", "queue=orders")); n == 0 || n > 5 {
			w.Errorf("%d records say why the queue is not handled, want some, and not one for each session", n)
		}
		if n := handled.Load(); n != messages {
			w.Errorf("%d messages of the other queue were handled, want all of %d", n, messages)
		}
		if n := interrupted.Load(); n > 2*concurrency {
			w.Errorf("%d handlers of the other queue were interrupted, want %d or fewer: those of two sockets", n, 2*concurrency)
		}
		// Two on the shared socket, and alone with pauses of 4, 8, 16, 32 and then 60 s.
		if _, most, faults := h.counts(); most > 4 || faults < 10 || faults > 18 {
			w.Errorf("%d sockets at a time, %d faults, want one more than two for each of two queues, and 10 to 18", most, faults)
		}

		w.broker.Drain(w.orders.Name)
		h.cured.Store(true)
		w.publish(1)
		time.Sleep(2 * time.Minute) // the longest pause, and the session alone
		w.has(w.orders.Name)
		if err := c.Health(); err != nil {
			w.Errorf("Health = %v after the message was removed, want nil", err)
		}
		if open, _, _ := h.counts(); open != 2 {
			w.Errorf("%d sockets are open, want two again", open)
		}
	})
}

// Each lost socket counts for the messages that were delivered before it, too. In order all of them are in hand
// when the next session begins.
func TestAMessageThatCannotBeHandedOverTakesNoOtherAlong(t *testing.T) {
	for _, tt := range []struct {
		rule string
		cfg  consumer.Config
		held time.Duration // the first message, in all
	}{
		{"in order", consumer.Config{KeyLimit: 1}, 0},
		{"without order", consumer.Config{Concurrency: 8}, 0},
		{"without order, beside one that is held", consumer.Config{Concurrency: 8}, 2 * time.Minute},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			onQuorumQueues(t, func(w *fixture) {
				w.publish(8, keyed("a"))
				w.cannotHandOver(id(4))
				began := time.Now()
				_, stop := w.start(func(ctx context.Context, d *consumer.Delivery) error {
					if d.ID == id(0) && time.Since(began) < tt.held {
						return consumer.HoldFor(10*time.Second, errBroken)
					}
					return slowly(100*time.Millisecond)(ctx, d)
				}, tt.cfg)
				time.Sleep(5 * time.Minute)
				w.has(w.orders.DeadLetterQueue().Name, id(4))
				w.has(w.orders.Name)
				w.stopped(stop)
			})
		})
	}
}

// A shard that another process is to handle is no fault of this one, whatever it has met there.
func TestAShardThatIsElsewhereIsNoFaultHere(t *testing.T) {
	on(t, "4.3", topology.Classic, func(w *fixture) {
		s := w.shards(4, func(s *topology.Shards) { s.SingleActiveConsumer = true })
		h := &hostile{dial: w.broker.Dial, only: "guilty"}
		handle := func(context.Context, *consumer.Delivery) error { return nil }
		first := w.processTo(h.Dial, s, handle)
		time.Sleep(20 * time.Second)
		w.publishTo("bills.03", "guilty", "a")
		time.Sleep(10 * time.Second)
		if first.c.Health() == nil {
			w.Error("the process that cannot handle the message is healthy")
		}
		all := []*process{first}
		for range 3 { // of which the last one takes that shard over, and the one before it is to be next
			all = append(all, w.processTo(h.Dial, s, handle))
			time.Sleep(2 * time.Minute)
		}
		if all[3].c.Health() == nil {
			w.Error("the process that has the shard now is healthy")
		}
		h.cured.Store(true)
		time.Sleep(5 * time.Minute)
		w.has("bills.03")
		for _, p := range all {
			if err := p.c.Health(); err != nil {
				w.Errorf("Health = %v after the message has come, want nil", err)
			}
			w.stopped(p.stop)
		}
	})
}

func TestADeliveryLimitIsReachedSoon(t *testing.T) {
	onBroker(t, rehoptest.Config{Version: "4.3"}, topology.Quorum, func(w *fixture) {
		w.cannotHandOver("")
		c, stop := w.start(func(context.Context, *consumer.Delivery) error { return nil }, consumer.Config{})
		defer w.stopped(stop)
		w.publish(1)
		time.Sleep(time.Minute)
		w.has(w.orders.DeadLetterQueue().Name, id(0))
		time.Sleep(time.Minute)
		if err := c.Health(); err != nil {
			w.Errorf("Health = %v after the broker has moved the message, want nil", err)
		}
	})
}

func TestClosingTheConnClosesTheSocketsOfItsQueues(t *testing.T) {
	onBroker(t, rehoptest.Config{Version: "4.3"}, topology.Classic, func(w *fixture) {
		h := w.cannotHandOver("")
		_, stop := w.start(func(context.Context, *consumer.Delivery) error { return nil }, consumer.Config{})
		w.publish(1)
		time.Sleep(3 * time.Second)
		w.broker.Drain(w.orders.Name)
		time.Sleep(10 * time.Second)
		if open, _, _ := h.counts(); open != 3 {
			w.Errorf("%d sockets are open, want one more than two", open)
		}
		if err := w.conn.Close(); err != nil {
			w.Errorf("Close = %v", err)
		}
		if open, _, _ := h.counts(); open != 0 {
			w.Errorf("%d sockets are open after Close", open)
		}
		time.Sleep(time.Minute) // a pause between two sessions
		if err := stop(); !errors.Is(err, connection.ErrClosed) {
			w.Errorf("Run = %v, want ErrClosed", err)
		}
	})
}

// The pauses of a queue that is not handled grow to a minute.
func TestRunEndsWithTheConnInThePauseOfAQueueThatIsNotHandled(t *testing.T) {
	onBroker(t, rehoptest.Config{Version: "4.3"}, topology.Classic, func(w *fixture) {
		h := w.cannotHandOver("")
		c, err := consumer.New(w.conn, w.orders, func(context.Context, *consumer.Delivery) error { return nil }, consumer.Config{})
		if err != nil {
			w.Fatal(err)
		}
		w.publish(1)
		ended := make(chan error, 1)
		go func() { ended <- c.Run(w.Context()) }()
		time.Sleep(10 * time.Minute)
		_, _, before := h.counts()
		for now := before; now == before; _, _, now = h.counts() {
			time.Sleep(time.Second)
		}
		time.Sleep(time.Second) // into the pause
		w.endsWithTheConn(ended)
	})
}

// A queue that has shown that it harms no other moves back to the shared socket. Its handlers finish
// before, and nothing is amiss.
func TestAQueueThatSharesAgainIsHealthy(t *testing.T) {
	onBroker(t, rehoptest.Config{Version: "4.3"}, topology.Classic, func(w *fixture) {
		other := topology.WorkQueue{Name: "other", Type: topology.Classic, Waits: w.orders.Waits}
		w.declare(other)
		h := w.cannotHandOver("")
		c, stopOther := w.startOn(other, func(context.Context, *consumer.Delivery) error {
			time.Sleep(5 * time.Second)
			return nil
		}, consumer.Config{Concurrency: 5})
		defer w.stopped(stopOther)
		for range 200 {
			w.publish(1, func(m *rehoptest.Message) { m.RoutingKey = other.Name })
		}
		_, stop := w.start(func(context.Context, *consumer.Delivery) error { return nil }, consumer.Config{})
		defer w.stopped(stop)
		w.part(h)
		for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(100 * time.Millisecond) {
			if err := c.Health(); err != nil {
				w.Fatalf("%v after the queues have parted: %v", time.Since(began), err)
			}
		}
		w.broker.Drain(w.orders.Name)
		h.cured.Store(true)
	})
}

// No other process waits for such a queue, so a handler that does not return stops its own key alone.
func TestAHandlerThatDoesNotReturnStopsNoOtherKeyOfAQueueThatSharesAgain(t *testing.T) {
	onBroker(t, rehoptest.Config{Version: "4.3"}, topology.Classic, func(w *fixture) {
		other := topology.WorkQueue{Name: "other", Type: topology.Classic, Waits: w.orders.Waits}
		w.declare(other)
		h := w.cannotHandOver("")
		release, handled := make(chan struct{}), &atomic.Int64{}
		_, stopOther := w.startOn(other, func(_ context.Context, d *consumer.Delivery) error {
			if d.ID == "deaf" {
				<-release
			}
			handled.Add(1)
			return nil
		}, consumer.Config{Concurrency: 5, KeyLimit: 1, DrainTimeout: time.Second})
		defer w.stopped(stopOther)
		_, stop := w.start(func(context.Context, *consumer.Delivery) error { return nil }, consumer.Config{})
		defer w.stopped(stop)
		w.part(h)
		w.publishTo(other.Name, "deaf", "a")
		for i := range 5 { // the deaf one comes again, and waits for its key
			time.Sleep(time.Minute)
			w.publishTo(other.Name, fmt.Sprint("m", i), "b")
		}
		time.Sleep(time.Minute)
		if n := handled.Load(); n != 5 {
			w.Errorf("%d messages of the other key were handled, want 5", n)
		}
		close(release)
		w.broker.Drain(w.orders.Name)
		h.cured.Store(true)
	})
}
