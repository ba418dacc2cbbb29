package settle

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

	"github.com/rehop/rehop/consumer/internal/flight"
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

// ends is what a Acker tells of messages.
type ends struct {
	mu   sync.Mutex
	errs map[uint64]error
}

func (b *ends) ended(m *flight.Message, _ flight.Verb, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.errs == nil {
		b.errs = map[uint64]error{}
	}
	if _, again := b.errs[m.Raw.DeliveryTag]; again {
		err = errors.New("settled twice")
	}
	b.errs[m.Raw.DeliveryTag] = err
}

func session(stop context.Context, l *channel, b *ends) *Acker {
	return NewAcker(Config{Ledger: flight.NewLedger(flight.NewUnsettled()), Channel: l, Socket: l, Stop: stop, Ended: b.ended})
}

// start returns a Acker that is closed at the end of the test.
func start(t *testing.T, stop context.Context, l *channel) (*Acker, *ends) {
	b := &ends{}
	s := session(stop, l, b)
	t.Cleanup(s.Close)
	return s, b
}

func arrived(a *Acker, tags ...uint64) (ms []*flight.Message) {
	for _, tag := range tags {
		m := &flight.Message{Raw: amqp.Delivery{DeliveryTag: tag}}
		a.Ledger.Arrive(m)
		ms = append(ms, m)
	}
	return ms
}

func TestNeighboursThatFinishDuringAWriteAreAckedAsOneFrame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &channel{}
		a, _ := start(t, t.Context(), l)
		ms := arrived(a, 1, 2, 3, 4, 5, 6)
		first := true
		l.onWrite = func() {
			if first {
				first = false
				for _, m := range []*flight.Message{ms[2], ms[1], ms[4]} { // not tag 4
					a.mark(flight.Told{Message: m, Verb: flight.Ack})
				}
			}
		}
		a.mark(flight.Told{Message: ms[0], Verb: flight.Ack})
		synctest.Wait()
		if want := []string{"ack 1 false", "cork", "ack 3 true", "ack 5 false", "uncork"}; !slices.Equal(l.frames, want) {
			t.Errorf("frames %v, want %v", l.frames, want)
		}
	})
}

func TestALoneAckWaitsForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &channel{}
		a, _ := start(t, t.Context(), l)
		ms := arrived(a, 1, 2)
		a.mark(flight.Told{Message: ms[1], Verb: flight.Ack})
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
		l := &channel{}
		b := &ends{}
		a := session(t.Context(), l, b)
		const n = 64
		want := map[uint64]string{}
		var ms []*flight.Message
		for tag := uint64(1); tag <= n; tag++ {
			ms = append(ms, arrived(a, tag)...)
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
					a.mark(flight.Told{Message: m, Verb: flight.Ack})
				} else {
					a.mark(flight.Told{Message: m, Verb: flight.Nack})
				}
			})
		}
		wg.Wait()
		a.Close()
		for tag, how := range want {
			if err, told := b.errs[tag]; l.settled[tag] != how || err != nil || !told {
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
		l := &channel{}
		a, b := start(t, t.Context(), l)
		ms := arrived(a, 1, 2, 3, 4)
		writing, goOn := make(chan struct{}), make(chan struct{})
		l.onWrite = sync.OnceFunc(func() {
			close(writing)
			<-goOn
			l.mu.Lock()
			defer l.mu.Unlock()
			l.err = lost
		})
		a.mark(flight.Told{Message: ms[0], Verb: flight.Ack})
		<-writing
		a.mark(flight.Told{Message: ms[1], Verb: flight.Ack})
		a.mark(flight.Told{Message: ms[2], Verb: flight.Nack})
		a.Requeue(ms[3])
		if len(b.errs) != 0 {
			t.Errorf("told of %v before anything was written", b.errs)
		}
		close(goOn)
		synctest.Wait()
		for tag := uint64(1); tag <= 4; tag++ {
			if err := b.errs[tag]; !errors.Is(err, lost) {
				t.Errorf("tag %d was settled with %v, want %v", tag, err, lost)
			}
		}
	})
}

func TestNothingIsWrittenOnceTheSessionIsOver(t *testing.T) {
	l := &channel{}
	b := &ends{}
	a := session(t.Context(), l, b)
	ms := arrived(a, 1, 2)
	a.mark(flight.Told{Message: ms[0], Verb: flight.Ack})
	a.Close()
	a.Close() // again
	a.mark(flight.Told{Message: ms[1], Verb: flight.Ack})
	if want := []string{"ack 1 false"}; !slices.Equal(l.frames, want) {
		t.Errorf("frames %v, want %v", l.frames, want)
	}
	if b.errs[1] != nil || !errors.Is(b.errs[2], ErrSessionOver) {
		t.Errorf("settled with %v and %v, want nil and %v", b.errs[1], b.errs[2], ErrSessionOver)
	}
}

func TestWhileRunStopsNothingIsRequeuedBeforeTheFetchingHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stop, cancel := context.WithCancel(t.Context())
		l := &channel{}
		a, b := start(t, stop, l)
		ms := arrived(a, 1, 2, 3, 4)
		a.Requeue(ms[0])
		synctest.Wait()
		cancel()
		a.Requeue(ms[1])
		a.mark(flight.Told{Message: ms[2], Verb: flight.Ack})
		synctest.Wait()
		if want := []string{"nack(true) 1 false", "ack 3 false"}; !slices.Equal(l.frames, want) {
			t.Errorf("frames %v, want %v", l.frames, want)
		}
		a.Fetched()
		a.Requeue(ms[3])
		synctest.Wait()
		for tag := uint64(1); tag <= 4; tag++ {
			if err, told := b.errs[tag]; err != nil || !told {
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
	l, b := &channel{}, &ends{}
	a := session(stop, l, b)
	a.Requeue(arrived(a, 1)...)
	a.Close()
	if !errors.Is(b.errs[1], ErrSessionOver) || len(l.frames) > 0 {
		t.Errorf("settled with %v, frames %v; want %v and none", b.errs[1], l.frames, ErrSessionOver)
	}
}

// The orders of a batch are one write: as few frames as its verbs and the open messages
// below it leave.
func TestABatchIsSettledInFewFrames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &channel{}
		a, b := start(t, t.Context(), l)
		ms := arrived(a, 1, 2, 3, 4, 5, 6, 7, 8, 9)
		orders := map[int]*Instruction{3: {Move: Nack}, 6: {Move: Requeue}}
		var tasks []Task
		for i, m := range ms {
			o := orders[i]
			if o == nil {
				o = &Instruction{Move: Ack}
			}
			tasks = append(tasks, Task{m, o})
		}
		if kept := a.Do(tasks...); kept != 0 {
			t.Errorf("%d messages are kept, want none: there are no copies", kept)
		}
		synctest.Wait()
		a.Close()
		if want := []string{"cork", "ack 3 true", "nack(false) 4 false", "ack 6 true", "nack(true) 7 false", "ack 9 true", "uncork"}; !slices.Equal(l.frames, want) {
			t.Errorf("frames %v, want %v", l.frames, want)
		}
		if len(b.errs) != 9 {
			t.Errorf("%d messages are said to be settled, want 9", len(b.errs))
		}
		a.Do(Task{&flight.Message{Raw: amqp.Delivery{DeliveryTag: 10}, In: a.Ledger}, &Instruction{Move: Ack}})
		if !errors.Is(b.errs[10], ErrSessionOver) {
			t.Errorf("after the end of the session: %v, want %v", b.errs[10], ErrSessionOver)
		}
	})
}
