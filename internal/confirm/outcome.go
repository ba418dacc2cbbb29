package confirm

import "fmt"

// outcome returns the error of an answered message, nil for one that is in its queue.
func (c *channel) outcome(m *Message, lost bool) error {
	switch {
	case m.confirm.Acked() && m.returned != nil:
		return &ReturnedError{Exchange: m.Exchange, RoutingKey: m.RoutingKey, Code: m.returned.ReplyCode, Text: m.returned.ReplyText}
	case m.confirm.Acked():
		return nil
	case !lost:
		return ErrNacked
	}
	<-c.session.Done()
	return fmt.Errorf("%w: %w", ErrUnconfirmed, c.session.Err())
}
