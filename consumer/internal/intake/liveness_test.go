package intake

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rehop/rehop/consumer/internal/durations"
)

func TestTheQueueIsVisitedAfterTenSecondsWithoutADelivery(t *testing.T) {
	for name, c := range map[string]struct {
		deliveries []time.Duration // since the start
		busy       bool
		visited    []time.Duration
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
				var visited []time.Duration
				l := newLiveness(func() answer {
					visited = append(visited, time.Since(began))
					time.Sleep(time.Second) // the answer
					return answer{}
				})
				defer l.close()
				deliveries := make(chan struct{}, len(c.deliveries))
				for _, at := range c.deliveries {
					time.AfterFunc(at, func() { deliveries <- struct{}{} })
				}
				watch := time.NewTicker(time.Second)
				defer watch.Stop()
				end := time.After(35 * time.Second)
				for over := false; !over; {
					select {
					case <-deliveries:
						l.sign = time.Now()
					case <-l.timer.C:
						l.look(c.busy)
					case a := <-l.answers:
						l.answered(a.err)
					case <-watch.C:
						if time.Since(l.sign) > durations.SilentAfter {
							t.Errorf("after %v the latest sign is %v old", time.Since(began), time.Since(l.sign))
						}
					case <-end:
						over = true
					}
				}
				if !slices.Equal(visited, c.visited) {
					t.Errorf("visited at %v, want at %v", visited, c.visited)
				}
			})
		})
	}
}

func TestARefusedVisitIsNoSignAndIsMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := errors.New("refused")
		visits := 0
		l := newLiveness(func() answer { visits++; return answer{err: refused} })
		began := l.sign
		for range 3 {
			for !l.isVisiting() {
				<-l.timer.C
				l.look(false)
			}
			l.answered((<-l.answers).err)
		}
		l.close()
		if !l.sign.Equal(began) || visits != 3 || time.Since(began) != 3*durations.VisitAfter {
			t.Errorf("%d visits in %v, the latest sign is %v old; want 3 in %v, and that of the start", visits, time.Since(began), time.Since(l.sign), 3*durations.VisitAfter)
		}
	})
}
