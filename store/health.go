package store

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/topology"
)

var errNotForwarding = errors.New("store: the Forwarder is not running")

const (
	// lostLimit is how long the database may be away until that counts as more than an
	// interruption. A connection and a consumer have the same time, so that a probe of a service
	// has one rule for all of them.
	lostLimit = 15 * time.Second

	// awaitLimit is how long the Forwarder may wait for the broker, or an address may
	// fail, until Health says so. The second try comes after a second.
	awaitLimit = time.Second

	// failingMemory is how long a failure is remembered after its next try is due. Its
	// entry has gone another way then: somebody has parked, edited or deleted it.
	failingMemory = 30 * time.Second

	// maxFailing bounds the addresses that Health knows.
	maxFailing = 1000
)

// forwardHealth is what a Forwarder knows of its work.
type forwardHealth struct {
	mu       sync.Mutex
	running  bool
	since    time.Time // it has been running, or not running
	fault    error     // that has ended it; nil: it was stopped, or never started
	database interruption
	broker   interruption
	failing  map[topology.Address]failing
}

// interruption is something that keeps the Forwarder from working.
type interruption struct {
	since time.Time
	err   error // nil: nothing does
}

// failing is an address that takes no entries.
type failing struct {
	since time.Time
	failure
}

// failure is the latest one of an address.
type failure struct {
	id     string // of the message
	number int64  // of its entry
	inLine bool   // entries of its line wait behind it
	err    string
	next   time.Time // it is tried
}

func (h *forwardHealth) begins(now time.Time) (ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.running {
		return false
	}
	h.running, h.since, h.fault = true, now, nil
	h.database, h.broker, h.failing = interruption{}, interruption{}, map[topology.Address]failing{}
	return true
}

func (h *forwardHealth) ends(now time.Time, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.running, h.since, h.fault = false, now, err
}

// becomes notes an interruption, or its end with nil.
func (h *forwardHealth) becomes(i *interruption, err error, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if i.err == nil {
		i.since = now
	}
	i.err = err
}

// published notes what an address has done with entries; latest is zero if none of them is
// to be tried again.
func (h *forwardHealth) published(to topology.Address, latest failure, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if latest == (failure{}) {
		delete(h.failing, to)
		return
	}
	f, known := h.failing[to]
	if !known && len(h.failing) >= maxFailing {
		return
	}
	if !known || now.Sub(f.next) > failingMemory {
		f.since = now
	}
	f.failure = latest
	h.failing[to] = f
}

// forget forgets the failures of entries that somebody has changed.
func (h *forwardHealth) forget(numbers []int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for to, f := range h.failing {
		if slices.Contains(numbers, f.number) {
			delete(h.failing, to)
		}
	}
}

// running are the healths of the Forwarders of a Store that run.
type running struct {
	mu  sync.Mutex
	all []*forwardHealth
}

func (r *running) add(h *forwardHealth) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(slices.Clip(r.all), h) // others may hold the list
}

func (r *running) remove(h *forwardHealth) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = slices.DeleteFunc(slices.Clone(r.all), func(one *forwardHealth) bool { return one == h })
}

func (r *running) list() []*forwardHealth {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all
}

// changed tells the Forwarders of this Store that entries were changed by others.
func (s *Store) changed(numbers ...int64) {
	for _, h := range s.running.list() {
		h.forget(numbers)
	}
}

func (h *forwardHealth) check(now time.Time) *rehop.HealthError {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.running {
		cause := errNotForwarding
		if h.fault != nil {
			cause = fmt.Errorf("%w: %w", errNotForwarding, h.fault)
		}
		return &rehop.HealthError{Since: h.since, Cause: cause}
	}
	if d := h.database; d.err != nil {
		return &rehop.HealthError{Degraded: now.Sub(d.since) < lostLimit, Since: d.since, Cause: fmt.Errorf("store: the Forwarder cannot use the database: %w", d.err)}
	}
	if b := h.broker; b.err != nil && now.Sub(b.since) >= awaitLimit {
		return &rehop.HealthError{Degraded: true, Since: b.since, Cause: b.err}
	}
	return h.failed(now)
}

// failed is the address that has failed longest, and how many others do.
func (h *forwardHealth) failed(now time.Time) *rehop.HealthError {
	var worst failing
	var to topology.Address
	n := 0
	for address, f := range h.failing {
		if now.Sub(f.next) > failingMemory {
			delete(h.failing, address)
			continue
		}
		if now.Sub(f.since) < awaitLimit {
			continue
		}
		if n++; n == 1 || f.since.Before(worst.since) {
			worst, to = f, address
		}
	}
	if n == 0 {
		return nil
	}
	line := ""
	if worst.inLine {
		line = "; the entries of its line wait behind it: park, edit or delete it if they must not"
	}
	return &rehop.HealthError{Degraded: true, Since: worst.since,
		Cause: fmt.Errorf("store: entries to %d addresses cannot be forwarded, such as entry %d (message %q) to exchange %q with routing key %q: %s%s", n, worst.number, worst.id, to.Exchange, to.RoutingKey, worst.err, line)}
}

// errAwaiting is why the Forwarder does not work while its broker is away.
var errAwaiting = errors.New("store: the Forwarder waits for the broker; entries stay in the store")
