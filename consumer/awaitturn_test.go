package consumer

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer/internal/hand"
	"github.com/rehop/rehop/consumer/internal/work"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/topology"
)

// A shard that waits until its suspects may be handled may go to another process meanwhile.
func TestAShardThatAwaitsItsTurn(t *testing.T) {
	for _, tt := range []struct {
		rule string
		then func(r *run, stop func())
		here bool
	}{
		{"it goes to another process", func(r *run, _ func()) { r.assigned.set(false) }, false},
		{"it stays here, and nobody has a turn any more", func(*run, func()) { <-time.After(2 * time.Minute) }, true},
		{"Run is to stop", func(_ *run, stop func()) { stop() }, true},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broker, err := rehoptest.NewBroker(rehoptest.Config{})
				if err != nil {
					t.Fatal(err)
				}
				defer broker.Close()
				conn, err := connection.Open(t.Context(), connection.Config{URLs: []string{"amqp://broker"}, Dial: broker.Dial})
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				c, err := New(conn, topology.Shards{Name: "bills", Count: 2}, func(context.Context, *Delivery) error { return nil }, Config{KeyLimit: 1})
				if err != nil {
					t.Fatal(err)
				}
				all := hand.New(1, false)
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				r := newRun(c.parts[0], all, work.NewPool(all), ctx, ctx, ctx)
				defer r.copies.Close()
				other := all.Lane(c.parts[1].limits)
				other.Session(hand.Contexts{Stop: ctx, Working: ctx, Copying: ctx})
				r.assigned = newAssigned()
				r.assigned.set(true)
				s := r.lane.Session(hand.Contexts{Stop: ctx, Working: ctx, Copying: ctx})
				began := time.Now()
				r.pool.Event(func(now time.Time, out *hand.Out) {
					s.BeginNoMore(hand.ErrSuspects, now, out)
					s.Delivered(&hand.Message{Raw: amqp.Delivery{DeliveryTag: 1, Redelivered: true}, Received: now, Deaths: 10}, out)
				})
				<-time.After(time.Second / 2)
				var ended atomic.Bool
				go func() {
					if here := r.awaitSuspects(); here != tt.here {
						t.Errorf("it is consumed here: %t, want %t", here, tt.here)
					}
					ended.Store(true)
				}()
				synctest.Wait()
				r.health.mu.Lock()
				why, since := r.health.why, r.health.since
				r.health.mu.Unlock()
				if ended.Load() || !errors.As(why, new(errSuspects)) || !since.Equal(began) {
					t.Fatalf("ended: %t, %v since %v; want it to wait", ended.Load(), why, since)
				}
				tt.then(r, stop)
				synctest.Wait()
				if !ended.Load() {
					t.Error("it waits on")
				}
				stop()
			})
		})
	}
}
