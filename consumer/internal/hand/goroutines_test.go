package hand_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rehop/rehop/consumer/internal/hand"
)

func TestAMessageWaitsForNoHandlerThatIsAtWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slots = 50
		var started sync.WaitGroup
		started.Add(slots)
		p := newPool(t, hand.Limits{Slots: slots}, func(*hand.Grant) run {
			started.Done()
			started.Wait() // until all others have started too; synctest notices if they do not
			return done
		})
		const rounds = 3 // of new workers, then of idle ones
		for round := range uint64(rounds) {
			if round > 0 {
				started.Add(slots)
			}
			for n := range uint64(slots) {
				p.deliver(round*slots+n+1, "")
			}
			synctest.Wait()
			if p.in.Room(0).Waiting > 0 || p.hand.Idle() == 0 {
				t.Errorf("round %d: %d messages are left, %d workers idle", round, p.in.Room(0).Waiting, p.hand.Idle())
			}
		}
		p.acked(t, 1, rounds*slots)
		p.end()
	})
}

func TestAMessageIsHandledOnceWhateverBecameOfTheWorkerBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const messages, slots = 600, 10
		var mu sync.Mutex
		handled := map[uint64]int{}
		atWork, most := 0, 0
		var p *pool
		p = newPool(t, hand.Limits{Slots: slots}, func(g *hand.Grant) run {
			m := g.Of[0]
			if g.Why != hand.First {
				return done
			}
			mu.Lock()
			handled[m.Raw.DeliveryTag]++
			atWork++
			most = max(most, atWork)
			mu.Unlock()
			runtime.Gosched()
			mu.Lock()
			atWork--
			mu.Unlock()
			switch m.Raw.DeliveryTag % 4 {
			case 0:
				p.settle(hand.Ack, g.Of)
				runtime.Goexit()
			case 1:
				return kept(func(confirm func()) { go confirm() }) // by somebody else, later
			case 2:
				return held(hand.Hold{Kind: hand.ForAnother, For: time.Millisecond, Until: time.Now().Add(time.Hour)})
			}
			return done
		})
		for n := uint64(1); n <= messages; n++ { // more than there are slots
			p.deliver(n, "")
			if n%100 == 0 {
				synctest.Wait()
			}
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		for n := uint64(1); n <= messages; n++ {
			if handled[n] != 1 {
				t.Errorf("message %d was handled %d times", n, handled[n])
			}
		}
		if most > slots || p.lane.Busy() != 0 {
			t.Errorf("%d handlers at a time, %d slots taken at the end; want at most %d, and 0", most, p.lane.Busy(), slots)
		}
		if idle := p.hand.Idle(); idle > slots {
			t.Errorf("%d workers are idle, want no more than there are slots", idle)
		}
		p.acked(t, 1, messages)
		p.end()
	})
}

func TestADismissedWorkerEndsWhenItsHandlerReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		p := newPool(t, hand.Limits{Slots: 2}, func(*hand.Grant) run { <-hold; return done })
		p.deliver(1, "")
		p.deliver(2, "")
		synctest.Wait()
		p.Close()
		ended := make(chan struct{})
		go func() {
			p.Wait()
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

// keyed is a lane whose messages have keys, beside what must hold for it.
type keyed struct {
	*testing.T
	limit, slots int

	mu     sync.Mutex
	waits  map[string][]uint64 // tags that no handler has had yet, by key, in their order
	inHand map[string]int
	busy   int
	ended  int
}

// arrives notes a message before it comes.
func (k *keyed) arrives(tag uint64, key string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.waits[key] = append(k.waits[key], tag)
}

// begin notes that a handler has a message for the first time.
func (k *keyed) begin(m *hand.Message) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.busy++; k.busy > k.slots {
		k.Errorf("%d messages have a slot, want %d", k.busy, k.slots)
	}
	if k.inHand[m.Key]++; m.Key != "" && k.inHand[m.Key] > k.limit {
		k.Errorf("%d messages of key %q are in hand at a time, want %d", k.inHand[m.Key], m.Key, k.limit)
	}
	at := slices.Index(k.waits[m.Key], m.Raw.DeliveryTag)
	if m.Key != "" && k.limit == 1 && at != 0 {
		k.Errorf("message %d of key %q is handled out of its order: %v wait", m.Raw.DeliveryTag, m.Key, k.waits[m.Key])
	}
	if at >= 0 {
		k.waits[m.Key] = slices.Delete(k.waits[m.Key], at, at+1)
	}
}

// end notes that a message gives its slot and its key back.
func (k *keyed) end(m *hand.Message) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.busy--
	k.inHand[m.Key]--
	k.ended++
}

func (k *keyed) left(of int) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.ended < of
}

// idle reports whether a slot is free although a message could be handled.
func (k *keyed) idle() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.busy >= k.slots {
		return false
	}
	for key, tags := range k.waits {
		if len(tags) > 0 && (key == "" || k.inHand[key] < k.limit) {
			return true
		}
	}
	return false
}

// TestMessagesOfAKeyAreHandledInTheirOrder: beside a model, for any order of arrivals
// and durations. A free slot never waits for a key that has one in hand.
func TestMessagesOfAKeyAreHandledInTheirOrder(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { keysBesideAModel(t, seed) })
		})
	}
}

func keysBesideAModel(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 1))
	k := &keyed{T: t, limit: 1 + int(seed%3), slots: 1 + random.IntN(8), waits: map[string][]uint64{}, inHand: map[string]int{}}
	var mu sync.Mutex // of lengths
	lengths := rand.New(rand.NewPCG(seed, 2))
	length := func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return time.Duration(lengths.IntN(5)) * time.Millisecond
	}
	names := 1 + random.IntN(12)
	p := newPool(t, hand.Limits{Slots: k.slots, PerKey: k.limit}, func(g *hand.Grant) run {
		m := g.Of[0]
		if g.Why == hand.First {
			k.begin(m)
		}
		time.Sleep(length())
		switch l := length(); {
		case l > 3*time.Millisecond && g.Why == hand.First:
			return held(hand.Hold{Kind: hand.ForAnother, For: length() + time.Nanosecond, Until: time.Now().Add(time.Hour)})
		case l > 2*time.Millisecond: // its copy is confirmed later
			return kept(func(confirm func()) {
				time.AfterFunc(length()+time.Nanosecond, func() {
					k.end(m)
					confirm()
				})
			})
		}
		k.end(m)
		return done
	})
	const messages = 300
	for tag := uint64(1); tag <= messages; tag++ {
		key := []string{"", "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k"}[random.IntN(names)]
		k.arrives(tag, key)
		p.deliver(tag, key)
		if random.IntN(3) == 0 {
			time.Sleep(time.Duration(random.IntN(3)) * time.Millisecond)
			synctest.Wait()
			if k.idle() {
				t.Fatalf("after message %d a slot is free although a message could be handled", tag)
			}
		}
	}
	for synctest.Wait(); k.left(messages); synctest.Wait() {
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if k.idle() {
			t.Fatal("a slot is free although a message could be handled")
		}
	}
	time.Sleep(time.Second)
	synctest.Wait()
	if remembered, waiting := p.lane.Keys(); remembered > 0 || waiting > 0 {
		t.Errorf("%d keys are remembered at rest", remembered)
	}
	p.acked(t, 1, messages)
	p.end()
}
