package delay_test

import (
	"fmt"
	"time"

	"github.com/rehop/rehop/delay"
)

func ExampleSchedule() {
	waits := delay.Default()
	for attempt := 1; ; attempt++ {
		wait, ok := waits.After(attempt)
		if !ok {
			fmt.Println("attempt", attempt, "was the last")
			return
		}
		fmt.Println("after attempt", attempt, "wait", wait)
	}
	// Output:
	// after attempt 1 wait 1m0s
	// after attempt 2 wait 5m0s
	// after attempt 3 wait 10m0s
	// after attempt 4 wait 20m0s
	// attempt 5 was the last
}

func ExampleFixed() {
	fmt.Println(delay.Fixed(10*time.Second, 3))
	// Output: [10s 10s 10s]
}

func ExampleExponential() {
	fmt.Println(delay.Exponential(time.Second, 3, time.Minute, 5))
	// Output: [1s 3s 9s 27s 1m0s]
}

// The third wait is the shortest of at least seven minutes.
func ExampleSchedule_AtLeast() {
	waitNumber, ok := delay.Default().AtLeast(7 * time.Minute)
	fmt.Println(waitNumber, ok)
	// Output: 3 true
}

// A schedule may be a list of your own.
func ExampleSchedule_Validate() {
	fmt.Println(delay.Schedule{time.Minute, time.Hour, 24 * time.Hour}.Validate())
	fmt.Println(delay.Schedule{time.Second, -5 * time.Second}.Validate())
	// Output:
	// <nil>
	// delay: wait 2 is -5s, want 1ms to 87600h
}
