package consumer_test

import (
	"bytes"
	"context"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/topology"
)

func TestTheVisitHarmsNoHandlerAndDrawsNoMessage(t *testing.T) {
	everywhere(t, func(w *fixture) {
		w.publish(1)
		c, stop := w.start(func(ctx context.Context, d *consumer.Delivery) error {
			if d.Redelivered {
				w.Errorf("%s was delivered before", d.ID)
			}
			return slowly(5*time.Minute)(ctx, d)
		}, consumer.Config{Concurrency: 2})
		for range 29 {
			time.Sleep(10 * time.Second)
			if status, err := health(c); status != "healthy" {
				w.Errorf("%s: %v", status, err)
			}
		}
		w.publish(1)
		time.Sleep(10 * time.Minute)
		w.has("orders")
		w.truthful()
		w.stopped(stop)
	})
}

// astray sends the liveness visits of a connection to another queue.
type astray struct {
	to    atomic.Value // a name of as many letters as orders; empty: they are left alone
	asked atomic.Int32
}

type astrayConn struct {
	net.Conn
	*astray
}

func (c *astrayConn) Write(p []byte) (int, error) {
	_, tag, found := bytes.Cut(p, []byte("\x06orders"))
	if found && len(tag) > 0 && bytes.HasSuffix(tag[:min(len(tag), 1+int(tag[0]))], []byte("-health")) {
		c.asked.Add(1)
		if to := c.to.Load().(string); to != "" {
			p = slices.Clone(p)
			copy(p[len(p)-len(tag)-len("orders"):], to)
		}
	}
	return c.Conn.Write(p)
}

// Whatever the refusal, the handler goes on, Health says that there is no sign, and
// the visit is made again.
func TestARefusedVisitHarmsNoHandler(t *testing.T) {
	for _, tt := range []struct {
		why    string
		refuse func(*fixture, *astray) (relent func())
		says   string
	}{
		{"403", func(w *fixture, a *astray) func() {
			a.to.Store("locked")
			return func() { a.to.Store("") }
		}, "ACCESS_REFUSED"},
		{"404", func(w *fixture, a *astray) func() {
			a.to.Store("nobody")
			return func() { a.to.Store("") }
		}, "NOT_FOUND"},
		{"530", func(w *fixture, a *astray) func() {
			var all []*connection.Session
			for {
				session, err := w.conn.Session(w.Context(), connection.Consume)
				if err != nil {
					return func() { _ = all[0].Close() }
				}
				all = append(all, session)
			}
		}, "no channel left"},
	} {
		t.Run(tt.why, func(t *testing.T) {
			onEachEngine(t, func(w *fixture) {
				other := w.conn
				defer other.Close()
				w.declare(topology.WorkQueue{Name: "locked", Type: topology.Classic}) // quorum queues know no exclusive consumers
				session, err := other.Session(w.Context(), connection.Consume)
				if err == nil {
					_, err = session.Channel().Consume("locked", "", false, true, false, false, nil)
				}
				if err != nil {
					w.Fatal(err)
				}
				visits := &astray{}
				visits.to.Store("")
				w.conn, err = connection.Open(w.Context(), connection.Config{URLs: []string{"amqp://guest:guest@broker"},
					Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
						c, err := w.broker.Dial(ctx, network, address)
						return &astrayConn{c, visits}, err
					}})
				if err != nil {
					w.Fatal(err)
				}
				w.publish(1)
				runs := 0
				c, stop := w.start(func(ctx context.Context, d *consumer.Delivery) error {
					runs++
					return slowly(2*time.Minute)(ctx, d)
				}, consumer.Config{Concurrency: 2})
				time.Sleep(5 * time.Second)
				relent := tt.refuse(w, visits)
				time.Sleep(time.Minute)
				if status, err := health(c); status != "unhealthy" || !strings.Contains(err.Error(), tt.says) {
					w.Errorf("while it is refused: %s, %v; want unhealthy, and why", status, err)
				}
				relent()
				asked := visits.asked.Load()
				time.Sleep(15 * time.Second)
				if status, err := health(c); status != "healthy" || visits.asked.Load() == asked {
					w.Errorf("when it is answered again: %s, %v; %d visits more", status, err, visits.asked.Load()-asked)
				}
				time.Sleep(time.Minute)
				if got := w.journal.of(id(0)); runs != 1 || len(got) != 1 || got[0].Disposition != consumer.DispositionDone {
					w.Errorf("handled %d times and settled %v, want once and done", runs, got)
				}
				w.has("orders")
				w.stopped(stop)
			})
		})
	}
}

// Messages of a key come while an idle consumer asks its queue for a sign, and more of them
// than its prefetch. A visit of the queue would take one of them, and later ones would be
// handled before it.
func TestAProbeTakesNoMessageOutOfItsOrder(t *testing.T) {
	onEachEngine(t, func(w *fixture) {
		var got []string
		_, stop := w.start(func(_ context.Context, d *consumer.Delivery) error {
			got = append(got, d.ID)
			time.Sleep(3 * time.Millisecond)
			return nil
		}, consumer.Config{Concurrency: 2, KeyLimit: 1, Prefetch: 3})
		w.broker.Slow(200 * time.Millisecond)
		for i := range 100 {
			time.Sleep(23*time.Second + time.Duration(i)*100*time.Millisecond)
			w.publish(20, keyed("k"))
			time.Sleep(20 * time.Second)
		}
		w.broker.Slow(0)
		w.stopped(stop)
		w.has("orders")
		for i, id := range numberedTo(w.sent) {
			if i < len(got) && got[i] != id {
				w.Fatalf("%s is handled as number %d", got[i], i)
			}
		}
	})
}
