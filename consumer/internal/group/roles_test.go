package group

import (
	"fmt"
	"slices"
	"testing"
)

// table returns the roles by process and shard.
func table(shards, processes int) (all [][]Role) {
	for p := range processes {
		all = append(all, Roles(shards, processes, p))
	}
	return all
}

func count(roles []Role, role Role) (n int) {
	for _, r := range roles {
		if r == role {
			n++
		}
	}
	return n
}

// holder returns the processes that have a role for a shard.
func holder(all [][]Role, shard int, role Role) (found []int) {
	for p, roles := range all {
		if roles[shard] == role {
			found = append(found, p)
		}
	}
	return found
}

func TestRoles(t *testing.T) {
	for shards := 1; shards <= 100; shards++ {
		for processes := 1; processes <= 2*shards+3 && processes <= 40; processes++ {
			name := fmt.Sprintf("%d shards, %d processes: ", shards, processes)
			all := table(shards, processes)
			most, least := 0, shards
			for _, roles := range all {
				most, least = max(most, count(roles, Owner)), min(least, count(roles, Owner))
			}
			if most-least > 1 {
				t.Errorf("%sone process owns %d, and another %d", name, most, least)
			}
			for s := range shards {
				owner, second := holder(all, s, Owner), holder(all, s, Second)
				if len(owner) != 1 || len(second) != min(1, processes-1) {
					t.Errorf("%sshard %d is owned by %v, with %v behind", name, s, owner, second)
				}
			}
		}
	}
}

func TestOneMoreProcessMovesOnlyWhatItTakes(t *testing.T) {
	for shards := 1; shards <= 100; shards++ {
		for processes := 1; processes < 20; processes++ {
			before, after := table(shards, processes), table(shards, processes+1)
			for s := range shards {
				was, is := holder(before, s, Owner)[0], holder(after, s, Owner)[0]
				if is != was && is != processes {
					t.Errorf("%d shards: process %d takes shard %d from %d when process %d comes", shards, is, s, was, processes)
				}
				if second := holder(after, s, Second); is != was && !slices.Equal(second, []int{was}) {
					t.Errorf("%d shards: %v is behind process %d in shard %d, want process %d, which had it", shards, second, is, s, was)
				}
			}
		}
	}
}

func TestASeatThatIsNoneHasNoShard(t *testing.T) {
	for _, seat := range []int{-1, 3, 100} {
		if n := count(Roles(8, 3, seat), None); n != 8 {
			t.Errorf("seat %d of 3 has %d shards", seat, 8-n)
		}
	}
}
