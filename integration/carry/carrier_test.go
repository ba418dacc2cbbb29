package carry

import (
	"testing"
	"time"

	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/integration/broker"
	"github.com/rehop/rehop/integration/poll"
)

// The process that carries is killed at each gap. What it had in hand comes back
// and is brought back by another one. Doubled is what was confirmed and not acked,
// and nothing else.
func TestCarrierKilled(t *testing.T) {
	const n = 40
	onEachVersion(t, func(t *testing.T, b *broker.Broker) {
		for _, g := range []gap{beforePublish, beforeConfirm, beforeAck} {
			for _, queueType := range queueTypes {
				t.Run(string(queueType)+"/"+string(g), func(t *testing.T) {
					t.Parallel()
					conn := open(t, b)
					w := declare(t, conn, queueType, 2*time.Second, time.Second)
					l := newLedger(w)
					l.publish(t, conn, w, n)
					p := startChild(t, task{URL: b.AMQPURL(), Queue: w, Gap: g}, l)
					select {
					case <-p.atGap:
					case <-time.After(2 * time.Minute):
						t.Fatal("the child did not reach the gap")
					}
					p.kill(t)
					consume(t, conn, w, l, consumer.Trace{})
					poll.Until(t, 2*time.Minute, "the end of all messages", func() bool { return l.done() == n })
					s := l.end(t, string(g))
					// A message that is published twice has attempts 2 and 3 twice; one that
					// was so in both waits, four times.
					least, most := 0, 0
					switch g {
					case beforeConfirm:
						most = 2 // it may not have left
					case beforeAck:
						least, most = 1, 4*n
					}
					if s.doubled < least || s.doubled > most {
						t.Errorf("%d runs doubled, want %d to %d", s.doubled, least, most)
					}
				})
			}
		}
	})
}

// Of two processes one carries each wait. When it is killed the other one goes on
// with what it held, and nothing waits for what is due later.
func TestTwoProcessesShare(t *testing.T) {
	const n = 1000
	onEachVersion(t, func(t *testing.T, b *broker.Broker) {
		for _, queueType := range queueTypes {
			t.Run(string(queueType), func(t *testing.T) {
				conn := open(t, b)
				w := declare(t, conn, queueType, 3*time.Second, 2*time.Second)
				l := newLedger(w)
				l.publish(t, conn, w, n)
				job := task{URL: b.AMQPURL(), Queue: w, Gap: nowhere}
				one, other := startChild(t, job, l), startChild(t, job, l)
				poll.Until(t, 2*time.Minute, "the failure of all first attempts", func() bool { return l.runsOf(1) >= n })
				poll.Until(t, 2*time.Minute, "some messages that are back", func() bool { return one.has()+other.has() > n/10 })
				// Each wait has its one carrier; kill that of the first one.
				if one.has() < other.has() {
					one, other = other, one
				}
				before := one.has()
				one.kill(t)
				poll.Until(t, 3*time.Minute, "the end of all messages", func() bool { return l.done() == n })
				s := l.end(t, "killed with its wait in hand")
				if other.has() < n/10 {
					t.Errorf("the other process has brought back %d messages", other.has())
				}
				t.Logf("%d messages were back when the first process was killed", before)
				if most := 2 * 256; s.doubled > 2*most {
					t.Errorf("%d runs doubled, more than the killed process can have had in hand", s.doubled)
				}
			})
		}
	})
}
