// Package delay says how long a message waits before its next attempt.
//
//	attempt 1 --1m--> attempt 2 --5m--> attempt 3 --10m--> attempt 4 --20m--> attempt 5 --> dead letter
//
// A schedule is a field of a work queue:
//
//	orders := topology.WorkQueue{Name: "orders", Waits: delay.Default()}
//
// A [Schedule] is a plain list of waits. It holds no state, and the wait is a
// function of the attempt that has just ended. So a schedule can be shared,
// compared, printed and tested without a clock or a broker. It is finite because
// each wait is a queue.
//
// Package [github.com/rehop/rehop/topology] declares these queues. The page [Retries] has
// more examples.
//
// [Retries]: https://github.com/rehop/rehop/blob/main/docs/retries.md
package delay

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// MaxWaits is the largest number of waits in a schedule. Each wait of each work
// queue is a queue of its own.
const MaxWaits = 16

// The bounds of one wait. The broker refuses a TTL above ten years of 365 days
// (315,360,000,000 ms) on every version; 0 is legal there but is no wait.
const (
	minWait = time.Millisecond
	maxWait = 10 * 365 * 24 * time.Hour
)

// The waits that a constructor returns for an argument which no list of waits can
// express: one of these, and then the argument itself. Both lie far below any wait that a
// user would write, and Validate turns them into a sentence about the argument.
const (
	badCount  time.Duration = math.MinInt64     // the number of waits follows
	badFactor time.Duration = math.MinInt64 + 1 // the bits of the factor follow
)

// Schedule is the list of waits between attempts: the first follows the first
// attempt. A message is attempted once more than the schedule has waits; an
// empty or nil schedule means no retries. Waits need not rise.
//
// The broker counts whole milliseconds, so a wait can end early by less than a
// millisecond (measured on 4.0 and 4.3).
//
// A Schedule is a value that nothing in this package changes, so it is safe for
// concurrent use as long as its owner does not write to it.
type Schedule []time.Duration

// Default returns the waits 1m, 5m, 10m and 20m: five attempts within 36
// minutes. Each call returns a list of its own.
func Default() Schedule {
	return Schedule{time.Minute, 5 * time.Minute, 10 * time.Minute, 20 * time.Minute}
}

// Fixed returns n equal waits of d. It never panics: invalid arguments, such as an
// n that is negative or above MaxWaits, give a schedule that Validate refuses.
func Fixed(d time.Duration, n int) Schedule {
	return build(n, func(int) time.Duration { return d })
}

// Exponential returns n waits. The first is as given, and each further one is
// factor times the one before, rounded to whole milliseconds, and at most limit. A
// factor below 1 makes the waits shrink.
//
// It never panics and never overflows. Invalid arguments (an n that is negative or
// above MaxWaits, a factor that is not a positive finite number, a first or limit of
// zero or less) give a schedule that Validate refuses. With an n of 0 only n matters.
func Exponential(first time.Duration, factor float64, limit time.Duration, n int) Schedule {
	if n > 0 && !(factor > 0 && factor <= math.MaxFloat64) { // the negation catches NaN
		return Schedule{badFactor, time.Duration(math.Float64bits(factor))} //nolint:gosec // bits stay bits
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

// build makes n waits, but never more than Validate accepts: a slip of a zero must
// end in an error and not in gigabytes.
func build(n int, wait func(i int) time.Duration) Schedule {
	if n < 0 || n > MaxWaits {
		return Schedule{badCount, time.Duration(n)}
	}
	s := make(Schedule, n)
	for i := range s {
		s[i] = wait(i)
	}
	return s
}

// After returns the wait before the attempt that follows the given one, counted
// from 1. It returns false if there is none, because the attempts are used up or
// the attempt is below 1.
func (s Schedule) After(attempt int) (time.Duration, bool) {
	if attempt < 1 || attempt > len(s) {
		return 0, false
	}
	return s[attempt-1], true
}

// AtLeast returns the number, counted from 1, of the shortest wait that is not
// shorter than d, and of equal waits the lowest number. It returns false if every
// wait is shorter than d, or if the schedule is empty.
func (s Schedule) AtLeast(d time.Duration) (waitNumber int, ok bool) {
	for i, wait := range s {
		if wait >= d && (waitNumber == 0 || wait < s[waitNumber-1]) {
			waitNumber = i + 1
		}
	}
	return waitNumber, waitNumber > 0
}

// Validate returns nil if the schedule can be declared on a broker, and otherwise
// all faults joined into one error. Each wait must be 1ms to 87600h (ten years of
// 365 days, the broker's bound) in whole milliseconds, and there must be at
// most MaxWaits of them. The errors number the waits from 1.
func (s Schedule) Validate() error {
	var errs []error
	if len(s) > MaxWaits {
		errs = append(errs, countFault(len(s)))
	}
	for i := 0; i < len(s); i++ {
		wait := s[i]
		switch {
		case wait == badCount && i+1 < len(s):
			i++
			errs = append(errs, countFault(int(s[i])))
		case wait == badFactor && i+1 < len(s):
			i++
			errs = append(errs, fmt.Errorf("delay: the factor is %v, want a positive finite number", math.Float64frombits(uint64(s[i])))) //nolint:gosec // bits stay bits
		case wait < minWait || wait > maxWait:
			errs = append(errs, fmt.Errorf("delay: wait %d is %v, want 1ms to 87600h", i+1, wait))
		case wait%time.Millisecond != 0:
			errs = append(errs, fmt.Errorf("delay: wait %d is %v, want whole milliseconds", i+1, wait))
		}
	}
	return errors.Join(errs...)
}

func countFault(n int) error {
	return fmt.Errorf("delay: the number of waits is %d, want 0 to %d (each is a queue)", n, MaxWaits)
}
