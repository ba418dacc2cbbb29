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

func TestNext(t *testing.T) {
	for _, test := range []struct {
		rule string
		Shard
		want Step
	}{
		{"the owner joins", Shard{Role: Owner, Others: 2}, Join},
		{"the owner joins what it cannot see", Shard{Role: Owner, Others: -1}, Join},
		{"the owner stays", Shard{Role: Owner, Consumed: true, Fed: true, Others: 2}, Stay},
		{"the second joins", Shard{Role: Second, Others: 1}, Join},
		{"the second waits", Shard{Role: Second, Consumed: true, Others: 1}, Stay},
		{"the second that is fed steps back", Shard{Role: Second, Consumed: true, Fed: true, Others: 1}, StepBack},
		{"the second that is alone goes on", Shard{Role: Second, Consumed: true, Fed: true}, Stay},
		{"the second goes on while it cannot see the others", Shard{Role: Second, Consumed: true, Fed: true, Others: -1}, Stay},
		{"another leaves", Shard{Consumed: true, Fed: true, Others: 1}, Leave},
		{"another that is alone goes on", Shard{Consumed: true}, Stay},
		{"another goes on while it cannot see the others", Shard{Consumed: true, Others: -1}, Stay},
		{"another joins what nobody consumes", Shard{}, Join},
		{"another leaves alone what somebody consumes", Shard{Others: 1}, Stay},
		{"another leaves alone what it cannot see", Shard{Others: -1}, Stay},
	} {
		t.Run(test.rule, func(t *testing.T) {
			if got := Next(test.Shard); got != test.want {
				t.Errorf("%+v: %v, want %v", test.Shard, got, test.want)
			}
		})
	}
}

// Processes come and go, and look one after the other in any order. Whatever they see meanwhile, a
// shard is not without a consumer for longer than a look of each, and in the end each shard is handled by
// its owner.
func FuzzProcessesComeAndGo(f *testing.F) {
	f.Add(uint8(16), []byte{1, 1, 1, 1, 2, 2, 2, 2, 5, 3, 9})
	f.Add(uint8(3), []byte{1, 1, 1, 1, 1, 4, 1, 8, 0, 1, 12, 2, 2})
	f.Fuzz(func(t *testing.T, shards uint8, events []byte) {
		w := &world{shards: int(shards%20) + 1, consumers: make([][]int, int(shards%20)+1)}
		w.consumers = w.consumers[:w.shards]
		for _, e := range events[:min(len(events), 200)] {
			switch {
			case e%4 == 1 && len(w.seats) < 12:
				w.come()
			case e%4 == 0 && len(w.seats) > 1:
				w.goes(int(e/4) % len(w.seats))
			case len(w.seats) > 0:
				w.look(int(e/4) % len(w.seats))
			}
		}
		if len(w.seats) == 0 {
			w.come()
		}
		for round := range 12 + 2*len(w.seats) {
			for i := range w.seats {
				w.look(i)
			}
			for s, list := range w.consumers {
				if len(list) == 0 {
					t.Fatalf("round %d: nobody consumes shard %d", round, s)
				}
			}
		}
		for s, list := range w.consumers {
			seat := w.seatOf(list[0])
			if roles := Roles(w.shards, len(w.seats), seat); roles[s] != Owner {
				t.Fatalf("%d processes: shard %d is handled from seat %d, which is not its owner", len(w.seats), s, seat)
			}
		}
	})
}

// world has processes on seats, and for each shard its consumers, of which the first is the active one.
// Every shard always has messages.
type world struct {
	shards    int
	ids       int
	seats     []seated
	consumers [][]int // ids
}

type seated struct{ id, seat int }

func (w *world) free(below int) int {
	for k := range below {
		if !slices.ContainsFunc(w.seats, func(p seated) bool { return p.seat == k }) {
			return k
		}
	}
	return -1
}

func (w *world) seatOf(id int) int {
	i := slices.IndexFunc(w.seats, func(p seated) bool { return p.id == id })
	return w.seats[i].seat
}

func (w *world) come() {
	w.ids++
	w.seats = append(w.seats, seated{w.ids, -1})
	w.look(len(w.seats) - 1)
}

func (w *world) goes(i int) {
	for s, list := range w.consumers {
		w.consumers[s] = slices.DeleteFunc(list, func(id int) bool { return id == w.seats[i].id })
	}
	w.seats = slices.Delete(w.seats, i, i+1)
}

func (w *world) look(i int) {
	p := &w.seats[i]
	if seats := min(len(w.seats), w.shards); p.seat < 0 || p.seat >= seats {
		if k := w.free(seats); k >= 0 {
			p.seat = k
		}
	}
	for s, role := range Roles(w.shards, len(w.seats), p.seat) {
		list := w.consumers[s]
		at := slices.Index(list, p.id)
		shard := Shard{Role: role, Consumed: at >= 0, Fed: at == 0, Others: len(list)}
		if at >= 0 {
			shard.Others--
		}
		switch Next(shard) {
		case Join:
			w.consumers[s] = append(list, p.id)
		case Leave:
			w.consumers[s] = slices.Delete(list, at, at+1)
		case StepBack:
			w.consumers[s] = append(slices.Delete(list, at, at+1), p.id)
		}
	}
}
