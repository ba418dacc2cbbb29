package consumer

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/topology"
)

var (
	errNotRunning = errors.New("consumer: Run is not running")
	errStarting   = errors.New("consumer: Run has not begun to consume")
	errStopping   = errors.New("consumer: Run is stopping")
)

// settlingLimit is how long every slot may be taken by a message that waits for
// its copy to be confirmed, before the consumer counts as unhealthy.
const settlingLimit = 15 * time.Second

// resolveAfter is how long copies are not confirmed before the parts of the
// topology are looked for again.
const resolveAfter = 20 * time.Second

// lostLimit is how long consuming may be interrupted before that counts as more
// than a reconnect.
const lostLimit = 15 * time.Second

// health is what a Consumer knows of its consuming.
type health struct {
	queue string

	mu       sync.Mutex
	fault    error               // why nothing is consumed
	passing  bool                // it is likely to pass by itself
	since    time.Time           // of the fault
	sign     time.Time           // the latest sign that the queue delivers, if there is no fault
	refusal  error               // the latest answer to the liveness probe, if it was a refusal
	troubles *troubles           // of the Run that is running
	waits    map[string]*trouble // wait queues out of which what is due is not brought back
	policies *trouble            // that break promises; nil: none are known
}

// interrupted says that nothing is consumed any more, and returns since when.
func (h *health) interrupted(err error, now time.Time) (since time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.passing {
		h.since, h.passing = now, true
	}
	h.fault = fmt.Errorf("consumer: queue %q is not consumed: %w", h.queue, err)
	return h.since
}

// fail says that nothing is consumed, and why.
func (h *health) fail(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fault, h.since, h.passing, h.refusal = err, time.Now(), false, nil
}

// starts says that Run has been called, and hands over its troubles.
func (h *health) starts(t *troubles) {
	h.fail(errStarting)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.troubles, h.policies = t, nil
}

// alive says that the queue has given a sign.
func (h *health) alive(at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if at.After(h.sign) {
		h.refusal = nil
	}
	h.fault, h.sign, h.passing = nil, at, false
}

// refused says that the liveness probe was refused.
func (h *health) refused(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.refusal = err
}

// check returns nil while messages are consumed and settled, and otherwise why
// not.
func (h *health) check(now time.Time) *connection.HealthError {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fault != nil {
		return &connection.HealthError{Degraded: h.passing && now.Sub(h.since) < lostLimit, Since: h.since, Cause: h.fault}
	}
	silent := now.Sub(h.sign)
	switch {
	case silent <= silentAfter:
		return cmp.Or(h.troubles.check(h.queue, now), h.notCarried(), h.broken())
	case h.refusal != nil:
		return &connection.HealthError{Since: h.sign, Cause: fmt.Errorf("consumer: queue %q has given no sign for %v: %w", h.queue, silent.Round(time.Second), h.refusal)}
	}
	return &connection.HealthError{Since: h.sign, Cause: fmt.Errorf("consumer: queue %q has given no sign for %v: its node may be cut off from its cluster, or the queue be without a majority",
		h.queue, silent.Round(time.Second))}
}

// carried says that what is due in a wait queue is not brought back; nil: it is.
func (h *health) carried(queue string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil {
		delete(h.waits, queue)
		return
	}
	if h.waits == nil {
		h.waits = map[string]*trouble{}
	}
	if h.waits[queue] == nil {
		h.waits[queue] = &trouble{since: time.Now()}
	}
	h.waits[queue].err = err
}

// notCarried returns which waits are not carried, nil if all are. It needs h.mu
// held.
func (h *health) notCarried() *connection.HealthError {
	var longest time.Time
	var causes []string
	for _, queue := range slices.Sorted(maps.Keys(h.waits)) {
		t := h.waits[queue]
		if longest.IsZero() || t.since.Before(longest) {
			longest = t.since
		}
		causes = append(causes, fmt.Sprintf("%q, since %s: %v", queue, t.since.Format(time.RFC3339), t.err))
	}
	if causes == nil {
		return nil
	}
	return &connection.HealthError{Degraded: true, Since: longest,
		Cause: fmt.Errorf("consumer: queue %q: what is due in its waits is not brought back: %s", h.queue, strings.Join(causes, "; "))}
}

// ruled says what policies on the broker break.
func (h *health) ruled(faults []topology.PolicyFault, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(faults) == 0 {
		h.policies = nil
		return
	}
	texts := make([]string, len(faults))
	for i, f := range faults {
		texts[i] = f.String()
	}
	if h.policies == nil {
		h.policies = &trouble{since: now}
	}
	h.policies.err = errors.New(strings.Join(texts, "; "))
}

// broken returns what policies break, nil if they break nothing. It needs h.mu
// held.
func (h *health) broken() *connection.HealthError {
	if h.policies == nil {
		return nil
	}
	return &connection.HealthError{Degraded: true, Since: h.policies.since, Cause: fmt.Errorf("consumer: queue %q: policies on the broker break promises: %w", h.queue, h.policies.err)}
}

// troubles is what a republisher knows of copies that are not confirmed.
type troubles struct {
	slots int

	mu       sync.Mutex
	settling int       // messages whose copies are not confirmed
	full     time.Time // since when they take all slots
	failing  map[topology.Address]*trouble
	missing  error // what Resolve says meanwhile
}

// trouble says why the copies to one place are not confirmed.
type trouble struct {
	messages int // that are held for it
	err      error
	since    time.Time
}

func newTroubles(slots int) *troubles {
	return &troubles{slots: slots, failing: map[topology.Address]*trouble{}}
}

// began says that one more message waits for its copy to be confirmed.
func (t *troubles) began() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.settling++; t.settling == t.slots {
		t.full = time.Now()
	}
}

// ended says that one of them is settled.
func (t *troubles) ended() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.settling--; t.settling == t.slots-1 {
		t.full = time.Time{}
	}
}

// fails says that one more message is held because its copy to a place was not
// confirmed.
func (t *troubles) fails(to topology.Address) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.failing[to]
	if f == nil {
		f = &trouble{since: time.Now()}
		t.failing[to] = f
	}
	f.messages++
}

// failed says why, each time.
func (t *troubles) failed(to topology.Address, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failing[to].err = err
}

// over says that one of those messages is settled.
func (t *troubles) over(to topology.Address) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.failing[to]
	if f.messages--; f.messages == 0 {
		delete(t.failing, to)
	}
	if len(t.failing) == 0 {
		t.missing = nil
	}
}

// resolved says whether the parts of the topology are there.
func (t *troubles) resolved(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.failing) > 0 {
		t.missing = err
	}
}

// check returns which copies are not confirmed, as unhealthy if that has taken
// all slots for long, and nil if none are missing.
func (t *troubles) check(queue string, now time.Time) *connection.HealthError {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.settling >= t.slots && now.Sub(t.full) >= settlingLimit {
		return &connection.HealthError{Since: t.full, Cause: fmt.Errorf("consumer: queue %q is not consumed: %s in hand, as many as Config.Concurrency allows, wait for a copy to be confirmed%s",
			queue, plural(t.settling, "message"), t.causes())}
	}
	if len(t.failing) == 0 {
		return nil
	}
	return &connection.HealthError{Degraded: true, Since: t.longest(), Cause: fmt.Errorf("consumer: queue %q: messages are held until their copies are confirmed%s", queue, t.causes())}
}

// failingSince returns since when copies to some place have been failing, the
// zero time if none are.
func (t *troubles) failingSince() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.longest()
}

// longest needs t.mu held.
func (t *troubles) longest() (since time.Time) {
	for _, f := range t.failing {
		if since.IsZero() || f.since.Before(since) {
			since = f.since
		}
	}
	return since
}

// causes needs t.mu held.
func (t *troubles) causes() string {
	var causes []string
	for to, f := range t.failing {
		causes = append(causes, fmt.Sprintf("; %s for %s, since %s: %v", plural(f.messages, "message"), to, f.since.Format(time.RFC3339), f.err))
	}
	slices.SortFunc(causes, cmp.Compare[string])
	if t.missing != nil {
		causes = append(causes, fmt.Sprintf("; %v", t.missing))
	}
	return strings.Join(causes, "")
}

// plural returns "1 message" and "2 messages".
func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
