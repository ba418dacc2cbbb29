// Package sim runs rehop through years of faults in minutes: random services on
// the broker of package rehoptest, in bubbles of testing/synctest, with random
// faults at random moments. Everything in a scenario follows from its seed. What
// the scheduler of Go chooses does not, so a seed may have to run several times to
// fail again.
//
// # The model
//
// A message is published by calls of Publish, handled in attempts, and ends. What
// may happen to it:
//
//	published ------> work queue -> attempt n -> nil, Discard --> handled
//	    |                 ^            |
//	    v                 |            +-> failed, n <= waits --> a wait, then attempt n+1
//	 fallback             |            +-> failed, n > waits ---> letter "exhausted", n
//	 (forwarded later)    |            +-> DeadLetter ----------> letter "permanent", n
//	                      +------------+   Requeue, a lost session, a stop: attempt n again
//
// What must be true of it:
//
//	promise   Safe is a message of which a call of Publish returned nil.
//	lost      A safe message ends: handled, as a letter, or with a queue that was
//	          deleted while it was in it.
//	attempts  They are 1, 2, 3. Attempt n+1 begins after a failure of attempt n,
//	          and not before the wait that the failing process has for it, nor
//	          before its RetryAfter, has passed. A delivery that the network kept
//	          may begin late, when the broker has given the message to another.
//	letters   "exhausted" counts at least the attempts that the schedule of a process
//	          allows. "permanent" follows a DeadLetter. "crash-loop" follows as many
//	          interruptions as the delivery limit. "expired" comes only where a part
//	          of the topology was deleted. There are no others.
//	doubled   A message ends once, unless a fault, a stop, or a caller who published
//	          it again lies between its first publish and its last end.
//	receipts  Where the broker gets a message more often than Publish was called, less
//	          the calls whose error is not ErrUnconfirmed, a receipt says MaybeDuplicate.
//	said      What Trace.Settled says is where the message is seen afterwards, and
//	          every delivery that was received is settled. One whose session was lost
//	          before its handler returned is in its queue. A message that was nacked
//	          while a part of the topology was deleted may be a letter, "rejected",
//	          where it was said to wait: a nack has no confirm.
//
// What must be true of the service:
//
//	calls     Publish returns within its ctx, or Config.Timeout, or with a fallback
//	          that takes everything within FallbackAfter. Run returns within
//	          DrainTimeout, and Close at once.
//	progress  Once the faults have ended, callers succeed, messages end and consumers
//	          are healthy within a bound: the waits that are left, the time that
//	          handlers take, and 45 minutes.
//	memory    What a scenario has needed is free after it.
//	quiet     Then no queue holds anything, and after a stop every goroutine ends.
//
// A broker that is killed loses what RabbitMQ was seen to lose at worst
// (rehoptest.LoseMost), under every engine that is meant to survive that. The
// engine republish on a broker of 3.x is not, and meets no restart here, nor the
// deletion of an exchange that its waits lead to.
package sim
