package confirm

// drainReturns hands each return to its message; c.mu must be held. A return
// carries no delivery tag. Messages in flight with the same id, exchange and
// key are all taken as returned: one of them may then be published twice,
// while the other way round one would be lost.
func (c *channel) drainReturns() {
	for {
		select {
		case r, ok := <-c.returns:
			if !ok {
				return
			}
			for m := c.first; m != nil; m = m.next {
				if m.Publishing.MessageId == r.MessageId && m.RoutingKey == r.RoutingKey && m.Exchange == r.Exchange {
					m.returned = &r
				}
			}
		default:
			return
		}
	}
}
