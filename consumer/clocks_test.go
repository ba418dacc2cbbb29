package consumer_test

import (
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/internal/header"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/topology"
)

// Another process has sent messages to their wait, and its clock is ahead. A wait
// becomes longer by that, or by another wait if that is little more, and by itself at
// most.
func TestAClockThatIsAheadLengthensAWaitByNoMoreThanItself(t *testing.T) {
	for _, version := range []string{"4.0", "4.3"} {
		for _, kind := range []topology.QueueType{topology.Classic, topology.Quorum} {
			on(t, version, kind, func(w *fixture) {
				w.orders = topology.WorkQueue{Name: "skewed", Type: kind, Waits: w.orders.Waits, Engine: topology.EngineRepublish}
				w.declare(w.orders)
				aheads := []time.Duration{2 * time.Second, 9 * time.Second, 50 * time.Second, 30 * time.Minute, 40 * 24 * time.Hour}
				for _, ahead := range aheads {
					w.publish(1, func(m *rehoptest.Message) {
						m.RoutingKey = "skewed.wait.1"
						m.Headers = amqp.Table{header.Queue: "skewed", header.Attempts: int64(1), header.Due: time.Now().Add(time.Minute + ahead).UnixMilli()}
					})
				}
				var log lines
				a := attempts{began: time.Now(), runs: map[string][]string{}}
				_, stop := w.start(a.handler, consumer.Config{Concurrency: 8, Logger: log.logger()})
				time.Sleep(time.Hour)
				w.stopped(stop)
				for n, want := range []string{"2 at 1m2s", "2 at 1m9s", "2 at 2m0s", "2 at 2m0s", "2 at 2m0s"} {
					if runs := a.runs[id(n)]; len(runs) == 0 || runs[0] != want {
						w.Errorf("%s, %v ahead: %q, want %q", id(n), aheads[n], runs, want)
					}
				}
				if len(log.with("level=WARN", "the clock of the process that sent it there is ahead")) == 0 {
					w.Errorf("the log does not say so: %s", log.all)
				}
			})
		}
	}
}
