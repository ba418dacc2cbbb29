package store

import (
	"time"

	"github.com/rehop/rehop/internal/confirm"
)

// address publishes entries to one address. While that fails it is one entry, and the
// others are put off.
func (s *sending) address(g group, entries []Entry) {
	state := s.join(g)
	if pause, ok := s.awaitSlot(state); !ok {
		s.putOff(entries, pause)
		s.part(g, state, nil)
		return
	}
	defer func() { <-state.slots }()
	s.mu.Lock()
	state.begun++
	failures, wait, long := state.failures, time.Until(state.notBefore), state.longest
	s.mu.Unlock()
	if wait > 0 {
		s.putOff(entries, wait)
		s.part(g, state, nil)
		return
	}
	if failures > 0 && len(entries) > 1 {
		s.putOff(entries[1:], pauseAfter(failures+1, 100*time.Millisecond, long))
		entries = entries[:1]
	}
	ctx, cancel := s.bounded()
	defer cancel()
	if g.alone {
		ctx = confirm.Alone(ctx)
	}
	results := s.publish(ctx, entries, failures, func() { s.silent(state, true) })
	s.silent(state, false)
	s.results <- results
	s.part(g, state, results)
}

// addressState lets few groups of entries at a time go to an address.
type addressState struct {
	slots     chan struct{}
	begun     int // slots that were taken
	users     int // goroutines that have it
	silent    bool
	since     time.Time // when it became silent
	failures  int       // groups in a row that failed
	notBefore time.Time
	longest   time.Duration // of its pauses
}

// The longest pauses of an address that cannot be reached, and of one that does
// not take what it is sent.
const (
	longestAway    = 5 * time.Second
	longestRefused = time.Minute
)

// awaitSlot waits until the address is free, as long as others to it get on and half of
// the lease is ahead. If it returns false the entries are put off.
func (s *sending) awaitSlot(state *addressState) (pause time.Duration, ok bool) {
	deadline := s.lease.until.Add(-s.cfg.Lease / 2)
	look := func() (begun int, silent bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if silent = state.silent; silent {
			pause = min(max(time.Since(state.since), time.Second), longestAway)
		}
		return state.begun, silent
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for seen, silent := look(); !silent; {
		select {
		case state.slots <- struct{}{}:
			return 0, true
		case <-confirm.Stopped(s.work):
			return 0, false
		case <-timer.C:
		}
		now, isSilent := look()
		if silent = isSilent; !silent && (now == seen || !s.store.now().Before(deadline)) {
			return time.Second, false
		}
		seen = now
		timer.Reset(patience)
	}
	return pause, false
}

func (f *forwarder) join(g group) *addressState {
	f.mu.Lock()
	defer f.mu.Unlock()
	state := f.addresses[g]
	if state == nil {
		state = &addressState{slots: make(chan struct{}, abreast)}
		f.addresses[g] = state
	}
	state.users++
	return state
}

func (f *forwarder) silent(state *addressState, is bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if is && !state.silent {
		state.since = time.Now()
	}
	state.silent = is
}

// maxAddresses bounds the failing addresses that are remembered.
const maxAddresses = 10_000

// part notes what became of a group's entries, none if it was not published.
func (f *forwarder) part(g group, state *addressState, results []result) {
	f.mu.Lock()
	defer f.mu.Unlock()
	state.users--
	if len(results) > 0 {
		failed, long := false, longestAway
		for _, r := range results {
			failed = failed || !r.done
			if r.tried {
				long = longestRefused
			}
		}
		state.failures++
		if !failed {
			state.failures = 0
		} else {
			state.longest = long
			state.notBefore = time.Now().Add(pauseAfter(state.failures, 100*time.Millisecond, long))
		}
	}
	if state.users == 0 && (state.failures == 0 || len(f.addresses) > maxAddresses) {
		delete(f.addresses, g)
	}
}
