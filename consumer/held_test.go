package consumer_test

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/topology"
	"github.com/rehop/rehop/xdeath"
)

// An outage lasts for hours, in which each message is held again and again and goes
// back to its queue before the broker would take it away. No message reaches its
// delivery limit, and none spends an attempt. Returns each quarter of an hour would reach
// the limit of 20 after five hours, so six hours show as much as a day.
func TestALongOutageDeadLettersNothing(t *testing.T) {
	for name, cfg := range map[string]consumer.Config{"": {}, "in the order of keys": {Concurrency: 4, KeyLimit: 1}} {
		t.Run(name, func(t *testing.T) { longOutage(t, cfg) })
	}
}

func longOutage(t *testing.T, cfg consumer.Config) {
	onQuorumQueues(t, func(w *fixture) {
		const n = 20
		w.publish(n, keyed("k"))
		over := time.Now().Add(7 * time.Hour)
		attempts := map[string]int{}
		_, stop := w.start(func(_ context.Context, d *consumer.Delivery) error {
			if time.Now().Before(over) {
				return consumer.Hold(errBroken)
			}
			attempts[d.ID] = d.Attempt
			return nil
		}, cfg)
		time.Sleep(6 * time.Hour)
		w.has("orders", ids(n)...)
		w.has("orders.dlq")
		time.Sleep(90 * time.Minute)
		w.stopped(stop)
		w.has("orders")
		w.has("orders.dlq")
		for _, id := range ids(n) {
			if attempts[id] != 1 {
				w.Errorf("%s is handled in attempt %d after the outage, want 1", id, attempts[id])
			}
		}
	})
}

// Restarts of a service in an outage return the held messages each time.
func TestRestartsInAnOutageDeadLetterNothing(t *testing.T) {
	onQuorumQueues(t, func(w *fixture) {
		const n = 5
		w.publish(n)
		for range 50 {
			_, stop := w.start(func(context.Context, *consumer.Delivery) error { return consumer.Hold(errBroken) }, consumer.Config{Concurrency: n})
			time.Sleep(10 * time.Second)
			w.stopped(stop)
		}
		w.has("orders", ids(n)...)
		w.has("orders.dlq")
	})
}

// A memory alarm blocks publishers for six hours, while consuming goes on. Messages whose
// copies cannot be confirmed meanwhile are not handed out until the broker gives them up: after
// 20 returns, which are five hours of a return each quarter of an hour.
func TestALongAlarmDeadLettersNothingOfItself(t *testing.T) {
	const n = 5
	for _, c := range []struct {
		name    string
		handled error
		cfg     consumer.Config
		letters int
		says    string // Health, in the alarm; a regular expression
	}{
		{"failed", errBroken, consumer.Config{}, n, "until the broker confirms copies"},
		{"failed, several at a time", errBroken, consumer.Config{Concurrency: 3}, n, "until the broker confirms copies"},
		{"failed, in the order of keys: one comes at a time", errBroken, consumer.Config{Concurrency: 2, KeyLimit: 1}, n, "until (their copies are confirmed|the broker confirms copies)"},
		{"held", consumer.Hold(errBroken), consumer.Config{Concurrency: 2}, 0, "until the broker confirms copies"},
		{"held without outages", consumer.Hold(errBroken), consumer.Config{Concurrency: 2, Outage: consumer.Outage{Off: true}}, 0, "until the broker confirms copies"},
		{"put off", consumer.RetryAfter(time.Second, errBroken), consumer.Config{Concurrency: 2}, n, "until the broker confirms copies"},
	} {
		t.Run(c.name, func(t *testing.T) {
			of := slices.DeleteFunc(slices.Clone(versions), func(version string) bool {
				return version == "4.3" && c.letters > 0 || // returns do not count, and hours of copies take long
					version == "3.10" && (c.cfg.Concurrency != 0 || c.cfg.Outage.Off) // returns count as on 4.0, and what else differs by the case is the consumer's own
			})
			for _, version := range sampled(t, of) {
				on(t, version, topology.Quorum, func(w *fixture) {
					began := time.Now()
					over := began.Add(6 * time.Hour)
					w.publish(n, keyed("k"))
					w.broker.Block("low on memory")
					after := map[string]int{}
					one, stop := w.start(func(_ context.Context, d *consumer.Delivery) error {
						if time.Now().Before(over) || c.letters > 0 {
							return c.handled
						}
						w.journal.mu.Lock()
						defer w.journal.mu.Unlock()
						after[d.ID] = d.Attempt
						return nil
					}, c.cfg)
					time.Sleep(5*time.Hour + 30*time.Minute)
					w.has("orders.dlq")
					for range 60 { // a session that begins anew knows of no alarm before its first copy
						if status, _ := health(one); status == "degraded" {
							break
						}
						time.Sleep(time.Second)
					}
					if status, err := health(one); version != "4.3" && (status != "degraded" || !regexp.MustCompile(c.says).MatchString(err.Error()) || !strings.Contains(err.Error(), "low on memory")) {
						w.Errorf("in the alarm: %s, %v", status, err)
					}
					time.Sleep(time.Until(over))
					w.broker.Unblock()
					time.Sleep(20 * time.Minute)
					if status, err := health(one); status != "healthy" {
						w.Errorf("20 minutes after the alarm: %s, %v", status, err)
					}
					w.stopped(stop)
					w.has("orders")
					letters := slices.Compact(w.in("orders.dlq")) // a copy that was on its way when the alarm began may be there twice
					if !slices.Equal(letters, ids(c.letters)) {
						w.Errorf("letters: %v, want %d", letters, c.letters)
					}
					q, _ := w.broker.Queue("orders.dlq")
					for _, m := range q.Ready {
						if h, _ := xdeath.Parse(m.Headers); h.Failure.Cause != rehop.CauseExhausted {
							w.Errorf("%s is a letter because of %q\n%s", m.MessageId, h.Failure.Cause, w.broker.Story(m.MessageId))
						}
					}
					if c.letters == 0 && len(after) != n {
						w.Errorf("handled after the alarm: %v", after)
					}
				})
			}
		})
	}
}

// The dead-letter queue is full for hours, and takes no copy: a message that has come back
// often goes to the end of its queue, and becomes a letter when there is room, with its
// failure. Returns each quarter of an hour would reach the delivery limit of 20 after five
// hours, so six hours show as much as a day.
func TestADeadLetterQueueThatIsFullForLongMakesNoCrashLoop(t *testing.T) {
	full := func(w *fixture) {
		w.raw(func(ch *amqp.Channel) error {
			if _, err := ch.QueueDelete("orders.dlq", false, false, false); err != nil {
				return err
			}
			_, err := ch.QueueDeclare("orders.dlq", true, false, false, false, amqp.Table{"x-max-length": 1, "x-overflow": "reject-publish"})
			return err
		})
		for range 2 {
			if _, err := w.broker.Publish(rehoptest.Message{RoutingKey: "orders.dlq"}); err != nil {
				w.Fatal(err)
			}
		}
		w.publish(1)
		_, stop := w.start(func(context.Context, *consumer.Delivery) error { return consumer.DeadLetter(errBroken) }, consumer.Config{})
		time.Sleep(6 * time.Hour)
		w.has("orders", id(0))
		w.raw(func(ch *amqp.Channel) error {
			_, err := ch.QueuePurge("orders.dlq", false)
			return err
		})
		time.Sleep(time.Minute)
		w.stopped(stop)
		w.has("orders")
		if h, _ := xdeath.Parse(w.letter().Headers); h.Failure.Cause != rehop.CausePermanent {
			w.Errorf("it is a letter because of %q\n%s", h.Failure.Cause, w.broker.Story(id(0)))
		}
		w.truthful()
	}
	on(t, "4.0", topology.Quorum, full)
	on(t, "4.3", topology.Quorum, full) // returns do not count
}

// The broker takes messages away sooner than a copy times out. In an alarm a message goes
// back before that, until its consumer leaves the queue. The longest of these timeouts, 20
// times one after the other, would reach the delivery limit after 80 minutes.
func TestALongAlarmWithAShortConsumerTimeout(t *testing.T) {
	for _, timeout := range []time.Duration{10 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute} {
		for _, handled := range []error{errBroken, consumer.DeadLetter(errBroken), consumer.Hold(errBroken)} {
			t.Run(timeout.String()+" "+string(consumer.OutcomeOf(handled).Action), func(t *testing.T) {
				versions := []string{"3.10", "4.0"}
				if consumer.OutcomeOf(handled).Action != consumer.ActionRetry { // which way the copy is to go does not differ by them
					versions = versions[1:]
				}
				for _, version := range sampled(t, versions) {
					onBroker(t, rehoptest.Config{Version: version, ConsumerTimeout: timeout}, topology.Quorum, func(w *fixture) {
						w.publish(1)
						w.broker.Block("low on memory")
						_, stop := w.start(func(context.Context, *consumer.Delivery) error { return handled }, consumer.Config{})
						time.Sleep(100 * time.Minute)
						w.has("orders.dlq")
						w.stopped(stop)
					})
				}
			})
		}
	}
}

// From 4.0 on a quorum queue has a delivery limit by default, and often no dead-letter
// exchange: the broker would delete the message, after five hours of a return each quarter of
// an hour.
func TestAQueueOfOthersLosesNothingInALongOutage(t *testing.T) {
	for name, alarm := range map[string]bool{"alarm": true, "unavailable": false} {
		t.Run(name, func(t *testing.T) {
			on(t, "4.0", topology.Quorum, func(w *fixture) {
				w.raw(func(ch *amqp.Channel) error {
					_, err := ch.QueueDeclare("theirs", true, false, false, false, amqp.Table{"x-queue-type": "quorum"})
					return err
				})
				w.orders = topology.WorkQueue{Name: "theirs", Existing: true, Waits: w.orders.Waits}
				w.declare(w.orders)
				w.publish(1)
				handled := consumer.Hold(errBroken)
				if alarm {
					handled = errBroken
					w.broker.Block("low on memory")
				}
				_, stop := w.start(func(context.Context, *consumer.Delivery) error { return handled }, consumer.Config{})
				time.Sleep(6 * time.Hour)
				w.stopped(stop)
				w.has("theirs", id(0))
			})
		})
	}
}

// A consumer that waits for the end of an alarm says that the broker is gone, if it is, and
// ends with its Conn.
func TestAConsumerThatAwaitsConfirmsNoticesALostBrokerAndAClosedConn(t *testing.T) {
	on(t, "4.0", topology.Quorum, func(w *fixture) {
		w.publish(1)
		w.broker.Block("low on memory")
		c, err := consumer.New(w.conn, w.orders, func(context.Context, *consumer.Delivery) error { return consumer.DeadLetter(errBroken) }, consumer.Config{})
		if err != nil {
			w.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- c.Run(w.Context()) }()
		time.Sleep(5 * time.Hour)
		if status, err := health(c); status != "degraded" || !strings.Contains(err.Error(), "until the broker confirms copies") {
			w.Errorf("in the alarm: %s, %v", status, err)
		}
		w.broker.Kill()
		time.Sleep(time.Minute)
		if status, err := health(c); status != "unhealthy" || strings.Contains(err.Error(), "low on memory") {
			w.Errorf("without a broker: %s, %v", status, err)
		}
		w.endsWithTheConn(ended)
	})
}

// From 4.3 on returns count nothing. So a message that came back often by lost connections
// does not end the consuming in an alarm.
func TestAnAlarmStopsNoConsumerWhereReturnsDoNotCount(t *testing.T) {
	on(t, "4.3", topology.Quorum, func(w *fixture) {
		w.publish(1)
		var alarm atomic.Bool
		var done atomic.Int64
		_, stop := w.start(func(_ context.Context, d *consumer.Delivery) error {
			switch {
			case !alarm.Load():
				time.Sleep(30 * time.Second) // until the connection is cut
				return errBroken
			case d.Redelivered:
				return consumer.DeadLetter(errBroken)
			}
			done.Add(1)
			return nil
		}, consumer.Config{Concurrency: 2})
		for range 11 {
			time.Sleep(20 * time.Second)
			if n := w.broker.Cut("consume"); n == 0 {
				w.Fatal("nothing was cut")
			}
		}
		alarm.Store(true)
		w.broker.Block("low on memory")
		time.Sleep(2 * time.Hour)
		w.publish(10)
		time.Sleep(time.Hour)
		if n := done.Load(); n != 10 {
			w.Errorf("%d of 10 new messages are done in the alarm", n)
		}
		w.stopped(stop)
	})
}

// A stop begins while a consumer leaves its queue, and handlers are at work.
func TestAStopWhileAConsumerLeavesItsQueueHasAllOfItsTime(t *testing.T) {
	on(t, "4.3", topology.Classic, func(w *fixture) {
		began := time.Now()
		w.publish(1, keyed("held"))
		w.publish(1, keyed("slow"))
		var ended time.Duration
		_, stop := w.start(func(ctx context.Context, d *consumer.Delivery) error {
			if d.OrderKey == "held" {
				return consumer.Hold(errAway)
			}
			<-ctx.Done()
			ended = time.Since(began)
			return context.Cause(ctx)
		}, consumer.Config{Concurrency: 2, KeyLimit: 1, Outage: consumer.Outage{Off: true}})
		time.Sleep(15*time.Minute + 10*time.Second) // the message can be held no longer, and the slow handler has 15 s to end
		w.stopped(stop)
		if want := 15*time.Minute + 25*time.Second; ended < want-time.Second || ended > want+time.Second {
			w.Errorf("the handler was told to end after %v, want 15 s after the stop: %v", ended, want)
		}
	})
}

// A letter cannot be confirmed for longer than its message may be kept. The message goes back
// to its place, and no later one of its key begins before.
func TestAnAlarmKeepsTheOrderOfAKey(t *testing.T) {
	onQuorumQueues(t, func(w *fixture) {
		w.publish(10, keyed("k"))
		w.broker.Block("low on memory")
		over := time.Now().Add(40 * time.Minute)
		_, stop := w.start(func(_ context.Context, d *consumer.Delivery) error {
			if d.ID == id(0) {
				return consumer.DeadLetter(errBroken)
			}
			if time.Now().Before(over) {
				w.Errorf("%s begins in the alarm, before %s is a letter", d.ID, id(0))
			}
			return nil
		}, consumer.Config{Concurrency: 4, KeyLimit: 1})
		time.Sleep(time.Until(over))
		w.broker.Unblock()
		time.Sleep(time.Hour)
		w.stopped(stop)
		w.has("orders")
		if letters := slices.Compact(w.in("orders.dlq")); !slices.Equal(letters, []string{id(0)}) {
			w.Errorf("letters: %v", letters)
		}
	})
}

// A dead-letter queue has no waits, and a consumer of it can go away. A message is held for a
// quarter of an hour at most, so 40 minutes are more than one hold.
func TestRetryAfterWhereNothingWaitsIsNoShorterThanAsked(t *testing.T) {
	for _, after := range []time.Duration{time.Minute, 10 * time.Minute, 40 * time.Minute} {
		t.Run(after.String(), func(t *testing.T) {
			columns := onEachEngine
			if after == 10*time.Minute {
				columns = everywhere
			}
			columns(t, func(w *fixture) {
				w.publish(1)
				_, stop := w.start(permanently, consumer.Config{})
				time.Sleep(time.Second)
				w.stopped(stop)
				var runs []time.Time
				begin := func() (stop func() error) {
					_, stop = w.startOn(w.orders.DeadLetterQueue(), func(_ context.Context, d *consumer.Delivery) error {
						if n := len(runs); n > 0 && time.Since(runs[n-1]) < after {
							w.Errorf("run %d comes %v after the one before, want %v at least", n+1, time.Since(runs[n-1]), after)
						}
						if d.Attempt != 1 || d.History.Snoozes != 0 || d.History.Queue != "orders" || d.History.FinalAttempts != 1 || d.History.Failure.Error != "broken" {
							w.Errorf("attempt %d, put off %d, %s", d.Attempt, d.History.Snoozes, letterOf(d))
						}
						runs = append(runs, time.Now())
						return consumer.RetryAfter(after, errBroken)
					}, consumer.Config{})
					return stop
				}
				stop = begin()
				time.Sleep(4 * after)
				if after > 15*time.Minute {
					w.stopped(stop)
					stop = begin()
				}
				time.Sleep(after)
				w.stopped(stop)
				if n := len(runs); n < 5 || n > 6 {
					w.Errorf("%d runs, want one each %v", n, after)
				}
				w.has("orders.dlq", id(0))
			})
		})
	}
}
