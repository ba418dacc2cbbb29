package confirm

import (
	"context"
	"errors"
	"slices"
	"time"
)

// entrant waits for room.
type entrant struct {
	m       *Message
	entered chan struct{} // closed when m has its room
}

// tryEnter takes the room for m if its exchange is known and nobody waits.
func (c *channel) tryEnter(m *Message) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.exchanges[m.Exchange]; !known || len(c.queue) > 0 || !c.inUse() || !c.fits(m) {
		return false
	}
	c.add(m)
	return true
}

// inUse reports whether messages may enter; c.mu must be held.
func (c *channel) inUse() bool { return !c.closing && (c.apart || !c.retired) }

// fits needs c.mu held.
func (c *channel) fits(m *Message) bool {
	return c.count == 0 || c.count < c.limits.Messages && c.bytes+m.size() <= c.limits.Bytes
}

// enter waits for room for m.
func (c *channel) enter(ctx context.Context, m *Message, since time.Time) error {
	c.mu.Lock()
	if !c.inUse() {
		c.mu.Unlock()
		return errMoved
	}
	if c.left > 0 && !c.fits(m) {
		c.sweepLeft()
	}
	if len(c.queue) == 0 && c.fits(m) {
		c.add(m)
		m.unsent = true
		c.mu.Unlock()
		return nil
	}
	e := &entrant{m: m, entered: make(chan struct{})}
	if len(c.queue) == 0 {
		c.full = time.Now()
	}
	c.queue = append(c.queue, e)
	moved, limits, full := c.moved, c.limits, c.full
	c.mu.Unlock()
	ctx, cancel := m.Patient(ctx, earlier(since, full))
	defer cancel()
	var err error
	select {
	case <-e.entered:
		return nil
	case <-moved:
		err = errMoved
	case <-c.session.Done():
		err = errMoved
	case <-ctx.Done():
		why := limits.Full(Outage{Cause: c.publisher.outageFor(c, m)})
		if !c.isReady() {
			why = c.publisher.unreadable() // which is why it is full
		}
		err = Unsent(ctx, why)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.Index(c.queue, e); i >= 0 {
		c.queue = slices.Delete(c.queue, i, i+1)
		return err
	}
	if errors.Is(err, errMoved) { // it was given its room at the same time
		c.remove(m)
		c.grant()
		return err
	}
	return nil
}

// grant gives room to waiting messages in their order; c.mu must be held.
func (c *channel) grant() {
	for len(c.queue) > 0 && c.inUse() && c.fits(c.queue[0].m) {
		e := c.queue[0]
		c.queue[0], c.full = nil, time.Now()
		c.queue = c.queue[1:]
		c.add(e.m)
		e.m.unsent = true
		close(e.entered)
	}
	if c.retired && !c.apart && c.count == 0 && !c.closing && c.session.Err() == nil {
		c.closing = true
		c.publisher.running.Go(func() {
			_ = c.session.Close()
			c.publisher.drop(c)
		})
	}
}

// withdraw releases the room of a message that was not written. An end of its waiting on
// this channel says nothing about the next one.
func (c *channel) withdraw(m *Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(m)
	m.uncut()
	c.grant()
}
