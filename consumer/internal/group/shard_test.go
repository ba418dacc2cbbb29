package group

import (
	"slices"
	"testing"
)

func TestNext(t *testing.T) {
	fed, mine, orphan := Seen{Here: true, Fed: true, Calm: true}, Seen{Here: true, Calm: true}, Seen{Orphan: true}
	as := func(r Role, s Seen) Seen {
		s.Role, s.Calm = r, true
		return s
	}
	for _, test := range []struct {
		rule string
		seen []Seen
		want []Step
	}{
		{"the owner joins and stays", []Seen{{Role: Owner}, as(Owner, fed), as(Owner, mine)}, []Step{Join, Stay, Stay}},
		{"the second joins and waits", []Seen{{Role: Second}, as(Second, mine), as(Second, mine)}, []Step{Join, Stay, Stay}},
		{"the second that is fed steps back, less and less often", []Seen{as(Second, fed), as(Second, fed), as(Second, fed), as(Second, fed), as(Second, fed), as(Second, fed)},
			[]Step{StepBack, Stay, StepBack, Stay, Stay, StepBack}},
		{"the second begins anew when the owner was there", []Seen{as(Second, fed), as(Second, fed), as(Second, fed), as(Second, mine), as(Second, fed)},
			[]Step{StepBack, Stay, StepBack, Stay, StepBack}},
		{"an owner that becomes the second steps back", []Seen{as(Owner, fed), as(Second, fed)}, []Step{Stay, StepBack}},
		{"an owner that becomes neither leaves", []Seen{as(Owner, fed), fed, {}}, []Step{Stay, Leave, Stay}},
		{"a shard that nobody consumes is joined, and left again", []Seen{orphan, mine, mine, {}}, []Step{Join, Stay, Leave, Stay}},
		{"a shard that comes back is left less and less often", []Seen{orphan, mine, fed, orphan, mine, mine, mine}, []Step{Join, Stay, Leave, Join, Stay, Stay, Leave}},
		{"nothing is let go while processes come and go", []Seen{{Here: true, Fed: true}, {Role: Second, Here: true, Fed: true}}, []Step{Stay, Stay}},
		{"another's shard is another's", []Seen{{}, {}}, []Step{Stay, Stay}},
	} {
		t.Run(test.rule, func(t *testing.T) {
			var s Shard
			var got []Step
			for _, seen := range test.seen {
				got = append(got, s.Next(seen))
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("%v, want %v", got, test.want)
			}
		})
	}
}

func TestPatienceIsBounded(t *testing.T) {
	var s Shard
	between := 0
	for range 3 * longestPatience {
		if s.Next(Seen{Role: Second, Here: true, Fed: true, Calm: true}) == StepBack {
			between = 0
		} else if between++; between > longestPatience {
			t.Fatalf("%d looks without a try", between)
		}
	}
}

// Processes come and go, and look one after the other in any order. Whatever they see meanwhile, no
// shard is without a consumer after two looks of each, and in the end each shard is handled by its
// owner.
func FuzzProcessesComeAndGo(f *testing.F) {
	f.Add(uint8(16), []byte{1, 1, 1, 1, 2, 2, 2, 2, 5, 3, 9})
	f.Add(uint8(3), []byte{1, 1, 1, 1, 1, 4, 1, 8, 0, 1, 12, 2, 2})
	f.Fuzz(func(t *testing.T, shards uint8, events []byte) {
		w := &world{shards: int(shards%20) + 1}
		w.consumers = make([][]int, w.shards)
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
		orphaned := make([]int, w.shards)
		for round := range 12 + 2*len(w.seats) + 512 {
			for i := range w.seats {
				w.look(i)
			}
			for s, list := range w.consumers {
				if orphaned[s]++; len(list) > 0 {
					orphaned[s] = 0
				}
				if orphaned[s] > 1 {
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

// world has processes on seats. Each shard has a list of consumers, and the first one is active.
// Every shard always has messages.
type world struct {
	shards    int
	ids       int
	seats     []seated
	consumers [][]int // ids
}

type seated struct {
	id, seat int
	shards   []Shard
	calm     Calm
}

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
	w.seats = append(w.seats, seated{id: w.ids, seat: -1, shards: make([]Shard, w.shards)})
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
	calm := p.calm.Look(len(w.seats))
	for s, role := range Roles(w.shards, len(w.seats), p.seat) {
		list := w.consumers[s]
		at := slices.Index(list, p.id)
		switch p.shards[s].Next(Seen{Role: role, Here: at >= 0, Fed: at == 0, Orphan: len(list) == 0, Calm: calm}) {
		case Join:
			w.consumers[s] = append(list, p.id)
		case Leave:
			w.consumers[s] = slices.Delete(list, at, at+1)
		case StepBack:
			w.consumers[s] = append(slices.Delete(list, at, at+1), p.id)
		case Stay:
		}
	}
}
