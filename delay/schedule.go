// Package delay says how long a message waits before its next attempt.
//
// A [Schedule] is a plain list of waits. It holds no state: the wait is a
// function of the attempt that has just ended, so a schedule can be shared,
// compared, printed and tested without a clock or a broker. It is finite
// because each distinct wait is a queue.
package delay

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// MaxWaits is the largest number of waits in a schedule: each is a queue of
// its own for each work queue.
const MaxWaits = 16

// The bounds of one wait. The broker refuses a TTL above ten years of 365 days
// (315,360,000,000 ms) on every version; 0 is legal there but is no wait.
const (
	minWait = time.Millisecond
	maxWait = 10 * 365 * 24 * time.Hour
)

// What a constructor returns for an argument that no list of waits can express.
// Both lie far below any wait that a user would write, and Validate turns them
// into a sentence about the argument.
const (
	negativeCount time.Duration = math.MinInt64
	badFactor     time.Duration = math.MinInt64 + 1
)

// Schedule is the list of waits between attempts: the first follows the first
// attempt. A message is attempted once more than the schedule has waits; an
// empty or nil schedule means no retries. Waits need not rise.
//
// A Schedule is a value that nothing in this package changes, so it is safe for
// concurrent use as long as its owner does not write to it.
type Schedule []time.Duration

// Default returns the waits 1m, 5m, 10m and 20m: five attempts within 36
// minutes. Each call returns a list of its own.
func Default() Schedule {
	return Schedule{time.Minute, 5 * time.Minute, 10 * time.Minute, 20 * time.Minute}
}

// Fixed returns n equal waits of d. It never panics: arguments that make no
// sense, a negative n among them, give a schedule that Validate refuses.
func Fixed(d time.Duration, n int) Schedule {
	return build(n, func(int) time.Duration { return d })
}

// Exponential returns n waits: the first as given, each further one factor
// times the one before, rounded to whole milliseconds, and none longer than
// limit. A factor below 1 makes the waits shrink.
//
// It never panics and never overflows: arguments that make no sense (a negative
// n, a factor that is not a positive finite number, a first or limit of zero or
// less) give a schedule that Validate refuses.
func Exponential(first time.Duration, factor float64, limit time.Duration, n int) Schedule {
	if n > 0 && !(factor > 0 && factor <= math.MaxFloat64) { // the negation catches NaN
		return Schedule{badFactor}
	}
	return build(n, func(i int) time.Duration {
		if i == 0 || first <= 0 {
			return min(first, limit) // as written, so that Validate names the user's own number
		}
		wait := float64(first) * math.Pow(factor, float64(i))
		if wait >= float64(limit) { // compared before converting: a float beyond int64 converts to anything
			return limit
		}
		return min(time.Duration(wait).Round(time.Millisecond), limit)
	})
}

// build makes n waits, but never many more than Validate accepts: a slip of a
// zero must end in an error and not in gigabytes.
func build(n int, wait func(i int) time.Duration) Schedule {
	if n < 0 {
		return Schedule{negativeCount}
	}
	s := make(Schedule, min(n, MaxWaits+1))
	for i := range s {
		s[i] = wait(i)
	}
	return s
}

// After returns the wait before the attempt that follows the given one, counted
// from 1, and false when there is none: the attempts are used up, or the
// attempt is below 1.
func (s Schedule) After(attempt int) (time.Duration, bool) {
	if attempt < 1 || attempt > len(s) {
		return 0, false
	}
	return s[attempt-1], true
}

// AtLeast returns the rung, counted from 1, of the shortest wait that is not
// shorter than d; among equal waits the lowest rung. It returns false when
// every wait is shorter than d, so also when there is none.
func (s Schedule) AtLeast(d time.Duration) (rung int, ok bool) {
	for i, wait := range s {
		if wait >= d && (rung == 0 || wait < s[rung-1]) {
			rung = i + 1
		}
	}
	return rung, rung > 0
}

// Validate returns nil if the schedule can be declared on a broker, else every
// fault joined into one error. Each wait must be 1ms to 87600h (ten years of
// 365 days, the broker's bound) in whole milliseconds, and there must be at
// most MaxWaits of them. Waits are named by rung, counted from 1.
func (s Schedule) Validate() error {
	var errs []error
	if len(s) > MaxWaits {
		// Not the number itself: the constructors stop counting there.
		errs = append(errs, fmt.Errorf("delay: more than %d waits, want at most %d (each is a queue)", MaxWaits, MaxWaits))
	}
	for i, wait := range s {
		switch {
		case wait == negativeCount:
			errs = append(errs, errors.New("delay: the number of waits is negative, want 0 or more"))
		case wait == badFactor:
			errs = append(errs, errors.New("delay: the factor is not a positive finite number"))
		case wait < minWait || wait > maxWait:
			errs = append(errs, fmt.Errorf("delay: wait %d is %v, want 1ms to 87600h", i+1, wait))
		case wait%time.Millisecond != 0:
			errs = append(errs, fmt.Errorf("delay: wait %d is %v, want whole milliseconds", i+1, wait))
		}
	}
	return errors.Join(errs...)
}
