package faults

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/integration/account"
	"github.com/rehop/rehop/integration/nodes"
	"github.com/rehop/rehop/integration/poll"
	"github.com/rehop/rehop/topology"
)

// gap is the place between two steps of a consumer at which it is killed.
//
// What must follow, for a message in attempt n:
//
//	gap             handler runs of attempt n   places where it ends
//	                in the child   after it
//	beforeHandler   0              1            1
//	inHandler       1, cut off     1            1
//	afterHandler    1              1            1; a success has been handled twice
//	beforeConfirm   1              1            1, or 2 if the copy had arrived
//	beforeAck       1              1            2: the copy and the message itself
//
// The message comes back at attempt n, redelivered; a copy is attempt n+1, with
// the same id, or a second dead letter. A success ends at the first three gaps
// only, a failure under the engine nack too: it is nacked and not copied.
//
// Where consumers carry, the child may die as well between the confirm and the ack
// of a message that it has brought back from its wait: then attempt n runs, and
// ends, once more, not redelivered.
//
// An ack that was written may be lost with the socket too, on a machine so loaded
// that the broker has not read it a whole wait later. If it was that of attempt
// n-1, or of a message that was brought back for it, attempt n-1 runs once more, and
// so does attempt n after it. So each run of attempt n-1 after the kill accounts for
// one more run, and end, of attempt n.
type gap string

const (
	beforeHandler gap = "before the handler"
	inHandler     gap = "in the handler"
	afterHandler  gap = "after the handler, before settling"
	beforeConfirm gap = "between copy and confirm"
	beforeAck     gap = "between confirm and ack"

	// inBurst is wherever each of many messages is when it comes.
	inBurst gap = "in a burst of failures"
)

var gaps = []gap{beforeHandler, inHandler, afterHandler, beforeConfirm, beforeAck}

func (g gap) rule() string { return "consumer killed " + string(g) }

func (g gap) needsCopy() bool { return g == beforeConfirm || g == beforeAck }

// The attempts in which the child stops, so that the copies that it makes by
// then go to a dead-letter queue or to a wait that outlasts the child.
const (
	succeeds  = done + "@1"
	fails     = done + "@3" // fails twice; the child has it in attempt 2
	failsFor  = later + "@1"
	givesUp   = permanent + "@2"
	exhausted = fail + "@9"
)

// trigger returns the attempt in which the child stops with a message.
func trigger(messageType string) int {
	return map[string]int{succeeds: 1, fails: 2, failsFor: 1, givesUp: 2, exhausted: 3}[messageType]
}

func gapQueues(version string, queueType topology.QueueType, g gap) []topology.WorkQueue {
	name := fmt.Sprintf("%s.%s.%s", version, queueType, strings.NewReplacer(" ", "-", ",", "").Replace(string(g)))
	return []topology.WorkQueue{
		{Name: "gap." + name, Type: queueType, Waits: delay.Schedule{150 * time.Millisecond, 8 * time.Second}},
		{Name: "last." + name, Type: queueType, Waits: delay.Schedule{100 * time.Millisecond, 150 * time.Millisecond}},
	}
}

// queueOf returns the queue that a message was published to, by its id.
func queueOf(id string) string { return id[:strings.LastIndex(id, "/")] }

func TestConsumerKilled(t *testing.T) {
	for _, g := range gaps {
		for _, version := range versions {
			for _, queueType := range queueTypes {
				t.Run(fmt.Sprintf("%s/%s %s", g, version, queueType), func(t *testing.T) {
					t.Parallel()
					n := pool.Of(t, version)
					table.Cell(t, g.rule(), n.Column, string(queueType))
					testConsumerKilled(t, n, queueType, g)
				})
			}
		}
	}
}

func testConsumerKilled(t *testing.T, n *nodes.Node, queueType topology.QueueType, g gap) {
	const each = 5
	conn := open(t, n, connection.Config{})
	queues := gapQueues(n.Column, queueType, g)
	plan, err := topology.DeclarePlan(t.Context(), conn, queues[0], queues[1])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { deleteAll(t, conn, plan) })

	sent := map[string][]string{queues[0].Name: {fails, failsFor, givesUp}, queues[1].Name: {exhausted}}
	nacks, carried := plan.Engines[0].Engine == topology.EngineNack, plan.Engines[0].Engine == topology.EngineCarry
	if nacks && g.needsCopy() {
		sent[queues[0].Name] = []string{failsFor, givesUp}
	}
	if !g.needsCopy() {
		sent[queues[0].Name] = append(sent[queues[0].Name], succeeds)
	}
	accounts := map[string]*account.Account{}
	types := map[string]string{} // by id
	for _, w := range queues {
		accounts[w.Name] = account.New(w.Name, w.Waits, 0)
		for _, messageType := range sent[w.Name] {
			for _, id := range publish(t, conn, w, accounts[w.Name], messageType, each) {
				types[id] = messageType
			}
		}
	}

	// A place for each message at the gap and as many for copies that are back.
	job := task{URL: n.AMQPURL(), Queues: queues, Gap: g, Concurrency: 2 * len(types)}
	if _, err := runChildToGap(t, job, accounts, len(types)); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()

	var works []*work
	for _, w := range queues {
		works = append(works, startWork(t, conn, w, accounts[w.Name], 20, true))
	}
	var summary string
	for i, w := range queues {
		l, s := accounts[w.Name], works[i]
		if err := s.settle(t.Context(), l, 20*time.Second); err != nil {
			t.Error(err)
		}
		// A second copy in the hand of a carrier, or of the broker, is in no count.
		longest := slices.Max(w.Waits)
		poll.Until(t, time.Minute, "nothing waits any more", func() bool { return l.Quiet() > longest+2*time.Second })
		if err := s.stop(); err != nil {
			t.Error(err)
		}
		if err := l.Verdict(); err != nil {
			t.Error(err)
		}
		var errs []error
		for _, id := range l.IDs() {
			if err := afterKill(l.Of(id), types[id], g, carried); err != nil {
				errs = append(errs, fmt.Errorf("message %s (%s): %w\n\t%s", id, types[id], err, l.Of(id)))
			}
		}
		if len(errs) > 3 {
			errs = append(errs[:3], fmt.Errorf("and %d faults more", len(errs)-3))
		}
		if err := errors.Join(errs...); err != nil {
			t.Error(err)
		}
		again, _ := l.RunAfter(killed)
		summary += fmt.Sprintf("%s: %s, next handler %v after the kill\n", w.Name, l, again.Round(time.Millisecond))
	}
	t.Log(summary)
}

// afterKill returns what is wrong with the end of a message that was at gap g.
func afterKill(s account.Story, messageType string, g gap, carried bool) error {
	at := trigger(messageType)
	var child, parent, next, redelivered, earlier int
	for _, r := range s.Runs {
		switch {
		case r.Attempt == at && r.By == inChild:
			child++
		case r.Attempt == at:
			parent++
			if r.Redelivered {
				redelivered++
			}
		case r.Attempt == at-1 && r.By != inChild:
			earlier++
		case r.Attempt > at && r.By == inChild:
			return fmt.Errorf("attempt %d ran in the child", r.Attempt)
		case r.Attempt > at:
			next++
		}
	}
	wantChild, least, most := 1, 1, 1
	switch {
	case g == beforeHandler:
		wantChild = 0
	case g == beforeConfirm:
		most = 2
	case g == beforeAck, g == afterHandler && messageType == succeeds:
		least, most = 2, 2
	}
	var errs []error
	if child != wantChild {
		errs = append(errs, fmt.Errorf("attempt %d ran %d times in the child, want %d", at, child, wantChild))
	}
	mostEarlier := 1
	if carried && at > 2 {
		mostEarlier++
	}
	if earlier > mostEarlier {
		errs = append(errs, fmt.Errorf("attempt %d ran %d times after the kill, want %d at most", at-1, earlier, mostEarlier))
	}
	parent -= earlier
	least += earlier
	most += earlier
	if carried && at > 1 && parent == 2 {
		parent--
		least++
		most++
	}
	if parent != 1 || redelivered != 1 {
		errs = append(errs, fmt.Errorf("attempt %d ran %d times after the kill, %d of them marked as redelivered, want one that is", at, parent, redelivered))
	}
	places := len(s.Ends)
	if places < least || places > most {
		errs = append(errs, fmt.Errorf("it ended in %d places, want %d to %d", places, least, most))
	}
	cause := map[string]rehop.Cause{givesUp: rehop.CausePermanent, exhausted: rehop.CauseExhausted}[messageType]
	if cause == "" {
		if ended(s, account.Letter) {
			errs = append(errs, errors.New("it is a dead letter"))
		}
		if messageType != succeeds && next != places {
			errs = append(errs, fmt.Errorf("attempt %d ran %d times, want once for each of %d copies", at+1, next, places))
		}
	} else if ended(s, account.Handled) {
		errs = append(errs, errors.New("it was handled"))
	}
	for _, e := range s.Ends {
		if e.Place == account.Letter && (e.Cause != cause || e.Attempt != at) {
			errs = append(errs, fmt.Errorf("letter says %q after %d attempts, want %q after %d", e.Cause, e.Attempt, cause, at))
		}
	}
	return errors.Join(errs...)
}

func ended(s account.Story, p account.Place) bool {
	return slices.ContainsFunc(s.Ends, func(e account.End) bool { return e.Place == p })
}

// Copies are on their way then, and acks that go out together.
func TestConsumerKilledInABurst(t *testing.T) {
	const messages, midst = 1500, 500
	for _, version := range versions {
		for _, queueType := range queueTypes {
			t.Run(fmt.Sprintf("%s %s", version, queueType), func(t *testing.T) {
				t.Parallel()
				n := pool.Of(t, version)
				w := topology.WorkQueue{Name: fmt.Sprintf("killed.burst.%s.%s", n.Column, queueType), Type: queueType,
					Waits: delay.Schedule{300 * time.Millisecond, 150 * time.Millisecond}}
				b := newBurst(t, n, w, connection.Config{})
				plan, err := topology.DeclarePlan(t.Context(), b.conn, w)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { deleteAll(t, b.conn, plan) })
				b.startPublishing(t, messages, false)
				b.publish.ended.Wait()
				job := task{URL: n.AMQPURL(), Queues: []topology.WorkQueue{w}, Gap: inBurst, Concurrency: 100}
				if _, err := runChildToGap(t, job, map[string]*account.Account{w.Name: b.account}, midst); err != nil {
					t.Fatal(err)
				}
				killed := time.Now()
				b.state = fmt.Sprintf("%d failures", b.account.Counts().Failures)
				b.startWork(t)
				b.report(t, n, inBurst.rule(), b.end(t, killed))
			})
		}
	}
}
