package main

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestTurnsComeAtTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		starts := make(chan struct{}, 500)
		var l load
		go func() {
			l.pace(ctx, 500, starts)
			close(starts)
		}()
		n := 0
		for range starts {
			n++
		}
		if n < 4999 || n > 5000 || l.omitted.Load() != 0 {
			t.Errorf("%d starts in 10 s and %d left out, want 5000", n, l.omitted.Load())
		}
	})
}

// Who has been away takes what room there is for, and no more.
func TestCatchingUpIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		starts := make(chan struct{}, 500)
		var l load
		go l.pace(ctx, 500, starts)
		<-time.After(10*time.Second + time.Millisecond)
		cancel()
		synctest.Wait()
		if len(starts) != 500 || l.omitted.Load() != 4500 {
			t.Errorf("%d starts wait and %d are left out, want 500 and 4500", len(starts), l.omitted.Load())
		}
	})
}
