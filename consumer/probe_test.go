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

func TestTheProbeHarmsNoHandlerAndDrawsNoMessage(t *testing.T) {
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

// astray sends the liveness probes of a connection to another queue.
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
// the probe is made again.
func TestARefusedProbeHarmsNoHandler(t *testing.T) {
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
			everywhere(t, func(w *fixture) {
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
				probes := &astray{}
				probes.to.Store("")
				w.conn, err = connection.Open(w.Context(), connection.Config{URLs: []string{"amqp://guest:guest@broker"},
					Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
						c, err := w.broker.Dial(ctx, network, address)
						return &astrayConn{c, probes}, err
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
				relent := tt.refuse(w, probes)
				time.Sleep(time.Minute)
				if status, err := health(c); status != "unhealthy" || !strings.Contains(err.Error(), tt.says) {
					w.Errorf("while it is refused: %s, %v; want unhealthy, and why", status, err)
				}
				relent()
				asked := probes.asked.Load()
				time.Sleep(15 * time.Second)
				if status, err := health(c); status != "healthy" || probes.asked.Load() == asked {
					w.Errorf("when it is answered again: %s, %v; %d probes more", status, err, probes.asked.Load()-asked)
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
