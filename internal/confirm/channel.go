package confirm

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/transport"
)

// channel is one session in confirm mode and the messages in flight on it.
type channel struct {
	publisher *Publisher
	session   *connection.Session
	socket    transport.Transport // under session
	opened    time.Time

	// returns holds what the broker returned. The client library puts a return
	// in here before it releases the confirm of the same message, and waits if
	// there is no room: hence room for all that can be in flight.
	returns chan amqp.Return

	collector collector
	cuts      atomic.Uint64 // reported messages that were cut

	mu          sync.Mutex
	first, last *Message // in the order of sending
	seq         uint64   // of the last one
	count       int      // of them
	bytes       int
	limits      Limits
	queue       []*entrant
	full        time.Time           // since when nobody in the queue was given room
	exchanges   map[string]struct{} // that exist
	moved       chan struct{}       // closed when messages go elsewhere
	retired     bool                // messages go elsewhere
	apart       bool                // except those of the targets that have this channel for themselves
	closing     bool                // nothing is in flight, and nothing may be added
	owes        bool                // answers, when the Publisher gave up
	left        int                 // messages in flight whose callers have left
	refusals    map[target]struct{} // targets that were nacked, and not confirmed since
	answers     map[target]struct{} // targets that have answered
	answerer    target              // the last of them
	progress    progress
	refused     atomic.Bool // there are refusals
}

var (
	// errUnsent: the channel was closed before the message was written.
	errUnsent = errors.New("the channel was closed before the message was written")
	// errMoved: another channel is to be used.
	errMoved = errors.New("the channel is not in use any more")
)

func newChannel(p *Publisher, session *connection.Session, limits Limits) *channel {
	return &channel{
		publisher: p,
		session:   session,
		socket:    transport.Inside.Session(session),
		opened:    time.Now(),
		returns:   session.Channel().NotifyReturn(make(chan amqp.Return, limits.Messages)),
		collector: collector{kicked: make(chan struct{}, 1)},
		limits:    limits,
		exchanges: map[string]struct{}{"": {}},
		moved:     make(chan struct{}),
	}
}

func (c *channel) uncork() {
	if c != nil {
		c.socket.Uncork()
	}
}

// busy reports whether more than one message is in flight.
func (c *channel) busy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count > 1
}

func (c *channel) knows(exchange string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, known := c.exchanges[exchange]
	return known
}

func (c *channel) learn(exchange string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.exchanges[exchange] = struct{}{}
}

// frameOverhead is what a frame needs beside its payload.
const frameOverhead = 8

// fit makes m fit for the connection, or returns why it cannot be sent. It is called before m enters, because others read m from then on.
func (c *channel) fit(m *Message) error {
	if m.Fit != nil {
		m.Fit(m, c.socket)
	}
	frame := c.socket.FrameSize()
	if frame <= 0 {
		return nil
	}
	limit := frame - frameOverhead
	if m.Headroom {
		limit = frame / 2
	}
	if m.Header > limit {
		return &TooLargeError{Size: m.Header, Limit: limit}
	}
	return nil
}

// write writes a message that has its room. A corked socket sends it when it is
// uncorked.
func (c *channel) write(m *Message) error {
	var err error
	m.channel = c
	m.confirm, err = c.session.Channel().PublishWithDeferredConfirm(m.Exchange, m.RoutingKey, true, false, m.Publishing)
	switch {
	case err == nil:
		m.tag.Store(m.confirm.DeliveryTag)
		if m.Report != nil {
			c.collect(m)
		}
		return nil
	case errors.Is(err, amqp.ErrClosed):
		c.withdraw(m)
		return errUnsent
	}
	c.withdraw(m)
	return fmt.Errorf("%w: %w", ErrUnconfirmed, err)
}

// ready waits, with the room of m taken, until the broker reads.
func (c *channel) ready(ctx context.Context, m *Message, since time.Time) error {
	err := c.awaitReady(ctx, m, since)
	c.mu.Lock()
	defer c.mu.Unlock()
	m.unsent = false
	if err != nil {
		c.remove(m)
		c.grant()
	}
	return err
}

// isReady reports whether the broker reads.
func (c *channel) isReady() bool {
	over, _ := c.socket.Unready()
	return over == nil
}

func (c *channel) awaitReady(ctx context.Context, m *Message, since time.Time) error {
	over, unready := c.socket.Unready()
	if over == nil {
		return nil
	}
	ctx, cancel := m.Patient(ctx, earlier(since, unready))
	defer cancel()
	if err := c.socket.Ready(ctx); err != nil {
		return Unsent(ctx, err)
	}
	return nil
}
