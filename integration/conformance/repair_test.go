package conformance

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/internal/route"
	"github.com/rehop/rehop/topology"
)

// cycles is how often a part is deleted and put back.
const cycles = 20

// Exchanges of a work queue are deleted by hand again and again, while messages come
// out of their waits and fail, and each time Declare puts them back: no message with
// attempts left becomes a letter.
func TestADeclarationThatRepairsMakesNoLetters(t *testing.T) {
	everywhere(t, func(e *env) {
		w := e.workQueue("work", waits(200*time.Millisecond, 100*time.Millisecond, 150*time.Millisecond))
		e.declare(w)
		var done atomic.Int64
		j := newJournal(func(_ context.Context, d *consumer.Delivery) error {
			if !d.LastAttempt {
				return errBroken
			}
			done.Add(1)
			return nil
		})
		c := e.consume(w, j, consumer.Config{Concurrency: 50})
		e.until("it consumes", func() bool { return c.Health() == nil }) // it begins with a look at all parts
		sent := 0
		exchanges := []string{".return", ".dlx", ".return", ".delay", ".delay.first", ".return.spare", ".delay.spare"}
		for cycle := range cycles {
			e.repair(w, exchanges[cycle%len(exchanges)], func() { sent += len(e.send(w.Name, 30)) })
		}
		e.until("all were handled", func() bool { return int(done.Load()) >= sent })
		if n := e.count(w.DeadLetterQueue().Name); n > 0 {
			e.Errorf("%d of %d messages are letters, with attempts left", n, sent)
		}
	}, "declare again: a repair makes no letters")
}

// The same by the engine republish, whose waits the broker ends on every version. What
// 3.x moves while the exchange is missing is lost, and is not counted here.
func TestADeclarationThatRepairsMakesNoLettersByRepublish(t *testing.T) {
	everywhere(t, func(e *env) {
		w := e.workQueue("work", waits(100*time.Millisecond), func(w *topology.WorkQueue) { w.Engine = topology.EngineRepublish })
		e.declare(w)
		sent := 0
		for range cycles {
			e.repair(w, ".return", func() {
				messages := make([]amqp.Publishing, 40)
				for i := range messages {
					messages[i].MessageId = fmt.Sprint(sent)
					sent++
				}
				e.rawPublish("", route.WaitQueue(w.Name, 1), messages...) // one after the other, so that waits end in every gap
			})
		}
		e.until("all have left the wait", func() bool { return e.count(route.WaitQueue(w.Name, 1)) == 0 })
		if n := e.count(w.DeadLetterQueue().Name); n > 0 {
			e.Errorf("%d of %d messages are letters, with attempts left", n, sent)
		}
		if n := e.count(w.Name); n == 0 {
			e.Errorf("none of %d messages is back", sent)
		} else {
			e.Logf("%d of %d messages are back", n, sent)
		}
	}, "declare again: a repair makes no letters")
}

// repair deletes an exchange of a work queue by hand and has Declare put it back, while
// messages are published: they end their waits before, after and in between.
func (e *env) repair(w topology.WorkQueue, exchange string, publish func()) {
	e.Helper()
	publish()
	ch := e.channel()
	if err := ch.ExchangeDelete(w.Name+".rehop"+exchange, false, false); err != nil {
		e.Fatal(err)
	}
	_ = ch.Close()
	publish()
	if err := topology.Declare(e.Context(), e.conn, w); err != nil {
		e.Fatal(err)
	}
	publish()
}
