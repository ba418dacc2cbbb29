package conformance

import (
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/consumer"
)

// A program with a loop of its own, after the first wait was changed: the wait has a queue
// beside the one of the earlier schedule.
func TestSettlerAfterAChangedWait(t *testing.T) {
	everywhere(t, func(e *env) {
		w := e.workQueue("work", waits(400*time.Millisecond, 300*time.Millisecond))
		earlier := w
		earlier.Waits = []time.Duration{20 * time.Second, 300 * time.Millisecond}
		e.declare(earlier)
		plan := e.declare(w)
		s, err := consumer.NewSettler(e.conn, w, consumer.SettlerConfig{Logger: e.log()})
		if err != nil {
			e.Fatal(err)
		}
		defer func() { e.noError("close the settler", s.Close()) }()
		ch := e.channel()
		defer ch.Close()
		id := e.send(w.Name, 1)[0]
		next := func() (d amqp.Delivery) {
			e.until("the message is in the work queue", func() (ok bool) {
				var err error
				if d, ok, err = ch.Get(w.Name, false); err != nil {
					e.Fatal(err)
				}
				return ok
			})
			return d
		}
		d := next()
		for attempt := 1; ; attempt++ {
			if got := s.Delivery(d).Attempt; got != attempt {
				e.Errorf("attempt %d is said to be number %d", attempt, got)
			}
			want := consumer.Settlement{Disposition: consumer.DispositionDeadLetter, Cause: rehop.CauseExhausted}
			if attempt <= len(w.Waits) {
				want = consumer.Settlement{Disposition: consumer.DispositionWait, WaitNumber: attempt, Wait: w.Waits[attempt-1]}
			}
			settled := time.Now()
			got, err := s.Settle(e.Context(), d, errBroken)
			if err != nil || got != want {
				e.Fatalf("attempt %d: %v, %v; want %v", attempt, got, err, want)
			}
			if attempt > len(w.Waits) {
				break
			}
			if e.version == "3.10" { // only a Consumer ends waits without a TTL
				if queue := plan.Engines[0].Waits[0]; e.count(queue) != 1 {
					e.Errorf("the message is not in %s", queue)
				}
				return
			}
			d = next()
			e.checkWait(e.T, id, attempt+1, time.Since(settled), w.Waits[attempt-1])
		}
		e.until("it is a dead letter", func() bool { return e.count(w.DeadLetterQueue().Name) == 1 })
	}, "settler: after a changed wait")
}
