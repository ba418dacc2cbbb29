package confirm

// add must precede the writing of the message, whose return may come at once.
// c.mu must be held.
func (c *channel) add(m *Message) {
	c.seq++
	m.seq, m.prev, m.next = c.seq, c.last, nil
	if c.last != nil {
		c.last.next = m
	} else {
		c.first = m
	}
	c.last = m
	c.count++
	c.bytes += m.size()
}

// remove needs c.mu held.
func (c *channel) remove(m *Message) {
	if m.prev != nil {
		m.prev.next = m.next
	} else {
		c.first = m.next
	}
	if m.next != nil {
		m.next.prev = m.prev
	} else {
		c.last = m.prev
	}
	m.prev, m.next = nil, nil
	c.count--
	c.bytes -= m.size()
	if m.left {
		c.left--
	}
}

// head returns the message in flight that was written first. The first that got its
// room is not always that one: many goroutines write. c.mu must be held.
func (c *channel) head() *Message {
	head := c.first
	for m := c.first; m != nil; m = m.next {
		if tag, first := m.tag.Load(), head.tag.Load(); tag != 0 && (first == 0 || tag < first) {
			head = m
		}
	}
	return head
}

// abandon ends the waiting for m. The room stays taken until the broker answers,
// because admitting more messages would hide that it does not.
func (c *channel) abandon(m *Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leavePlaceholder(m)
}

// leavePlaceholder puts a message that nobody waits for in the place of m, which
// belongs to its caller again; c.mu must be held.
func (c *channel) leavePlaceholder(m *Message) {
	placeholder := &Message{Exchange: m.Exchange, RoutingKey: m.RoutingKey, Size: m.size(), confirm: m.confirm, seq: m.seq, prev: m.prev, next: m.next, left: true}
	placeholder.tag.Store(m.tag.Load())
	placeholder.Publishing.MessageId = m.Publishing.MessageId
	if placeholder.prev != nil {
		placeholder.prev.next = placeholder
	} else {
		c.first = placeholder
	}
	if placeholder.next != nil {
		placeholder.next.prev = placeholder
	} else {
		c.last = placeholder
	}
	m.prev, m.next, m.placeholder = nil, nil, placeholder
	c.left++
}

// sweepLeft releases the room of answered messages that nobody waits for; c.mu
// must be held.
func (c *channel) sweepLeft() {
	c.drainReturns()
	for m := c.first; m != nil && c.left > 0; {
		next := m.next
		if m.left {
			select {
			case <-m.confirm.Done():
				c.settle(m, c.session.Channel().IsClosed()) // see answer
			default:
			}
		}
		m = next
	}
	c.grant()
}
