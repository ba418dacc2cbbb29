package confirm

import (
	"context"
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
)

// pipe is one session in confirm mode and the messages in flight on it.
type pipe struct {
	session *connection.Session
	window  chan struct{} // one element for each message in flight

	// returns holds what the broker returned. The client library puts a
	// return in here before it releases the confirm of the same message, and
	// waits if there is no room: hence room for the whole window.
	returns chan amqp.Return

	// exchanges that were there when first published to on this session.
	exchanges sync.Map

	mu          sync.Mutex
	first, last *Pending // in the order of sending
}

func openPipe(ctx context.Context, conn *connection.Conn, window int) (*pipe, error) {
	session, err := conn.Session(ctx, connection.Publish)
	if err != nil {
		return nil, err
	}
	p := &pipe{session: session, window: make(chan struct{}, window)}
	p.returns = session.Channel().NotifyReturn(make(chan amqp.Return, window))
	err = session.Do(ctx, func(ch *amqp.Channel) error { return ch.Confirm(false) })
	if err != nil {
		// The session is of no use and nothing is in flight on it.
		_ = session.Close()
		return nil, err
	}
	return p, nil
}

// add must precede the writing of the message, whose return may come at once.
func (p *pipe) add(m *Pending) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m.prev = p.last
	if p.last != nil {
		p.last.next = m
	} else {
		p.first = m
	}
	p.last = m
}

// remove needs p.mu held.
func (p *pipe) remove(m *Pending) {
	if m.prev != nil {
		m.prev.next = m.next
	} else {
		p.first = m.next
	}
	if m.next != nil {
		m.next.prev = m.prev
	} else {
		p.last = m.prev
	}
	m.prev, m.next = nil, nil
}

// drainReturns hands each return to its message; p.mu must be held. A return
// carries no delivery tag. Messages in flight with the same id, exchange and
// key are all taken as returned: one of them may then be published twice,
// while the other way round one would be lost.
func (p *pipe) drainReturns() {
	for {
		select {
		case r, ok := <-p.returns:
			if !ok {
				return
			}
			for m := p.first; m != nil; m = m.next {
				if m.message.Publishing.MessageId == r.MessageId && m.message.Key == r.RoutingKey && m.message.Exchange == r.Exchange {
					m.returned = &r
				}
			}
		default:
			return
		}
	}
}
