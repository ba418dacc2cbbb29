package rehoptest

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

// Test runs a test in a bubble of testing/synctest, with a broker in it that ends
// with the test. Time in a bubble passes as soon as all goroutines wait for it.
//
// A bubble freezes if a goroutine waits for something that the bubble does not know: for
// a sync.Mutex whose owner waits for time to pass, or for a channel, a ctx or a
// sync.WaitGroup that was made outside of the bubble. After ten seconds of real time
// Test then writes the stacks of the goroutines that are in the bubble, that of the one
// that waits first, and ends the program. If a goroutine outside of the bubble works,
// sleeps or reads from a socket, it may still end the wait. Then Test writes a warning
// with its stack too, and the test goes on.
func Test(t *testing.T, cfg Config, test func(t *testing.T, broker *Broker)) {
	t.Helper()
	w := watch()
	defer w.stop()
	synctest.Test(t, func(t *testing.T) {
		broker, err := NewBroker(cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = broker.Close() })
		w.found(bubble())
		test(t, broker)
	})
}

// Run calls run, such as the Run of a consumer, on a goroutine of its own until stop
// is called or the test ends. Then it cancels the ctx, waits for run to return, and
// fails the test if run returns an error other than context.Canceled. Run also fails the
// test if run returns earlier.
//
// The defers of the test run before the end of the test. So a test that closes a Conn which
// run uses calls stop before, or closes the Conn by t.Cleanup, which it calls before Run.
func Run(t *testing.T, run func(ctx context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		err := run(ctx)
		switch {
		case ctx.Err() == nil:
			t.Errorf("rehoptest.Run: returned before it was stopped: %v", err)
		case err != nil && !errors.Is(err, context.Canceled):
			t.Errorf("rehoptest.Run: %v", err)
		}
	}()
	stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(stop)
	return stop
}
