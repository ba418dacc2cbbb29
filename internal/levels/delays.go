package levels

import (
	"slices"
	"time"
)

// Delays are the exact delays of one grain, as far as a process has declared them.
type Delays struct {
	Levels Levels // with the defaults

	// Queues and Exchanges are the targets.
	Queues, Exchanges []string

	// Confirmed says that the broker confirms every hop.
	Confirmed bool

	// Classes says that messages of high priority have queues of their own.
	Classes bool
}

// Reaches reports whether a message may be delayed to a target.
func (d Delays) Reaches(to Target) bool {
	if to.Exchange == "" {
		return slices.Contains(d.Queues, to.RoutingKey)
	}
	return slices.Contains(d.Exchanges, to.Exchange)
}

// Way returns where a message is published to that is to reach a target after a
// delay, and how long it takes there: the delay rounded up to grains. The error is
// that of Levels.Path.
func (d Delays) Way(to Target, after time.Duration, priority uint8) (exchange, key string, takes time.Duration, err error) {
	path, err := d.Levels.Path(after)
	if err != nil {
		return "", "", 0, err
	}
	names := Of(d.Levels.Grain)
	high := d.Classes && IsHigh(priority)
	return names.Exchange(path.Entry()), Key(path, high, to), path.Duration(d.Levels.Grain), nil
}
