package faults

import (
	"fmt"
	"testing"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/integration/poll"
	"github.com/rehop/rehop/topology"
)

func burstQueue(column string, queueType topology.QueueType) topology.WorkQueue {
	return topology.WorkQueue{Name: "burst." + string(queueType), Type: queueType, Waits: waitsFor(column, queueType)}
}

// publishQueue is read only after the restart.
func publishQueue(queueType topology.QueueType) topology.WorkQueue {
	return topology.WorkQueue{Name: "publish." + string(queueType), Type: queueType}
}

// endingQueue has a wait after which a burst of messages comes back at once.
func endingQueue(queueType topology.QueueType) topology.WorkQueue {
	return topology.WorkQueue{Name: "ending." + string(queueType), Type: queueType,
		Waits: delay.Schedule{3 * time.Second, 300 * time.Millisecond}}
}

// The broker is killed, once, while everybody is at work:
//   - producers publish, and consumers fail message after message, so that
//     copies and nacks are on their way: nothing may be lost;
//   - producers publish to a queue that nobody reads: what was confirmed must be
//     there after the restart;
//   - messages come back from a wait queue. At-least-once dead-lettering loses
//     none. On classic queues and on 3.x that hop is unconfirmed, as the plan
//     says, so what a kill costs there is measured and not judged.
func TestBrokerKilled(t *testing.T) {
	const midst = 1500          // failures and publishes that precede the kill
	const waiting = int64(4000) // messages that come back during the kill
	for _, version := range ownVersions() {
		t.Run(version, func(t *testing.T) {
			n := nodeOf(t, version)
			n.aged(t)
			noLeaks(t)
			var failing, publishes, ending []*burst
			for _, queueType := range queueTypes {
				failing = append(failing, newBurst(t, n, burstQueue(n.column, queueType), connection.Config{}))
				publishes = append(publishes, newBurst(t, n, publishQueue(queueType), connection.Config{}))
				ending = append(ending, newBurst(t, n, endingQueue(queueType), connection.Config{}))
			}
			for _, b := range ending {
				b.startPublishing(t, waiting, false)
			}
			for _, b := range ending {
				b.publish.ended.Wait()
			}
			for _, b := range ending {
				b.startWork(t)
			}
			for _, b := range failing {
				b.startWork(t)
			}
			poll.Until(t, 60*time.Second, "the return of the first messages", func() bool {
				return ending[0].ledger.started(2) > 0 && ending[1].ledger.started(2) > 0
			})
			for _, b := range append(failing, publishes...) {
				b.startPublishing(t, 40_000, false)
			}
			poll.Until(t, 60*time.Second, "the midst of the bursts", func() bool {
				for i := range failing {
					if failing[i].ledger.failures() < midst || publishes[i].ledger.count() < midst {
						return false
					}
				}
				return true
			})
			must(t, "kill", n.Kill)
			killed := time.Now()
			for _, b := range failing {
				b.state = fmt.Sprintf("%d failures, %d copies unconfirmed", b.ledger.failures(), b.work.inFlight())
			}
			for _, b := range publishes {
				b.state = fmt.Sprintf("%d confirmed", b.ledger.count())
			}
			for _, b := range ending {
				b.state = fmt.Sprintf("%d of %d were back from the wait", b.ledger.started(2), waiting)
			}
			for _, b := range append(failing, publishes...) {
				b.publish.finish()
			}
			must(t, "start", n.Start)
			back := time.Now()
			t.Logf("the broker was away for %v", back.Sub(killed).Round(time.Millisecond))
			for _, b := range publishes {
				b.startWork(t) // each message fails once, into the dead-letter queue
			}
			for _, b := range failing {
				b.report(t, n, ruleBurst, b.end(t, back))
			}
			for _, b := range publishes {
				b.report(t, n, rulePublish, b.end(t, back))
			}
			for _, b := range ending {
				text := b.end(t, back)
				if onLadder(n.column, b.queueType) {
					b.report(t, n, ruleEnding, text)
					continue
				}
				t.Log(text)
				table.Note("measured, not promised: %s, %s %s: %d of %d messages lost; at the kill %s",
					ruleEnding, n.column, b.queueType, len(b.ledger.lost()), waiting, b.state)
			}
		})
	}
}
