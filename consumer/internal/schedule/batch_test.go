package schedule

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/consumer/internal/flight"
)

// batches is a lane that notes the batches that workers take, by the tags of their
// messages.
type batches struct {
	*Schedule
	*Lane
	in *flight.Ledger

	mu    sync.Mutex
	taken []string
	tag   uint64
}

func newBatches(slots int, limits Limits, busy func()) *batches {
	b := &batches{Schedule: New(slots, false), in: flight.NewLedger(flight.NewUnsettled())}
	limits.Slots = slots
	if limits.Batch.Bytes == 0 {
		limits.Batch.Bytes = 1 << 20
	}
	limits.Batch.Alone = func(m *flight.Message) bool { return m.Suspect }
	b.Lane = b.Schedule.Lane(limits, func(g *Grant) int {
		tags := make([]uint64, len(g.Of))
		for i, m := range g.Of {
			tags[i] = m.Raw.DeliveryTag
		}
		b.mu.Lock()
		b.taken = append(b.taken, fmt.Sprint(tags))
		b.mu.Unlock()
		if busy != nil {
			busy()
		}
		return 0
	})
	return b
}

func (b *batches) push(n int, change ...func(*flight.Message)) {
	for range n {
		b.tag++
		m := &flight.Message{Raw: amqp.Delivery{DeliveryTag: b.tag, Body: make([]byte, 10)}, In: b.in, Received: time.Now()}
		for _, c := range change {
			c(m)
		}
		b.Push(m)
	}
}

func (b *batches) took(t *testing.T, when string, want ...string) {
	t.Helper()
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	if !slices.Equal(b.taken, want) {
		t.Errorf("%s: workers took %v, want %v", when, b.taken, want)
	}
	b.taken = nil
}

func (b *batches) end() {
	b.Close()
	b.Wait()
}

func TestABatchIsUpToSizeOrWhatCameWithinLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBatches(1, Limits{Batch: Batch{Size: 3, Linger: time.Second}}, nil)
		defer b.end()
		b.push(2)
		time.Sleep(time.Second - time.Millisecond)
		b.took(t, "before the first has lingered")
		time.Sleep(time.Millisecond)
		b.took(t, "then", "[1 2]")
		b.push(1)
		time.Sleep(500 * time.Millisecond)
		b.push(2)
		b.took(t, "when it is full", "[3 4 5]")
		b.push(1)
		time.Sleep(600 * time.Millisecond)
		b.push(1)
		time.Sleep(400 * time.Millisecond)
		b.took(t, "the first counts", "[6 7]")
	})
}

func TestWithoutLingerABatchIsWhatCameMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBatches(1, Limits{Batch: Batch{Size: 10}}, func() { time.Sleep(time.Second) })
		defer b.end()
		b.push(1)
		b.took(t, "at once", "[1]")
		b.push(12)
		time.Sleep(2 * time.Second)
		b.took(t, "when the worker is free", "[2 3 4 5 6 7 8 9 10 11]", "[12 13]")
	})
}

func TestABatchIsBoundedInBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBatches(1, Limits{Batch: Batch{Size: 10, Linger: time.Second, Bytes: 35}}, nil)
		defer b.end()
		b.push(4) // of 10 bytes each
		b.took(t, "as soon as it has so many bytes", "[1 2 3]")
		b.push(1, func(m *flight.Message) { m.Raw.Body = make([]byte, 100) })
		b.took(t, "a message that is larger", "[4]", "[5]")
		time.Sleep(2 * time.Second)
		b.took(t, "nothing is left")
	})
}

func TestASuspectGoesAloneAndAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBatches(1, Limits{Batch: Batch{Size: 10, Linger: time.Minute}}, nil)
		defer b.end()
		b.push(2)
		b.push(1, func(m *flight.Message) { m.Suspect = true })
		b.push(2)
		b.took(t, "what came before it can get no company", "[1 2]", "[3]")
		time.Sleep(time.Minute)
		b.took(t, "what comes after it lingers", "[4 5]")
	})
}

func TestABatchIsOfOneSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBatches(1, Limits{Batch: Batch{Size: 10, Linger: time.Minute}}, nil)
		defer b.end()
		b.push(2)
		b.in, b.tag = flight.NewLedger(flight.NewUnsettled()), 100
		b.push(2)
		b.took(t, "of the session before", "[1 2]")
		time.Sleep(time.Minute)
		b.took(t, "of the next", "[101 102]")
	})
}

func TestABatchHasAsManyMessagesOfAKeyAsTheyMayBe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBatches(2, Limits{PerKey: 1, Key: func(m *flight.Message) string { return string(m.Raw.Body[:1]) }, Batch: Batch{Size: 10, Linger: time.Second}},
			func() { time.Sleep(time.Minute) })
		defer b.end()
		for _, key := range []string{"a", "a", "b", "a", "c"} {
			b.push(1, func(m *flight.Message) { m.Raw.Body = []byte(key) })
		}
		time.Sleep(time.Second)
		b.took(t, "one of each key", "[1 3 5]")
		time.Sleep(time.Minute)
		b.took(t, "when they are free: it has lingered long enough", "[2]")
		time.Sleep(time.Minute)
		b.took(t, "and then", "[4]")
	})
}

func TestAnOutageTriesBatchesOfOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		b := newBatches(2, Limits{Batch: Batch{Size: 10, Linger: time.Second}, Outage: Outage{Of: 1, From: 1, MaxPause: time.Second}}, func() { <-release })
		defer b.end()
		b.gate.note(false, true, true, time.Now())
		b.push(3)
		b.took(t, "before the first try")
		time.Sleep(firstPause)
		b.took(t, "then one message finds out, and does not linger", "[1]")
		close(release)
	})
}

func TestATakenBackBatchIsNotCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBatches(1, Limits{Batch: Batch{Size: 10, Linger: time.Second, Bytes: 95}}, nil)
		defer b.end()
		b.push(5)
		b.Pause()
		b.push(1, func(m *flight.Message) { m.Suspect = true })
		b.took(t, "paused")
		if n := len(b.TakeBack(0)); n != 6 || b.bytes != 0 || b.alone != 0 {
			t.Errorf("%d messages taken back, %d bytes and %d alone left", n, b.bytes, b.alone)
		}
		b.Resume()
		time.Sleep(time.Minute)
		b.took(t, "after the pause")
	})
}

func TestLanesWithBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(1, true)
		var mu sync.Mutex
		var taken []string
		run := func(name string) func(*Grant) int {
			return func(g *Grant) int {
				mu.Lock()
				taken = append(taken, fmt.Sprint(name, len(g.Of)))
				mu.Unlock()
				time.Sleep(time.Second)
				return 0
			}
		}
		limits := Limits{Slots: 1, Batch: Batch{Size: 5, Linger: 100 * time.Millisecond, Bytes: 1000, Alone: func(*flight.Message) bool { return false }}}
		high, low := s.Lane(limits, run("high")), s.Lane(limits, run("low"))
		in := []*flight.Ledger{flight.NewLedger(flight.NewUnsettled()), flight.NewLedger(flight.NewUnsettled())}
		push := func(l *Lane, n int) {
			for i := range n {
				l.Push(&flight.Message{Raw: amqp.Delivery{DeliveryTag: uint64(i + 1)}, In: in[0], Received: time.Now()})
			}
		}
		push(low, 3)
		push(high, 2)
		time.Sleep(3 * time.Second)
		push(low, 5) // full at once, while those of the high lane linger
		push(high, 1)
		push(high, 1)
		time.Sleep(5 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		if want := []string{"high2", "low3", "low5", "high2"}; !slices.Equal(taken, want) {
			t.Errorf("workers took %v, want %v", taken, want)
		}
		s.Close()
		s.Wait()
	})
}

// A held batch keeps its slot; what came meanwhile waits for no longer than that.
func TestAHeldBatchIsOneSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(2, false)
		var l *Lane
		inHand := func() int {
			s.mu.Lock()
			defer s.mu.Unlock()
			return l.granted
		}
		held := make(chan int, 1)
		l = s.Lane(Limits{Slots: 2, Batch: Batch{Size: 5, Bytes: 1000, Alone: func(*flight.Message) bool { return false }}}, func(g *Grant) int {
			if g.Of[0].Raw.DeliveryTag == 1 {
				held <- len(g.Of)
				l.Hold(g, time.Hour, time.Now().Add(time.Hour), false, context.Background(), t.Context())
			}
			return 0
		})
		for i := range 5 {
			l.Push(&flight.Message{Raw: amqp.Delivery{DeliveryTag: uint64(i + 1)}, Received: time.Now()})
		}
		synctest.Wait()
		if busy := l.Busy(); busy != 1 || inHand() > 5 {
			t.Errorf("%d slots taken, %d messages in hand", busy, inHand())
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if busy := l.Busy(); busy != 0 || inHand() != 0 {
			t.Errorf("%d slots taken, %d messages in hand after all", busy, inHand())
		}
		s.Close()
		s.Wait()
	})
}
