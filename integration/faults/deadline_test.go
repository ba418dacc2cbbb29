package faults

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/integration/nodes"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
)

// requestsQueue is read by nobody.
var requestsQueue = topology.WorkQueue{Name: "requests", Type: topology.Quorum}

// drawer is a sink that needs a while, as a database does.
type drawer struct{ needs time.Duration }

func (d drawer) Name() string { return "drawer" }

func (d drawer) Put(ctx context.Context, _ producer.Message, _ error) error {
	select {
	case <-time.After(d.needs):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Requests with short deadlines are all answered while a broker dies, or stands still,
// or is away: with a fallback at hand none fails.
func TestRequestsThroughAnOutage(t *testing.T) {
	const (
		// Four times what the drawer needs belong to the fallback, a quarter of the deadline at
		// most. What is left of them is for a machine that is busy.
		deadline = 3 * time.Second
		needs    = 200 * time.Millisecond
		after    = 300 * time.Millisecond
		callers  = 20
		tick     = 40 * time.Millisecond
		away     = 4 * time.Second
	)
	for _, version := range ownVersions() {
		t.Run(version, func(t *testing.T) {
			n := pool.Of(t, version)
			noLeaks(t)
			conn := open(t, n, connection.Config{})
			n.Aged(t)
			for _, fault := range []struct {
				name       string
				begin, end func()
			}{
				{"paused", func() { n.Freeze(t) }, func() { nodes.Must(t, "unpause", n.Unpause) }},
				{"killed", func() { nodes.Must(t, "kill", n.Kill) }, func() { nodes.Must(t, "start", n.Start) }},
			} {
				publisher, err := producer.New(conn, producer.Config{Fallback: []producer.Sink{drawer{needs}}, FallbackAfter: after})
				if err != nil {
					t.Fatal(err)
				}
				var mu sync.Mutex
				places := map[producer.Place]int{}
				slowest := time.Duration(0)
				load, stop := context.WithCancel(t.Context())
				var calling sync.WaitGroup
				for range callers {
					calling.Go(func() {
						ticker := time.NewTicker(tick)
						defer ticker.Stop()
						for load.Err() == nil {
							ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), deadline)
							began := time.Now()
							r, err := publisher.Publish(ctx, producer.Message{RoutingKey: requestsQueue.Name, Body: []byte("order")})
							took := time.Since(began)
							cancel()
							if err != nil {
								t.Errorf("%s: a request failed after %v: %v", fault.name, took, err)
								if errors.Is(err, context.Canceled) {
									return
								}
							}
							mu.Lock()
							places[r.Place]++
							slowest = max(slowest, took)
							mu.Unlock()
							<-ticker.C
						}
					})
				}
				<-time.After(time.Second)
				fault.begin()
				<-time.After(away)
				fault.end()
				<-time.After(2 * time.Second)
				stop()
				calling.Wait()
				if err := publisher.Close(); err != nil {
					t.Error(err)
				}
				t.Logf("%s: %d in the queue, %d in the fallback, %d failed; the slowest call took %v", fault.name,
					places[producer.PlaceQueue], places[producer.PlaceFallback], places[""], slowest.Round(time.Millisecond))
				if places[producer.PlaceQueue] == 0 || places[producer.PlaceFallback] == 0 {
					t.Errorf("%s: nothing was published, or nothing was in its way", fault.name)
				}
			}
		})
	}
}
