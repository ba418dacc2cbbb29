package consumer_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/internal/header"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/topology"
)

// nobody is an error whose text cannot be had: here by its nil pointer.
type nobody struct{ reason string }

func (n *nobody) Error() string { return n.reason }

func TestWhatAHandlerReturnsDecides(t *testing.T) {
	done := consumer.Settlement{Disposition: consumer.DispositionDone}
	wait := func(waitNumber int) consumer.Settlement {
		return consumer.Settlement{Disposition: consumer.DispositionWait, WaitNumber: waitNumber, Wait: []time.Duration{time.Minute, 5 * time.Minute}[waitNumber-1]}
	}
	dead := func(c rehop.Cause) consumer.Settlement {
		return consumer.Settlement{Disposition: consumer.DispositionDeadLetter, Cause: c}
	}
	type handler = func(context.Context, *consumer.Delivery) error
	always := func(err error) handler { return func(context.Context, *consumer.Delivery) error { return err } }
	for _, tt := range []struct {
		rule    string
		handler handler
		want    []consumer.Settlement
		runs    int
		text    string // in the letter
		kind    string
		own     bool // the consumer alone decides what it means
	}{
		{"nil: done", always(nil), []consumer.Settlement{done}, 1, "", "", false},
		{"fails, then done", func(_ context.Context, d *consumer.Delivery) error {
			if d.Attempt < 3 {
				return errBroken
			}
			return nil
		}, []consumer.Settlement{wait(1), wait(2), done}, 3, "", "", false},
		{"fails for ever", always(fmt.Errorf("wrapped: %w", errBroken)),
			[]consumer.Settlement{wait(1), wait(2), dead(rehop.CauseExhausted)}, 3, "wrapped: broken", "*errors.errorString", false},
		{"permanent", always(consumer.DeadLetter(errBroken)), []consumer.Settlement{dead(rehop.CausePermanent)}, 1, "broken", "*errors.errorString", false},
		{"discard", always(consumer.Discard("old")), []consumer.Settlement{done}, 1, "", "", true},
		{"retry after, longer than wait 1", func(_ context.Context, d *consumer.Delivery) error {
			if d.Attempt == 1 {
				return consumer.RetryAfter(2*time.Minute, errBroken)
			}
			return nil
		}, []consumer.Settlement{wait(2), done}, 2, "", "", false},
		{"retry after, longer than all waits", func(_ context.Context, d *consumer.Delivery) error {
			if d.Attempt == 1 {
				return consumer.RetryAfter(11*time.Minute, errBroken)
			}
			return nil
		}, []consumer.Settlement{wait(2), wait(2), wait(1), done}, 2, "", "", false},
		{"panic", func(context.Context, *consumer.Delivery) error { panic("ouch") },
			[]consumer.Settlement{wait(1), wait(2), dead(rehop.CauseExhausted)}, 3, "panic: ouch", "*consumer.PanicError", true},
		{"an error that cannot be read", func(context.Context, *consumer.Delivery) error { var n *nobody; return n },
			[]consumer.Settlement{wait(1), wait(2), dead(rehop.CauseExhausted)}, 3, "panic: ", "*consumer.PanicError", true},
		{"runtime.Goexit", func(context.Context, *consumer.Delivery) error { runtime.Goexit(); return nil },
			[]consumer.Settlement{wait(1), wait(2), dead(rehop.CauseExhausted)}, 3, "runtime.Goexit", "*errors.errorString", true},
		{"handler timeout", func(ctx context.Context, _ *consumer.Delivery) error { <-ctx.Done(); return context.Cause(ctx) },
			[]consumer.Settlement{wait(1), wait(2), dead(rehop.CauseExhausted)}, 3, "handler timeout", "*errors.errorString", true},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			columns := everywhere
			if tt.own {
				columns = onEachEngine
			}
			columns(t, func(w *fixture) {
				w.publish(1, func(m *rehoptest.Message) { m.Type = "order"; m.Headers = amqp.Table{"user": "own"} })
				runs := 0
				c, stop := w.start(func(ctx context.Context, d *consumer.Delivery) error {
					if runs++; runs != d.Attempt || d.LastAttempt != (runs == 3) || d.RoutingKey != "orders" || d.Exchange != "" || d.Headers["user"] != "own" {
						w.Errorf("run %d is attempt %d, the last %t, of %q, %q, headers %v", runs, d.Attempt, d.LastAttempt, d.Exchange, d.RoutingKey, d.Headers)
					}
					return tt.handler(ctx, d)
				}, consumer.Config{HandlerTimeout: time.Minute})
				time.Sleep(15 * time.Minute) // the waits of the longest rule are 11
				if got := w.journal.of("m0"); !slices.Equal(got, tt.want) || runs != tt.runs {
					w.Errorf("settled %v in %d runs, want %v in %d", got, runs, tt.want, tt.runs)
				}
				w.truthful()
				if status, err := health(c); status != "healthy" {
					w.Errorf("%s: %v", status, err)
				}
				w.stopped(stop)
				if last := tt.want[len(tt.want)-1]; last.Disposition == consumer.DispositionDeadLetter {
					l := w.letter()
					text, _ := l.Headers[header.Error].(string)
					if !strings.Contains(text, tt.text) || l.Headers[header.ErrorType] != tt.kind || l.Headers[header.Cause] != string(last.Cause) {
						w.Errorf("the letter says %q, %q, %q; want %q, %q, %q", l.Headers[header.Cause], text, l.Headers[header.ErrorType], last.Cause, tt.text, tt.kind)
					}
				}
			})
		})
	}
}

func TestAHeldMessageSpendsNoAttemptAndOneSlot(t *testing.T) {
	onEachEngine(t, func(w *fixture) {
		w.publish(31)
		var outage atomic.Bool
		outage.Store(true)
		c, stop := w.start(func(_ context.Context, d *consumer.Delivery) error {
			if d.ID == "m0" && outage.Load() {
				return consumer.Hold(errBroken)
			}
			if d.Attempt != 1 {
				w.Errorf("%s: attempt %d", d.ID, d.Attempt)
			}
			return nil
		}, consumer.Config{Concurrency: 2})
		time.Sleep(10 * time.Minute)
		if done := w.journal.count(consumer.DispositionDone); done != 30 {
			w.Errorf("%d of 30 others are done", done)
		}
		w.has("orders", "m0")
		if status, err := health(c); status != "healthy" {
			w.Errorf("%s: %v", status, err)
		}
		outage.Store(false)
		time.Sleep(time.Minute)
		w.has("orders")
		w.truthful()
		w.stopped(stop)
	})
}

func TestAHeldMessageGoesBackBeforeTheBrokerTakesItAway(t *testing.T) {
	everywhere(t, func(w *fixture) {
		w.publish(1)
		_, stop := w.start(func(context.Context, *consumer.Delivery) error { return consumer.Hold(errBroken) }, consumer.Config{})
		time.Sleep(2 * time.Hour)
		if n := w.journal.count(consumer.DispositionRequeued); n < 7 || n > 9 {
			w.Errorf("given back %d times in two hours, want each quarter of an hour", n)
		}
		w.stopped(stop)
		w.has("orders", "m0")
		w.truthful()
	})
}

func TestWithoutAPlaceForLettersAMessageIsHeld(t *testing.T) {
	onEachEngine(t, func(w *fixture) {
		w.publish(1)
		var good atomic.Bool
		_, stop := w.startOn(topology.Route{Queue: "orders"}, func(_ context.Context, d *consumer.Delivery) error {
			if good.Load() {
				return nil
			}
			runtime.Goexit()
			return nil
		}, consumer.Config{})
		time.Sleep(10 * time.Second)
		w.has("orders", "m0")
		good.Store(true)
		time.Sleep(10 * time.Second)
		w.has("orders")
		w.stopped(stop)
	})
}

// A date that only a hand can have written does not send a message round and
// round.
func TestADateTooFarAheadDoesNotCount(t *testing.T) {
	on(t, "4.3", topology.Quorum, func(w *fixture) {
		w.publish(1, func(m *rehoptest.Message) {
			m.Exchange, m.RoutingKey = "orders.rehop.return", "orders@1"
			m.Headers = amqp.Table{
				header.Queue: "orders", header.Attempts: int64(1), "x-last-death-reason": "expired",
				header.NotBefore: time.Now().AddDate(100, 0, 0).UnixMilli(),
			}
		})
		_, stop := w.start(func(context.Context, *consumer.Delivery) error { return nil }, consumer.Config{})
		synctest.Wait()
		w.has("orders")
		w.stopped(stop)
	})
}

func TestMalformedHeadersCountAsAbsent(t *testing.T) {
	on(t, "4.3", topology.Classic, func(w *fixture) {
		w.publish(1, func(m *rehoptest.Message) { m.Headers = amqp.Table{header.Attempts: "many"} })
		var log lines
		_, stop := w.start(func(context.Context, *consumer.Delivery) error { return nil }, consumer.Config{Logger: log.logger()})
		synctest.Wait()
		w.has("orders")
		w.stopped(stop)
		if len(log.with("level=WARN", "malformed", "message=m0")) != 1 {
			w.Errorf("the log does not say so: %s", log.all)
		}
	})
}

func TestUnreadableHeadersAreDeadLettered(t *testing.T) {
	everywhere(t, func(w *fixture) {
		deep := amqp.Table{}
		for range 40 {
			deep = amqp.Table{"t": deep}
		}
		w.publish(1, func(m *rehoptest.Message) { m.Headers = deep })
		w.publish(20)
		_, stop := w.start(func(_ context.Context, d *consumer.Delivery) error {
			if d.ID == "m0" {
				w.Error("the handler gets a message whose headers are lost")
			}
			return nil
		}, consumer.Config{Concurrency: 4})
		time.Sleep(time.Minute)
		w.has("orders")
		w.has("orders.dlq", "m0")
		w.truthful()
		l := w.letter()
		if text, _ := l.Headers[header.Error].(string); l.Headers[header.Cause] != string(rehop.CauseUnreadable) || !strings.Contains(text, "cannot read the headers") || string(l.Body) != "body" {
			w.Errorf("the letter says %v, its body is %q", l.Headers, l.Body)
		}
		w.stopped(stop)
		// Sent back by hand it is a message like any other.
		var handled atomic.Bool
		w.publish(1, func(m *rehoptest.Message) { m.Headers = l.Headers; m.MessageId = "back" })
		_, stop = w.start(func(_ context.Context, d *consumer.Delivery) error {
			handled.Store(d.ID == "back" && d.Attempt == 1)
			return nil
		}, consumer.Config{})
		synctest.Wait()
		if !handled.Load() {
			w.Error("sent back it is not handled")
		}
		w.stopped(stop)
	})
}
