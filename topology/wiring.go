package topology

import (
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/delay"
)

// Binding arguments of the headers exchanges. all-with-x is what looks at
// headers that begin with "x-"; x-last-death-reason exists from 3.13 on.
var (
	matchAny = amqp.Table{"x-match": "all"}
	matchRej = amqp.Table{"x-match": "all-with-x", "x-last-death-reason": "rejected"}
	matchExp = amqp.Table{"x-match": "all-with-x", "x-last-death-reason": "expired"}
)

// wiring returns the bindings between the parts of w in the order in which
// they must change. Whatever form the bindings had before, no message is lost
// or doubled at any step: an exchange in between either matches nothing, then
// its alternate leads on, or leads to the same queue twice, which delivers
// once. Removals cover every earlier length of the schedule.
func (w WorkQueue) wiring(engine Engine) []PlannedBinding {
	dlq := w.DeadLetterQueue().Name
	rejectedToLadder := PlannedBinding{Exchange: w.deadExchange(), ToExchange: w.ladderExchange(), Args: matchRej}
	rejectedToFirst := PlannedBinding{Exchange: w.retryExchange(), Queue: w.WaitQueue(1), Args: matchRej}
	expiredToWork := PlannedBinding{Exchange: w.retryExchange(), Queue: w.Name, Args: matchExp}
	anyToWork := PlannedBinding{Exchange: w.retryExchange(), Queue: w.Name, Args: matchAny}

	steps := []PlannedBinding{{Exchange: w.restExchange(), Queue: dlq}}
	if engine == Ladder && len(w.Waits) > 0 {
		steps = append(steps, w.rungs()...)
		return append(steps, expiredToWork, anyToWork.removed(), rejectedToFirst, rejectedToLadder)
	}
	steps = append(steps, rejectedToLadder.removed(), anyToWork, expiredToWork.removed(), rejectedToFirst.removed())
	return append(steps, w.rungs()...)
}

// rungs returns the bindings of the ladder exchange: the key with which a
// message left wait k leads to wait k+1, the last one to the dead-letter
// queue. What a schedule of another length left is removed first: a message
// that fails in between finds no key and starts again at wait 1.
func (w WorkQueue) rungs() []PlannedBinding {
	dlq := w.DeadLetterQueue().Name
	n := len(w.Waits)
	step := func(rung int, queue string) PlannedBinding {
		return PlannedBinding{Exchange: w.ladderExchange(), Key: w.rungKey(rung), Queue: queue}
	}
	var remove, bind []PlannedBinding
	for rung := 1; rung <= delay.MaxWaits; rung++ {
		if rung < n {
			bind = append(bind, step(rung, w.WaitQueue(rung+1)))
		} else if rung < delay.MaxWaits {
			remove = append(remove, step(rung, w.WaitQueue(rung+1)).removed())
		}
		if rung == n {
			bind = append(bind, step(rung, dlq))
		} else {
			remove = append(remove, step(rung, dlq).removed())
		}
	}
	return append(remove, bind...)
}
