package consumer

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"

	amqp "github.com/rabbitmq/amqp091-go"
)

func numbered(n uint64) *message { return &message{raw: amqp.Delivery{DeliveryTag: n}} }

func TestAMessageWaitsForNoHandlerThatIsAtWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slots = 50
		var started sync.WaitGroup
		started.Add(slots)
		w := newWorkers(slots, func(*message) bool {
			started.Done()
			started.Wait() // until all others have started too; synctest notices if they do not
			return true
		})
		for round := range 3 { // of new workers, then of idle ones
			if round > 0 {
				started.Add(slots)
			}
			for n := range uint64(slots) {
				w.push(numbered(n))
			}
			synctest.Wait()
			if w.waiting() > 0 || len(w.idle) == 0 {
				t.Errorf("round %d: %d messages are left, %d workers idle", round, w.waiting(), len(w.idle))
			}
		}
		w.dismiss()
		w.all.Wait()
	})
}

func TestAMessageIsHandledOnceWhateverBecameOfTheWorkerBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const messages, slots = 600, 10
		var mu sync.Mutex
		handled := map[uint64]int{}
		atWork, most := 0, 0
		var w *lane
		w = newWorkers(slots, func(m *message) bool {
			mu.Lock()
			handled[m.raw.DeliveryTag]++
			atWork++
			most = max(most, atWork)
			mu.Unlock()
			runtime.Gosched()
			mu.Lock()
			atWork--
			mu.Unlock()
			switch m.raw.DeliveryTag % 3 {
			case 0:
				w.release()
				runtime.Goexit()
			case 1:
				go w.release() // by somebody else, later
				return false
			}
			return true
		})
		for n := range uint64(messages) { // more than there are slots
			w.push(numbered(n))
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
		w.dismiss()
		w.all.Wait()
	})
}

func TestAMessageWithoutASlotWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		goOn := make(chan struct{})
		var order []uint64
		w := newWorkers(1, func(m *message) bool {
			order = append(order, m.raw.DeliveryTag)
			<-goOn
			return true
		})
		for n := uint64(1); n <= 4; n++ {
			w.push(numbered(n))
		}
		synctest.Wait()
		if m := w.longestWaiting(); len(order) != 1 || m.raw.DeliveryTag != 2 || w.inHand() != 1 {
			t.Errorf("%v are handled, %v waits longest, %d in hand", order, m.raw.DeliveryTag, w.inHand())
		}
		back := w.takeBack(1)
		if len(back) != 2 || back[0].raw.DeliveryTag != 3 || back[1].raw.DeliveryTag != 4 {
			t.Errorf("taken back: %v, want 3 and 4", back)
		}
		if more := w.takeBack(1); more != nil {
			t.Errorf("taken back again: %v", more)
		}
		close(goOn)
		synctest.Wait()
		if len(order) != 2 || w.longestWaiting() != nil || w.inHand() != 0 {
			t.Errorf("handled %v, in hand %d", order, w.inHand())
		}
		w.dismiss()
		w.all.Wait()
	})
}

func TestTheQueueOfWorkersKeepsItsOrderAndItsSize(t *testing.T) {
	w := newWorkers(1, nil)
	w.busy = 1 // nobody comes
	for n := uint64(1); n <= 100; n++ {
		w.push(numbered(n))
	}
	woken := make(chan struct{}, 1)
	for n := uint64(1); n <= 10_000; n++ {
		m, ok := w.next(woken, false, w, true)
		if !ok || m.raw.DeliveryTag != n {
			t.Fatalf("message %d came as number %d", m.raw.DeliveryTag, n)
		}
		w.push(numbered(n + 100))
	}
	if len(w.queue) > 300 {
		t.Errorf("100 messages wait in a queue of %d", len(w.queue))
	}
}

func TestNoMoreWorkersStayIdleThanThereAreSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slots, more = 2, 6
		all := make(chan struct{})
		var w *lane
		w = newWorkers(slots, func(m *message) bool {
			w.release() // its message is in other hands
			if m.raw.DeliveryTag == more {
				close(all)
			} else {
				w.push(numbered(m.raw.DeliveryTag + 1)) // needs one more worker
			}
			<-all
			return false
		})
		w.push(numbered(1))
		synctest.Wait()
		if len(w.idle) != slots {
			t.Errorf("%d workers are idle, want %d of %d", len(w.idle), slots, more)
		}
		w.dismiss()
		w.all.Wait()
	})
}

func TestADismissedWorkerEndsWhenItsHandlerReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		w := newWorkers(2, func(*message) bool { <-hold; return true })
		w.push(numbered(1))
		w.push(numbered(2))
		synctest.Wait()
		w.dismiss()
		ended := make(chan struct{})
		go func() {
			w.all.Wait()
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
