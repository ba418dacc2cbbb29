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
//	                      +------------+   Hold, Snooze, a lost session, a stop: attempt n again
//
// What must be true of it:
//
//	promise   Safe is a message of which a call of Publish returned nil.
//	lost      A safe message ends: handled, as a letter, or with a queue that was
//	          deleted while it was in it.
//	attempts  They are 1, 2, 3. Attempt n+1 begins after a failure of attempt n,
//	          and not before the wait that the failing process has for it, nor
//	          before its RetryAfter, has passed. Where the way to that wait was deleted, the
//	          schedule of another process may say how long the message waits. A delivery that the network kept
//	          may begin late, when the broker has given the message to another.
//	late      What is left of a session that is lost is given to no handler, but for a
//	          moment: it belongs to the broker again.
//	refused   A note for a shelf, a queue with little room, is there when Publish has
//	          returned nil for it.
//	clocks    A process whose clock is wrong, by months even, makes a wait longer by that
//	          wait at most. Shorter, by no more than clocks differ, becomes only what
//	          is carried, and what a RetryAfter has left after the longest wait.
//	beside    A message that has the key of a wait beside its own is refused, or goes its
//	          way like any other.
//	lanes     A process whose lanes have changed can neither declare nor consume them,
//	          and its consumer is unhealthy. A ticket for a lane ends once.
//	put off   A message that was put off comes back as the same attempt, and not before
//	          its time; beside a fault the message itself may come back before its copy.
//	keys      In one process no more messages of a key are handled at a time than
//	          Config.KeyLimit, but for handlers whose ctx has ended. With a limit of 1
//	          no other message of a key is handled between the attempts of one delivery,
//	          in place or held. Where nothing breaks, those of a key are handled in their
//	          order if many come at once to an idle queue, if they are held at a stop, and
//	          if they fail and their attempts are in place.
//	turns     With a KeyLimit of 1 and RetryInPlace, in one process or in several that share shards, no message begins to
//	          be handled before those of its key that were published to its queue before it are handled or given up, nor
//	          while another process handles one. Two things are let pass: a letter is overtaken, and so is a message
//	          that comes back twice to a queue that sends one at a time after returns. A process that is
//	          cut off from its broker may not know yet that its messages are another's.
//	shards    A message comes from the shard that its key had for its publisher, also while processes know
//	          different numbers of shards. Some time after the faults each shard is handled by one process,
//	          and, if all know the same number, none handles two shards more than another.
//	pauses    No message begins to be handled in a pause, but for a moment.
//	letters   "exhausted" counts at least the attempts that the schedule of a process
//	          allows. "permanent" follows a DeadLetter. "crash-loop" follows as many
//	          interruptions as the delivery limit. A message that ends each process whose
//	          handler gets it takes no other along, on a quorum queue, in order or not, of its queue, of another shard or
//	          of another lane. "expired" and
//	          "rejected" come only
//	          where a queue was deleted: an exchange that is missing, or is put back,
//	          makes no letter. There are no others.
//	stuck     A message that the broker cannot hand over ends the socket at each delivery. It takes no other of its queue
//	          along, and handlers get the messages of the other queues of its process meanwhile. A quorum queue makes
//	          it a letter, "crash-loop"; from a classic one it comes when it can be handed over.
//	doubled   A message ends once, unless a fault, or a caller who published it
//	          again, lies between its first publish and its last end. A stop doubles
//	          nothing but the work of handlers that do not heed it.
//	receipts  Where the broker gets a message more often than Publish was called, less
//	          the calls whose error is not ErrUnconfirmed, a receipt says MaybeDuplicate.
//	          A message whose Delay leads nowhere fails alone.
//	fallback  With a sink at hand that takes every message no call fails, however short
//	          its deadline is. Without a fault no message goes there. A sink on
//	          the Producer's own Conn is not asked for messages that cannot reach
//	          their broker, however it is wrapped.
//	said      What Trace.Settled says is where the message is seen afterwards, and
//	          every delivery that was received is settled. One whose channel was lost
//	          before its handler returned is in its queue. A message that was nacked
//	          while a part of the topology was deleted may be a letter, "rejected",
//	          where it was said to wait: a nack has no confirm.
//
// What must be true of the service:
//
//	calls     Publish returns within its ctx, or Config.Timeout, and that once more
//	          for the fallback. Run returns within DrainTimeout, Shutdown within its
//	          ctx, its calls soon after, and Close at once. PublishAsync returns
//	          only while the window has room for its message.
//	dials     A process dials its broker less than 80 times in any 10 s, or 120 if it shares shards.
//	parts     An exchange that is missing is put back by the consumers.
//	hooks     Hooks that panic, and specifications that are pointers, change nothing.
//	progress  Once the faults have ended, callers succeed, messages end and consumers
//	          are healthy within a bound: the waits that are left, the time that
//	          handlers take, and 45 minutes.
//	metrics   At every moment, received is settled plus in hand, and no gauge is below
//	          zero. In the end receipts and runs of handlers are as many as
//	          the hooks say, and nothing is in hand, held or unconfirmed.
//	memory    What a scenario has needed is free after it.
//	quiet     Then no queue holds anything, and after a stop every goroutine ends.
//
// A broker that is killed loses what RabbitMQ was seen to lose at worst
// (rehoptest.Broker.Kill), under every engine that is meant to survive that. The
// engine republish on a broker of 3.x is not, and meets no restart here, nor the
// deletion of an exchange that its waits lead to.
//
// # One kind of scenario
//
// Some kinds of scenarios are rare among the random ones, and have names, see kinds: rush,
// hold, late, late in place, share, in place, in place in order, crash, crash in order, crash apart, shards, stop, stuck. Only those of one kind run
// with
//
//	go test -tags rehopsim -timeout 0 -v -run TestSim -kind "in place" -for 10m -violations 5
//
// A seed means another scenario with -kind than without. So a failure that was found with
// -kind is run again with the same -kind and its -seed.
package sim
