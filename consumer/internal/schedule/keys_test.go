package schedule

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/consumer/internal/flight"
)

// keyed is a lane whose messages have keys, beside what must hold for it.
type keyed struct {
	*testing.T
	limit, slots int

	mu      sync.Mutex
	arrived map[string][]uint64 // tags that are not handled yet, by key, in their order
	inHand  map[string]int
	busy    int
	handled int
}

func (k *keyed) begin(m *flight.Message) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.busy++
	if k.inHand[m.Key]++; m.Key != "" && k.inHand[m.Key] > k.limit {
		k.Errorf("%d messages of key %q are handled at a time, want %d", k.inHand[m.Key], m.Key, k.limit)
	}
	if of := k.arrived[m.Key]; m.Key != "" && k.limit == 1 && of[0] != m.Raw.DeliveryTag {
		k.Errorf("message %d of key %q is handled before message %d", m.Raw.DeliveryTag, m.Key, of[0])
	}
}

func (k *keyed) end(m *flight.Message) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.busy--
	k.inHand[m.Key]--
	for i, tag := range k.arrived[m.Key] {
		if tag == m.Raw.DeliveryTag {
			k.arrived[m.Key] = append(k.arrived[m.Key][:i:i], k.arrived[m.Key][i+1:]...)
		}
	}
	k.handled++
}

func (k *keyed) left(of int) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.handled < of
}

// idle reports whether a slot is free although a message could be handled.
func (k *keyed) idle() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.busy >= k.slots {
		return false
	}
	for key, tags := range k.arrived {
		if len(tags) > k.inHand[key] && (key == "" || k.inHand[key] < k.limit) {
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
			synctest.Test(t, func(t *testing.T) {
				random := rand.New(rand.NewPCG(seed, 1))
				k := &keyed{T: t, limit: 1 + int(seed%3), slots: 1 + random.IntN(8), arrived: map[string][]uint64{}, inHand: map[string]int{}}
				var mu sync.Mutex // of lengths
				lengths := rand.New(rand.NewPCG(seed, 2))
				length := func() time.Duration {
					mu.Lock()
					defer mu.Unlock()
					return time.Duration(lengths.IntN(5)) * time.Millisecond
				}
				names := 1 + random.IntN(12)
				s := New(k.slots, false)
				lane := s.Lane(Limits{Slots: k.slots, PerKey: k.limit, Key: func(m *flight.Message) string { return m.Raw.RoutingKey }}, func(g *Grant) int {
					k.begin(g.Of[0])
					time.Sleep(length())
					k.end(g.Of[0])
					if length() > 2*time.Millisecond { // its copy is confirmed later
						g, m := g, g.Of[0]
						k.mu.Lock()
						k.busy++
						k.inHand[m.Key]++
						k.mu.Unlock()
						time.AfterFunc(length()+time.Nanosecond, func() {
							k.mu.Lock()
							k.busy--
							k.inHand[m.Key]--
							k.mu.Unlock()
							s.Release(g)
						})
						return 1
					}
					return 0
				})
				in := flight.NewLedger(flight.NewUnsettled())
				const messages = 300
				for tag := range uint64(messages) {
					m := &flight.Message{In: in, Raw: amqp.Delivery{DeliveryTag: tag + 1, RoutingKey: []string{"", "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k"}[random.IntN(names)]}}
					k.mu.Lock()
					k.arrived[m.Raw.RoutingKey] = append(k.arrived[m.Raw.RoutingKey], m.Raw.DeliveryTag)
					k.mu.Unlock()
					lane.Push(m)
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
				if len(lane.keys.of) > 0 || lane.keys.waiting > 0 {
					t.Errorf("%d keys are remembered at rest", len(lane.keys.of))
				}
				s.Close()
				s.Wait()
			})
		})
	}
}

func TestMessagesThatWaitForAKeyAreTakenBackInTheirOrder(t *testing.T) {
	release := make(chan struct{})
	s := New(2, false)
	lane := s.Lane(Limits{Slots: 2, PerKey: 1, Key: func(m *flight.Message) string { return m.Raw.RoutingKey }}, func(*Grant) int { <-release; return 0 })
	in := flight.NewLedger(flight.NewUnsettled())
	for tag, key := range []string{"a", "a", "b", "b", "a", "c"} {
		lane.Push(&flight.Message{In: in, Raw: amqp.Delivery{DeliveryTag: uint64(tag), RoutingKey: key}})
	}
	for lane.Busy() < 2 {
		time.Sleep(time.Millisecond)
	}
	var tags []uint64
	for _, m := range lane.TakeBack(0) {
		tags = append(tags, m.Raw.DeliveryTag)
	}
	if fmt.Sprint(tags) != "[1 3 4 5]" {
		t.Errorf("taken back: %v, want all that no worker has, in their order", tags)
	}
	close(release)
	s.Close()
	s.Wait()
	if len(lane.keys.of) > 0 {
		t.Errorf("%d keys are remembered at rest", len(lane.keys.of))
	}
}
