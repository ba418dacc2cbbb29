package topology

import (
	"fmt"

	"github.com/rehop/rehop/connection"
)

// QueueType is the x-queue-type of a queue. The zero value is [Quorum].
type QueueType string

// The queue types that a work queue can have.
const (
	Quorum  QueueType = "quorum"  // replicated; at-least-once dead-lettering since 4.0
	Classic QueueType = "classic" // one node, dead letters unconfirmed by the broker
)

func (t QueueType) orDefault() QueueType {
	if t == "" {
		return Quorum
	}
	return t
}

func (t QueueType) validate(field string) error {
	switch t.orDefault() {
	case Quorum, Classic:
		return nil
	}
	return fmt.Errorf("topology: %s is %q, want %q or %q", field, string(t), Quorum, Classic)
}

// Engine is how a message that failed reaches its wait queue and comes back.
type Engine uint8

// The engines. The zero value lets the plan choose.
const (
	// Auto chooses Carry on a broker of 3.x. On broker 4.0 or later it chooses
	// Ladder for a quorum queue, Republish for a classic or Existing queue, and,
	// up to 4.2, Carry for a classic queue with PriorityNative. Where the wait
	// queues exist in the form of another engine, that engine stays in use.
	Auto Engine = iota

	// Ladder leaves both hops to the broker. The consumer nacks, and the broker
	// moves the message at-least-once, with body, headers and properties
	// untouched. It works only on quorum queues of broker 4.0 or later.
	Ladder

	// Republish sends a copy to the wait queue, waits for its confirm, and acks.
	// The broker returns the copy when its TTL ends. It works on every broker and
	// queue type, but a broker of 3.x returns messages without a confirm, so that
	// a restart can lose messages that wait.
	Republish

	// Carry sends a copy to a wait queue without a TTL, waits for its confirm,
	// and acks. The consumers of the work queue publish it back when it is due,
	// confirmed. It works on every broker and queue type, and leaves no hop
	// unconfirmed. One process at a time holds up to 256 messages of each wait in
	// memory, and some 16 MiB of their bodies. While no process consumes the work
	// queue, nothing comes back.
	Carry
)

func (e Engine) String() string {
	switch e {
	case Auto:
		return "auto"
	case Ladder:
		return "ladder"
	case Republish:
		return "republish"
	case Carry:
		return "carry"
	}
	return fmt.Sprintf("Engine(%d)", uint8(e))
}

// atLeastOnce reports whether the quorum queues of a broker dead-letter with
// the strategy at-least-once: from 4.0 on. Measured: 3.10.8 accepts the
// strategy and then stops moving dead letters under load.
func atLeastOnce(v connection.Version) bool { return v.AtLeast(4, 0) }

// form is what kind of wait queues a work queue has. One work queue has one
// kind: that of its first wait.
type form uint8

const (
	unknown form = iota // none was found yet: what the engine wants
	timed               // with a TTL, after which the broker moves the message
	carried             // without: the consumers move it
)

// existing is what was found of a work queue.
type existing struct {
	form form // of its wait queues
	old  bool // the work queue has the arguments of a 3.x broker
}

// engineFor returns the engine for a work queue on a broker, and why. What
// exists there decides before what is asked for.
func engineFor(w WorkQueue, v connection.Version, have existing) (engine Engine, why string, err error) {
	var noLadder string
	switch {
	case w.Existing:
		noLadder = "the queue is declared by others (Existing)"
	case w.Type.orDefault() == Classic:
		noLadder = "a classic queue's dead letters are not confirmed by the broker"
	case !atLeastOnce(v):
		noLadder = fmt.Sprintf("broker %s cannot dead-letter at-least-once reliably, 4.0 and later can", v)
	case have.old:
		noLadder = fmt.Sprintf("queue %q has the arguments of a 3.x broker", w.Name)
	case have.form == carried:
		noLadder = fmt.Sprintf("queue %q exists without a TTL, in the form of the engine carry", w.WaitQueue(1))
	}
	if w.Engine == Ladder && noLadder != "" {
		return 0, "", fmt.Errorf("topology: %sEngine is ladder, which is refused here: %s; leave Engine at auto, or set republish or carry", w.owner(), noLadder)
	}
	switch wanted, why := preferred(w, v, noLadder); {
	case have.form == carried && wanted != Carry:
		return Carry, fmt.Sprintf("queue %q exists without a TTL", w.WaitQueue(1)), nil
	case have.form == timed && wanted == Carry:
		return Republish, fmt.Sprintf("queue %q exists with a TTL", w.WaitQueue(1)), nil
	default:
		return wanted, why, nil
	}
}

// preferred returns the engine for a work queue of which nothing exists.
func preferred(w WorkQueue, v connection.Version, noLadder string) (Engine, string) {
	switch {
	case w.Engine != Auto:
		return w.Engine, "asked for"
	case !atLeastOnce(v):
		return Carry, fmt.Sprintf("broker %s moves what ends its wait without a confirm", v)
	case mixedPriorities(w, v):
		return Carry, fmt.Sprintf("in the quorum wait queues of broker %s a message of high priority holds back expired ones of low priority", v)
	case noLadder == "":
		return Ladder, fmt.Sprintf("quorum queue on broker %s", v)
	}
	return Republish, noLadder
}

// mixedPriorities reports whether the wait queues of w must not be quorum
// queues, because of the priorities of the messages in them.
func mixedPriorities(w WorkQueue, v connection.Version) bool {
	return w.Type.orDefault() == Classic && w.Priority == PriorityNative && len(w.Waits) > 0 && !v.AtLeast(4, 3)
}
