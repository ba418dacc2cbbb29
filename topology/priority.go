package topology

import (
	"fmt"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/header"
)

// planPriority returns the note of the plan about the priority of w, or
// why it is refused on a broker of version v.
func planPriority(w WorkQueue, v connection.Version) (note string, err error) {
	if !w.NativePriority {
		return "", nil
	}
	refuse := func(why, instead string) error {
		return fmt.Errorf("topology: WorkQueue %q: NativePriority is refused on a %s queue of broker %s: %s; %s",
			w.Name, w.Type.orDefault(), v, why, instead)
	}
	switch {
	case w.Type.orDefault() == Classic:
		return fmt.Sprintf("priority: strict, by x-max-priority %d", header.MaxPriority), nil
	case v.AtLeast(4, 3):
		return "priority: strict levels of the quorum queue; a message without priority counts as 4", nil
	case !v.AtLeast(4, 0):
		return "", refuse("it ignores priorities", "use Type classic, or broker 4.3")
	case len(w.Waits) > 0:
		return "", refuse("in its wait queues a waiting message of high priority holds back expired ones of low priority", "use Type classic, broker 4.3, or no Waits")
	}
	return fmt.Sprintf("priority: two classes only on broker %s, 5 to 9 before 1 to 4, two to one", v), nil
}
