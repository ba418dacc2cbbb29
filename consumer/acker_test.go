package consumer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	amqp "github.com/rabbitmq/amqp091-go"
)

// ledger is a broker's side of the settling of one channel.
type ledger struct {
	mu      sync.Mutex
	frames  []string
	settled map[uint64]string
	onWrite func()
	err     error
}

func (l *ledger) settle(how string, tag uint64, multiple bool) error {
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

func (l *ledger) Ack(tag uint64, multiple bool) error { return l.settle("ack", tag, multiple) }
func (l *ledger) Nack(tag uint64, multiple, requeue bool) error {
	return l.settle(fmt.Sprintf("nack(%t)", requeue), tag, multiple)
}
func (l *ledger) Reject(tag uint64, requeue bool) error {
	return errors.New("reject is never used: 4.3 counts it towards the delivery limit")
}

func (l *ledger) Cork() bool { return l.note("cork") }
func (l *ledger) Uncork()    { l.note("uncork") }
func (l *ledger) note(frame string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.frames = append(l.frames, frame)
	return true
}

// board is what an acker tells of messages.
type board struct {
	mu   sync.Mutex
	ends map[uint64]error
}

func (b *board) settled(m *message, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ends == nil {
		b.ends = map[uint64]error{}
	}
	if _, again := b.ends[m.raw.DeliveryTag]; again {
		err = errors.New("settled twice")
	}
	b.ends[m.raw.DeliveryTag] = err
}

// startAcker returns an acker that is closed at the end of the test.
func startAcker(t *testing.T, stop context.Context, l *ledger) (*acker, *board) {
	b := &board{}
	a := newAcker(stop, l, l, b.settled)
	t.Cleanup(a.close)
	return a, b
}

func received(a *acker, tags ...uint64) (ms []*message) {
	for _, tag := range tags {
		m := &message{raw: amqp.Delivery{DeliveryTag: tag}}
		a.received(m)
		ms = append(ms, m)
	}
	return ms
}

func TestNeighboursThatFinishDuringAWriteAreAckedAsOneFrame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &ledger{}
		a, _ := startAcker(t, t.Context(), l)
		ms := received(a, 1, 2, 3, 4, 5, 6)
		first := true
		l.onWrite = func() {
			if first {
				first = false
				for _, m := range []*message{ms[2], ms[1], ms[4]} { // not tag 4
					a.ack(m)
				}
			}
		}
		a.ack(ms[0])
		synctest.Wait()
		if want := []string{"ack 1 false", "cork", "ack 3 true", "ack 5 false", "uncork"}; !slices.Equal(l.frames, want) {
			t.Errorf("frames %v, want %v", l.frames, want)
		}
	})
}

func TestALoneAckWaitsForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &ledger{}
		a, _ := startAcker(t, t.Context(), l)
		ms := received(a, 1, 2)
		a.ack(ms[1])
		synctest.Wait()
		if want := []string{"ack 2 false"}; !slices.Equal(l.frames, want) {
			t.Errorf("frames %v, want %v", l.frames, want)
		}
	})
}

// A nack that has left the list before it is written could be overtaken by a
// multiple ack and be lost as done.
func TestNoAckOvertakesANack(t *testing.T) {
	for round := range 200 {
		l := &ledger{}
		b := &board{}
		a := newAcker(t.Context(), l, l, b.settled)
		const n = 64
		want := map[uint64]string{}
		var ms []*message
		for tag := uint64(1); tag <= n; tag++ {
			ms = append(ms, received(a, tag)...)
			want[tag] = "ack"
			if rand.N(4) == 0 {
				want[tag] = "nack(false)"
			}
		}
		var wg sync.WaitGroup
		rand.Shuffle(n, func(i, j int) { ms[i], ms[j] = ms[j], ms[i] })
		for _, m := range ms {
			wg.Go(func() {
				if want[m.raw.DeliveryTag] == "ack" {
					a.ack(m)
				} else {
					a.nack(m)
				}
			})
		}
		wg.Wait()
		a.close()
		for tag, how := range want {
			if err, told := b.ends[tag]; l.settled[tag] != how || err != nil || !told {
				t.Fatalf("round %d: tag %d was settled by %q, and told %t, %v; want %q, told", round, tag, l.settled[tag], told, err, how)
			}
		}
	}
}

// A message whose ack was left to the goroutine that writes is not done before
// that has written it.
func TestAnAckThatCannotBeWrittenIsToldOfEveryMessageInIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := errors.New("lost")
		l := &ledger{}
		a, b := startAcker(t, t.Context(), l)
		ms := received(a, 1, 2, 3, 4)
		writing, goOn := make(chan struct{}), make(chan struct{})
		l.onWrite = sync.OnceFunc(func() {
			close(writing)
			<-goOn
			l.mu.Lock()
			defer l.mu.Unlock()
			l.err = lost
		})
		a.ack(ms[0])
		<-writing
		a.ack(ms[1])
		a.nack(ms[2])
		a.requeue(ms[3])
		if len(b.ends) != 0 {
			t.Errorf("told of %v before anything was written", b.ends)
		}
		close(goOn)
		synctest.Wait()
		for tag := uint64(1); tag <= 4; tag++ {
			if err := b.ends[tag]; !errors.Is(err, lost) {
				t.Errorf("tag %d was settled with %v, want %v", tag, err, lost)
			}
		}
	})
}

func TestNothingIsWrittenOnceTheSessionIsOver(t *testing.T) {
	l := &ledger{}
	b := &board{}
	a := newAcker(t.Context(), l, l, b.settled)
	ms := received(a, 1, 2)
	a.ack(ms[0])
	a.close()
	a.close() // again
	a.ack(ms[1])
	if want := []string{"ack 1 false"}; !slices.Equal(l.frames, want) {
		t.Errorf("frames %v, want %v", l.frames, want)
	}
	if b.ends[1] != nil || !errors.Is(b.ends[2], errSessionOver) {
		t.Errorf("settled with %v and %v, want nil and %v", b.ends[1], b.ends[2], errSessionOver)
	}
}

func TestWhileRunStopsNothingIsRequeuedBeforeTheFetchingHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stop, cancel := context.WithCancel(t.Context())
		l := &ledger{}
		a, b := startAcker(t, stop, l)
		ms := received(a, 1, 2, 3, 4)
		a.requeue(ms[0])
		synctest.Wait()
		cancel()
		a.requeue(ms[1])
		a.ack(ms[2])
		synctest.Wait()
		if want := []string{"nack(true) 1 false", "ack 3 false"}; !slices.Equal(l.frames, want) {
			t.Errorf("frames %v, want %v", l.frames, want)
		}
		a.fetchingEnded()
		a.requeue(ms[3])
		synctest.Wait()
		for tag := uint64(1); tag <= 4; tag++ {
			if err, told := b.ends[tag]; err != nil || !told {
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
	l, b := &ledger{}, &board{}
	a := newAcker(stop, l, l, b.settled)
	a.requeue(received(a, 1)...)
	a.close()
	if !errors.Is(b.ends[1], errSessionOver) || len(l.frames) > 0 {
		t.Errorf("settled with %v, frames %v; want %v and none", b.ends[1], l.frames, errSessionOver)
	}
}

func TestInHandAreTheMessagesThatWorkersHave(t *testing.T) {
	a, _ := startAcker(t, t.Context(), &ledger{})
	var want []*message
	for tag := uint64(1); tag <= 4; tag++ {
		m := &message{raw: amqp.Delivery{DeliveryTag: tag}}
		if m.begun.Store(tag != 2); tag != 2 {
			want = append(want, m)
		}
		a.received(m)
	}
	if got := a.inHand(); !slices.Equal(got, want) {
		t.Errorf("%d messages are in hand, want %d", len(got), len(want))
	}
}
