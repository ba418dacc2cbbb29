package consumer

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestHealthAgesWithoutASign(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h health
		h.fail(errStarting)
		if err := h.err("orders", time.Now()); !errors.Is(err, errStarting) {
			t.Errorf("before the first sign: %v, want %v", err, errStarting)
		}
		h.alive(time.Now())
		time.Sleep(silentAfter)
		if err := h.err("orders", time.Now()); err != nil {
			t.Errorf("%v after a sign: %v, want healthy", silentAfter, err)
		}
		time.Sleep(2 * time.Second)
		if err := h.err("orders", time.Now()); err == nil || !strings.Contains(err.Error(), `"orders" has given no sign for 17s`) {
			t.Errorf("17s after a sign: %v, want the queue and how long", err)
		}
		h.alive(time.Now())
		if err := h.err("orders", time.Now()); err != nil {
			t.Errorf("after another sign: %v, want healthy", err)
		}
		h.fail(errStopping)
		if err := h.err("orders", time.Now()); !errors.Is(err, errStopping) {
			t.Errorf("while stopping: %v, want %v", err, errStopping)
		}
	})
}

func TestTheQueueIsAskedAfterTenSecondsWithoutADelivery(t *testing.T) {
	for name, c := range map[string]struct {
		deliveries []time.Duration // since the start
		busy       bool
		asked      []time.Duration
	}{
		"idle":                          {nil, false, []time.Duration{10 * time.Second, 21 * time.Second, 32 * time.Second}},
		"one delivery":                  {[]time.Duration{9 * time.Second}, false, []time.Duration{19 * time.Second, 30 * time.Second}},
		"deliveries all the time":       {[]time.Duration{5 * time.Second, 12 * time.Second, 21 * time.Second, 30 * time.Second}, false, nil},
		"no place free":                 {nil, true, nil},
		"no place free, and deliveries": {[]time.Duration{time.Second, 15 * time.Second}, true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				var h health
				h.alive(began)
				b := newBeat()
				defer b.timer.Stop()
				deliveries := make(chan struct{}, len(c.deliveries))
				for _, at := range c.deliveries {
					time.AfterFunc(at, func() { deliveries <- struct{}{} })
				}
				var asked []time.Duration
				ask := func() error {
					asked = append(asked, time.Since(began))
					time.Sleep(time.Second) // the answer
					return nil
				}
				watch := time.NewTicker(time.Second)
				defer watch.Stop()
				end := time.After(35 * time.Second)
				for over := false; !over; {
					select {
					case <-deliveries:
						b.last = time.Now()
					case <-b.timer.C:
						if err := b.look(c.busy, ask); err != nil {
							t.Fatal(err)
						}
						h.alive(b.last)
					case <-watch.C:
						if err := h.err("orders", time.Now()); err != nil {
							t.Errorf("after %v: %v, want healthy", time.Since(began), err)
						}
					case <-end:
						over = true
					}
				}
				if !slices.Equal(asked, c.asked) {
					t.Errorf("asked at %v, want at %v", asked, c.asked)
				}
			})
		})
	}
}

func TestWithoutAnAnswerTheLatestSignStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBeat()
		defer b.timer.Stop()
		began := b.last
		<-b.timer.C
		if err := b.look(false, func() error { return errUnanswered }); !errors.Is(err, errUnanswered) {
			t.Errorf("look = %v, want %v", err, errUnanswered)
		}
		if !b.last.Equal(began) {
			t.Errorf("the latest sign is %v old, want that of the start", time.Since(b.last))
		}
	})
}
