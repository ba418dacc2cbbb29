package hand

import (
	"testing"
	"time"

	"github.com/rehop/rehop/consumer/internal/durations"
)

// newBatches returns a stage with a lane that has batches. The handler is quick.
func newBatches(t *testing.T, limits Limits) *stage {
	if limits.Batch.Bytes == 0 {
		limits.Batch.Bytes = 1 << 20
	}
	s := newStage(t, limits)
	s.handlersTake(0)
	return s
}

// handlersTake has each handler run for so long.
func (s *stage) handlersTake(d time.Duration) {
	s.handle = func(*Grant) (time.Duration, func() *Hold) { return d, nil }
}

func TestABatchIsUpToSizeOrWhatCameWithinLinger(t *testing.T) {
	s := newBatches(t, Limits{Slots: 1, Batch: Batch{Size: 3, Linger: time.Second}})
	s.deliver(2)
	s.pass(time.Second - time.Millisecond)
	s.took("before the first has lingered")
	s.pass(time.Millisecond)
	s.took("then", "[1 2]")
	s.deliver(1)
	s.pass(500 * time.Millisecond)
	s.deliver(2)
	s.took("when it is full", "[3 4 5]")
	s.pass(0)
	s.deliver(1)
	s.pass(600 * time.Millisecond)
	s.deliver(1)
	s.pass(400*time.Millisecond - 1)
	s.took("before the first of the next has lingered")
	s.pass(1)
	s.took("the first counts", "[6 7]")
}

func TestWithoutLingerABatchIsWhatCameMeanwhile(t *testing.T) {
	s := newBatches(t, Limits{Slots: 1, Batch: Batch{Size: 10}})
	s.handlersTake(time.Second)
	s.deliver(1)
	s.took("at once", "[1]")
	s.deliver(12)
	s.took("while the worker is not free")
	s.pass(2 * time.Second)
	s.took("when the worker is free", "[2 3 4 5 6 7 8 9 10 11]", "[12 13]")
}

func TestABatchIsBoundedInBytes(t *testing.T) {
	s := newBatches(t, Limits{Slots: 1, Batch: Batch{Size: 10, Linger: time.Second, Bytes: 35}})
	s.deliver(3) // of 10 bytes each
	s.took("before it has so many bytes")
	s.deliver(1)
	s.pass(0)
	s.took("as soon as it has so many bytes", "[1 2 3]")
	s.deliver(1, func(m *Message) { m.Raw.Body = make([]byte, 100) })
	s.pass(0)
	s.took("a message that is larger", "[4]", "[5]")
	s.pass(2 * time.Second)
	s.took("nothing is left")
}

func TestASuspectGoesAloneAndAtOnce(t *testing.T) {
	for rule, alone := range map[string]func(*Message){
		"a suspect":                     func(m *Message) { m.Deaths = 10 },
		"one that is alone for another": func(m *Message) { m.Alone = true },
	} {
		t.Run(rule, func(t *testing.T) {
			s := newBatches(t, Limits{Slots: 1, Batch: Batch{Size: 10, Linger: time.Minute}})
			s.deliver(2)
			s.deliver(1, alone)
			s.deliver(2)
			s.pass(0)
			s.took("what came before it can get no company", "[1 2]", "[3]")
			s.pass(time.Minute - 1)
			s.took("what comes after it lingers")
			s.pass(1)
			s.took("what comes after it has lingered", "[4 5]")
		})
	}
}

func TestABatchIsOfOneSession(t *testing.T) {
	s := newBatches(t, Limits{Slots: 1, Batch: Batch{Size: 10, Linger: time.Minute}})
	s.deliver(2)
	s.in, s.tag = s.session(s.lane), 100
	s.deliver(2)
	s.pass(0)
	s.took("of the session before", "[1 2]")
	s.pass(time.Minute)
	s.took("of the next", "[101 102]")
}

func TestABatchHasAsManyMessagesOfAKeyAsTheyMayBe(t *testing.T) {
	s := newBatches(t, Limits{Slots: 2, PerKey: 1, Batch: Batch{Size: 10, Linger: time.Second}})
	s.handlersTake(time.Minute)
	for _, key := range []string{"a", "a", "b", "a", "c"} {
		s.deliver(1, func(m *Message) { m.Key = key })
	}
	s.pass(time.Second)
	s.took("one of each key", "[1 3 5]")
	s.pass(time.Minute)
	s.took("when they are free: it has lingered long enough", "[2]")
	s.pass(time.Minute)
	s.took("and then", "[4]")
}

func TestAnOutageTriesBatchesOfOne(t *testing.T) {
	s := newBatches(t, Limits{Slots: 2, Batch: Batch{Size: 10, Linger: time.Second}, Outage: Outage{Of: 1, From: 1, MaxPause: time.Second}})
	s.handle = nil
	s.lane.gate.note(false, true, true, s.now)
	s.deliver(3)
	s.pass(durations.OutageFirstPause - 1)
	s.took("before the first try")
	s.pass(1)
	s.took("then one message finds out, and does not linger", "[1]")
}

func TestATakenBackBatchIsNotCounted(t *testing.T) {
	s := newBatches(t, Limits{Slots: 1, Batch: Batch{Size: 10, Linger: time.Second, Bytes: 95}})
	s.deliver(5)
	s.setPaused(true)
	s.deliver(1, func(m *Message) { m.Deaths = 10 })
	s.pass(time.Second)
	s.took("paused")
	if n := len(s.takeBack(0)); n != 6 || s.lane.bytes != 0 || s.lane.alone != 0 {
		t.Errorf("%d messages taken back, %d bytes and %d alone left", n, s.lane.bytes, s.lane.alone)
	}
	s.setPaused(false)
	s.pass(time.Minute)
	s.took("after the pause")
	s.deliver(9)
	s.pass(time.Second - 1)
	s.took("those that are gone fill no batch, and none of them goes alone")
	s.pass(1)
	s.took("when they have lingered", "[7 8 9 10 11 12 13 14 15]")
}

func TestLanesWithBatches(t *testing.T) {
	s := &stage{T: t, hand: New(1, true), now: time.Unix(1e9, 0)}
	s.handlersTake(time.Second)
	limits := Limits{Slots: 1, Batch: Batch{Size: 5, Linger: 100 * time.Millisecond, Bytes: 1000}}
	high, low := s.session(s.hand.Lane(limits)), s.session(s.hand.Lane(limits))
	deliver := func(to *Session, n int) {
		s.in = to
		s.deliver(n)
	}
	deliver(low, 3)
	deliver(high, 2)
	s.pass(3 * time.Second)
	s.took("the higher lane first, as both have lingered", "[4 5]", "[1 2 3]")
	deliver(low, 5)
	s.took("full at once", "[6 7 8 9 10]")
	deliver(high, 1)
	deliver(high, 1)
	s.pass(5 * time.Second)
	s.took("those of the high lane have lingered meanwhile", "[11 12]")
	deliver(high, 1)
	deliver(low, 5)
	s.took("those of the high lane linger, and a full batch does not wait for them", "[14 15 16 17 18]")
}

// A held batch keeps its slot; what came meanwhile waits for no longer than that.
func TestAHeldBatchIsOneSlot(t *testing.T) {
	s := newBatches(t, Limits{Slots: 2, Batch: Batch{Size: 5, Linger: time.Second}})
	s.handle = func(g *Grant) (time.Duration, func() *Hold) {
		return 0, func() *Hold {
			if g.Of[0].Raw.DeliveryTag == 1 && g.Why == First {
				return &Hold{Kind: ForAnother, For: time.Hour, Until: s.now.Add(2 * time.Hour)}
			}
			return nil
		}
	}
	s.deliver(5)
	s.pass(0)
	s.took("a full batch", "[1 2 3 4 5]")
	is := func(when string, slots, messages int) {
		t.Helper()
		if s.lane.Busy() != slots || s.lane.granted != messages {
			t.Errorf("%s: %d slots taken, by %d messages; want %d, by %d", when, s.lane.Busy(), s.lane.granted, slots, messages)
		}
	}
	is("while it is held", 1, 5)
	s.deliver(5)
	s.deliver(5)
	is("while others are handled", 2, 10)
	s.pass(0)
	s.took("the other slot is free for others", "[6 7 8 9 10]", "[11 12 13 14 15]")
	is("when those are done", 1, 5)
	s.pass(time.Hour)
	s.took("when it was held for long enough", "[1 2 3 4 5]")
	is("after all", 0, 0)
}
