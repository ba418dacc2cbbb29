package consumer

import (
	"sync"
	"time"
)

// copies are the copies of one session that were sent and have no answer yet.
// One worker awaits the answers for all, so that the others take the next
// delivery at once, and acks what is confirmed together.
type copies struct {
	mu      sync.Mutex
	sent    []*moving // in the order of their sending, more or less
	awaited bool      // somebody does

	// Of the one who awaits.
	spare     []*moving // memory for the next sent
	confirmed []*moving // and not acked yet
	timer     *time.Timer
	patience  time.Duration
	renewal   time.Time // of patience
}

// A copy may keep the acks of later ones waiting for so long, a quarter of that
// after each that was not worth it, and for so long again some time later.
const (
	fullPatience    = 100 * time.Millisecond
	patienceRenewed = 10 * time.Second
)

// await brings m to its end, or leaves that to the worker that awaits already,
// which goes on until there is nothing left to wait for. A copy whose answer takes
// long, or is none to be glad of, gets a goroutine of its own.
func (c *copies) await(s *session, m *moving) {
	pending := m.pending // m is in other hands from the next line on, which may send it again
	first := c.add(m)    // before the copy leaves: else it would be missing among its neighbours
	pending.Flush()
	if !first {
		return
	}
	for batch, more := c.take(); more; batch, more = c.take() {
		for _, m := range batch {
			if !m.pending.Answered() {
				c.flush(s)
				c.wait(s, m)
			}
			if !m.pending.Answered() {
				s.insisting.Go(func() { s.insist(m, m.pending.Publishing(), nil) })
			} else if err := m.pending.Wait(s.settling); err != nil {
				s.insisting.Go(func() { s.insist(m, m.pending.Publishing(), err) })
			} else {
				c.confirmed = append(c.confirmed, m)
			}
		}
		if len(batch) == 0 {
			c.flush(s)
		}
		clear(batch)
		c.spare = batch
	}
}

// add reports whether the caller is to await the answers.
func (c *copies) add(m *moving) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent = append(c.sent, m)
	first := !c.awaited
	c.awaited = true
	return first
}

// take returns what was sent meanwhile, and false if nothing is left to do.
func (c *copies) take() (batch []*moving, more bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.sent) == 0 && len(c.confirmed) == 0 {
		c.awaited = false
		return nil, false
	}
	batch, c.sent = c.sent, c.spare[:0]
	c.spare = nil
	return batch, true
}

// flush acks what is confirmed.
func (c *copies) flush(s *session) {
	if len(c.confirmed) > 0 {
		s.ackMoved(c.confirmed...)
		clear(c.confirmed)
		c.confirmed = c.confirmed[:0]
	}
}

// wait waits for an answer, but not for long.
func (c *copies) wait(s *session, m *moving) {
	now := time.Now()
	if c.timer == nil {
		c.timer = time.NewTimer(fullPatience)
	}
	if now.After(c.renewal) {
		c.patience, c.renewal = fullPatience, now.Add(patienceRenewed)
	}
	c.timer.Reset(c.patience - now.Sub(m.sent))
	defer c.timer.Stop()
	select {
	case <-m.pending.Done():
	case <-c.timer.C:
		c.patience /= 4
	case <-s.settling.Done():
	}
}
