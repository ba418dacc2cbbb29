package faults

import (
	"fmt"
	"testing"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/integration/nodes"
	"github.com/rehop/rehop/integration/poll"
	"github.com/rehop/rehop/topology"
)

func burstQueue(queueType topology.QueueType) topology.WorkQueue {
	return topology.WorkQueue{Name: "burst." + string(queueType), Type: queueType, Waits: shortWaits}
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
//   - messages come back from a wait queue.
func TestBrokerKilled(t *testing.T) {
	const midst = 1500          // failures and publishes that precede the kill
	const waiting = int64(4000) // messages that come back during the kill
	for _, version := range ownVersions() {
		t.Run(version, func(t *testing.T) {
			n := pool.Of(t, version)
			n.Aged(t)
			noLeaks(t)
			var failing, publishes, ending []*burst
			for _, queueType := range queueTypes {
				failing = append(failing, newBurst(t, n, burstQueue(queueType), connection.Config{}))
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
				return ending[0].account.Begun(2) > 0 && ending[1].account.Begun(2) > 0
			})
			for _, b := range append(failing, publishes...) {
				b.startPublishing(t, 40_000, false)
			}
			poll.Until(t, 60*time.Second, "the midst of the bursts", func() bool {
				for i := range failing {
					if failing[i].account.Counts().Failures < midst || publishes[i].account.Counts().Safe < midst {
						return false
					}
				}
				return true
			})
			nodes.Must(t, "kill", n.Kill)
			killed := time.Now()
			for _, b := range failing {
				b.state = fmt.Sprintf("%d failures, %d copies unconfirmed", b.account.Counts().Failures, b.work.inFlight())
			}
			for _, b := range publishes {
				b.state = fmt.Sprintf("%d confirmed", b.account.Counts().Safe)
			}
			for _, b := range ending {
				b.state = fmt.Sprintf("%d of %d were back from the wait", b.account.Begun(2), waiting)
			}
			for _, b := range append(failing, publishes...) {
				b.publish.finish()
			}
			nodes.Must(t, "start", n.Start)
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
				b.report(t, n, ruleEnding, b.end(t, back))
			}
		})
	}
}
