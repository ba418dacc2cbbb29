// Package group spreads shards over the processes that consume them.
//
// The processes do not talk to each other. Each holds a seat on the broker, and sees how many there
// are. From these two numbers follows what it does with each shard. The numbers may be old or wrong
// for a while. The single active consumer of a shard keeps its order whoever consumes it, so wrong
// numbers can only spread the work unevenly.
package group

// Role is what a process is to a shard.
type Role uint8

const (
	// None leaves the shard to others.
	None Role = iota

	// Second consumes the shard too, so that the broker makes it the active consumer as soon
	// as it misses the owner.
	Second

	// Owner is the process that is to handle the messages.
	Owner
)

// Roles returns the roles of the process on a seat, by shard, where the seats 0 to processes-1 are
// taken. A seat without shards has only None, and so have seats beyond these.
//
// One more process takes its share from those before it, and moves no other shard. The last owner
// of a shard that it takes is the second there.
func Roles(shards, processes, seat int) []Role {
	roles := make([]Role, shards)
	if seat < 0 || seat >= processes {
		return roles
	}
	owner, second := make([]int, shards), make([]int, shards)
	for i := range second {
		second[i] = 1
	}
	owned := make([]int, processes)
	owned[0] = shards
	for p := 1; p < processes; p++ {
		for range shards / (p + 1) {
			from := 0
			for other := range p {
				if owned[other] > owned[from] {
					from = other
				}
			}
			shard := lastOf(owner, from)
			owner[shard], second[shard] = p, from
			owned[from]--
			owned[p]++
		}
	}
	for i := range roles {
		switch seat {
		case owner[i]:
			roles[i] = Owner
		case second[i]:
			roles[i] = Second
		}
	}
	return roles
}

func lastOf(owner []int, process int) int {
	for i := len(owner) - 1; i >= 0; i-- {
		if owner[i] == process {
			return i
		}
	}
	return -1
}
