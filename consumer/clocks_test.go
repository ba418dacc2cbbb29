package consumer_test

import (
	"context"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/internal/header"
	"github.com/rehop/rehop/internal/levels"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/topology"
)

// Another process has sent messages to their wait, and its clock is ahead. A wait
// becomes longer by that, or by another wait if that is little more, and by itself at
// most.
func TestAClockThatIsAheadLengthensAWaitByNoMoreThanItself(t *testing.T) {
	for _, version := range sampled(t, []string{"4.0", "4.3"}) {
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

// Another process has put messages off for longer than any wait, and its clock is ahead.
func TestAClockThatIsAheadLengthensARetryAfterByNoMoreThanAWait(t *testing.T) {
	for _, engine := range []topology.Engine{topology.EngineRepublish, topology.EngineCarry} {
		on(t, "4.3", topology.Quorum, func(w *fixture) {
			w.orders = topology.WorkQueue{Name: "skewed", Waits: w.orders.Waits, Engine: engine}
			w.declare(w.orders)
			aheads := []time.Duration{0, 50 * time.Second, 30 * time.Minute, 40 * 24 * time.Hour}
			for _, ahead := range aheads {
				now := time.Now().Add(ahead)
				w.publish(1, func(m *rehoptest.Message) {
					m.RoutingKey = "skewed.wait.1"
					m.Headers = amqp.Table{
						header.Queue: "skewed", header.Attempts: int64(1),
						header.Due: now.Add(time.Minute).UnixMilli(), header.NotBefore: now.Add(21 * time.Minute).UnixMilli(),
					}
				})
			}
			a := attempts{began: time.Now(), runs: map[string][]string{}}
			_, stop := w.start(a.handler, consumer.Config{Concurrency: 8})
			time.Sleep(time.Hour)
			w.stopped(stop)
			for n, want := range []string{"2 at 21m0s", "2 at 22m0s", "2 at 21m0s", "2 at 21m0s"} {
				if runs := a.runs[id(n)]; len(runs) == 0 || runs[0] != want {
					w.Errorf("%v, %s, %v ahead: %q, want %q", engine, id(n), aheads[n], runs, want)
				}
			}
		})
	}
}

// The same, and the messages were in exact delays.
func TestAClockThatIsAheadLengthensAnExactDelayByNoMoreThanItself(t *testing.T) {
	on(t, "4.3", topology.Quorum, func(w *fixture) {
		delays := topology.Delays{Max: time.Hour}
		w.declare(w.orders, delays)
		aheads := []time.Duration{0, 2 * time.Minute, 40 * 24 * time.Hour}
		for _, ahead := range aheads {
			way := levels.Delays{Levels: levels.Levels{Max: delays.Max}.WithDefaults(), Queues: []string{"orders"}}
			exchange, key, takes, err := way.Way(levels.Target{RoutingKey: "orders"}, 7*time.Minute, 0)
			if err != nil {
				w.Fatal(err)
			}
			w.publish(1, func(m *rehoptest.Message) {
				m.Exchange, m.RoutingKey = exchange, key
				m.Headers = amqp.Table{header.Queue: "orders", header.Attempts: int64(1), header.Due: time.Now().Add(takes + ahead).UnixMilli()}
			})
		}
		a := attempts{began: time.Now(), runs: map[string][]string{}}
		_, stop := w.start(a.handler, consumer.Config{Concurrency: 8})
		time.Sleep(50 * time.Minute)
		w.stopped(stop)
		for n, want := range []string{"2 at 7m0s", "2 at 9m0s", "2 at 14m0s"} {
			if runs := a.runs[id(n)]; len(runs) == 0 || runs[0] != want {
				w.Errorf("%s, %v ahead: %q, want %q", id(n), aheads[n], runs, want)
			}
		}
	})
}

// The same, in a queue without waits, where a message that was put off goes round.
func TestAClockThatIsAheadLengthensASnoozeWithoutWaitsByNothing(t *testing.T) {
	everywhere(t, func(w *fixture) {
		w.orders = topology.WorkQueue{Name: "bare", Type: w.orders.Type, Waits: delay.Schedule{}}
		w.declare(w.orders)
		now := time.Now().Add(3 * time.Hour)
		w.publish(1, func(m *rehoptest.Message) {
			m.Exchange, m.RoutingKey = "bare.rehop.return", "bare@1"
			m.Headers = amqp.Table{header.Queue: "bare", header.Attempts: int64(0), header.Snoozes: int64(1), header.FirstSnoozedAt: now.Add(-time.Hour),
				header.Due: now.UnixMilli(), header.NotBefore: now.Add(time.Minute).UnixMilli()}
		})
		a := attempts{began: time.Now(), runs: map[string][]string{}}
		_, stop := w.start(a.handler, consumer.Config{})
		time.Sleep(10 * time.Minute)
		w.stopped(stop)
		a.want(w, id(0), "1 at 1m0s")
	})
}

func TestAMessageThatGoesRoundSaysWhenItWasSent(t *testing.T) {
	on(t, "4.3", topology.Quorum, func(w *fixture) {
		w.orders = topology.WorkQueue{Name: "bare", Waits: delay.Schedule{}}
		w.declare(w.orders)
		began := time.Now()
		_, stop := w.start(func(context.Context, *consumer.Delivery) error { return consumer.Snooze(time.Minute, "not yet") }, consumer.Config{})
		w.publish(1)
		time.Sleep(35 * time.Second)
		w.stopped(stop)
		m := w.broker.Drain("bare")
		if len(m) != 1 || m[0].Headers[header.Due] != began.Add(30*time.Second).UnixMilli() || m[0].Headers[header.NotBefore] != began.Add(time.Minute).UnixMilli() {
			w.Errorf("%+v, want one that was sent after 30s and is put off until 1m", m)
		}
	})
}

// A process with a longer schedule has sent a message to its third wait, and somebody has
// taken it out of there. The consumer knows no such wait, and makes up for it with its own.
func TestAnotherSchedulesWaitThatWasCutShortIsMadeUpFor(t *testing.T) {
	for _, engine := range []topology.Engine{topology.EngineRepublish, topology.EngineCarry} {
		on(t, "4.3", topology.Quorum, func(w *fixture) {
			w.orders = topology.WorkQueue{Name: "short", Waits: delay.Schedule{time.Minute, time.Minute}, Engine: engine}
			w.declare(w.orders)
			w.publish(1, func(m *rehoptest.Message) {
				m.Exchange, m.RoutingKey = "short.rehop.return", "short@3"
				m.Headers = amqp.Table{header.Queue: "short", header.Attempts: int64(1), header.Due: time.Now().Add(19 * time.Minute).UnixMilli()}
			})
			a := attempts{began: time.Now(), runs: map[string][]string{}}
			_, stop := w.start(a.handler, consumer.Config{})
			time.Sleep(time.Hour)
			w.stopped(stop)
			if runs := a.runs[id(0)]; len(runs) == 0 || runs[0] != "2 at 19m0s" {
				w.Errorf("%v: %q, want %q first", engine, runs, "2 at 19m0s")
			}
		})
	}
}

// Both dates of a message are whole milliseconds, and the time between them may be none
// although the message lacks a part of one.
func TestAMessageThatLacksLessThanAMillisecondDoesNotGoRoundForEver(t *testing.T) {
	on(t, "4.3", topology.Quorum, func(w *fixture) {
		w.orders = topology.WorkQueue{Name: "bare", Waits: delay.Schedule{}}
		w.declare(w.orders)
		date := time.Now().Add(time.Hour).UnixMilli() // of a clock that is ahead
		w.publish(1, func(m *rehoptest.Message) {
			m.Exchange, m.RoutingKey = "bare.rehop.return", "bare@1"
			m.Headers = amqp.Table{header.Queue: "bare", header.Attempts: int64(0), header.Due: date, header.NotBefore: date}
		})
		rounds := 0
		time.Sleep(300 * time.Microsecond)
		_, stop := w.start(func(context.Context, *consumer.Delivery) error { return nil }, consumer.Config{Traces: []consumer.Trace{{
			Settled: func(_ context.Context, s consumer.Settled) {
				if s.Disposition != consumer.DispositionRequeued {
					return
				}
				if rounds++; rounds == 100 {
					w.T.Error("it goes round without an end")
					time.Sleep(time.Second)
				}
			},
		}}})
		time.Sleep(time.Minute)
		w.stopped(stop)
		if rounds > 2 {
			w.Errorf("it went round %d times, want 2 at most", rounds)
		}
	})
}
