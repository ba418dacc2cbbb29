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

// orderWait is long enough for all first attempts, many at a time, before the
// first message is back.
const orderWait = 8 * time.Second

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
	return ordered{Source: w, queues: []topology.WorkQueue{w}, letters: w.DeadLetterQueue().Name, to: producer.Message{RoutingKey: w.Name},
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

// laneHold is how long lower lanes wait at least for a message of a higher one that may
// be on its way, before the consumer asks its queue whether it has any.
const laneHold = 50 * time.Millisecond

// checkOrder checks that a message is handled before all lower ones, but for those
// that the consumer had already, and those that it took because a higher lane had sent
// nothing for laneHold, as on a busy machine. A lane that was silent for so long holds up
// no lower one until it has its prefetch again, so each such pause between two messages
// lets two prefetches of lower ones go ahead. since is when the consumer was started.
func (e *env) checkOrder(when string, o ordered, since time.Time, runs []entry, want int) {
	e.Helper()
	if len(runs) != want {
		e.Errorf("%s: %d messages are handled, want %d", when, len(runs), want)
	}
	lower := map[int]int{} // by class: how many of lower ones were begun
	worst, missed := 0, ""
	late := -1 // the class that went on without the higher ones, until one of these comes
	pauses := 0
	for place, run := range runs {
		class := o.class(run.Priority)
		if run.began.Sub(since) >= laneHold {
			e.Logf("%s: nothing came for %v before place %d", when, run.began.Sub(since), place+1)
			late = class
			if place > 0 {
				pauses++
			}
		}
		since = run.ended
		if late >= 0 && class > late {
			late = -1
			clear(lower)
		}
		if ahead := lower[class] - 2*o.prefetch*pauses; ahead > worst {
			worst, missed = ahead, fmt.Sprintf("the message of priority %d at place %d", run.Priority, place+1)
		}
		for c := class + 1; c <= 9; c++ {
			lower[c]++
		}
	}
	if worst > orderPrefetch {
		e.Errorf("%s: %d lower messages are ahead of %s, want at most %d", when, worst, missed, orderPrefetch)
	}
}

// testOrder has 1,000 messages handled that are published in no order of their
// priorities: as they come, when all are back from a wait, and when all that were
// dead letters are published again. The tests of package consumer have more, in virtual
// time.
//
// There is one handler where the order counts: of several that run at a time, which began first cannot be
// told. The order is that of handlers which succeed. A lane holds up the lower ones for a
// second and no longer when its copies are not confirmed, as on a slow disk.
func testOrder(e *env, o ordered) {
	const messages = 1000
	random := rand.New(rand.NewPCG(1, 2))
	all := make([]producer.Message, messages)
	for i := range all {
		all[i] = o.to
		all[i].Priority = uint8(random.IntN(9) + 1)
	}
	send := func() {
		e.Helper()
		if _, err := e.producer.PublishAll(e.Context(), all); err != nil {
			e.Fatal(err)
		}
		e.until("all are in the queues", func() bool { return e.ready(o) == messages })
	}
	var runs atomic.Int32
	consume := func(cfg consumer.Config, does consumer.Handler) (*journal, *running) {
		runs.Store(0)
		j := newJournal(func(ctx context.Context, d *consumer.Delivery) error {
			defer runs.Add(1)
			return does(ctx, d)
		})
		return j, e.consume(o, j, cfg)
	}
	inOrder, inAnyOrder := consumer.Config{Concurrency: 1, Prefetch: o.prefetch}, consumer.Config{Concurrency: messages, Prefetch: messages}
	handledAre := func(n int) func() bool { return func() bool { return int(runs.Load()) == n } }
	succeeds := func(context.Context, *consumer.Delivery) error { return nil }

	send()
	began := time.Now()
	j, r := consume(inOrder, succeeds)
	e.until("all are handled", handledAre(messages))
	e.halt(r)
	e.checkOrder("as they come", o, began, j.of(""), messages)

	send()
	var failed atomic.Int32
	_, r = consume(inAnyOrder, func(ctx context.Context, d *consumer.Delivery) error {
		if d.Attempt > 1 {
			// It is back before all others have failed, as on a busy machine. There is a slot
			// for each message, so it keeps nobody waiting; sent away, it would come first by
			// its priority, again and again.
			<-ctx.Done()
			return consumer.Hold(ctx.Err())
		}
		failed.Add(1)
		return errBroken
	})
	e.until("all have failed once", func() bool { return int(failed.Load()) == messages })
	e.halt(r)
	allBack := make(chan struct{})
	open := sync.OnceFunc(func() { close(allBack) })
	j, r = consume(inOrder, func(context.Context, *consumer.Delivery) error { // under the engine carry it brings them back, too
		<-allBack
		return nil
	})
	e.Cleanup(open)
	back, since := 0, time.Now()
	e.until("all are back from their wait", func() bool { // but for those in hand
		if n := e.ready(o); n != back {
			back, since = n, time.Now()
		}
		return back >= messages-2*o.prefetch*len(o.queues) && time.Since(since) > 2*time.Second
	})
	began = time.Now()
	open()
	e.until("all are handled", handledAre(messages))
	e.halt(r)
	e.checkOrder("after a wait", o, began, j.of(""), messages)

	send()
	_, r = consume(inAnyOrder, func(context.Context, *consumer.Delivery) error { return consumer.DeadLetter(errBroken) })
	e.until("all are dead letters", func() bool { return e.count(o.letters) == messages })
	e.halt(r)
	for i, d := range e.take(o.letters, messages) {
		all[i] = producer.FromDelivery(d)
	}
	send()
	began = time.Now()
	j, r = consume(inOrder, succeeds)
	e.until("all are handled", handledAre(messages))
	e.halt(r)
	e.checkOrder("after they were dead letters", o, began, j.of(""), messages)
}

func TestOrderOfLanes(t *testing.T) {
	onEveryEngine(t, func(e *env) { testOrder(e, e.lanes()) }, "lanes: the order of 1,000, before and after waits and dead letters")
}

func TestOrderOfNativePriorities(t *testing.T) {
	everywhere(t, func(e *env) { testOrder(e, e.nativePriorities()) }, "priority: the order of 1,000, before and after waits and dead letters")
}

func TestArrivalInAHigherLane(t *testing.T) {
	onEveryEngine(t, func(e *env) {
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
		id := e.publish(producer.Message{RoutingKey: vip})
		e.until("the message is sent to the consumer", func() bool { return e.count(vip) == 0 })
		// One handler after the other ends, slowly: the message may still be on its way,
		// for most of a second on a busy machine.
		tick := time.NewTicker(300 * time.Millisecond)
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
		e.until("all are handled", func() bool { return j.done() == 301 })
	}, "lanes: one that arrives goes ahead of all that wait")
}
