package conformance

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/consumer"
)

// A dead-letter queue that refuses all but the first letters. A nack would lead
// to it by the broker's own way, which is confirmed on no classic queue and on
// none of 3.x.
func TestLettersThatAreRefusedAreHeld(t *testing.T) {
	everywhere(t, func(e *env) {
		const n, room = 30, 5
		w := e.workQueue("work")
		e.declare(w)
		dlq := w.DeadLetterQueue().Name
		e.deleteQueue(dlq)
		ch := e.channel()
		defer ch.Close()
		// Classic in every column: a quorum queue may take some more at first.
		if _, err := ch.QueueDeclare(dlq, true, false, false, false, amqp.Table{
			"x-queue-type": "classic", "x-max-length": int32(room), "x-overflow": "reject-publish"}); err != nil {
			e.Fatal(err)
		}
		ids := e.send(w.Name, n)
		j := newJournal(func(context.Context, *consumer.Delivery) error { return consumer.DeadLetter(errBroken) })
		// A copy that is not answered is sent again before the end of the test. A confirm that
		// a busy machine brings late is none of these: its letter would be there twice, and
		// take the room of another.
		var log lines
		r := e.consume(w, j, consumer.Config{Concurrency: 2 * n, CopyTimeout: 20 * time.Second, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		letters := func() (told int) {
			for _, id := range ids {
				if j.reached(id, consumer.DispositionDeadLetter) {
					told++
				}
			}
			return told
		}
		e.until("it is full", func() bool { return e.count(dlq) == room && letters() == room })
		var health *rehop.HealthError
		e.until("health is degraded", func() bool { return errors.As(r.Health(), &health) && health.Degraded })
		if !strings.Contains(health.Error(), dlq) {
			e.Errorf("health does not say where: %v", health)
		}
		<-time.After(5 * time.Second) // many times the pauses between tries
		if told, there := letters(), e.count(dlq); told != room || there != room {
			e.Errorf("%d told to be letters, %d there, want %d", told, there, room)
		}
		// Each of the others was tried several times, for one cause or two.
		if said := log.count("copy not confirmed"); said == 0 || said > 4 {
			e.Errorf("%d warnings of copies that are not confirmed, want 1 to 4", said)
		}
		var taken []string
		e.until("all letters have been taken out", func() bool {
			for _, d := range e.takeAll(ch, dlq) {
				taken = append(taken, d.MessageId)
			}
			return len(taken) >= n && letters() == n
		})
		slices.Sort(taken)
		slices.Sort(ids)
		if !slices.Equal(slices.Compact(taken), ids) {
			e.Errorf("%d letters, want each of %d", len(taken), n)
		}
		e.until("it is healthy again", func() bool { return r.Health() == nil })
		e.halt(r)
		if left := e.count(w.Name); left != 0 {
			e.Errorf("%d messages are left in the work queue", left)
		}
	}, "letters that the DLQ refuses are held", "repeated warnings are said once and counted")
}

// The delivery count of the held message passes half of the delivery limit, where the
// consumer becomes careful.
func TestAMessageHeldThroughLostConnectionsStopsNobody(t *testing.T) {
	everywhere(t, func(e *env) {
		const losses, others = 11, 60
		w := e.workQueue("work")
		e.declare(w)
		held := e.send(w.Name, 1)[0]
		p := e.startProxy()
		var began atomic.Int64 // the latest run of the held message
		var outage atomic.Bool
		outage.Store(true)
		j := newJournal(func(_ context.Context, d *consumer.Delivery) error {
			if d.ID == held && outage.Load() {
				began.Store(time.Now().UnixNano())
				return consumer.Hold(errBroken)
			}
			return nil
		})
		e.consumeOn(e.connect(p.url), w, j, consumer.Config{Concurrency: 16})
		for range losses {
			e.until("it is held", func() bool { return began.Load() > 0 })
			p.cut()
			after := time.Now().Add(100 * time.Millisecond).UnixNano() // no run of the lost session
			e.until("it came again", func() bool { return began.Load() > after })
		}
		ids := e.send(w.Name, others)
		done := func() (n int) {
			for _, id := range ids {
				if j.reached(id, consumer.DispositionDone) {
					n++
				}
			}
			return n
		}
		e.until("all others are done", func() bool { return done() == others })
		if j.reached(held, consumer.DispositionDone) {
			e.Error("the held message is done meanwhile")
		}
		outage.Store(false)
		e.until("the held message is done", func() bool { return j.reached(held, consumer.DispositionDone) })
		e.atRest(w, 0)
	}, "a message held through lost connections stops nobody")
}

// lines counts the lines of a log.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, string(p))
	return len(p), nil
}

func (l *lines) count(text string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.all {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}
