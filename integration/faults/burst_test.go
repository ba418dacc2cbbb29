package faults

import (
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/integration/matrix"
	"github.com/rehop/rehop/topology"
)

// onLadder reports whether failures of such a queue climb the ladder, and are
// moved by the broker at-least-once, waits that end included.
func onLadder(column string, queueType topology.QueueType) bool {
	return matrix.OnlyQuorum4(column, string(queueType)) == ""
}

// shortWaits end several times within a test, endless ones never: while a
// broker goes down and comes up it must not move messages out of wait queues
// where nobody confirms that hop (classic queues, 3.x). What a message finds
// there is read from the wait queue itself.
var shortWaits = delay.Schedule{time.Second, 300 * time.Millisecond}

var endlessWaits = delay.Schedule{24 * time.Hour, 24 * time.Hour}

func waitsFor(column string, queueType topology.QueueType) delay.Schedule {
	if onLadder(column, queueType) {
		return shortWaits
	}
	return endlessWaits
}

// burst is what one queue goes through around a fault.
type burst struct {
	queueType topology.QueueType
	queue     topology.WorkQueue
	ledger    *ledger
	conn      *connection.Conn
	work      *work
	publish   *publishing
	quiet     time.Duration // if nothing moves for so long, nothing will
	state     string        // when the fault came
}

func newBurst(t *testing.T, n *node, w topology.WorkQueue, cfg connection.Config) *burst {
	t.Helper()
	b := &burst{queueType: w.Type, queue: w, ledger: newLedger(w.Waits), conn: open(t, n, cfg), quiet: 4 * time.Second}
	if onLadder(n.column, w.Type) {
		b.quiet = 8 * time.Second // what was not confirmed is sent again after 3 s
	}
	return b
}

func (b *burst) startWork(t *testing.T) {
	t.Helper()
	b.work = startWork(t, b.conn, b.queue, b.ledger, 100, true)
}

func (b *burst) startPublishing(t *testing.T, limit int64, paced bool) {
	t.Helper()
	b.publish = startPublishing(b.conn, b.queue, b.ledger, typeOf(done, 3), limit, paced)
	t.Cleanup(func() { _ = b.publish.stop() }) // again: the first call has told
}

// end waits for the last message and returns what became of all.
func (b *burst) end(t *testing.T, back time.Time) string {
	t.Helper()
	if err := b.publish.stop(); err != nil {
		t.Error(err)
	}
	if len(b.queue.Waits) > 0 && b.queue.Waits[0] == endlessWaits[0] {
		b.work.readWait(t, b.ledger)
	}
	if err := b.work.settle(t.Context(), b.ledger, b.quiet); err != nil {
		t.Error(err)
	}
	if err := b.work.stop(); err != nil {
		t.Error(err)
	}
	again, _ := b.ledger.firstAfter(back)
	return fmt.Sprintf("%s: %s. At the fault: %s. Next handler %v after the broker was back.",
		b.queue.Name, b.ledger, b.state, again.Round(time.Millisecond))
}

// report makes a cell of the table of what became of a queue's messages.
func (b *burst) report(t *testing.T, n *node, rule, text string) {
	t.Run(fmt.Sprintf("%s, %s", rule, b.queueType), func(t *testing.T) {
		table.Cell(t, rule, n.column, string(b.queueType))
		t.Log(text)
		if lost := b.ledger.lost(); len(lost) > 0 {
			t.Errorf("lost: %s", few(lost))
		}
		if err := b.ledger.check(); err != nil {
			t.Error(err)
		}
	})
}

// noLeaks fails the test if goroutines that it started are left at its end. Not
// meant is the one that waits for a broker without Docker, of which each start
// makes a new one; TestMain finds those that outlive the broker.
func noLeaks(t *testing.T) {
	before := goleak.IgnoreCurrent()
	waiting := goleak.IgnoreAnyFunction("github.com/rehop/rehop/integration/broker.startChild.func1")
	t.Cleanup(func() {
		if err := goleak.Find(before, waiting); err != nil {
			t.Error(err)
		}
	})
}
