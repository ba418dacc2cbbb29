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
		turns := make(chan struct{}, 500)
		var l load
		go func() {
			l.pace(ctx, 500, turns)
			close(turns)
		}()
		n := 0
		for range turns {
			n++
		}
		if n < 4999 || n > 5000 || l.omitted.Load() != 0 {
			t.Errorf("%d turns in 10 s and %d left out, want 5000", n, l.omitted.Load())
		}
	})
}

// Who has been away takes what room there is for, and no more.
func TestCatchingUpIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		turns := make(chan struct{}, 500)
		var l load
		go l.pace(ctx, 500, turns)
		<-time.After(10*time.Second + time.Millisecond)
		cancel()
		synctest.Wait()
		if len(turns) != 500 || l.omitted.Load() != 4500 {
			t.Errorf("%d turns wait and %d are left out, want 500 and 4500", len(turns), l.omitted.Load())
		}
	})
}
