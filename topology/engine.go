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

// Engine is how a failed attempt reaches its wait queue.
type Engine uint8

// The engines. The zero value lets the plan choose.
const (
	// Auto chooses Ladder on quorum queues of a broker 4.0 or later, and
	// Republish everywhere else.
	Auto Engine = iota

	// Ladder leaves the hop to the broker: one nack, moved at-least-once,
	// body, headers and properties untouched. Only on quorum queues of a
	// broker 4.0 or later.
	Ladder

	// Republish sends a copy to the wait queue, waits for its confirm, then
	// acks. It works on every broker and queue type.
	Republish
)

func (e Engine) String() string {
	switch e {
	case Auto:
		return "auto"
	case Ladder:
		return "ladder"
	case Republish:
		return "republish"
	}
	return fmt.Sprintf("Engine(%d)", uint8(e))
}

// atLeastOnce reports whether a quorum queue dead-letters with the strategy
// at-least-once: from 4.0 on. Measured: 3.10.8 accepts the strategy and then
// stops moving dead letters under load.
func atLeastOnce(t QueueType, v connection.Version) bool {
	return t.orDefault() == Quorum && v.AtLeast(4, 0)
}

// chooseEngine returns the engine for a work queue on a broker, and why.
// oldForm names a queue that was found with the arguments of a 3.x broker, or
// is empty.
func chooseEngine(w WorkQueue, v connection.Version, oldForm string) (Engine, string, error) {
	refused := ""
	switch {
	case w.Type.orDefault() == Classic:
		refused = "a classic queue's dead letters are not confirmed by the broker"
	case !v.AtLeast(4, 0):
		refused = fmt.Sprintf("broker %s cannot dead-letter at-least-once reliably, 4.0 and later can", v)
	case oldForm != "":
		refused = fmt.Sprintf("queue %q has the arguments of a 3.x broker", oldForm)
	}
	switch {
	case w.Engine == Republish:
		return Republish, "asked for", nil
	case refused == "" && w.Engine == Ladder:
		return Ladder, "asked for", nil
	case refused == "":
		return Ladder, fmt.Sprintf("quorum queue on broker %s", v), nil
	case w.Engine == Ladder:
		return 0, "", fmt.Errorf("topology: WorkQueue %q: Engine is ladder, which is refused here: %s; leave Engine at auto, or set republish", w.Name, refused)
	}
	return Republish, refused, nil
}
