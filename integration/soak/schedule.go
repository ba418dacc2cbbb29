package main

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/rehop/rehop/integration/nodes"
)

// kind of a fault.
type kind string

const (
	cut       kind = "cut"
	reset     kind = "reset"
	halfOpen  kind = "half open"
	blackHole kind = "black hole"
	latency   kind = "latency"
	throttle  kind = "throttle"
	cutAfter  kind = "cut after bytes"
	refuse    kind = "reset and refuse"

	closeAll kind = "close_all_connections"
	alarm    kind = "memory alarm"
	freeze   kind = "pause"
	kill     kind = "kill"
	restart  kind = "stop and start"
)

// heartbeat is what the connections ask for, the least there is: who is silent
// for one and a half of it is given up.
const heartbeat = time.Second

// card is how often a kind comes in each round of the schedule, and between
// which bounds it is drawn.
type card struct {
	kind              kind
	often             int
	shortest, longest time.Duration // it stands for so long; zero: it happens at once
	least, most       int64         // milliseconds, bytes per second, or bytes
}

var onConnections = []card{
	{kind: cut, often: 4},
	{kind: reset, often: 4},
	{kind: halfOpen, often: 2},
	{kind: blackHole, often: 2, shortest: 3 * heartbeat / 2, longest: 3 * heartbeat},
	{kind: latency, often: 3, shortest: time.Second, longest: 3 * time.Second, least: 20, most: 300},
	{kind: throttle, often: 2, shortest: time.Second, longest: 3 * time.Second, least: 100_000, most: 800_000},
	{kind: cutAfter, often: 3, shortest: time.Second, longest: 3 * time.Second, least: 10_000, most: 1_000_000},
	{kind: refuse, often: 3, shortest: 200 * time.Millisecond, longest: 2 * time.Second},
}

// What takes the broker seconds comes less often.
var onBroker = []card{
	{kind: closeAll, often: 2},
	{kind: alarm, often: 2, shortest: time.Second, longest: 3 * time.Second},
	{kind: freeze, often: 2, shortest: 500 * time.Millisecond, longest: 4 * time.Second},
	{kind: kill, often: 1, shortest: time.Millisecond, longest: 2 * time.Second},
	{kind: restart, often: 1, shortest: time.Millisecond, longest: 2 * time.Second},
}

// fault is one entry of the schedule.
type fault struct {
	kind   kind
	lasts  time.Duration // zero: it happens at once
	amount int64         // as of card
}

func (f fault) String() string {
	s := string(f.kind)
	switch f.kind {
	case latency:
		s = fmt.Sprintf("%s %d ms", f.kind, f.amount)
	case throttle:
		s = fmt.Sprintf("%s %d kB/s", f.kind, f.amount/1000)
	case cutAfter:
		s = fmt.Sprintf("cut after %d kB", f.amount/1000)
	}
	if f.lasts > 0 {
		s += fmt.Sprintf(" for %v", f.lasts)
	}
	return s
}

// schedule draws faults for so long, of which each begins some time after the
// end of the one before. What a broker needs to go down and to come up is not known
// beforehand: in a run of that length the last faults may not be reached.
func schedule(seed uint64, duration, every time.Duration, cards []card) []fault {
	random := rand.New(rand.NewPCG(seed, 0))
	var all []fault
	var round []card
	for at := every; at < duration; {
		if len(round) == 0 {
			round = shuffled(random, cards)
		}
		i := next(round, at)
		f := draw(random, round[i])
		round = append(round[:i], round[i+1:]...)
		all = append(all, f)
		at += f.lasts + every
	}
	return all
}

// next returns the index of the first card that may be played.
func next(round []card, at time.Duration) int {
	for i, c := range round {
		if c.kind != kill || at >= nodes.YoungQueue {
			return i
		}
	}
	return 0
}

func shuffled(random *rand.Rand, cards []card) []card {
	var all []card
	for _, c := range cards {
		for range c.often {
			all = append(all, c)
		}
	}
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

func draw(random *rand.Rand, c card) fault {
	f := fault{kind: c.kind}
	if span := (c.longest - c.shortest).Milliseconds(); span > 0 {
		f.lasts = c.shortest + time.Duration(random.Int64N(span+1))*time.Millisecond
	}
	if c.most > 0 {
		f.amount = c.least + random.Int64N(c.most-c.least+1)
	}
	return f
}
