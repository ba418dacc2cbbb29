package faults

import (
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/integration/account"
	"github.com/rehop/rehop/integration/matrix"
	"github.com/rehop/rehop/integration/nodes"
	"github.com/rehop/rehop/topology"
)

// byNack reports whether the broker itself moves failures of such a queue.
func byNack(column string, queueType topology.QueueType) bool {
	return matrix.OnlyQuorum4(column, string(queueType)) == ""
}

// shortWaits end several times within a test.
var shortWaits = delay.Schedule{time.Second, 300 * time.Millisecond}

// burst is what one queue goes through around a fault.
type burst struct {
	queueType topology.QueueType
	queue     topology.WorkQueue
	account   *account.Account
	conn      *connection.Conn
	work      *work
	publish   *publishing
	quiet     time.Duration // if nothing moves for so long, nothing will
	state     string        // when the fault came
}

func newBurst(t *testing.T, n *nodes.Node, w topology.WorkQueue, cfg connection.Config) *burst {
	t.Helper()
	return &burst{queueType: w.Type, queue: w, account: account.New(w.Name, w.Waits, 0), conn: open(t, n, cfg),
		quiet: 8 * time.Second} // what the broker moves and nobody confirms it moves again after 3 s
}

func (b *burst) startWork(t *testing.T) {
	t.Helper()
	b.work = startWork(t, b.conn, b.queue, b.account, 100, true)
}

func (b *burst) startPublishing(t *testing.T, limit int64, paced bool) {
	t.Helper()
	b.publish = startPublishing(b.conn, b.queue, b.account, typeOf(done, 3), limit, paced)
	t.Cleanup(func() { _ = b.publish.stop() }) // again: the first call has told
}

// end waits for the last message and returns what became of all.
func (b *burst) end(t *testing.T, back time.Time) string {
	t.Helper()
	if err := b.publish.stop(); err != nil {
		t.Error(err)
	}
	if err := b.work.settle(t.Context(), b.account, b.quiet); err != nil {
		t.Error(err)
	}
	if err := b.work.stop(); err != nil {
		t.Error(err)
	}
	again, _ := b.account.RunAfter(back)
	return fmt.Sprintf("%s: %s. At the fault: %s. Next handler %v after the broker was back.",
		b.queue.Name, b.account, b.state, again.Round(time.Millisecond))
}

// report makes a cell of the table of what became of a queue's messages.
func (b *burst) report(t *testing.T, n *nodes.Node, rule, text string) {
	t.Run(fmt.Sprintf("%s, %s", rule, b.queueType), func(t *testing.T) {
		table.Cell(t, rule, n.Column, string(b.queueType))
		t.Log(text)
		if err := b.account.Verdict(); err != nil {
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
