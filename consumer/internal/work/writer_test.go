package work

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rehop/rehop/consumer/internal/hand"
)

// channel is the broker's side of the settling of one channel.
type channel struct {
	mu      sync.Mutex
	frames  []string
	settled map[uint64]string
	onWrite func()
	err     error
}

func (l *channel) settle(how string, tag uint64, multiple bool) error {
	if l.onWrite != nil {
		l.onWrite()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return l.err
	}
	l.frames = append(l.frames, fmt.Sprintf("%s %d %t", how, tag, multiple))
	if l.settled == nil {
		l.settled = map[uint64]string{}
	}
	for low := tag; low > 0; low-- {
		if _, done := l.settled[low]; !done {
			l.settled[low] = how
		} else if low == tag {
			l.settled[low] += " twice"
		}
		if !multiple {
			break
		}
	}
	return nil
}

func (l *channel) Ack(tag uint64, multiple bool) error { return l.settle("ack", tag, multiple) }
func (l *channel) Nack(tag uint64, multiple, requeue bool) error {
	return l.settle(fmt.Sprintf("nack(%t)", requeue), tag, multiple)
}
func (l *channel) Reject(tag uint64, requeue bool) error {
	return errors.New("reject is never used: 4.3 counts it towards the delivery limit")
}

func (l *channel) Cork() bool { return l.note("cork") }
func (l *channel) Uncork()    { l.note("uncork") }
func (l *channel) note(frame string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.frames = append(l.frames, frame)
	return true
}

func TestNeighboursThatFinishDuringAWriteAreAckedAsOneFrame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &channel{}
		s := start(t, l, nil)
		ms := s.arrived(t, 1, 2, 3, 4, 5, 6)
		first := true
		l.onWrite = func() {
			if first {
				first = false
				s.hands.settle(hand.Ack, ms[2], ms[1], ms[4]) // not tag 4
			}
		}
		s.hands.settle(hand.Ack, ms[0])
		synctest.Wait()
		if want := []string{"ack 1 false", "cork", "ack 3 true", "ack 5 false", "uncork"}; !slices.Equal(l.frames, want) {
			t.Errorf("frames %v, want %v", l.frames, want)
		}
	})
}

func TestALoneAckWaitsForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &channel{}
		s := start(t, l, nil)
		ms := s.arrived(t, 1, 2)
		s.hands.settle(hand.Ack, ms[1])
		synctest.Wait()
		if want := []string{"ack 2 false"}; !slices.Equal(l.frames, want) {
			t.Errorf("frames %v, want %v", l.frames, want)
		}
	})
}

// A frame that leaves alone is in one packet anyhow.
func TestNothingIsCorkedForASingleFrame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &channel{}
		h := newHands(1, 3)
		s := h.open(t, l, nil, nil)
		defer s.writer.Close()
		var told []hand.Told
		for _, m := range s.deliver(1, 2, 3) {
			told = append(told, hand.Told{Message: m, Verb: hand.Nack})
		}
		h.Handled(&h.worker, h.take(t), time.Now(), told...)
		synctest.Wait()
		if want := []string{"nack(false) 3 true"}; !slices.Equal(l.frames, want) {
			t.Errorf("frames %v, want %v", l.frames, want)
		}
	})
}

// A nack that has left the list before it is written could be overtaken by a
// multiple ack and be lost as done.
func TestNoAckOvertakesANack(t *testing.T) {
	for round := range 200 {
		l := &channel{}
		const n = 64
		s := newHands(n, 0).open(t, l, nil, nil)
		want := map[uint64]string{}
		var ms []*hand.Message
		for tag := uint64(1); tag <= n; tag++ {
			ms = append(ms, s.arrived(t, tag)...)
			want[tag] = "ack"
			if rand.N(4) == 0 {
				want[tag] = "nack(false)"
			}
		}
		var wg sync.WaitGroup
		rand.Shuffle(n, func(i, j int) { ms[i], ms[j] = ms[j], ms[i] })
		for _, m := range ms {
			wg.Go(func() {
				if want[m.Raw.DeliveryTag] == "ack" {
					s.hands.settle(hand.Ack, m)
				} else {
					s.hands.settle(hand.Nack, m)
				}
			})
		}
		wg.Wait()
		s.writer.Close()
		for tag, how := range want {
			if told, err := s.of(tag); l.settled[tag] != how || err != nil || !told {
				t.Fatalf("round %d: tag %d was settled by %q, and told %t, %v; want %q, told", round, tag, l.settled[tag], told, err, how)
			}
		}
		if left := s.hands.lane.Unsettled(); left != 0 {
			t.Fatalf("round %d: %d messages count as unsettled, want none", round, left)
		}
	}
}

// A message whose ack was left to the goroutine that writes is not done before
// that has written it.
func TestAnAckThatCannotBeWrittenIsToldOfEveryMessageInIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := errors.New("lost")
		l := &channel{}
		s := start(t, l, nil)
		ms := s.arrived(t, 1, 2, 3, 4)
		writing, goOn := make(chan struct{}), make(chan struct{})
		l.onWrite = sync.OnceFunc(func() {
			close(writing)
			<-goOn
			l.mu.Lock()
			defer l.mu.Unlock()
			l.err = lost
		})
		s.hands.settle(hand.Ack, ms[0])
		<-writing
		s.hands.settle(hand.Ack, ms[1])
		s.hands.settle(hand.Nack, ms[2])
		s.hands.settle(hand.Requeue, ms[3])
		synctest.Wait()
		if n, left := s.count(), s.Counts().Unsettled; n != 0 || left != 4 {
			t.Errorf("told of %d before anything was written, and %d of 4 are unsettled", n, left)
		}
		close(goOn)
		synctest.Wait()
		for tag := uint64(1); tag <= 4; tag++ {
			if _, err := s.of(tag); !errors.Is(err, lost) {
				t.Errorf("tag %d was settled with %v, want %v", tag, err, lost)
			}
		}
		if left := s.Counts().Unsettled; left != 0 {
			t.Errorf("%d messages count as unsettled, want none", left)
		}
	})
}

func TestNothingIsWrittenOnceTheSessionIsOver(t *testing.T) {
	l := &channel{}
	s := newHands(2, 0).open(t, l, nil, nil)
	ms := s.arrived(t, 1, 2)
	s.hands.settle(hand.Ack, ms[0])
	s.writer.Close()
	s.writer.Close() // again
	s.hands.settle(hand.Ack, ms[1])
	if want := []string{"ack 1 false"}; !slices.Equal(l.frames, want) {
		t.Errorf("frames %v, want %v", l.frames, want)
	}
	_, first := s.of(1)
	if _, second := s.of(2); first != nil || !errors.Is(second, ErrSessionOver) {
		t.Errorf("settled with %v and %v, want nil and %v", first, second, ErrSessionOver)
	}
}

func TestWhileRunStopsNothingIsRequeuedBeforeTheFetchingHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stop, cancel := context.WithCancel(t.Context())
		l := &channel{}
		s := start(t, l, stop)
		ms := s.arrived(t, 1, 2, 3, 4)
		s.hands.settle(hand.Requeue, ms[0])
		synctest.Wait()
		cancel()
		s.hands.settle(hand.Requeue, ms[1])
		s.hands.settle(hand.Ack, ms[2])
		synctest.Wait()
		if want := []string{"nack(true) 1 false", "ack 3 false"}; !slices.Equal(l.frames, want) {
			t.Errorf("frames %v, want %v", l.frames, want)
		}
		var out hand.Out
		s.Fetched(&out)
		s.hands.pool.Do(&out)
		s.hands.settle(hand.Requeue, ms[3])
		synctest.Wait()
		for tag := uint64(1); tag <= 4; tag++ {
			if told, err := s.of(tag); err != nil || !told {
				t.Errorf("tag %d: told %t, %v", tag, told, err)
			}
		}
		if l.settled[2] != "nack(true)" || l.settled[4] != "nack(true)" {
			t.Errorf("settled %v, want 2 and 4 requeued", l.settled)
		}
	})
}

func TestWhatIsToBeRequeuedWhenTheSessionEndsIsTold(t *testing.T) {
	stop, cancel := context.WithCancel(t.Context())
	cancel()
	l := &channel{}
	s := newHands(1, 0).open(t, l, stop, nil)
	s.hands.settle(hand.Requeue, s.arrived(t, 1)...)
	if n := s.count(); n != 0 {
		t.Error("it is told of before the fetching has ended")
	}
	s.writer.Close()
	if _, err := s.of(1); !errors.Is(err, ErrSessionOver) || len(l.frames) > 0 {
		t.Errorf("settled with %v, frames %v; want %v and none", err, l.frames, ErrSessionOver)
	}
	if left := s.hands.lane.Unsettled(); left != 0 {
		t.Errorf("%d messages count as unsettled, want none", left)
	}
}

// The messages of a batch are one write: as few frames as its verbs and the open messages
// below it leave.
func TestABatchIsSettledInFewFrames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &channel{}
		h := newHands(1, 9)
		s := h.open(t, l, nil, nil)
		ms := s.deliver(1, 2, 3, 4, 5, 6, 7, 8, 9)
		verbs := map[int]hand.Verb{3: hand.Nack, 6: hand.Requeue}
		var told []hand.Told
		for i, m := range ms {
			v := verbs[i]
			if v == 0 {
				v = hand.Ack
			}
			told = append(told, hand.Told{Message: m, Verb: v})
		}
		h.Handled(&h.worker, h.take(t), time.Now(), told...)
		if busy := h.lane.Busy(); busy != 0 {
			t.Errorf("%d slots are taken, want none: there are no copies", busy)
		}
		synctest.Wait()
		s.writer.Close()
		if want := []string{"cork", "ack 3 true", "nack(false) 4 false", "ack 6 true", "nack(true) 7 false", "ack 9 true", "uncork"}; !slices.Equal(l.frames, want) {
			t.Errorf("frames %v, want %v", l.frames, want)
		}
		if n := s.count(); n != 9 {
			t.Errorf("%d messages are said to be settled, want 9", n)
		}
		h.settle(hand.Ack, s.arrived(t, 10)...)
		if _, err := s.of(10); !errors.Is(err, ErrSessionOver) {
			t.Errorf("after the end of the session: %v, want %v", err, ErrSessionOver)
		}
	})
}
