package hand

// Idle returns how many workers are idle.
func (h *Hand) Idle() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.idle)
}

// Keys returns how many keys the lane remembers, and how many messages wait for one.
func (l *Lane) Keys() (remembered, waiting int) {
	l.hand.mu.Lock()
	defer l.hand.mu.Unlock()
	return len(l.keys.of), l.keys.waiting
}
