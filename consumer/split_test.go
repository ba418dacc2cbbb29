package consumer

import (
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"
)

// halve runs a batch whose messages at fault fail every call, and returns which messages
// were left to fail, and the calls.
func halve(n int, bad func(int) bool) (failed []int, calls []span) {
	s := newSplit(n, false)
	for p, ok := (span{0, n}), true; ok; p, ok = s.take() {
		calls = append(calls, p)
		fails := false
		for i := p.from; i < p.to; i++ {
			fails = fails || bad(i)
		}
		switch {
		case fails && p.to-p.from == 1:
			failed = append(failed, p.from)
		case fails:
			s.failed(p)
		}
	}
	for _, p := range s.next {
		for i := p.from; i < p.to; i++ {
			failed = append(failed, i)
		}
	}
	slices.Sort(failed)
	return failed, calls
}

func TestOneMessageAtFaultFailsAlone(t *testing.T) {
	for n := 1; n <= 300; n++ {
		for at := range n {
			failed, calls := halve(n, func(i int) bool { return i == at })
			if !slices.Equal(failed, []int{at}) {
				t.Fatalf("of %d messages, with number %d at fault, %v failed", n, at, failed)
			}
			if most := 2*bits.Len(uint(n-1)) + 1; len(calls) > most {
				t.Fatalf("of %d messages, with number %d at fault: %d calls, want at most %d", n, at, len(calls), most)
			}
		}
	}
	if got := mostCalls(100); got != 15 {
		t.Errorf("100 messages need %d calls, want 15, as the documentation says", got)
	}
}

func TestABatchWithoutFaultsIsOneCall(t *testing.T) {
	failed, calls := halve(100, func(int) bool { return false })
	if len(failed) != 0 || !slices.Equal(calls, []span{{0, 100}}) {
		t.Errorf("%v failed after calls %v", failed, calls)
	}
}

// The largest parts are halved first.
func TestTwoMessagesAtFaultLeaveFewInTheirCompany(t *testing.T) {
	for range 2000 {
		a, b := rand.IntN(100), rand.IntN(100)
		failed, _ := halve(100, func(i int) bool { return i == a || i == b })
		if len(failed) > 25 {
			t.Fatalf("with %d and %d at fault, %d of 100 failed, want a quarter at most", a, b, len(failed))
		}
	}
}

// Whatever calls fail, every message is run with or left exactly once, each part that is
// run lies in one that has failed before, and the calls are bounded.
func FuzzSplit(f *testing.F) {
	f.Add(uint16(100), uint64(1)<<40)
	f.Add(uint16(1), uint64(0))
	f.Add(uint16(10_000), ^uint64(0))
	f.Fuzz(func(t *testing.T, size uint16, fails uint64) {
		n := int(size)%10_000 + 1
		s := newSplit(n, false)
		seen := make([]int, n)
		calls := 0
		note := func(p span) {
			if p.from >= p.to {
				t.Fatalf("part %v is empty", p)
			}
			for i := p.from; i < p.to; i++ {
				seen[i]++
			}
		}
		for p, ok := (span{0, n}), true; ok; p, ok = s.take() {
			if calls++; fails>>(calls%64)&1 == 0 || p.to-p.from == 1 {
				note(p)
				continue
			}
			s.failed(p)
		}
		for _, p := range s.next {
			note(p)
		}
		if calls > 2*bits.Len(uint(n-1))+1 {
			t.Errorf("%d calls for %d messages", calls, n)
		}
		for i, times := range seen {
			if times != 1 {
				t.Fatalf("message %d of %d has %d outcomes, want one", i, n, times)
			}
		}
	})
}
