package consumer_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/topology"
)

// drowsy is a socket of a process that may sleep.
type drowsy struct {
	net.Conn
	sleeps *atomic.Pointer[chan struct{}] // until it is closed; nil: it is awake
}

func (d *drowsy) wait() {
	if asleep := d.sleeps.Load(); asleep != nil {
		<-*asleep
	}
}

func (d *drowsy) Read(p []byte) (int, error) {
	n, err := d.Conn.Read(p)
	d.wait()
	return n, err
}

// Write is taken, as by the buffer of a socket whose other end is gone.
func (d *drowsy) Write(p []byte) (int, error) {
	if d.sleeps.Load() != nil {
		return len(p), nil
	}
	return d.Conn.Write(p)
}

// The handlers of a process go on before its sockets do, as when it was suspended: another process has handled all of
// its messages, and it has still to read that.
func TestASuspendedProcessBeginsNothing(t *testing.T) {
	everywhere(t, func(w *fixture) {
		s := w.shards(1, func(s *topology.Shards) { s.SingleActiveConsumer = true })
		var mu sync.Mutex
		began := map[string][]string{}
		handle := func(process string, takes time.Duration) consumer.Handler {
			return func(_ context.Context, d *consumer.Delivery) error {
				mu.Lock()
				began[process] = append(began[process], d.ID)
				mu.Unlock()
				time.Sleep(takes)
				return nil
			}
		}
		var sleeps atomic.Pointer[chan struct{}]
		var sockets []net.Conn
		connects := w.connects("first")
		connects.Heartbeat = 10 * time.Second
		connects.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := w.broker.Dial(ctx, network, address)
			mu.Lock()
			defer mu.Unlock()
			sockets = append(sockets, c)
			return &drowsy{c, &sleeps}, err
		}
		conn, err := connection.Open(w.Context(), connects)
		if err != nil {
			w.Fatal(err)
		}
		defer conn.Close()
		first, err := consumer.New(conn, s, handle("first", 30*time.Second), consumer.Config{Concurrency: 2, KeyLimit: 1, Key: func(d *consumer.Delivery) string {
			if d.ID == id(4) {
				time.Sleep(40 * time.Second) // the fetching sleeps, too
			}
			return d.OrderKey
		}})
		if err != nil {
			w.Fatal(err)
		}
		stop := running(first)
		time.Sleep(5 * time.Second)
		for n := range 5 {
			w.publishTo(s.Queue("k"), id(n), fmt.Sprint("k", n%4))
		}
		time.Sleep(time.Second)
		asleep := make(chan struct{})
		sleeps.Store(&asleep)
		mu.Lock()
		for _, c := range sockets {
			_ = c.Close() // which the broker sees
		}
		mu.Unlock()
		second := w.process(s, handle("second", 0))
		time.Sleep(30 * time.Second)
		sleeps.Store(nil)
		close(asleep)
		time.Sleep(time.Minute)
		w.stopped(stop)
		w.stopped(second.stop)
		if got := began["first"]; !slices.Equal(slices.Sorted(slices.Values(got)), ids(2)) {
			w.Errorf("the process that was suspended has begun %v, want the first two", got)
		}
		if got := began["second"]; !slices.Equal(slices.Sorted(slices.Values(got)), ids(5)) {
			w.Errorf("the other process has begun %v, want all", got)
		}
	})
}
