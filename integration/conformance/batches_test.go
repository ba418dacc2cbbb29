package conformance

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/producer"
)

func TestBatchesHaveAnOutcomeForEachMessage(t *testing.T) {
	onEveryEngine(t, func(e *env) {
		w := e.workQueue("work")
		e.declare(w)
		j := newJournal(func(_ context.Context, d *consumer.Delivery) error {
			switch {
			case d.Type == "permanent":
				return consumer.DeadLetter(errBroken)
			case d.Type == "fails", d.Type == "fails once" && d.Attempt == 1:
				return errBroken
			case d.Type == "put off" && d.History.Snoozes == 0:
				return consumer.Snooze(time.Millisecond, "not its turn")
			}
			return nil
		})
		const each, size = 20, 30
		types := map[string]string{}
		var messages []producer.Message
		for range each {
			for _, kind := range []string{"done", "permanent", "fails", "fails once", "put off"} {
				messages = append(messages, producer.Message{RoutingKey: w.Name, Type: kind})
			}
		}
		for i, id := range e.publishAll(messages) {
			types[id] = messages[i].Type
		}
		var mu sync.Mutex
		most := 0
		e.consumeBatches(w, j, func(ctx context.Context, batch []*consumer.Delivery) error {
			mu.Lock()
			most = max(most, len(batch))
			mu.Unlock()
			for _, d := range batch {
				if d.Fail(j.handle(ctx, d)); d.LastAttempt && d.Attempt > 1 && len(batch) > 1 {
					e.Errorf("message %q has its last attempt in a batch of %d", d.ID, len(batch))
				}
			}
			return nil
		}, consumer.Batch{Size: size, Linger: 500 * time.Millisecond}, consumer.Config{Concurrency: 2}) // a busy machine brings 30 messages late
		ended := func(id string) bool {
			return j.reached(id, consumer.DispositionDone) || j.reached(id, consumer.DispositionDeadLetter)
		}
		e.until("all have ended", func() bool {
			for id := range types {
				if !ended(id) {
					return false
				}
			}
			return true
		})
		all := []int{}
		for n := range len(w.Waits) + 1 {
			all = append(all, n+1)
		}
		for id, kind := range types {
			want := map[string][]int{"done": {1}, "permanent": {1}, "fails": all, "fails once": {1, 2}, "put off": {1, 1}}[kind]
			if got := j.attempts(id); !slices.Equal(got, want) {
				e.Errorf("message %q, which is %s, was handled as attempts %v, want %v", id, kind, got, want)
			}
		}
		if most <= size/2 || most > size {
			e.Errorf("the largest batch was of %d, want some that are nearly %d", most, size)
		}
		for _, letter := range e.take(w.DeadLetterQueue().Name, 2*each) {
			want := rehop.CauseExhausted
			if types[letter.MessageId] == "permanent" {
				want = rehop.CausePermanent
			}
			if h := e.parse(letter); h.Failure.Cause != want {
				e.Errorf("letter %q, which is %s, says %q, want %q", letter.MessageId, types[letter.MessageId], h.Failure.Cause, want)
			}
		}
		e.atRest(w, 0)
	}, "batches: each message has its outcome")
}

func TestBatchesAreSplit(t *testing.T) {
	onEveryEngine(t, func(e *env) {
		w := e.workQueue("work")
		e.declare(w)
		const messages = 100
		batch := make([]producer.Message, messages)
		for i := range batch {
			batch[i].RoutingKey = w.Name
		}
		batch[37].Type = "bad"
		bad := e.publishAll(batch)[37]
		j := newJournal(nil)
		var mu sync.Mutex
		calls, tries := 0, map[string]int{}
		e.consumeBatches(w, j, func(_ context.Context, batch []*consumer.Delivery) error {
			mu.Lock()
			defer mu.Unlock()
			calls++
			for _, d := range batch {
				tries[d.ID] = max(tries[d.ID], d.Attempt)
			}
			if slices.ContainsFunc(batch, func(d *consumer.Delivery) bool { return d.Type == "bad" }) {
				return errBroken
			}
			return nil
		}, consumer.Batch{Size: messages, Linger: time.Second}, consumer.Config{})
		e.until("all have ended", func() bool {
			return j.reached(bad, consumer.DispositionDeadLetter) && len(j.settlements("")) >= messages+len(w.Waits)
		})
		mu.Lock()
		defer mu.Unlock()
		for id, attempt := range tries {
			if id != bad && attempt > 1 {
				e.Errorf("message %q had %d attempts, want 1: another one was at fault", id, attempt)
			}
		}
		if most := 15 + len(w.Waits) + 10; calls > most {
			e.Errorf("%d calls of the handler, want %d at most", calls, most)
		}
		if h := e.parse(e.letter(w)); h.Failure.Cause != rehop.CauseExhausted || h.FinalAttempts != len(w.Waits)+1 {
			e.Errorf("the letter says %q after %d attempts", h.Failure.Cause, h.FinalAttempts)
		}
		e.atRest(w, 0)
	}, "batches: only the message at fault fails")
}
