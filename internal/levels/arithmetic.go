package levels

import (
	"errors"
	"fmt"
	"math/bits"
	"time"
)

// MaxLevels is the largest number of levels. With a grain of one second they
// reach 8.5 years.
const MaxLevels = 28

// The bounds and the default of Levels.Grain.
const (
	MinGrain     = 10 * time.Millisecond
	MaxGrain     = time.Second
	DefaultGrain = time.Second
)

// maxGrains is the longest delay in grains: a message that visits every level.
const maxGrains = 1<<MaxLevels - 1

// Levels says how any delay is made of a few waits. Level n holds a message for
// 2^n grains. A delay is a number of grains, and the message visits the level of
// each bit that is set in it, from the highest to the lowest. So 13 s is 8 s, 4 s
// and 1 s with a grain of one second.
//
// Levels is a value, and safe for concurrent use.
type Levels struct {
	// Grain is the unit of delays; 10ms to 1s in whole milliseconds. Defaults to
	// DefaultGrain.
	Grain time.Duration

	// Max is the longest delay; Grain to 2^28-1 grains. Defaults to that. Each
	// doubling of it takes one level more.
	Max time.Duration
}

// WithDefaults returns the levels with the defaults in place of zero fields.
func (l Levels) WithDefaults() Levels {
	if l.Grain == 0 {
		l.Grain = DefaultGrain
	}
	if l.Max == 0 && l.Grain > 0 && l.Grain <= MaxGrain {
		l.Max = maxGrains * l.Grain
	}
	return l
}

// Validate returns all faults of the levels joined into one error.
func (l Levels) Validate() error {
	l = l.WithDefaults()
	if l.Grain < MinGrain || l.Grain > MaxGrain || l.Grain%time.Millisecond != 0 {
		err := fmt.Errorf("Grain is %v, want whole milliseconds from %v to %v", l.Grain, MinGrain, MaxGrain) //nolint:staticcheck // it begins with the name of a field
		if l.Max < 0 {
			err = errors.Join(err, fmt.Errorf("Max is %v, want more than 0", l.Max)) //nolint:staticcheck // it begins with the name of a field
		}
		return err
	}
	if l.Max < l.Grain || l.Max > maxGrains*l.Grain {
		return fmt.Errorf("Max is %v, want Grain (%v) to %v (2^%d-1 grains)", l.Max, l.Grain, maxGrains*l.Grain, MaxLevels) //nolint:staticcheck // it begins with the name of a field
	}
	return nil
}

// Count returns how many levels there are: as many as Max needs, 1 to MaxLevels.
// The levels must be valid.
func (l Levels) Count() int {
	l = l.WithDefaults()
	return bits.Len64(grains(l.Max, l.Grain))
}

// Wait returns how long a message stays in a level, counted from 0.
func (l Levels) Wait(level int) time.Duration { return l.WithDefaults().Grain << level }

// Path returns the levels that a delay of d visits. A part of a grain is rounded up: a
// message never comes early. The error names the bounds that d breaks. The levels must
// be valid.
func (l Levels) Path(d time.Duration) (Path, error) {
	l = l.WithDefaults()
	if d <= 0 || d > l.Max {
		return 0, fmt.Errorf("%v is not within the levels, want more than 0, up to %v", d, l.Max)
	}
	return Path(grains(d, l.Grain)), nil
}

// grains returns d as a number of grains, rounded up. It does not overflow.
func grains(d, grain time.Duration) uint64 {
	n := d / grain
	if d%grain != 0 {
		n++
	}
	return uint64(n)
}

// Path is a delay as a number of grains: bit n is set if level n is visited.
type Path uint32

// Entry returns the highest level of the path, where the message is published to;
// -1 for a path without levels.
func (p Path) Entry() int { return bits.Len32(uint32(p)) - 1 }

// Hops returns how many levels the path has.
func (p Path) Hops() int { return bits.OnesCount32(uint32(p)) }

// Next returns the next level below the given one, or -1 if the message has
// visited them all.
func (p Path) Next(level int) int { return Path(uint32(p) & (1<<level - 1)).Entry() }

// Duration returns how long the path takes.
func (p Path) Duration(grain time.Duration) time.Duration { return time.Duration(p) * grain }

// The words of a routing key that say of a level whether it is visited.
const (
	Visit = "+"
	Pass  = "-"
)

// Words returns the path as the first words of a routing key: MaxLevels words,
// Visit or Pass, that of level 0 first, joined by dots.
func (p Path) Words() string {
	var key [2*MaxLevels - 1]byte
	for i := range key {
		key[i] = '.'
	}
	for level := range MaxLevels {
		word := Pass
		if p&(1<<level) != 0 {
			word = Visit
		}
		key[2*level] = word[0]
	}
	return string(key[:])
}
