package confirm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/transport"
	"github.com/rehop/rehop/internal/yield"
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

// entrant waits for room.
type entrant struct {
	m       *Message
	entered chan struct{} // closed when m has its room
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
		err = unsent(ctx, limits.Full())
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

// withdraw releases the room of a message that was not written.
func (c *channel) withdraw(m *Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(m)
	c.grant()
}

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

// frameOverhead is what a frame needs beside its payload.
const frameOverhead = 8

// fit cuts m to the frame size of the connection, or returns why it cannot be
// sent. It is called before m enters, because others read m from then on.
func (c *channel) fit(m *Message) error {
	if m.Fit != nil {
		m.Fit(m, c.socket.FrameSize())
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

// answer ends a message that the broker has answered, or whose channel is lost.
func (c *channel) answer(m *Message) error {
	// The channel is marked closed before its confirms are released, so a
	// confirm that is released by an open channel is the broker's own.
	lost := c.session.Channel().IsClosed()
	yield.Here()
	c.mu.Lock()
	c.drainReturns()
	c.settle(m, lost)
	c.grant()
	c.mu.Unlock()
	return c.outcome(m, lost)
}

// settle removes an answered message, and notes what the answer says about the
// channel; c.mu must be held.
func (c *channel) settle(m *Message, lost bool) {
	if !lost {
		c.progress.answered = true
		before := c.first.tag.Load()
		c.progress.passed = before != 0 && before < m.tag.Load()
		c.noteAnswer(m)
		c.noteRefusal(m)
	}
	c.remove(m)
}

// Bounds of the targets that a channel remembers.
const (
	maxRefusals = 64
	maxAnswers  = 1024
)

// noteAnswer needs c.mu held.
func (c *channel) noteAnswer(m *Message) {
	t := target{m.Exchange, m.RoutingKey}
	if t == c.answerer && c.answers != nil || len(c.answers) >= maxAnswers {
		return
	}
	if c.answers == nil {
		c.answers = map[target]struct{}{}
	}
	c.answers[t] = struct{}{}
	c.answerer = t
}

// noteRefusal needs c.mu held.
func (c *channel) noteRefusal(m *Message) {
	t := target{m.Exchange, m.RoutingKey}
	switch {
	case !m.confirm.Acked():
		if len(c.refusals) < maxRefusals {
			if c.refusals == nil {
				c.refusals = map[target]struct{}{}
			}
			c.refusals[t] = struct{}{}
			c.refused.Store(true)
		}
	case len(c.refusals) > 0:
		delete(c.refusals, t)
	}
}

// refusingAge is the age at which a channel whose target refuses is replaced.
const refusingAge = 5 * time.Second

// keepsRefusing reports whether the target of m has refused on this channel for long
// enough to try another one. Quorum queues of 3.10 go on refusing on the same
// channel when the reason is gone.
func (c *channel) keepsRefusing(m *Message) bool {
	if !c.refused.Load() || time.Since(c.opened) < refusingAge {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_, refused := c.refusals[target{m.Exchange, m.RoutingKey}]
	return refused && !c.retired
}

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

// abandon ends the waiting for m. The room stays taken until the broker answers,
// because admitting more messages would hide that it does not.
func (c *channel) abandon(m *Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leaveStandIn(m)
}

// leaveStandIn puts a message that nobody waits for in the place of m, which
// belongs to its caller again; c.mu must be held.
func (c *channel) leaveStandIn(m *Message) {
	standIn := &Message{Exchange: m.Exchange, RoutingKey: m.RoutingKey, Size: m.size(), confirm: m.confirm, seq: m.seq, prev: m.prev, next: m.next, left: true}
	standIn.tag.Store(m.tag.Load())
	standIn.Publishing.MessageId = m.Publishing.MessageId
	if standIn.prev != nil {
		standIn.prev.next = standIn
	} else {
		c.first = standIn
	}
	if standIn.next != nil {
		standIn.next.prev = standIn
	} else {
		c.last = standIn
	}
	m.prev, m.next, m.standIn = nil, nil, standIn
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

// ready waits, with the room of m taken, until the broker reads.
func (c *channel) ready(ctx context.Context, m *Message, since time.Time) error {
	err := c.socket.Ready(ended)
	if err != nil {
		err = c.awaitReady(ctx, m, since)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	m.unsent = false
	if err != nil {
		c.remove(m)
		c.grant()
	}
	return err
}

func (c *channel) awaitReady(ctx context.Context, m *Message, since time.Time) error {
	ctx, cancel := m.Patient(ctx, earlier(since, c.socket.UnreadySince()))
	defer cancel()
	if err := c.socket.Ready(ctx); err != nil {
		return unsent(ctx, err)
	}
	return nil
}

// Full is the error of a message for which there was no room.
func (l Limits) Full() error {
	return fmt.Errorf("the window is full: %d messages or %d bytes are unconfirmed; publish more slowly, or raise Config.Window or Config.WindowBytes if the broker keeps up", l.Messages, l.Bytes)
}
