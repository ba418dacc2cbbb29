package topology

import (
	"fmt"

	"github.com/rehop/rehop/connection"
)

// Priority is how a work queue honours the priority of its messages, on the
// SDK's scale: 1 is low, 4 is normal, 9 is high.
type Priority uint8

// The mechanisms. The zero value promises nothing.
const (
	// PriorityNone promises no order by priority. The priority of a message is
	// kept on every path all the same, and a quorum queue of broker 4.0 or later
	// still looks at it. On 4.0 to 4.2 a waiting message of priority 5 or more
	// holds back expired messages of lower priority.
	PriorityNone Priority = iota

	// PriorityNative is the queue type's own mechanism. A quorum queue of broker
	// 4.3 or later has strict levels, and so has a classic queue, by
	// x-max-priority. A quorum queue of 4.0 to 4.2 has two classes only (5 to 9
	// before 1 to 4, two to one) and is refused together with waits. A quorum
	// queue of 3.x ignores priorities and is refused.
	PriorityNative
)

// MaxPriority is the highest priority of the SDK's scale, and the
// x-max-priority of a classic work queue with PriorityNative.
const MaxPriority = 9

// planPriority returns what the plan should say about the priority of w, or
// why it is refused on a broker of version v.
func planPriority(w WorkQueue, v connection.Version) (note string, err error) {
	if w.Priority == PriorityNone {
		return "", nil
	}
	refuse := func(why, instead string) error {
		return fmt.Errorf("topology: WorkQueue %q: Priority is native, which is refused on a %s queue of broker %s: %s; %s",
			w.Name, w.Type.orDefault(), v, why, instead)
	}
	switch {
	case w.Type.orDefault() == Classic:
		return fmt.Sprintf("priority: strict, by x-max-priority %d", MaxPriority), nil
	case v.AtLeast(4, 3):
		return "priority: strict levels of the quorum queue; a message without priority counts as 4", nil
	case !v.AtLeast(4, 0):
		return "", refuse("it ignores priorities", "use Type classic, or broker 4.3")
	case len(w.Waits) > 0:
		return "", refuse("in its wait queues a waiting message of high priority holds back expired ones of low priority", "use Type classic, broker 4.3, or no Waits")
	}
	return fmt.Sprintf("priority: two classes only on broker %s, 5 to 9 before 1 to 4, two to one", v), nil
}
