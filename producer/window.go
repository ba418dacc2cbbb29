package producer

import (
	"context"
	"sync"
	"time"

	"github.com/rehop/rehop/internal/confirm"
)

// window counts the messages of a Producer that have no receipt yet, and gives
// slots to the messages of PublishAsync. A message keeps its slot until its receipt is
// known, through every further try and the Fallback. So neither an outage nor a
// slow sink makes more messages pile up than Config.Window and Config.WindowBytes
// say.
type window struct {
	limits confirm.Limits
	outage func(*confirm.Message) confirm.Outage // OutageOf of the Publisher

	mu         sync.Mutex
	closed     time.Time // zero: it is not
	open       count     // messages without a receipt
	async      count     // messages of PublishAsync whose function has not returned
	unreported int       // messages that are safe, and whose hooks and functions have not returned

	slots, bytes int
	queue        []*slotWaiter
	full         time.Time // since when nobody in the queue was given a slot
}

// slotWaiter waits for a slot.
type slotWaiter struct {
	size  int
	given chan struct{} // closed when it has its slot
}

// enter counts messages, unless the Producer is closed.
func (w *window) enter(messages int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed.IsZero() {
		return false
	}
	w.open.add(messages)
	return true
}

// leave counts a message of Publish or PublishAll that has its receipt, and whose hooks have
// returned; safe says that safe has counted it.
func (w *window) leave(safe bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open.add(-1)
	if safe {
		w.unreported--
	}
}

// enterAsync is enter for a message of PublishAsync, with a slot for it if there is
// one at once.
func (w *window) enterAsync(size int) (entered, slot bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed.IsZero() {
		return false, false
	}
	w.open.add(1)
	w.async.add(1)
	if slot = len(w.queue) == 0 && w.fits(size); slot {
		w.take(size)
	}
	return true, slot
}

// safe counts messages that are safe, and whose hooks and functions have not returned.
func (w *window) safe(messages int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unreported += messages
}

// leaveAsync counts a message of PublishAsync whose function has returned.
func (w *window) leaveAsync(safe bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open.add(-1)
	w.async.add(-1)
	if safe {
		w.unreported--
	}
}

// await waits for a slot for m.
func (w *window) await(ctx context.Context, m *confirm.Message) error {
	w.mu.Lock()
	if len(w.queue) == 0 && w.fits(m.Size) {
		w.take(m.Size)
		w.mu.Unlock()
		return nil
	}
	waiter := &slotWaiter{size: m.Size, given: make(chan struct{})}
	if len(w.queue) == 0 {
		w.full = time.Now()
	}
	w.queue = append(w.queue, waiter)
	full := w.full
	w.mu.Unlock()
	ctx, cancel := m.Patient(ctx, full)
	defer cancel()
	select {
	case <-waiter.given:
		return nil
	case <-ctx.Done():
	}
	why := w.limits.Full(w.outage(m))
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, other := range w.queue {
		if other == waiter {
			w.queue = append(w.queue[:i], w.queue[i+1:]...)
			return confirm.Unsent(ctx, why)
		}
	}
	return nil // it was given its slot at the same time
}

// release gives slots back.
func (w *window) release(slots, bytes int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.slots -= slots
	w.bytes -= bytes
	for len(w.queue) > 0 && w.fits(w.queue[0].size) {
		next := w.queue[0]
		w.queue[0], w.full = nil, time.Now()
		w.queue = w.queue[1:]
		w.take(next.size)
		close(next.given)
	}
}

// fits needs w.mu held. A message that is larger than the limit has all of it.
func (w *window) fits(size int) bool {
	return w.slots == 0 || w.slots < w.limits.Messages && w.bytes+size <= w.limits.Bytes
}

// take needs w.mu held.
func (w *window) take(size int) {
	w.slots++
	w.bytes += size
}

// flushed returns a channel that is closed when the functions of all messages of
// PublishAsync have returned.
func (w *window) flushed() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.async.none()
}

func (w *window) unflushed() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.async.n
}

// unknown returns how many messages are not known to be safe, and how many others have
// hooks or functions that have not returned.
func (w *window) unknown() (messages, others int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.open.n - w.unreported, w.unreported
}

// close makes enter refuse, and returns a channel that is closed when every message
// has its receipt.
func (w *window) close() (done <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed.IsZero() {
		w.closed = time.Now()
	}
	return w.open.none()
}

// closedSince reports whether close was called, and when it was called first.
func (w *window) closedSince() (since time.Time, closed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.closed, !w.closed.IsZero()
}

// count is a number of messages that somebody waits to become 0. The window's mu
// guards it.
type count struct {
	n    int
	zero chan struct{} // nil, or closed when n is 0 again
}

func (c *count) add(n int) {
	if c.n += n; c.n == 0 && c.zero != nil {
		close(c.zero)
		c.zero = nil
	}
}

// none returns a channel that is closed when n is 0.
func (c *count) none() <-chan struct{} {
	if c.n == 0 {
		zero := make(chan struct{})
		close(zero)
		return zero
	}
	if c.zero == nil {
		c.zero = make(chan struct{})
	}
	return c.zero
}
