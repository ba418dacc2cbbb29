package consumer

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/topology"
)

// status is what Health says.
func status(h *health) error {
	if err := h.check(time.Now()); err != nil {
		return err
	}
	return nil
}

func TestHealthNamesWhatPoliciesBreak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := health{queue: "orders"}
		h.starts(newTroubles(1))
		h.alive(time.Now())
		began := time.Now()
		fault := topology.PolicyFault{Queue: "orders.wait.1", Policy: `policy "ttl"`, Key: "message-ttl", Value: "5s", Effect: "messages leave the wait after that time"}
		h.ruled([]topology.PolicyFault{fault}, began)
		time.Sleep(time.Second)
		h.ruled([]topology.PolicyFault{fault, {Queue: "orders.dlq"}}, time.Now())
		if err := h.check(time.Now()); err == nil || !err.Degraded || err.Since != began || !strings.Contains(err.Error(), fault.String()) || !strings.Contains(err.Error(), `"orders.dlq"`) {
			t.Errorf("%v, want degraded since %v, with both faults", err, began)
		}
		h.ruled(nil, time.Now())
		if err := status(&h); err != nil {
			t.Errorf("%v, want healthy", err)
		}
	})
}

func TestHealthAgesWithoutASign(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := health{queue: "orders"}
		h.starts(newTroubles(1))
		if err := status(&h); !errors.Is(err, errStarting) {
			t.Errorf("before the first sign: %v, want %v", err, errStarting)
		}
		h.alive(time.Now())
		time.Sleep(silentAfter)
		if err := status(&h); err != nil {
			t.Errorf("%v after a sign: %v, want healthy", silentAfter, err)
		}
		time.Sleep(2 * time.Second)
		if err := status(&h); err == nil || !strings.Contains(err.Error(), `"orders" has given no sign for 17s`) {
			t.Errorf("17s after a sign: %v, want the queue and how long", err)
		}
		refusal := errors.New("ACCESS_REFUSED")
		h.refused(refusal)
		if err := status(&h); !errors.Is(err, refusal) {
			t.Errorf("after a refused probe: %v, want %v", err, refusal)
		}
		h.alive(time.Now())
		if err := status(&h); err != nil {
			t.Errorf("after another sign: %v, want healthy", err)
		}
		since := h.interrupted(errors.New("gone"), time.Now())
		time.Sleep(time.Second)
		if again := h.interrupted(errors.New("still gone"), time.Now()); again != since {
			t.Errorf("interrupted since %v, want %v", again, since)
		}
		if err := h.check(time.Now()); err == nil || !err.Degraded || err.Since != since || !strings.Contains(err.Error(), "still gone") {
			t.Errorf("while interrupted: %v, want degraded since %v", err, since)
		}
		time.Sleep(lostLimit)
		if err := h.check(time.Now()); err == nil || err.Degraded || err.Since != since {
			t.Errorf("interrupted for long: %v, want unhealthy since %v", err, since)
		}
		h.fail(errStopping)
		if err := status(&h); !errors.Is(err, errStopping) {
			t.Errorf("while stopping: %v, want %v", err, errStopping)
		}
	})
}

func TestEverySlotSettlingForLongIsUnhealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := health{queue: "orders"}
		tr := newTroubles(2)
		h.starts(tr)
		const healthy, degraded, unhealthy = "healthy", "degraded", "unhealthy"
		is := func(when, want string) *connection.HealthError {
			t.Helper()
			h.alive(time.Now())
			err := h.check(time.Now())
			got := healthy
			if err != nil {
				got = unhealthy
				if err.Degraded {
					got = degraded
				}
			}
			if got != want {
				t.Errorf("%s: %s (%v), want %s", when, got, err, want)
			}
			return err
		}
		dlq := topology.Address{Key: "orders.dlq"}
		tr.began()
		is("a copy is on its way", healthy)
		tr.fails(dlq)
		tr.failed(dlq, errors.New("nacked"))
		time.Sleep(time.Hour)
		if err := is("one of two slots", degraded); !strings.Contains(err.Error(), `queue "orders.dlq"`) || time.Since(err.Since) != time.Hour {
			t.Errorf("it does not say where and since when: %v", err)
		}
		tr.began()
		time.Sleep(settlingLimit - time.Second)
		is("all slots, not long", degraded)
		time.Sleep(time.Second)
		if err := is("all slots for 15 s", unhealthy); !strings.Contains(err.Error(), "2 messages in hand") || !strings.Contains(err.Error(), "nacked") || time.Since(err.Since) != settlingLimit {
			t.Errorf("it does not say why and since when: %v", err)
		}
		tr.ended()
		is("a slot is free again", degraded)
		tr.began()
		is("and taken at once", degraded)
		tr.ended()
		tr.ended()
		tr.over(dlq)
		is("all is settled", healthy)
	})
}

func TestTheQueueIsProbedAfterTenSecondsWithoutADelivery(t *testing.T) {
	for name, c := range map[string]struct {
		deliveries []time.Duration // since the start
		busy       bool
		probed     []time.Duration
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
				h := health{queue: "orders", troubles: newTroubles(1)}
				h.alive(began)
				var probed []time.Duration
				l := newLiveness(func() error {
					probed = append(probed, time.Since(began))
					time.Sleep(time.Second) // the answer
					return nil
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
						h.alive(l.sign)
					case err := <-l.answers:
						l.answered(err)
						h.alive(l.sign)
					case <-watch.C:
						if err := status(&h); err != nil {
							t.Errorf("after %v: %v, want healthy", time.Since(began), err)
						}
					case <-end:
						over = true
					}
				}
				if !slices.Equal(probed, c.probed) {
					t.Errorf("probed at %v, want at %v", probed, c.probed)
				}
			})
		})
	}
}

func TestARefusedProbeIsNoSignAndIsMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := errors.New("refused")
		probes := 0
		l := newLiveness(func() error { probes++; return refused })
		began := l.sign
		for range 3 {
			<-l.timer.C
			l.look(false)
			l.answered(<-l.answers)
		}
		l.close()
		if !l.sign.Equal(began) || probes != 3 || time.Since(began) != 3*probeAfter {
			t.Errorf("%d probes in %v, the latest sign is %v old; want 3 in %v, and that of the start", probes, time.Since(began), time.Since(l.sign), 3*probeAfter)
		}
	})
}

func TestPlural(t *testing.T) {
	for n, want := range map[int]string{0: "0 messages", 1: "1 message", 2: "2 messages"} {
		if got := plural(n, "message"); got != want {
			t.Errorf("plural(%d) = %q, want %q", n, got, want)
		}
	}
}
