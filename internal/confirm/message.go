package confirm

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/internal/pause"
	"github.com/rehop/rehop/internal/transport"
)

// Message is a publishing on its way. The caller sets the fields, hands it to
// Send, and leaves it alone until it has its outcome; then it may send it again.
type Message struct {
	Exchange, RoutingKey string
	Publishing           amqp.Publishing

	// Size is what the message counts in Limits.Bytes; the body if 0.
	Size int

	// Header is the size of the content header, which must fit in one frame of
	// the session, or with Headroom in half of one; 0: not checked.
	Header   int
	Headroom bool

	// Fit, if set, is called before each writing with the socket that it is for, and may
	// change Publishing and Header.
	Fit func(m *Message, socket transport.Transport)

	// Timeout bounds all sendings of the message and the waiting for its answer.
	// It begins when Send first turns to it. 0: none.
	Timeout time.Duration

	// Patience, if set, bounds the waiting to be written by how long its cause has
	// lasted: a lost connection, a broker that blocks publishers or does not read,
	// limits that leave no room, a target that does not answer. It counts from when
	// that cause began, or from Send if that was earlier.
	Patience time.Duration

	// AnswerPatience, if set, bounds the waiting for the answer by how long an outage
	// has been known: a broker that blocks publishers or does not read, a target or a
	// channel that does not answer.
	AnswerPatience time.Duration

	// WriteUntil and AnswerUntil, if set, are when the waiting to be written, and the
	// waiting for the answer, end with [ErrImpatient]. The caller has a use for the
	// rest of its time.
	WriteUntil, AnswerUntil time.Time

	// Report gets the message back with its outcome. Nil: the caller calls Wait.
	Report Reporter

	// Owner and Number are for the caller; this package does not use them.
	Owner  any
	Number int

	// Repeated: the message was written a second time, and may be in its queue
	// twice. It is set with the outcome and never cleared.
	Repeated bool

	// Err is the outcome of a reported message.
	Err error

	deadline time.Time
	ctx      context.Context // of Send
	channel  *channel        // that it was written on, nil if it was not
	confirm  *amqp.DeferredConfirmation
	tag      atomic.Uint64 // of the confirm; 0 before the writing
	waiter   *waiter
	waiters  *sync.Pool // of waiter

	// Guarded by channel.mu.
	prev, next  *Message
	seq         uint64
	returned    *amqp.Return
	cut         error    // why it is not to wait for its answer any more
	unsent      bool     // it has its room, and waits for the broker to read
	left        bool     // its caller does not wait for the answer
	placeholder *Message // that has its place on the channel since its waiting ended
}

// Reporter gets messages with their outcome. One call has the messages whose
// answers were found together, in the order of their sending; between calls this
// order may break where targets answer at different times. Answered is called by
// the goroutine that awaits the answers of a channel, or by that of Send, and must
// return soon.
type Reporter interface {
	Answered(messages []*Message)
}

// waiter is what waiting for an answer needs.
type waiter struct {
	timer *time.Timer
	cut   chan struct{} // one element: Message.cut is set
}

// newWaiter is for a pool of each Publisher: a bubble of testing/synctest must not
// use channels and timers of another one.
func newWaiter() any {
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	return &waiter{timer: timer, cut: make(chan struct{}, 1)}
}

// begin makes m ready to be sent.
func (m *Message) begin(ctx context.Context, waiters *sync.Pool) {
	m.ctx, m.channel, m.confirm, m.returned, m.cut, m.Err, m.unsent, m.placeholder = ctx, nil, nil, nil, nil, nil, false, nil
	m.tag.Store(0)
	m.Begin()
	if m.Report == nil && m.waiter == nil {
		m.waiter = waiters.Get().(*waiter) // the pool has nothing else
		m.waiters = waiters
	}
}

// Begin lets the message's Timeout begin, unless it has. Send calls it.
func (m *Message) Begin() {
	if m.deadline.IsZero() && m.Timeout > 0 {
		m.deadline = time.Now().Add(m.Timeout)
	}
}

// WriteLimit returns when the message's Timeout or its WriteUntil ends, once it was
// sent; zero: never.
func (m *Message) WriteLimit() time.Time { return earlier(m.deadline, m.WriteUntil) }

// Sent reports whether the message was written. It is for the caller of Send,
// of a message without a Report.
func (m *Message) Sent() bool { return m.channel != nil }

func (m *Message) size() int {
	if m.Size > 0 {
		return m.Size
	}
	return len(m.Publishing.Body)
}

// fail gives m an outcome without an answer.
func (m *Message) fail(err error) {
	m.channel, m.Err = nil, ofMessage(m.ctx, err)
	if m.Report != nil {
		m.Report.Answered([]*Message{m})
	}
}

// Wait returns the outcome of a message without a Report, once. When ctx, or the
// message's Timeout, ends first, the outcome is unconfirmed.
func (m *Message) Wait(ctx context.Context) error {
	c := m.channel
	if c == nil {
		m.releaseWaiter()
		return m.Err
	}
	err := m.await(ctx, c)
	m.releaseWaiter()
	if channelException(err) {
		err = c.publisher.repeatAlone(ctx, m)
	}
	return ofMessage(ctx, err)
}

// await waits for the broker's answer.
func (m *Message) await(ctx context.Context, c *channel) error {
	select {
	case <-m.confirm.Done(): // most of a batch, once the first has its answer
		return c.answer(m)
	default:
	}
	var late <-chan time.Time
	limit, whyLate := m.answerLimit()
	if !limit.IsZero() {
		m.waiter.timer.Reset(time.Until(limit))
		late = m.waiter.timer.C
		defer m.waiter.timer.Stop()
	}
	var cause error
	select {
	case <-m.confirm.Done():
		return c.answer(m)
	case <-m.waiter.cut:
		cause = m.cut
	case <-late:
		cause = c.late(m, whyLate)
	case <-ctx.Done():
		cause = pause.Ended(ctx)
	}
	select {
	case <-m.confirm.Done(): // select picks at random among what is ready
		return c.answer(m)
	default:
	}
	c.abandon(m)
	return fmt.Errorf("%w: %w", ErrUnconfirmed, cause)
}

// Late returns the outcome of a message whose waiting has ended without an answer:
// it waits on, until ctx ends or the channel is lost. It returns ErrUnconfirmed at once
// for a message that no answer can come to.
func (m *Message) Late(ctx context.Context) error {
	s := m.placeholder
	if s == nil {
		return ErrUnconfirmed
	}
	select {
	case <-s.confirm.Done():
	case <-ctx.Done():
		return ofMessage(ctx, fmt.Errorf("%w: %w", ErrUnconfirmed, pause.Ended(ctx)))
	}
	c := m.channel
	lost := c.session.Channel().IsClosed() // see answer
	c.mu.Lock()
	c.sweepLeft()
	c.mu.Unlock()
	return c.outcome(s, lost)
}

// uncut takes the cut from m, which is on no channel, so that nobody cuts it.
func (m *Message) uncut() {
	m.cut = nil
	if m.waiter == nil {
		return
	}
	select {
	case <-m.waiter.cut:
	default:
	}
}

// releaseWaiter gives the waiter back; m is on no channel.
func (m *Message) releaseWaiter() {
	if m.waiter == nil {
		return
	}
	m.uncut()
	m.waiters.Put(m.waiter)
	m.waiter = nil
}
