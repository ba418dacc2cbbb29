package desk

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rehop/rehop/internal/confirm"
	"github.com/rehop/rehop/topology"
)

const (
	// failuresInARow of letters to one queue, which it has refused because it is missing or full, are why it
	// gets no more. As many other failures in a row end a redrive.
	failuresInARow = 10
	// refusingQueues end a redrive, too.
	refusingQueues = 100
	// knownTargets is of how many targets it is known at a time that they take letters.
	knownTargets = 10_000
)

// outcomes decides, by what has become of letters, how many more may go to a target, and when the
// redrive ends. The letters of one dead-letter queue may have failed in several queues, as those of
// shards and lanes do: if one of these is missing or full, the letters of the others are sent all the same.
type outcomes struct {
	one bool // all letters go to Redrive.To

	serves bool // the last letter was taken
	row    int  // failures since then
	others int  // of these: not of a queue's own refusal
	last   error

	targets  map[topology.Address]*target
	refusing int // of the targets
	shut     int // of these
}

// target is what is known of a target.
type target struct {
	flying  int  // letters on their way
	serves  bool // it has taken the last letter
	refused int  // letters in a row, and those that were on their way when it was shut
	shut    bool // it gets no more
	last    error
}

// capacity is how many more letters may be on their way, of a window, with so many under way. Before a letter was
// taken, and after one has failed, no more are than decide something if they fail.
func (o *outcomes) capacity(window, flying int) int {
	n := window - flying
	if !o.serves {
		n = min(n, max(failuresInARow-o.row, 1)-flying)
	}
	return n
}

// room is how many more letters may be on their way to a target.
func (o *outcomes) room(to topology.Address, window int) int {
	t := o.targets[to]
	switch {
	case t == nil:
		return failuresInARow
	case t.serves:
		return window - t.flying
	}
	return max(failuresInARow-t.refused, 1) - t.flying
}

// some returns the places of letters that may be sent now, of n, each of which goes to a target. It looks at a few windows
// of them: the first one may always be sent when none is under way.
func (o *outcomes) some(n, window, flying int, target func(i int) topology.Address) (places []int) {
	most := o.capacity(window, flying)
	rooms := map[topology.Address]int{}
	for i := 0; i < min(n, 8*window) && len(places) < most; i++ {
		to := target(i)
		room, known := rooms[to]
		if !known {
			room = o.room(to, window)
		}
		if rooms[to] = room - 1; room > 0 {
			places = append(places, i)
		}
	}
	return places
}

func (o *outcomes) target(to topology.Address) *target {
	t := o.targets[to]
	if t == nil {
		if o.targets == nil {
			o.targets = map[topology.Address]*target{}
		}
		if len(o.targets) >= knownTargets {
			maps.DeleteFunc(o.targets, func(_ topology.Address, t *target) bool { return t.flying == 0 && t.refused == 0 })
		}
		t = &target{}
		o.targets[to] = t
	}
	return t
}

// sent notes that a letter is on its way.
func (o *outcomes) sent(to topology.Address) { o.target(to).flying++ }

// untold notes the end of a letter's way that says nothing about its target.
func (o *outcomes) untold(to topology.Address) { o.target(to).flying-- }

// taken notes that a letter has arrived.
func (o *outcomes) taken(to topology.Address) {
	t := o.target(to)
	t.flying--
	o.serves, o.row, o.others = true, 0, 0
	if t.shut {
		return // it took no letter for so long that others were left
	}
	if t.refused > 0 {
		o.refusing--
	}
	t.serves, t.refused, t.last = true, 0, nil
}

// failed notes that a letter has not arrived.
func (o *outcomes) failed(to topology.Address, err error) {
	t := o.target(to)
	t.flying--
	o.serves, o.last, t.serves = false, err, false
	o.row++
	if o.one || to.Exchange != "" || !errors.Is(err, confirm.ErrReturned) && !errors.Is(err, confirm.ErrNacked) {
		o.others++
		return
	}
	if t.refused++; t.refused == 1 {
		o.refusing++
	}
	t.last = err
	if t.refused >= failuresInARow && !t.shut {
		t.shut = true
		o.shut++
	}
}

// leaves reports whether a letter is not tried, because its target has refused too many.
func (o *outcomes) leaves(to topology.Address) bool {
	t := o.targets[to]
	return t != nil && t.shut
}

// ending reports whether the redrive is to end when nothing is under way any more.
func (o *outcomes) ending() bool { return o.others >= failuresInARow || o.refusing >= refusingQueues }

// end returns why the redrive ends, nil if it goes on.
func (o *outcomes) end() error {
	switch {
	case o.others >= failuresInARow:
		return fmt.Errorf("%w: %s in a row, the last: %w", ErrTarget, count(o.row, "letter"), o.last)
	case o.refusing >= refusingQueues:
		return o.refusals(func(t *target) bool { return t.refused > 0 })
	}
	return nil
}

// err returns why so many letters were not tried when all others were, nil if there is no reason.
func (o *outcomes) err(untried int) error {
	if o.shut == 0 {
		return nil
	}
	err := o.refusals(func(t *target) bool { return t.shut })
	if untried > 0 {
		err = fmt.Errorf("%w\ndesk: %s to such queues were not tried", err, count(untried, "letter"))
	}
	return err
}

// refusals names some of the queues that have refused letters.
func (o *outcomes) refusals(which func(*target) bool) error {
	const most = 5
	var names []string
	refused, more := 0, ""
	for to, t := range o.targets {
		if !which(t) {
			continue
		}
		names = append(names, to.RoutingKey)
		refused += t.refused
	}
	slices.Sort(names)
	noun, first := "queue", o.targets[topology.Address{RoutingKey: names[0]}]
	if len(names) > 1 {
		noun = "queues"
	}
	if len(names) > most {
		names, more = names[:most], fmt.Sprintf(" and %d more", len(names)-most)
	}
	for i, one := range names {
		names[i] = fmt.Sprintf("%.80q", one)
	}
	return fmt.Errorf("%w: %s %s%s refused %s, for one: %w", ErrTarget, noun, strings.Join(names, ", "), more, count(refused, "letter"), first.last)
}
