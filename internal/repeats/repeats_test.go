package repeats

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestRepeatsAreSaidMoreAndMoreRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(slog.New(slog.DiscardHandler))
		said, told := 0, 0
		for range 24 * 60 * 6 { // each 10 s, for a day
			if times, due := r.note("cause", time.Now()); due {
				said++
				told += times
			}
			time.Sleep(10 * time.Second)
		}
		if said < 24 || said > 30 {
			t.Errorf("said %d times in a day", said)
		}
		if missing := 24*60*6 - told; missing > 360 {
			t.Errorf("%d of the times are not told, more than those of an hour", missing)
		}
		if times, due := r.note("another", time.Now()); times != 1 || !due {
			t.Errorf("another cause: %d, %t", times, due)
		}
		time.Sleep(forgetCauses + time.Second)
		if times, due := r.note("cause", time.Now()); times != 1 || !due {
			t.Errorf("the cause after a long time: %d, %t", times, due)
		}
		for n := range 3 * maxCauses {
			r.note(fmt.Sprint(n), time.Now())
		}
		if len(r.causes) > maxCauses {
			t.Errorf("%d causes are kept", len(r.causes))
		}
	})
}

func TestACauseWithAnotherPortIsTheSame(t *testing.T) {
	var log strings.Builder
	r := New(slog.New(slog.NewTextHandler(&log, nil)))
	for port := range 8 {
		r.Warn("interrupted", fmt.Errorf("read tcp 127.0.0.1:%d->127.0.0.1:5672: connection reset by peer", 33508+port))
	}
	r.Warn("interrupted", errors.New("EOF"))
	if n := strings.Count(log.String(), "\n"); n != 2 {
		t.Errorf("%d lines for two causes:\n%s", n, log.String())
	}
}
