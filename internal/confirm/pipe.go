package confirm

import (
	"context"
	"runtime"
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

	out     chan *Pending // to be written; never full, because each has its place in the window
	stopped chan struct{} // closed when the writer has ended

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
		out:     make(chan *Pending, window),
		stopped: make(chan struct{}),
		returns: session.Channel().NotifyReturn(make(chan amqp.Return, window)),
	}
	err = session.Do(ctx, func(ch *amqp.Channel) error { return ch.Confirm(false) })
	if err != nil {
		// The session is of no use and nothing is in flight on it.
		_ = session.Close()
		return nil, err
	}
	p.rest.Go(func() { pipe.write(p.over) })
	return pipe, nil
}

// queue hands the message, which has its place in the window, to the writer.
func (p *pipe) queue(publisher *Publisher, m Message) *Pending {
	pending := &Pending{publisher: publisher, pipe: p, message: m, written: make(chan struct{})}
	p.add(pending)
	p.out <- pending
	return pending
}

// write is the one goroutine that writes: a write to a broker that does not read
// cannot be interrupted, and no caller must be the one who waits for it.
func (p *pipe) write(over <-chan struct{}) {
	defer close(p.stopped)
	for {
		select {
		case m := <-p.out:
			p.publish(m)
		case <-p.session.Done():
			return
		case <-over:
			return
		}
	}
}

// publish writes m and what is waiting behind it, together in few packets.
func (p *pipe) publish(m *Pending) {
	if len(p.window) > 1 {
		runtime.Gosched() // who is about to send comes along
	}
	if len(p.out) > 0 {
		p.session.Cork()
		defer p.session.Uncork()
	}
	for n := 0; ; n++ {
		if m.taken.CompareAndSwap(false, true) {
			m.confirm, m.err = p.session.Channel().PublishWithDeferredConfirm(
				m.message.Exchange, m.message.Key, true, false, m.message.Publishing)
			close(m.written)
		}
		if n == maxTogether {
			return
		}
		select {
		case m = <-p.out:
		default:
			return
		}
	}
}

// maxTogether bounds how many messages the first of them waits for.
const maxTogether = 64

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
