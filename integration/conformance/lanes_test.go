package conformance

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
)

// orderPrefetch is how many messages of native priorities are with their consumer,
// and how many are in handlers where several are.
const orderPrefetch = 10

// orderWait is long enough for all attempts before the first message is back.
const orderWait = 30 * time.Second

// ordered is a source of messages whose more important ones go first.
type ordered struct {
	topology.Source
	queues   []topology.WorkQueue
	letters  string                   // their dead-letter queue
	to       producer.Message         // Exchange and Key
	class    func(priority uint8) int // the highest has the largest
	prefetch int                      // of each queue
}

func (e *env) lanes() ordered {
	l := topology.Lanes{
		Name: e.name("sms"), Type: e.queue, Waits: delay.Schedule{orderWait}, OneDeadLetterQueue: true,
		Lanes: []topology.Lane{{Name: "vip"}, {Name: "normal"}, {Name: "bulk"}},
	}
	e.declare(l)
	all := l.WorkQueues()
	return ordered{Source: l, queues: all, letters: all[0].DeadLetterQueue().Name, to: producer.Message{Exchange: l.Exchange()},
		prefetch: 50, // far more than are handled
		class: func(priority uint8) int {
			switch {
			case priority > 4:
				return 3
			case priority > 2 || priority == 0:
				return 2
			}
			return 1
		}}
}

func (e *env) nativePriorities() ordered {
	w := e.workQueue("work", native, waits(orderWait))
	e.declare(w)
	return ordered{Source: w, queues: []topology.WorkQueue{w}, letters: w.DeadLetterQueue().Name, to: producer.Message{Key: w.Name},
		prefetch: orderPrefetch, // a larger one defeats them
		class:    func(priority uint8) int { return int(priority) }}
}

// ready returns how many messages the work queues have for consumers.
func (e *env) ready(o ordered) (n int) {
	for _, w := range o.queues {
		n += e.count(w.Name)
	}
	return n
}

// checkOrder checks that a message is handled before all lower ones, but for those
// that the consumer had already.
func (e *env) checkOrder(when string, o ordered, runs []entry, want int) {
	e.Helper()
	if len(runs) != want {
		e.Errorf("%s: %d messages are handled, want %d", when, len(runs), want)
	}
	lower := map[int]int{} // by class: how many of lower ones were begun
	worst, missed := 0, ""
	for place, run := range runs {
		class := o.class(run.Priority)
		if lower[class] > worst {
			worst, missed = lower[class], fmt.Sprintf("the message of priority %d at place %d", run.Priority, place+1)
		}
		for c := class + 1; c <= topology.MaxPriority; c++ {
			lower[c]++
		}
	}
	if worst > orderPrefetch {
		e.Errorf("%s: %d lower messages are ahead of %s, want at most %d", when, worst, missed, orderPrefetch)
	}
}

func attempt(runs []entry, n int) (of []entry) {
	for _, run := range runs {
		if run.Attempt == n {
			of = append(of, run)
		}
	}
	return of
}

// testOrder has 1,000 messages handled, or 400 on the broker in the process, that are published in no order of their
// priorities: as they come, when all are back from a wait, and when all that were
// dead letters are published again.
//
// There is one handler: of several that run at a time, which began first cannot be
// told. The order is that of handlers which succeed. A lane holds up the lower ones for a
// second and no longer when its copies are not confirmed, as on a slow disk.
func testOrder(e *env, o ordered) {
	messages := 1000
	if e.node.process != nil {
		messages = 400 // the tests of package consumer have more, in virtual time
	}
	random := rand.New(rand.NewPCG(1, 2))
	all := make([]producer.Message, messages)
	for i := range all {
		all[i] = o.to
		all[i].Priority = uint8(random.IntN(topology.MaxPriority) + 1)
	}
	send := func() {
		e.Helper()
		if _, err := e.producer.PublishAll(e.Context(), all); err != nil {
			e.Fatal(err)
		}
		e.until("all are in the queues", func() bool { return e.ready(o) == messages })
	}
	var runs atomic.Int32
	consume := func(does func(d *consumer.Delivery) error) (*journal, *running) {
		runs.Store(0)
		j := newJournal(func(_ context.Context, d *consumer.Delivery) error {
			defer runs.Add(1)
			return does(d)
		})
		return j, e.consume(o, j, consumer.Config{Concurrency: 1, Prefetch: o.prefetch})
	}
	handledAre := func(n int) func() bool { return func() bool { return int(runs.Load()) == n } }
	succeeds := func(*consumer.Delivery) error { return nil }

	send()
	j, r := consume(succeeds)
	e.until("all are handled", handledAre(messages))
	e.halt(r)
	e.checkOrder("as they come", o, j.of(""), messages)

	send()
	allBack := make(chan struct{})
	open := sync.OnceFunc(func() { close(allBack) })
	j, r = consume(func(d *consumer.Delivery) error {
		if d.Attempt == 1 {
			return errBroken
		}
		<-allBack
		return nil
	})
	e.Cleanup(open)
	e.until("all have failed once", handledAre(messages))
	e.until("all are back from their wait", func() bool { return e.ready(o) == messages-o.prefetch*len(o.queues) })
	open()
	e.until("all are handled", handledAre(2*messages))
	e.halt(r)
	e.checkOrder("after a wait", o, attempt(j.of(""), 2), messages)

	send()
	_, r = consume(func(*consumer.Delivery) error { return consumer.DeadLetter(errBroken) })
	e.until("all are dead letters", func() bool { return e.count(o.letters) == messages })
	e.halt(r)
	for i, d := range e.take(o.letters, messages) {
		all[i] = producer.FromDelivery(d)
	}
	send()
	j, r = consume(succeeds)
	e.until("all are handled", handledAre(messages))
	e.halt(r)
	e.checkOrder("after they were dead letters", o, j.of(""), messages)
}

func TestOrderOfLanes(t *testing.T) {
	everywhere(t, func(e *env) { testOrder(e, e.lanes()) }, "lanes: the order of 1,000, before and after waits and dead letters")
}

func TestOrderOfNativePriorities(t *testing.T) {
	everywhere(t, func(e *env) { testOrder(e, e.nativePriorities()) }, "priority: the order of 1,000, before and after waits and dead letters")
}

func TestArrivalInAHigherLane(t *testing.T) {
	everywhere(t, func(e *env) {
		o := e.lanes()
		vip := o.queues[0].Name
		for _, w := range o.queues[1:] {
			e.send(w.Name, 150)
		}
		release, starts := make(chan struct{}), make(chan string, 301)
		open := sync.OnceFunc(func() { close(release) })
		j := newJournal(func(_ context.Context, d *consumer.Delivery) error {
			starts <- d.ID
			<-release
			return nil
		})
		e.consume(o, j, consumer.Config{Concurrency: orderPrefetch, Prefetch: o.prefetch})
		e.Cleanup(open)
		for range orderPrefetch {
			<-starts
		}
		id := e.publish(producer.Message{Key: vip})
		e.until("the message is sent to the consumer", func() bool { return e.count(vip) == 0 })
		// One handler after the other ends, slowly: the message may still be on its way.
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		ahead := 0
		for ; ahead <= orderPrefetch; ahead++ {
			<-tick.C
			release <- struct{}{}
			if <-starts == id {
				break
			}
		}
		if ahead > orderPrefetch {
			e.Errorf("%d lower messages are ahead of it, want at most %d", ahead, orderPrefetch)
		}
		open()
		e.until("all are handled", func() bool { return len(j.settlements("")) == 301 })
	}, "lanes: one that arrives goes ahead of all that wait")
}
