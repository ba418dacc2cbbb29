package store

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/topology"
)

var errNotForwarding = errors.New("store: the Forwarder is not running")

const (
	// lostLimit is how long the database may be away until that counts as more than an
	// interruption.
	lostLimit = 15 * time.Second

	// awaitLimit is how long the Forwarder may wait for the broker until Health says so.
	awaitLimit = time.Second

	// failingLimit is how long an address may fail until Health says so; and
	// failingMemory is how long it is remembered without a new try, longer than the
	// longest pause between tries.
	failingLimit  = 15 * time.Second
	failingMemory = 6 * time.Minute

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
	since, last time.Time
	err         string
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

// published notes what an address has done with entries; err is empty if none of them is
// to be tried again.
func (h *forwardHealth) published(to topology.Address, err string, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == "" {
		delete(h.failing, to)
		return
	}
	f, known := h.failing[to]
	if !known && len(h.failing) >= maxFailing {
		return
	}
	if !known || now.Sub(f.last) > failingMemory {
		f.since = now
	}
	f.last, f.err = now, err
	h.failing[to] = f
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
		if now.Sub(f.last) > failingMemory { // its entries have gone another way
			delete(h.failing, address)
			continue
		}
		if now.Sub(f.since) < failingLimit {
			continue
		}
		if n++; n == 1 || f.since.Before(worst.since) {
			worst, to = f, address
		}
	}
	if n == 0 {
		return nil
	}
	return &rehop.HealthError{Degraded: true, Since: worst.since,
		Cause: fmt.Errorf("store: entries to %d addresses cannot be forwarded, such as those to exchange %q with routing key %q: %s", n, to.Exchange, to.RoutingKey, worst.err)}
}

// errAwaiting is why the Forwarder does not work while its broker is away.
var errAwaiting = errors.New("store: the Forwarder waits for the broker; entries stay in the store")
