package consumer

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
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

func received(a *acker, tag uint64) *unsettled {
	u := &unsettled{tag: tag}
	a.received(u)
	return u
}

func TestNeighboursThatFinishDuringAWriteAreAckedAsOneFrame(t *testing.T) {
	l := &ledger{}
	a := acker{channel: l, socket: l}
	var us []*unsettled
	for tag := range uint64(6) {
		us = append(us, received(&a, tag+1))
	}
	first := true
	l.onWrite = func() {
		if first {
			first = false
			for _, u := range []*unsettled{us[2], us[1], us[4]} { // not us[3], tag 4
				if err := a.ack(u); err != nil {
					t.Error(err)
				}
			}
		}
	}
	if err := a.ack(us[0]); err != nil {
		t.Fatal(err)
	}
	if want := []string{"ack 1 false", "cork", "ack 3 true", "ack 5 false", "uncork"}; !slices.Equal(l.frames, want) {
		t.Errorf("frames %v, want %v", l.frames, want)
	}
}

func TestALoneAckWaitsForNobody(t *testing.T) {
	l := &ledger{}
	a := acker{channel: l, socket: l}
	received(&a, 1)
	if err := a.ack(received(&a, 2)); err != nil {
		t.Fatal(err)
	}
	if want := []string{"ack 2 false"}; !slices.Equal(l.frames, want) {
		t.Errorf("frames %v, want %v", l.frames, want)
	}
}

// A nack that has left the list before it is written could be overtaken by a
// multiple ack and be lost as done.
func TestNoAckOvertakesANack(t *testing.T) {
	for round := range 200 {
		l := &ledger{}
		a := acker{channel: l, socket: l}
		const n = 64
		want := map[uint64]string{}
		var us []*unsettled
		for tag := uint64(1); tag <= n; tag++ {
			us = append(us, received(&a, tag))
			want[tag] = "ack"
			if rand.N(4) == 0 {
				want[tag] = "nack(false)"
			}
		}
		var wg sync.WaitGroup
		rand.Shuffle(n, func(i, j int) { us[i], us[j] = us[j], us[i] })
		for _, u := range us {
			tag := u.tag
			wg.Go(func() {
				var err error
				if want[tag] == "ack" {
					err = a.ack(u)
				} else {
					err = a.nack(u, false)
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		for tag, how := range want {
			if l.settled[tag] != how {
				t.Fatalf("round %d: tag %d was settled by %q, want %q", round, tag, l.settled[tag], how)
			}
		}
	}
}

func TestALostSessionIsAnError(t *testing.T) {
	lost := errors.New("lost")
	a := acker{channel: &ledger{err: lost}}
	if err := a.ack(received(&a, 1)); !errors.Is(err, lost) {
		t.Errorf("ack: %v", err)
	}
	if err := a.nack(received(&a, 2), true); !errors.Is(err, lost) {
		t.Errorf("nack: %v", err)
	}
}
