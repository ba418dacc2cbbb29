package schedule

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/consumer/internal/flight"
)

// oneLane is a Schedule with its only lane, whose handler gets one message.
type oneLane struct {
	*Schedule
	*Lane
}

func newOneLane(slots int, handle func(g *Grant, m *flight.Message) (free bool)) oneLane {
	s := New(slots, false)
	return oneLane{s, s.Lane(Limits{Slots: slots}, func(g *Grant) int {
		if handle(g, g.Of[0]) {
			return 0
		}
		return 1
	})}
}

func numbered(n uint64) *flight.Message { return &flight.Message{Raw: amqp.Delivery{DeliveryTag: n}} }

func TestAMessageWaitsForNoHandlerThatIsAtWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slots = 50
		var started sync.WaitGroup
		started.Add(slots)
		w := newOneLane(slots, func(*Grant, *flight.Message) bool {
			started.Done()
			started.Wait() // until all others have started too; synctest notices if they do not
			return true
		})
		for round := range 3 { // of new workers, then of idle ones
			if round > 0 {
				started.Add(slots)
			}
			for n := range uint64(slots) {
				w.Push(numbered(n))
			}
			synctest.Wait()
			if w.waiting() > 0 || len(w.idle) == 0 {
				t.Errorf("round %d: %d messages are left, %d workers idle", round, w.waiting(), len(w.idle))
			}
		}
		w.Close()
		w.Wait()
	})
}

func TestAMessageIsHandledOnceWhateverBecameOfTheWorkerBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const messages, slots = 600, 10
		var mu sync.Mutex
		handled := map[uint64]int{}
		atWork, most := 0, 0
		var w oneLane
		w = newOneLane(slots, func(g *Grant, m *flight.Message) bool {
			mu.Lock()
			handled[m.Raw.DeliveryTag]++
			atWork++
			most = max(most, atWork)
			mu.Unlock()
			runtime.Gosched()
			mu.Lock()
			atWork--
			mu.Unlock()
			switch m.Raw.DeliveryTag % 3 {
			case 0:
				w.Release(g)
				runtime.Goexit()
			case 1:
				go w.Release(g) // by somebody else, later
				return false
			}
			return true
		})
		for n := range uint64(messages) { // more than there are slots
			w.Push(numbered(n))
			if n%100 == 99 {
				synctest.Wait()
			}
		}
		synctest.Wait()
		for n := range uint64(messages) {
			if handled[n] != 1 {
				t.Errorf("message %d was handled %d times", n, handled[n])
			}
		}
		if most > slots || w.busy != 0 {
			t.Errorf("%d handlers at a time, %d slots taken at the end; want at most %d, and 0", most, w.busy, slots)
		}
		w.Close()
		w.Wait()
	})
}

func TestAMessageWithoutASlotWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		goOn := make(chan struct{})
		var order []uint64
		w := newOneLane(1, func(_ *Grant, m *flight.Message) bool {
			order = append(order, m.Raw.DeliveryTag)
			<-goOn
			return true
		})
		for n := uint64(1); n <= 4; n++ {
			w.Push(numbered(n))
		}
		synctest.Wait()
		if m := w.queue[w.head]; len(order) != 1 || m.Raw.DeliveryTag != 2 || !w.Oldest().Equal(m.Received) || w.Busy() != 1 {
			t.Errorf("%v are handled, %v waits longest, %d in hand", order, m.Raw.DeliveryTag, w.Busy())
		}
		back := w.TakeBack(1)
		if len(back) != 2 || back[0].Raw.DeliveryTag != 3 || back[1].Raw.DeliveryTag != 4 {
			t.Errorf("taken back: %v, want 3 and 4", back)
		}
		if more := w.TakeBack(1); more != nil {
			t.Errorf("taken back again: %v", more)
		}
		close(goOn)
		synctest.Wait()
		if len(order) != 2 || w.waiting() != 0 || w.Busy() != 0 {
			t.Errorf("handled %v, in hand %d", order, w.Busy())
		}
		w.Close()
		w.Wait()
	})
}

func TestTheQueueOfALaneKeepsItsOrderAndItsSize(t *testing.T) {
	w := newOneLane(1, nil)
	w.busy = 1 // nobody comes
	for n := uint64(1); n <= 100; n++ {
		w.Push(numbered(n))
	}
	w.Lane.busy = 0
	woken := make(chan struct{}, 1)
	var g *Grant
	for n := uint64(1); n <= 10_000; n++ {
		before, released := g, 0
		if before != nil {
			released = 1
		}
		g = w.next(woken, false, before, w.Lane, released)
		if m := g.Of[0]; m.Raw.DeliveryTag != n {
			t.Fatalf("message %d came as number %d", m.Raw.DeliveryTag, n)
		}
		w.Push(numbered(n + 100))
	}
	if len(w.queue) > 300 {
		t.Errorf("100 messages wait in a queue of %d", len(w.queue))
	}
}

func TestNoMoreWorkersStayIdleThanThereAreSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slots, more = 2, 6
		all := make(chan struct{})
		var w oneLane
		w = newOneLane(slots, func(g *Grant, m *flight.Message) bool {
			w.Release(g) // its message is in other hands
			if m.Raw.DeliveryTag == more {
				close(all)
			} else {
				w.Push(numbered(m.Raw.DeliveryTag + 1)) // needs one more worker
			}
			<-all
			return false
		})
		w.Push(numbered(1))
		synctest.Wait()
		if len(w.idle) != slots {
			t.Errorf("%d workers are idle, want %d of %d", len(w.idle), slots, more)
		}
		w.Close()
		w.Wait()
	})
}

func TestADismissedWorkerEndsWhenItsHandlerReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		w := newOneLane(2, func(*Grant, *flight.Message) bool { <-hold; return true })
		w.Push(numbered(1))
		w.Push(numbered(2))
		synctest.Wait()
		w.Close()
		ended := make(chan struct{})
		go func() {
			w.Wait()
			close(ended)
		}()
		synctest.Wait()
		select {
		case <-ended:
			t.Error("workers have ended while their handlers run")
		default:
		}
		close(hold)
		<-ended
	})
}
