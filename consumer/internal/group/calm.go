package group

const (
	// longestCalm bounds the looks for which the number of processes must not have changed.
	longestCalm = 16

	// calmHalves is after how many looks without a change half as many are enough.
	calmHalves = 60
)

// Calm tells when shards may be handed over. A process that crashes again and again would take messages
// away from the others each time, and the broker counts every hand-over towards the delivery limits of the
// messages in hand. So after each process that has gone, the others wait for longer before they let
// shards go. The zero value is calm.
type Calm struct {
	processes int
	looks     int // since their number changed
	needs     int // looks without a change
}

// Look notes how many processes there are, and reports whether shards may be let go.
func (c *Calm) Look(processes int) bool {
	if processes < c.processes {
		c.needs = min(max(1, 2*c.needs), longestCalm)
	}
	if processes != c.processes {
		c.processes, c.looks = processes, 0
		return c.needs == 0
	}
	if c.looks++; c.looks%calmHalves == 0 {
		c.needs /= 2
	}
	return c.looks >= c.needs
}
