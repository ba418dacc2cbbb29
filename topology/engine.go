package topology

import (
	"cmp"
	"fmt"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/route"
)

// QueueType is the x-queue-type of a queue. The zero value is [Quorum].
type QueueType string

// The queue types that a work queue can have.
const (
	Quorum  QueueType = "quorum"  // replicated; at-least-once dead-lettering since 4.0
	Classic QueueType = "classic" // on one node; the broker moves dead letters unconfirmed
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
type Engine string

// The engines. With the zero value the plan chooses.
const (
	// EngineAuto chooses EngineCarry on a broker of 3.x. On broker 4.0 or later it chooses
	// EngineNack for a quorum queue, EngineRepublish for a classic or Existing queue, and,
	// up to 4.2, EngineCarry for a classic queue with NativePriority. Where the wait
	// queues exist in the form of another engine, that engine stays in use.
	EngineAuto Engine = ""

	// EngineNack leaves both hops to the broker. The consumer nacks, and the broker
	// moves the message at-least-once, with body, headers and properties
	// untouched. It works only on quorum queues of broker 4.0 or later.
	EngineNack Engine = "nack"

	// EngineRepublish sends a copy to the wait queue, waits for its confirm, and acks.
	// The broker returns the copy when its TTL ends. It works on every broker and
	// queue type, but a broker of 3.x returns messages without a confirm, so that
	// a restart can lose messages that wait.
	EngineRepublish Engine = "republish"

	// EngineCarry sends a copy to a wait queue without a TTL, waits for its confirm,
	// and acks. The consumers of the work queue publish it back when it is due,
	// confirmed. It works on every broker and queue type, and leaves no hop
	// unconfirmed. One process at a time holds up to 256 messages of each wait in
	// memory, with about 16 MiB of bodies. While no process consumes the work queue,
	// nothing comes back. A consumer has a channel open for each wait, and Run
	// refuses a connection whose channel_max leaves no room for them.
	EngineCarry Engine = "carry"
)

// String returns the engine as a word, "auto" for EngineAuto.
func (e Engine) String() string { return cmp.Or(string(e), "auto") }

// atLeastOnce reports whether the quorum queues of a broker dead-letter with
// the strategy at-least-once: from 4.0 on. Measured: 3.10.8 accepts the
// strategy and then stops moving dead letters under load.
func atLeastOnce(v connection.Version) bool { return v.AtLeast(4, 0) }

// form is the kind of the wait queues of a work queue. All of them have the kind of the
// first.
type form uint8

const (
	unknown form = iota // none was found yet: the engine chooses
	timed               // with a TTL, after which the broker moves the message
	carried             // without: the consumers move it
)

// existing are the parts of a work queue that were found.
type existing struct {
	form form // of its wait queues
	old  bool // the work queue has the arguments of a 3.x broker
}

// engineFor returns the engine for a work queue on a broker, and why. What
// exists there decides, and then the wish of the program.
func engineFor(w WorkQueue, v connection.Version, have existing) (engine Engine, why string, err error) {
	var noNack string
	switch {
	case w.Existing:
		noNack = "the queue is declared by others (Existing)"
	case w.Type.orDefault() == Classic:
		noNack = "a classic queue's dead letters are not confirmed by the broker"
	case !atLeastOnce(v):
		noNack = fmt.Sprintf("broker %s cannot dead-letter at-least-once reliably, 4.0 and later can", v)
	case have.old:
		noNack = fmt.Sprintf("queue %q has the arguments of a 3.x broker", w.Name)
	case have.form == carried:
		noNack = fmt.Sprintf("queue %q exists without a TTL, in the form of the engine carry", route.WaitQueue(w.Name, 1))
	}
	if w.Engine == EngineNack && noNack != "" {
		return "", "", fmt.Errorf("topology: %sEngine is nack, which is refused here: %s; leave Engine at auto, or set republish or carry", w.owner(), noNack)
	}
	switch wanted, why := preferred(w, v, noNack); {
	case have.form == carried && wanted != EngineCarry:
		return EngineCarry, fmt.Sprintf("queue %q exists without a TTL", route.WaitQueue(w.Name, 1)), nil
	case have.form == timed && wanted == EngineCarry:
		return EngineRepublish, fmt.Sprintf("queue %q exists with a TTL", route.WaitQueue(w.Name, 1)), nil
	default:
		return wanted, why, nil
	}
}

// preferred returns the engine for a work queue without any part on the broker.
func preferred(w WorkQueue, v connection.Version, noNack string) (Engine, string) {
	switch {
	case w.Engine != EngineAuto:
		return w.Engine, "asked for"
	case !atLeastOnce(v):
		return EngineCarry, fmt.Sprintf("broker %s moves what ends its wait without a confirm", v)
	case mixedPriorities(w, v):
		return EngineCarry, fmt.Sprintf("in the quorum wait queues of broker %s a message of high priority holds back expired ones of low priority", v)
	case noNack == "":
		return EngineNack, fmt.Sprintf("quorum queue on broker %s", v)
	}
	return EngineRepublish, noNack
}

// mixedPriorities reports whether the wait queues of w must not be quorum
// queues, because of the priorities of the messages in them.
func mixedPriorities(w WorkQueue, v connection.Version) bool {
	return w.Type.orDefault() == Classic && w.NativePriority && len(w.Waits) > 0 && !v.AtLeast(4, 3)
}
