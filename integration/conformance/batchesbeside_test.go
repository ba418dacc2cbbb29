package conformance

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/integration/matrix"
	"github.com/rehop/rehop/producer"
)

// batchRules are those of batches beside another feature of a consumer.
var batchRules = []matrix.Rule{
	{Name: "batches: keys are one at a time, in the order of the queue, while batches are split", Except: matrix.OncePerEngine},
	{Name: "batches: each is of one lane, and a higher lane goes first", Except: matrix.OncePerEngine},
	{Name: "batches: an outage spends no attempt, and the others take the work"},
}

// TestBatchesKeepTheOrderOfKeys has some batches fail together, so that the consumer
// splits them, and one message that fails alone for ever.
func TestBatchesKeepTheOrderOfKeys(t *testing.T) {
	onEveryEngine(t, func(e *env) {
		w := e.workQueue("work")
		e.declare(w)
		const messages, keys, size = 300, 30, 10
		all := make([]producer.Message, messages)
		for i := range all {
			all[i] = producer.Message{RoutingKey: w.Name, OrderKey: fmt.Sprint(i % keys), ID: fmt.Sprintf("%s-%03d", e.prefix, i)}
		}
		all[137].Type = "bad"
		bad := e.publishAll(all)[137]
		j := newJournal(succeed)
		var mu sync.Mutex
		inHand, largest, failed := map[string]string{}, 0, 0
		e.consumeBatches(w, j, func(ctx context.Context, batch []*consumer.Delivery) error {
			mu.Lock()
			for _, d := range batch {
				if other := inHand[d.OrderKey]; other != "" {
					e.Errorf("messages %q and %q of key %s are handled at a time", other, d.ID, d.OrderKey)
				}
				inHand[d.OrderKey] = d.ID
			}
			largest = max(largest, len(batch))
			mu.Unlock()
			defer func() {
				mu.Lock()
				defer mu.Unlock()
				for _, d := range batch {
					delete(inHand, d.OrderKey)
				}
			}()
			<-time.After(5 * time.Millisecond)
			if slices.ContainsFunc(batch, func(d *consumer.Delivery) bool { return d.Type == "bad" }) {
				mu.Lock()
				defer mu.Unlock()
				failed++
				return errBroken
			}
			for _, d := range batch {
				if err := j.handle(ctx, d); err != nil {
					return err
				}
			}
			return nil
		}, consumer.Batch{Size: size, Linger: 500 * time.Millisecond}, consumer.Config{Concurrency: 4, KeyLimit: 1})
		e.until("all are done, and the bad one is a letter", func() bool {
			return len(j.of("")) >= messages-1 && j.reached(bad, consumer.DispositionDeadLetter)
		})
		last := map[string]string{}
		for _, run := range j.of("") {
			if last[run.OrderKey] >= run.ID {
				e.Errorf("message %q of key %s was handled after %q", run.ID, run.OrderKey, last[run.OrderKey])
			}
			last[run.OrderKey] = run.ID
			if run.Attempt != 1 {
				e.Errorf("message %q was handled as attempt %d, want 1: another one was at fault", run.ID, run.Attempt)
			}
		}
		mu.Lock()
		defer mu.Unlock()
		if largest < 2 || largest > size {
			e.Errorf("the largest batch was of %d, want 2 to %d", largest, size)
		}
		if failed <= len(w.Waits)+1 {
			e.Errorf("%d runs have failed, want more than the %d attempts of the bad message: its batch was not split", failed, len(w.Waits)+1)
		}
		if h := e.parse(e.letter(w)); h.Failure.Cause != rehop.CauseExhausted {
			e.Errorf("the letter says %q, want exhausted", h.Failure.Cause)
		}
		e.atRest(w, 0)
	}, "batches: keys are one at a time, in the order of the queue, while batches are split")
}

func TestBatchesOfLanes(t *testing.T) {
	onEveryEngine(t, func(e *env) {
		o := e.lanes()
		const each, size = 60, 10
		var messages []producer.Message
		for n := range each {
			for i, w := range o.queues {
				messages = append(messages, producer.Message{RoutingKey: w.Name, ID: fmt.Sprintf("%s-%d-%03d", e.prefix, i, n), Priority: []uint8{9, 4, 1}[i]})
			}
		}
		e.publishAll(messages)
		var mu sync.Mutex
		var begun []string         // the lane's queue of each batch, in their order
		var pauses []time.Duration // before each
		var last time.Time
		sizes := 0
		gate := make(chan struct{})
		open := sync.OnceFunc(func() { close(gate) })
		e.Cleanup(open)
		j := newJournal(nil)
		e.consumeBatches(o, j, func(_ context.Context, batch []*consumer.Delivery) error {
			mu.Lock()
			begun, pauses = append(begun, batch[0].Queue), append(pauses, time.Since(last))
			defer func() {
				mu.Lock()
				defer mu.Unlock()
				last = time.Now()
			}()
			sizes = max(sizes, len(batch))
			first := len(begun) == 1
			mu.Unlock()
			for _, d := range batch {
				if d.Queue != batch[0].Queue {
					e.Errorf("a batch has messages of %q and of %q", batch[0].Queue, d.Queue)
				}
			}
			if first { // all lanes have sent ahead before the next batch is chosen
				<-gate
			}
			return nil
		}, consumer.Batch{Size: size}, consumer.Config{Concurrency: 1, Prefetch: each})
		e.until("all are sent ahead", func() bool { return e.ready(o) == 0 })
		<-time.After(laneHold) // until they are with the consumer
		open()
		e.until("all are done", func() bool { return j.done() >= len(o.queues)*each })
		mu.Lock()
		defer mu.Unlock()
		if sizes < 2 || sizes > size {
			e.Errorf("the largest batch was of %d, want 2 to %d", sizes, size)
		}
		// The first batch may be of any lane, whose messages were the first to come. A lane
		// that sends nothing for laneHold, as on a busy machine, holds up no lower one until
		// it sends again.
		ahead, silent := 0, false
		highest := o.queues[0].Name
		for i, queue := range begun[1:] {
			silent = queue != highest && (silent || pauses[i+1] >= laneHold)
			if queue != highest && slices.Contains(begun[i+2:], highest) && !silent {
				ahead++
			}
		}
		if ahead > 2 {
			e.Errorf("%d batches of lower lanes went ahead of the highest, want hardly any: %v", ahead, begun)
		}
	}, "batches: each is of one lane, and a higher lane goes first")
}

func TestOutageWithBatches(t *testing.T) {
	everywhere(t, func(e *env) {
		w := e.workQueue("work")
		e.declare(w)
		var away atomic.Bool
		away.Store(true)
		does := func(j *journal) consumer.BatchHandler {
			return func(ctx context.Context, batch []*consumer.Delivery) error {
				for _, d := range batch {
					d.Fail(j.handle(ctx, d))
				}
				return nil
			}
		}
		broken := newJournal(func(context.Context, *consumer.Delivery) error {
			if away.Load() {
				return consumer.Hold(errBroken)
			}
			return nil
		})
		const messages, size = 200, 10
		each, cfg := consumer.Batch{Size: size, Linger: 20 * time.Millisecond}, consumer.Config{Concurrency: 2, Outage: consumer.Outage{MaxPause: time.Second}}
		e.send(w.Name, messages)
		c := e.consumeBatches(w, broken, does(broken), each, cfg)
		e.until("there is an outage", func() bool { return strings.Contains(fmt.Sprint(c.Health()), "outage") })
		good := newJournal(succeed)
		other := e.consumeBatches(w, good, does(good), each, cfg)
		most := cfg.Concurrency*size + 1 // in the batches that are held, and the one that is tried
		e.until("the other consumer has taken the work", func() bool { return good.done() >= messages-most })
		e.halt(other)
		e.send(w.Name, messages)
		away.Store(false)
		e.until("all are done", func() bool { return good.done()+broken.done() >= 2*messages })
		e.until("it is healthy", func() bool { return c.Health() == nil })
		for _, run := range append(broken.of(""), good.of("")...) {
			if run.Attempt != 1 {
				e.Errorf("message %q was handled as attempt %d, want 1: an outage spends none", run.ID, run.Attempt)
			}
		}
		if n := e.count(w.DeadLetterQueue().Name); n > 0 {
			e.Errorf("%d dead letters, want none", n)
		}
		e.atRest(w, 0)
	}, "batches: an outage spends no attempt, and the others take the work")
}
