package consumer_test

import (
	"context"
	"testing"
	"time"

	"github.com/rehop/rehop/consumer"
)

// An exchange is deleted, and the session of the consumer is lost before it looks for
// its parts: its next session puts the exchange back.
func TestANewSessionPutsBackAnExchangeThatSomebodyHasDeleted(t *testing.T) {
	for _, exchange := range []string{"orders.rehop.return", "orders.rehop.dlx", "orders.rehop.delay.first", "orders.rehop.unrouted"} {
		everywhere(t, func(w *fixture) {
			log := new(lines)
			c, stop := w.start(func(context.Context, *consumer.Delivery) error { return nil }, consumer.Config{Logger: log.logger()})
			time.Sleep(time.Second)
			found := w.broker.DeleteExchange(exchange)
			w.broker.Cut("")
			time.Sleep(20 * time.Second)
			if err := c.Health(); err != nil {
				w.Errorf("without %s: Health = %v after 20 s", exchange, err)
			}
			w.publish(1)
			time.Sleep(time.Second)
			w.stopped(stop)
			if got := w.journal.of(id(0)); len(got) != 1 || got[0].Disposition != consumer.DispositionDone {
				w.Errorf("without %s: %v, want it handled", exchange, got)
			}
			if found && len(log.with("were put back", exchange)) == 0 {
				w.Errorf("without %s the log does not say that it was put back: %s", exchange, log.all)
			}
		})
	}
}

// An exchange of the work queue is deleted while messages wait and fail. Nobody
// declares it again: the consumer puts it back, says so, and no message is a letter
// or stays behind.
func TestAConsumerPutsBackAnExchangeThatSomebodyHasDeleted(t *testing.T) {
	for _, exchange := range []string{"orders.rehop.return", "orders.rehop.return.spare", "orders.rehop.dlx", "orders.rehop.delay", "orders.rehop.delay.first", "orders.rehop.delay.spare"} {
		everywhere(t, func(w *fixture) {
			log := new(lines)
			_, stop := w.start(func(_ context.Context, d *consumer.Delivery) error {
				if !d.LastAttempt {
					return errBroken
				}
				return nil
			}, consumer.Config{Logger: log.logger()})
			w.publish(3)
			time.Sleep(30 * time.Second) // they wait for the second attempt
			if !w.broker.DeleteExchange(exchange) {
				w.stopped(stop)
				return // it is not in this wiring
			}
			w.publish(3)
			time.Sleep(20 * time.Minute)
			w.stopped(stop)
			w.has("orders.dlq")
			for n := range w.sent {
				if got := w.journal.of(id(n)); len(got) == 0 || got[len(got)-1].Disposition != consumer.DispositionDone {
					w.Errorf("without %s, message %d: %v, want it handled in the end", exchange, n, got)
				}
			}
			if len(log.with("were put back", exchange)) == 0 {
				w.Errorf("without %s the log does not say that it was put back: %s", exchange, log.all)
			}
		})
	}
}
