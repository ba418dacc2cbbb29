package faults

import (
	"fmt"
	"slices"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/integration/account"
	"github.com/rehop/rehop/integration/nodes"
	"github.com/rehop/rehop/integration/poll"
	"github.com/rehop/rehop/integration/queues"
	"github.com/rehop/rehop/internal/route"
	"github.com/rehop/rehop/topology"
)

// part of a work queue's topology that is deleted while messages wait, missed
// for a while, and declared again.
//
// A deleted queue takes its content along. What else must follow, while the part
// is missing:
//
//	part                  by nack (quorum, 4.x)            by a copy (classic, 3.x)
//	dlx exchange          failures stay in the work queue  not used
//	delay exchange        failures go to the first wait    not used
//	first delay exchange  failures stay in the work queue  not used
//	spare delay exchange  not used by failures             not used
//	return exchange       ended waits stay in their queue  likewise
//	spare return exchange not used by failures             not used by failures
//	unrouted exchange     not used by failures             not used by failures
//	wait queue            first failures go to the DLQ     first failures are held
//	dead-letter queue     last failures are held           last failures are held
//	work queue            ended waits go to the DLQ        ended waits go to the DLQ
//
// What stays goes on when the part is back.
type part string

const (
	dlxExchange         part = "dlx exchange"
	delayExchange       part = "delay exchange"
	firstDelayExchange  part = "first delay exchange"
	spareDelayExchange  part = "spare delay exchange"
	returnExchange      part = "return exchange"
	spareReturnExchange part = "spare return exchange"
	unroutedExchange    part = "unrouted exchange"
	waitQueue           part = "wait queue"
	deadLetterQueue     part = "dead-letter queue"
	workQueue           part = "work queue"
)

var parts = []part{dlxExchange, delayExchange, firstDelayExchange, spareDelayExchange, returnExchange, spareReturnExchange, unroutedExchange, waitQueue, deadLetterQueue, workQueue}

func (p part) rule() string { return "deleted: " + string(p) }

// remove deletes the part and returns how many messages were in it.
func (p part) remove(ch *amqp.Channel, w topology.WorkQueue) (int, error) {
	switch p {
	case dlxExchange:
		return 0, ch.ExchangeDelete(w.Name+".rehop.dlx", false, false)
	case delayExchange:
		return 0, ch.ExchangeDelete(w.Name+".rehop.delay", false, false)
	case firstDelayExchange:
		return 0, ch.ExchangeDelete(w.Name+".rehop.delay.first", false, false)
	case spareDelayExchange:
		return 0, ch.ExchangeDelete(w.Name+".rehop.delay.spare", false, false)
	case returnExchange:
		return 0, ch.ExchangeDelete(w.Name+".rehop.return", false, false)
	case spareReturnExchange:
		return 0, ch.ExchangeDelete(w.Name+".rehop.return.spare", false, false)
	case unroutedExchange:
		return 0, ch.ExchangeDelete(w.Name+".rehop.unrouted", false, false)
	case waitQueue:
		return ch.QueueDelete(route.WaitQueue(w.Name, 1), false, false, false)
	case deadLetterQueue:
		return ch.QueueDelete(w.DeadLetterQueue().Name, false, false, false)
	}
	return ch.QueueDelete(w.Name, false, false, false)
}

func TestPartDeleted(t *testing.T) {
	for _, p := range parts {
		for _, version := range ownVersions() {
			for _, queueType := range queueTypes {
				t.Run(fmt.Sprintf("%s/%s %s", p, version, queueType), func(t *testing.T) {
					t.Parallel()
					n := pool.Of(t, version)
					table.Cell(t, p.rule(), n.Column, string(queueType))
					testPartDeleted(t, n, queueType, p)
				})
			}
		}
	}
}

func testPartDeleted(t *testing.T, n *nodes.Node, queueType topology.QueueType, p part) {
	const each = 6
	// All messages must be in their first wait when the part is deleted, many tests at a time.
	const first = 8 * time.Second
	const missing = first + time.Second
	conn := open(t, n, connection.Config{})
	w := topology.WorkQueue{
		Name:  fmt.Sprintf("deleted.%s.%s.%s", n.Column, queueType, p),
		Type:  queueType,
		Waits: delay.Schedule{first, 500 * time.Millisecond},
	}
	plan, err := topology.DeclarePlan(t.Context(), conn, w)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { deleteAll(t, conn, plan) })
	l := account.New(w.Name, w.Waits, 0)
	batch := func() (ids []string) {
		for _, messageType := range []string{typeOf(done, 3), exhausted, givesUp} {
			ids = append(ids, publish(t, conn, w, l, messageType, each)...)
		}
		return ids
	}

	var letters []string // in the dead-letter queue when it is deleted
	if p == deadLetterQueue {
		letters = publish(t, conn, w, l, typeOf(permanent, 1), each)
	}
	waiting := batch()
	s := startWork(t, conn, w, l, 10, p != deadLetterQueue)
	carried := n.Column == "3.10" // what waits is in hand there
	// A nack that was written has not yet brought its message to the wait.
	poll.Until(t, 30*time.Second, "all wait", func() bool {
		if carried {
			c := l.Counts()
			return c.Runs == len(waiting)+len(letters) && c.Unsettled == 0
		}
		inWait, err := queues.Ready(t.Context(), conn, route.WaitQueue(w.Name, 1))
		inLetters, err2 := queues.Ready(t.Context(), conn, w.DeadLetterQueue().Name)
		return err == nil && err2 == nil && inWait == len(waiting) && inLetters == len(letters)
	})
	var content int
	session, err := conn.Session(t.Context(), connection.Consume)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = session.Close() }() // nothing is in flight on it
	if err := session.Do(t.Context(), func(ch *amqp.Channel) (err error) {
		content, err = p.remove(ch, w)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if p != workQueue {
		batch() // fails for the first time without the part
	}
	<-time.After(missing) // how long the fault lasts
	if err := topology.Declare(t.Context(), conn, w); err != nil {
		t.Fatal(err)
	}
	if p == deadLetterQueue {
		s.read(t, w.DeadLetterQueue(), l.Letters)
	}
	after := batch()
	if err := s.settle(t.Context(), l, 2*first); err != nil {
		t.Error(err)
	}
	if err := s.stop(); err != nil {
		t.Error(err)
	}
	t.Logf("%s, %d of them in the deleted part", l, content)

	// What may be lost is exactly this.
	nacks := byNack(n.Column, queueType)
	var lost []string
	switch p {
	case waitQueue:
		lost = waiting
	case deadLetterQueue:
		lost = letters
	}
	slices.Sort(lost)
	got := l.Lost()
	slices.Sort(got)
	if !slices.Equal(got, lost) {
		t.Errorf("%d messages are lost: %s\nwant %d: %s", len(got), few(got), len(lost), few(lost))
	}
	if p == waitQueue && !carried || p == deadLetterQueue {
		if content != len(lost) {
			t.Errorf("the deleted queue held %d messages, want %d", content, len(lost))
		}
	}
	if err := l.CheckAttempts(); err != nil {
		t.Error(err)
	}
	// A nack is said to lead where the wiring does; nobody tells the consumer that
	// a part of it was deleted.
	if err := l.CheckSaid(); err != nil && (!nacks || p != delayExchange && p != waitQueue) {
		t.Error(err)
	}
	for _, ids := range [][]string{after[:each], after[each:]} {
		for _, id := range ids {
			want := account.Letter
			if ids[0] == after[0] {
				want = account.Handled
			}
			if s := l.Of(id); len(s.Ends) != 1 || s.Ends[0].Place != want {
				t.Errorf("all parts are back and message %s goes wrong, want it %v once: %s", id, want, s)
			}
		}
	}
}
