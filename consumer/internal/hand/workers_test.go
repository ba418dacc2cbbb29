package hand

import (
	"slices"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

func TestAMessageWithoutASlotWaits(t *testing.T) {
	s := newStage(t, Limits{Slots: 1})
	for range 4 {
		s.deliver(1)
		s.now = s.now.Add(time.Second)
	}
	s.took("one slot", "[1]")
	if m := s.lane.queue[s.lane.head]; m.Raw.DeliveryTag != 2 || !s.in.Room(0).Oldest.Equal(m.Received) || s.in.Room(0).Waiting != 3 || s.lane.Busy() != 1 {
		t.Errorf("%d waits longest, since %v, %d wait, %d in hand", m.Raw.DeliveryTag, s.in.Room(0).Oldest, s.in.Room(0).Waiting, s.lane.Busy())
	}
	if back := s.takeBack(1); !slices.Equal(back, []uint64{3, 4}) {
		t.Errorf("taken back: %v, want 3 and 4", back)
	}
	if more := s.takeBack(1); more != nil {
		t.Errorf("taken back again: %v", more)
	}
	s.endAll()
	s.took("when the slot is free", "[2]")
	s.endAll()
	s.took("and then none")
	if s.in.Room(0).Waiting != 0 || !s.in.Room(0).Oldest.IsZero() || s.lane.Busy() != 0 {
		t.Errorf("%d wait, %d in hand", s.in.Room(0).Waiting, s.lane.Busy())
	}
}

func TestTheQueueOfALaneKeepsItsOrderAndItsSize(t *testing.T) {
	h := New(1, false)
	l := h.Lane(Limits{Slots: 1})
	s := l.Session(Contexts{Stop: t.Context(), Working: t.Context(), Copying: t.Context()})
	var out Out
	deliver := func(n uint64) { s.Delivered(&Message{Raw: amqp.Delivery{DeliveryTag: n}}, &out) }
	for n := uint64(1); n <= 100; n++ {
		deliver(n) // nobody comes
	}
	now := time.Now()
	w := &Worker{Woken: NewSignal()}
	g, _ := h.Next(w, now)
	for n := uint64(1); n <= 10_000; n++ {
		if m := g.Of[0]; m.Raw.DeliveryTag != n {
			t.Fatalf("message %d came as number %d", m.Raw.DeliveryTag, n)
		}
		deliver(n + 100)
		g, _ = h.Handled(w, g, now, Told{g.Of[0], Ack})
	}
	if len(l.queue) > 300 || s.Room(0).Waiting != 99 {
		t.Errorf("%d messages wait in a queue of %d", s.Room(0).Waiting, len(l.queue))
	}
	if len(h.every) != 1 {
		t.Errorf("%d grants were made, want one that is used again", len(h.every))
	}
}

// TestNoMoreWorkersStayIdleThanThereAreSlots: whatever has had more of them start, such as
// lanes that have more slots in all.
func TestNoMoreWorkersStayIdleThanThereAreSlots(t *testing.T) {
	const slots, more = 2, 6
	h := New(slots, false)
	l := h.Lane(Limits{Slots: more})
	s := l.Session(Contexts{Stop: t.Context(), Working: t.Context(), Copying: t.Context()})
	now := time.Now()
	workers, grants := make([]*Worker, more), make([]*Grant, more)
	for i := range workers {
		var out Out
		s.Delivered(&Message{Raw: amqp.Delivery{DeliveryTag: uint64(i + 1)}}, &out)
		if !out.Start {
			t.Fatalf("message %d has nobody to handle it", i+1)
		}
		workers[i] = &Worker{Woken: NewSignal()}
		if grants[i], _ = h.Next(workers[i], now); grants[i] == nil {
			t.Fatalf("worker %d has nothing to do", i+1)
		}
	}
	stay := 0
	for i, w := range workers {
		if _, ended := h.Handled(w, grants[i], now, Told{grants[i].Of[0], Ack}); !ended {
			stay++
		}
	}
	if stay != slots || len(h.idle) != slots {
		t.Errorf("%d workers stay, %d are idle, want %d of %d", stay, len(h.idle), slots, more)
	}
}
