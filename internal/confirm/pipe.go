package confirm

import (
	"context"
	"errors"
	"fmt"
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

func (p *Publisher) open(ctx context.Context, window int) (*pipe, error) {
	session, err := p.conn.Session(ctx, connection.Publish)
	if err != nil {
		return nil, err
	}
	pipe := &pipe{
		session: session,
		window:  make(chan struct{}, window),
		returns: session.Channel().NotifyReturn(make(chan amqp.Return, window)),
	}
	err = session.Do(ctx, func(ch *amqp.Channel) error { return ch.Confirm(false) })
	if err != nil {
		// The session is of no use and nothing is in flight on it.
		_ = session.Close()
		return nil, err
	}
	return pipe, nil
}

// send writes the message, which has its place in the window. It leaves with
// Flush.
func (p *pipe) send(publisher *Publisher, m Message) (*Pending, error) {
	pending := &Pending{publisher: publisher, pipe: p, message: m}
	p.add(pending)
	pending.corked = p.session.Cork()
	var err error
	pending.confirm, err = p.session.Channel().PublishWithDeferredConfirm(m.Exchange, m.Key, true, false, m.Publishing)
	if err == nil {
		return pending, nil
	}
	pending.Flush()
	pending.leave()
	if errors.Is(err, amqp.ErrClosed) {
		return nil, errUnsent
	}
	return nil, fmt.Errorf("%w: %w", ErrUnconfirmed, err)
}

// sendAll writes the first message, which has its place, and those behind it
// for which nothing has to be waited.
func (p *pipe) sendAll(publisher *Publisher, messages []Message) ([]*Pending, error) {
	if p.session.Cork() {
		defer p.session.Uncork()
	}
	sent := make([]*Pending, 0, len(messages))
	for i, m := range messages {
		if i > 0 && !p.admits(m.Exchange) {
			break
		}
		pending, err := p.send(publisher, m)
		if err != nil {
			return sent, err
		}
		pending.Flush() // nothing, unless somebody else had the cork and let go
		sent = append(sent, pending)
	}
	return sent, nil
}

// admits takes a place in the window, if one is free, the exchange is known and
// the broker reads.
func (p *pipe) admits(exchange string) bool {
	if !p.knows(exchange) || p.session.Ready(ended) != nil {
		return false
	}
	select {
	case p.window <- struct{}{}:
		return true
	default:
		return false
	}
}

// ended is a ctx for a call that must not wait.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// knows reports whether the exchange need not be looked for.
func (p *pipe) knows(exchange string) bool {
	_, known := p.exchanges.Load(exchange)
	return known || exchange == ""
}

// errUnsent says that the channel was closed before the message was written.
var errUnsent = errors.New("the channel was closed before the message was written")

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
