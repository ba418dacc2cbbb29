package work

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/consumer/internal/durations"
	"github.com/rehop/rehop/consumer/internal/hand"
	"github.com/rehop/rehop/internal/route"
)

func TestEverySlotSettlingForLongIsUnhealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHands(2, 2)
		s := h.open(t, &channel{}, nil, nil)
		defer s.writer.Close()
		u := newUnconfirmed()
		const healthy, degraded, unhealthy = "healthy", "degraded", "unhealthy"
		is := func(when, want string) *rehop.HealthError {
			t.Helper()
			now := h.lane.State(time.Now())
			full, messages := now.Copying, now.Copies
			err := u.Check("orders", full, messages, time.Now())
			got := healthy
			if err != nil {
				got = unhealthy
				if err.Degraded {
					got = degraded
				}
			}
			if got != want {
				t.Fatalf("%s: %s (%v), want %s", when, got, err, want)
			}
			return err
		}
		tag := uint64(0)
		// began has a worker take so many messages in one slot, and settle them by copies.
		began := func(n int) (ms []*hand.Message) {
			t.Helper()
			for range n {
				tag++
				s.deliver(tag)
			}
			g := h.take(t)
			if len(g.Of) != n {
				t.Fatalf("%d messages in one slot, want %d", len(g.Of), n)
			}
			ms = append(ms, g.Of...)
			h.settle(hand.Copy, ms...)
			h.Handled(&h.worker, g, time.Now())
			return ms
		}
		ended := func(ms ...*hand.Message) {
			h.pool.Event(func(now time.Time, out *hand.Out) { h.CopyEnded(hand.Ack, now, out, ms...) })
		}
		dlq := route.Target{RoutingKey: "orders.dlq"}
		one := began(1)
		is("a copy is on its way", healthy)
		u.held(dlq)
		u.failed(dlq, errors.New("nacked"))
		time.Sleep(time.Hour)
		if err := is("one of two slots", degraded); !strings.Contains(err.Error(), `queue "orders.dlq"`) || time.Since(err.Since) != time.Hour {
			t.Errorf("it does not say where and since when: %v", err)
		}
		another := began(1)
		time.Sleep(durations.SettlingLimit - time.Second)
		is("all slots, not long", degraded)
		time.Sleep(time.Second)
		if err := is("all slots for 15 s", unhealthy); !strings.Contains(err.Error(), "2 messages in hand") || !strings.Contains(err.Error(), "nacked") || time.Since(err.Since) != durations.SettlingLimit {
			t.Errorf("it does not say why and since when: %v", err)
		}
		ended(one...)
		is("a slot is free again", degraded)
		one = began(1)
		is("and taken at once", degraded)
		ended(one...)
		ended(another...)
		u.over(dlq)
		if err := is("the message went back to its queue", degraded); !strings.Contains(err.Error(), "went back to the queue") {
			t.Errorf("it does not say so: %v", err)
		}
		u.works(dlq)
		is("a copy is confirmed", healthy)
		u.held(dlq)
		u.failed(dlq, errors.New("nacked"))
		u.over(dlq)
		time.Sleep(durations.PlaceRemembered - time.Second)
		is("nothing is heard of the place, not for long", degraded)
		time.Sleep(time.Second)
		is("nothing is heard of the place for long", healthy)
		two := began(2)
		time.Sleep(time.Hour)
		is("two messages of one slot", healthy)
		another = began(1)
		time.Sleep(durations.SettlingLimit)
		if err := is("both slots", unhealthy); !strings.Contains(err.Error(), "3 messages in hand") {
			t.Errorf("it does not say how many: %v", err)
		}
		ended(two[0])
		if err := is("one of two messages of a slot is settled", unhealthy); !strings.Contains(err.Error(), "2 messages in hand") {
			t.Errorf("it does not say how many are left: %v", err)
		}
		ended(two[1])
		is("and the other", healthy)
		ended(another...)
		synctest.Wait()
		h.free(t)
	})
}

// Messages that no worker had are in no slot. Their copies take what slots would.
func TestCopiesOfMessagesThatNoWorkerHadCountAsSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHands(2, 0)
		s := h.open(t, &channel{}, nil, nil)
		defer s.writer.Close()
		is := func(when string, since time.Duration, messages int) {
			t.Helper()
			now := h.lane.State(time.Now())
			full, n := now.Copying, now.Copies
			got := time.Duration(-1)
			if !full.IsZero() {
				got = time.Since(full)
			}
			if got != since || n != messages {
				t.Errorf("%s: %d messages, all slots for %v; want %d, %v", when, n, got, messages, since)
			}
		}
		var ms []*hand.Message
		began := func(n int) {
			t.Helper()
			var out hand.Out
			for range n {
				tag := uint64(len(ms) + 1)
				m := s.message(tag)
				m.Scarce = true
				ms = append(ms, m)
				s.Delivered(m, &out)
			}
			h.lane.TakeBack(0, true, time.Now(), &out)
			if len(out.Copy) != n {
				t.Fatalf("%d messages go to the end of their queue, want %d", len(out.Copy), n)
			}
		}
		is("none", -1, 0)
		began(1)
		is("one", -1, 1)
		began(1)
		is("two in the place of two", 0, 2)
		time.Sleep(time.Minute)
		began(1)
		is("one more, later", time.Minute, 3)
		ended := func(m *hand.Message) {
			h.pool.Event(func(now time.Time, out *hand.Out) { h.CopyEnded(hand.Ack, now, out, m) })
		}
		ended(ms[0])
		is("two are left", time.Minute, 2)
		ended(ms[1])
		is("one is left", -1, 1)
		ended(ms[2])
		is("none is left", -1, 0)
	})
}

func TestWhoWaitsIsToldWhenCopiesBeginToFail(t *testing.T) {
	u := newUnconfirmed()
	to := route.Target{RoutingKey: "orders.dlq"}
	for range 2 {
		since, begins := u.Since()
		if !since.IsZero() {
			t.Fatalf("copies have been failing since %v", since)
		}
		u.held(to)
		select {
		case <-begins:
		default:
			t.Fatal("nobody is told")
		}
		if since, begins = u.Since(); since.IsZero() {
			t.Fatal("nothing is known of it")
		}
		u.held(route.Target{RoutingKey: "orders.wait.1"})
		select {
		case <-begins:
			t.Fatal("it is told of another place, and looks at all of them")
		default:
		}
		for _, at := range []route.Target{to, {RoutingKey: "orders.wait.1"}} {
			u.over(at)
			u.works(at)
		}
	}
}
