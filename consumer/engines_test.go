package consumer_test

import (
	"slices"
	"testing"
	"time"

	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/topology"
)

// A service is rolled out with the engine republish instead of nack, or the other
// way round: consumers of before run on, in the same session.
func TestADeclareOfAnotherEngineMisleadsNoConsumerThatRuns(t *testing.T) {
	for _, version := range sampled(t, []string{"4.0", "4.3"}) {
		for _, change := range [][2]topology.Engine{{topology.EngineNack, topology.EngineRepublish}, {topology.EngineRepublish, topology.EngineNack}} {
			t.Run(change[0].String()+" to "+change[1].String(), func(t *testing.T) {
				on(t, version, topology.Quorum, func(w *fixture) {
					w.orders.Name = "rolled"
					w.orders.Engine = change[0]
					w.declare(w.orders)
					var a attempts
					w.publish(1)
					_, stop := w.start(a.handler, consumer.Config{Concurrency: 2})
					time.Sleep(time.Second)
					w.orders.Engine = change[1]
					w.declare(w.orders)
					w.publish(1)
					time.Sleep(3 * time.Second) // never at the moment when a wait ends
					for range 60 {
						time.Sleep(10 * time.Second)
						w.truthful()
					}
					w.stopped(stop)
					a.want(w, id(0), "1 at 0s", "2 at 1m0s", "3 at 6m0s")
					a.want(w, id(1), "1 at 1s", "2 at 1m1s", "3 at 6m1s")
					for n := range 2 {
						var places []consumer.Disposition
						for _, s := range w.journal.of(id(n)) {
							places = append(places, s.Disposition)
						}
						if want := []consumer.Disposition{consumer.DispositionWait, consumer.DispositionWait, consumer.DispositionDone}; !slices.Equal(places, want) {
							w.Errorf("%s was settled in %v, want %v", id(n), places, want)
						}
					}
					w.has("rolled.dlq")
				})
			})
		}
	}
}

// After a roll-out, a wait that the consumer uses is deleted, because the place that it
// should have has become free.
func TestAWaitThatMovesIsFollowed(t *testing.T) {
	for _, version := range sampled(t, []string{"4.0", "4.3"}) {
		for _, kind := range []topology.QueueType{topology.Classic, topology.Quorum} {
			on(t, version, kind, func(w *fixture) {
				former := topology.WorkQueue{Name: "moving", Type: kind, Waits: delay.Schedule{time.Minute, 2 * time.Minute}}
				w.declare(former)
				w.orders = former
				w.orders.Waits = delay.Schedule{time.Minute, 10 * time.Minute}
				w.declare(w.orders)
				var a attempts
				_, stop := w.start(a.handler, consumer.Config{})
				time.Sleep(time.Second)
				for _, old := range []topology.WorkQueue{former, w.orders} {
					if err := topology.DeleteWaits(w.Context(), w.conn, old, w.orders); err != nil {
						w.Fatal(err)
					}
				}
				w.publish(1)
				time.Sleep(time.Hour)
				w.stopped(stop)
				var numbers []string
				for _, run := range a.runs[id(0)] {
					numbers = append(numbers, run[:1])
				}
				// What was held comes again.
				if want := []string{"1", "2", "2", "3"}; !slices.Equal(numbers, want) {
					w.Errorf("attempts %q, want %q", a.runs[id(0)], want)
				}
			})
		}
	}
}
