package store

import (
	"context"
	"sync"
	"time"

	"github.com/rehop/rehop/internal/confirm"
	"github.com/rehop/rehop/internal/letter"
	"github.com/rehop/rehop/producer"
)

// target is where messages go.
type target struct{ exchange, key string }

// targetState lets few groups of letters at a time go to a target.
type targetState struct {
	turn      chan struct{}
	turns     int // that have begun
	users     int // goroutines that have it
	failures  int // groups in a row that failed
	notBefore time.Time
	longest   time.Duration // of its pauses
}

// The longest pauses of a target that cannot be reached, and of one that does
// not take what it is sent.
const (
	longestAway    = 5 * time.Second
	longestRefused = time.Minute
)

// dispatch starts a goroutine for each target of the letters, and one that
// gives the slot back after the last.
func (f *forwarder) dispatch(work context.Context, l leased, all *sync.WaitGroup) {
	var own sync.WaitGroup
	for t, letters := range byTarget(l.letters) {
		own.Go(func() { f.publishTo(work, t, letters, l) })
	}
	all.Go(func() {
		for number, err := range l.broken {
			f.store.cfg.Logger.Error("store: a letter is parked", "letter", number, "error", err)
			f.endings <- []ending{{number: number, token: l.token, state: Parked, err: letter.Readable(err.Error(), letter.MaxError)}}
		}
		own.Wait()
		<-f.slots
	})
}

// byTarget keeps the order of the letters of each target. Mostly there is one
// target, and nothing to copy.
func byTarget(letters []Letter) map[target][]Letter {
	targets := map[target]int{}
	for i := range letters {
		targets[letters[i].target()]++
	}
	groups := make(map[target][]Letter, len(targets))
	for i := range letters {
		t := letters[i].target()
		if targets[t] == len(letters) {
			return map[target][]Letter{t: letters}
		}
		if groups[t] == nil {
			groups[t] = make([]Letter, 0, targets[t])
		}
		groups[t] = append(groups[t], letters[i])
	}
	return groups
}

func (l *Letter) target() target { return target{l.Message.Exchange, l.Message.Key} }

// patience is how long letters wait for others to the same target that do not
// get on.
const patience = time.Second

// abreast is how many groups go to one target at a time: while the answers to
// one are awaited, the next is written.
const abreast = 2

// publishTo publishes letters to one target. While that fails it is one letter,
// and the others are put off.
func (f *forwarder) publishTo(work context.Context, t target, letters []Letter, l leased) {
	state := f.join(t)
	if pause, ok := f.awaitTurn(work, state, l.until.Add(-f.cfg.Lease/2)); !ok {
		f.putOff(letters, l, pause)
		f.leave(t, state, nil)
		return
	}
	defer func() { <-state.turn }()
	f.mu.Lock()
	state.turns++
	failures, wait, long := state.failures, time.Until(state.notBefore), state.longest
	f.mu.Unlock()
	if wait > 0 {
		f.putOff(letters, l, wait)
		f.leave(t, state, nil)
		return
	}
	if failures > 0 && len(letters) > 1 {
		f.putOff(letters[1:], l, pause(failures+1, 100*time.Millisecond, long))
		letters = letters[:1]
	}
	f.leave(t, state, f.publish(work, letters, l, failures))
}

// awaitTurn waits until the target is free, as long as others to it get on and
// the deadline is ahead. If it returns false the letters are put off.
func (f *forwarder) awaitTurn(work context.Context, state *targetState, deadline time.Time) (pause time.Duration, ok bool) {
	turns := func() int { f.mu.Lock(); defer f.mu.Unlock(); return state.turns }
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for seen := turns(); ; {
		select {
		case state.turn <- struct{}{}:
			return 0, true
		case <-confirm.Stopped(work):
			return 0, false
		case <-timer.C:
		}
		now := turns()
		if now == seen || !f.store.now().Before(deadline) {
			return patience, false
		}
		seen = now
		timer.Reset(patience)
	}
}

func (f *forwarder) join(t target) *targetState {
	f.mu.Lock()
	defer f.mu.Unlock()
	state := f.targets[t]
	if state == nil {
		state = &targetState{turn: make(chan struct{}, abreast)}
		f.targets[t] = state
	}
	state.users++
	return state
}

// leave notes what became of a group's letters, none if it was not published.
func (f *forwarder) leave(t target, state *targetState, endings []ending) {
	f.mu.Lock()
	defer f.mu.Unlock()
	state.users--
	if len(endings) > 0 {
		failed, long := false, longestAway
		for _, e := range endings {
			failed = failed || !e.done
			if e.tried {
				long = longestRefused
			}
		}
		state.failures++
		if !failed {
			state.failures = 0
		} else {
			state.longest = long
			state.notBefore = time.Now().Add(pause(state.failures, 100*time.Millisecond, long))
		}
	}
	if state.users == 0 && (state.failures == 0 || len(f.targets) > maxTargets) {
		delete(f.targets, t)
	}
}

// maxTargets bounds the failing targets that are remembered.
const maxTargets = 10_000

// putOff ends the leases of letters that are not published now.
func (f *forwarder) putOff(letters []Letter, l leased, long time.Duration) {
	f.endings <- returned(letters, l, f.store.now().Add(long))
}

// returned are the endings of letters that are not published, until next.
func returned(letters []Letter, l leased, next time.Time) []ending {
	endings := make([]ending, len(letters))
	for i, letter := range letters {
		endings[i] = ending{number: letter.Number, token: l.token, state: Ready, next: next}
	}
	return endings
}

// publish publishes letters, and returns and hands on what becomes of each.
func (f *forwarder) publish(work context.Context, letters []Letter, l leased, failures int) []ending {
	// What is confirmed at the last moment is still to be deleted in time.
	ctx, cancel := context.WithTimeout(work, min(f.cfg.Lease/2, l.until.Sub(f.store.now())-f.cfg.Lease/8))
	defer cancel()
	endings := make([]ending, 0, len(letters))
	answered := false
	end := func(letter Letter, receipt producer.Receipt) (done bool) {
		e := verdict(letter, receipt, f.store.cfg.Name, f.cfg.Tries, failures, f.store.now())
		e.token = l.token
		f.report(letter, receipt, e)
		endings = append(endings, e)
		answered = answered || e.done || e.tried
		return e.done
	}
	if f.cfg.KeepOrder {
		deadline, _ := ctx.Deadline()
		for i := range letters {
			if time.Until(deadline) < f.cfg.Lease/8 { // one that began now might be cut off
				endings = append(endings, returned(letters[i:], l, time.Time{})...)
				break
			}
			if !end(letters[i], f.store.publish(ctx, f.publisher, letters[i:i+1], f.failed)[0]) {
				// In one transaction with the one that failed: none overtakes it.
				endings = append(endings, returned(letters[i+1:], l, time.Time{})...)
				break
			}
		}
	} else {
		for i, receipt := range f.store.publish(ctx, f.publisher, letters, f.failed) {
			end(letters[i], receipt)
		}
	}
	f.endings <- endings
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fruitless++
	if answered {
		f.fruitless = 0
	}
	return endings
}

// report tells the Trace and the Logger what became of a letter.
func (f *forwarder) report(l Letter, r producer.Receipt, e ending) {
	if e.done {
		f.cfg.Trace.Forwarded(l, r)
		return
	}
	about := []any{"message", l.Message.ID, "exchange", l.Message.Exchange, "key", l.Message.Key, "tries", l.Tries + count(e.tried)}
	if e.state == Parked {
		f.store.cfg.Logger.Error("store: a letter is parked", append(about, "error", e.err)...)
	} else {
		f.again.WarnOf(string(producer.CauseOf(r.Err)), "store: a letter could not be forwarded", append(about, "error", e.err)...)
	}
	f.cfg.Trace.Failed(l, r.Err, e.state)
}
