package group

// Step is what a process does with a shard.
type Step uint8

const (
	// Stay leaves it as it is.
	Stay Step = iota

	// Join consumes it.
	Join

	// Leave consumes it no more.
	Leave

	// StepBack leaves it and joins behind the others at once.
	StepBack
)

// Shard is what a process remembers of a shard from look to look. Who else consumes it, the broker
// does not tell: of the consumers of a quorum queue with a single active consumer it counts one. So the
// process lets a shard go that is another's to handle, and sees whether it comes back.
type Shard struct {
	role     Role
	returned int // how often it has come back
	looks    int // since then
}

// Seen is what a look shows of a shard.
type Seen struct {
	Role   Role
	Here   bool // it is consumed here
	Fed    bool // messages have come here since the last look
	Orphan bool // nobody consumes it; known only of a shard that is not consumed here
	Calm   bool // shards may be let go
}

// longestPatience bounds the looks between two tries to let a shard go. It is half a day: a handler that
// takes hours ends between two tries.
const longestPatience = 4096

// patience is how many looks a shard stays that has come back. Its owner has some trouble of its own, and each try
// interrupts the handling.
func (s *Shard) patience() int {
	if s.returned == 0 {
		return 0
	}
	return min(1<<min(s.returned-1, 20), longestPatience)
}

// Next returns the next step.
//
// A second process that is the active one steps back behind the owner. Every process joins a shard
// that nobody consumes, and leaves it again if it is neither its owner nor its second.
func (s *Shard) Next(seen Seen) Step {
	if seen.Role != s.role {
		*s = Shard{role: seen.Role}
	}
	switch {
	case !seen.Here && seen.Role == None && seen.Orphan:
		s.returned, s.looks = s.returned+1, 0
		return Join
	case !seen.Here && seen.Role != None:
		return Join
	case !seen.Here, seen.Role == Second && !seen.Fed: // another has it
		s.returned = 0
		return Stay
	case seen.Role == Owner, !seen.Calm:
		return Stay
	}
	if s.looks < s.patience() {
		s.looks++
		return Stay
	}
	if seen.Role == None {
		return Leave
	}
	s.returned, s.looks = s.returned+1, 0
	return StepBack
}
