package work

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/rehop/rehop/consumer/internal/consumertimeout"
	"github.com/rehop/rehop/consumer/internal/hand"
	"github.com/rehop/rehop/internal/confirm"
	"github.com/rehop/rehop/internal/pause"
	"github.com/rehop/rehop/internal/yield"
)

// Copies sends the copies of one Run, and has their messages acked when the copies
// are confirmed.
//
// A copy that is not confirmed is sent again, with growing pauses, and its message
// is kept meanwhile. The message is never nacked: that would delete it where the
// broker's own way is not confirmed, or bring it to the place that has just failed,
// or let it come back sooner than it should. It is requeued when Run stops, or
// before the broker would take it away.
type Copies struct {
	CopiesConfig
	Unconfirmed *Unconfirmed

	mu     sync.Mutex
	closed bool
	tasks  sync.WaitGroup // messages whose copies are not confirmed; none is added once closed
}

// CopiesConfig is the Config of Copies.
type CopiesConfig struct {
	Pool      *Pool
	Hand      *hand.Hand
	Publisher Publisher
	Timeout   time.Duration                    // of a copy
	Hold      *consumertimeout.ConsumerTimeout // how long after its arrival a message is kept at most
	Hooks     bool                             // Observer.Copied is to come before Confirmed
}

// Publisher is the part of a confirm.Publisher that is used here.
type Publisher interface {
	Send(ctx context.Context, messages ...*confirm.Message)
	Close() error
}

// NewCopies returns Copies, which must be closed.
func NewCopies(cfg CopiesConfig) *Copies {
	return &Copies{CopiesConfig: cfg, Unconfirmed: newUnconfirmed()}
}

// Task is a message and its instruction, which must not be changed any more.
type Task struct {
	*hand.Message
	*Instruction
}

// sending is a copy on its way.
type sending struct {
	confirm.Message
	Task
	instead bool // it is the copy of Instruction.Instead
}

// Send sends the copies of messages, of which package hand has been told. They are settled later.
func (c *Copies) Send(tasks ...Task) {
	messages := make([]*confirm.Message, 0, len(tasks))
	for _, t := range tasks {
		if !c.begin() {
			c.settle(hand.Requeue, t.Message)
			continue
		}
		copied := c.copy(t, false)
		if c.Hooks { // the hook comes before that of the confirm, which would not wait
			go func() { c.finish(copied, c.sendAndWait(copied)) }()
			continue
		}
		copied.Report = c
		messages = append(messages, &copied.Message)
	}
	yield.Here()
	if len(messages) > 0 {
		c.Publisher.Send(tasks[0].In.Copying, messages...)
	}
}

// begin counts a message, unless Close has been called.
func (c *Copies) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.tasks.Add(1)
	return true
}

func (c *Copies) copy(t Task, instead bool) *sending {
	now := time.Now()
	p, headers := t.Publishing(t.Raw, now)
	copied := &sending{Task: t, instead: instead, Message: confirm.Message{
		Exchange:   t.To.Exchange,
		RoutingKey: t.To.RoutingKey,
		Publishing: p,
		Header:     headers,
		Timeout:    c.timeoutOf(t.Message, now),
	}}
	copied.Owner = copied
	return copied
}

// timeoutOf returns the time to wait for the confirm of a message's copy. It ends at the
// hold limit. A copy that starts late gets a sixteenth of the hold limit, so that the
// message can go back before the broker takes it away.
func (c *Copies) timeoutOf(m *hand.Message, now time.Time) time.Duration {
	hold := c.Hold.HoldLimit()
	return min(c.Timeout, max((hold-m.Age(now))/2, hold/16))
}

// sendAndWait sends a copy and waits for its confirm.
func (c *Copies) sendAndWait(copied *sending) error {
	ctx := copied.In.Copying
	c.Publisher.Send(ctx, &copied.Message)
	if copied.Sent() {
		copied.Observer.Copied(copied.To)
	}
	return copied.Wait(ctx)
}

// Answered implements confirm.Reporter. It acks all messages with a confirmed copy
// together.
func (c *Copies) Answered(messages []*confirm.Message) {
	yield.Here()
	var confirmed []*hand.Message
	for _, message := range messages {
		copied := message.Owner.(*sending) //nolint:forcetypeassert // copy sets it
		if err := copied.Err; err != nil {
			go c.finish(copied, err)
			continue
		}
		c.confirmed(copied)
		confirmed = append(confirmed, copied.Task.Message)
	}
	c.done(hand.Ack, confirmed...)
}

// finish settles a message after the answer to its copy. After an error it sends the
// copy again until it is confirmed, or the message can be kept no longer. Then it sends
// the one that is ordered instead, or gives the message back.
func (c *Copies) finish(copied *sending, err error) {
	t := copied.Task
	s := t.In
	if err != nil {
		err = c.sendAgain(copied, err)
	}
	if err != nil && t.Instead != nil && s.Copying.Err() == nil {
		copied = c.copy(Task{t.Message, t.Instead}, true)
		if err = c.sendAndWait(copied); err != nil {
			err = c.sendAgain(copied, err)
		}
	}
	verb := hand.Requeue
	switch {
	case err == nil:
		c.confirmed(copied)
		verb = hand.Ack
	case t.Instruction.Scarce && !answered(err) && s.Stop.Err() == nil && s.Copying.Err() == nil:
		s.Leave(&NoConfirmsError{err}) // the session delivers nothing more that would have to go back
	default:
		c.Pool.event(func(now time.Time, out *hand.Out) { s.Leaves(hand.ErrHeld, now, out) })
	}
	c.done(verb, t.Message)
}

// sendAgain sends a copy again until it is confirmed, and then returns nil, or until its
// message can be kept no longer, and then returns the latest error.
func (c *Copies) sendAgain(copied *sending, err error) error {
	t, instead := copied.Task, copied.instead
	s := t.In
	c.Unconfirmed.held(t.To)
	defer c.Unconfirmed.over(t.To)
	for pauses := pause.Grow(100*time.Millisecond, 10*time.Second); err != nil; {
		if s.Copying.Err() == nil {
			c.Unconfirmed.failed(t.To, err)
			t.Observer.Unconfirmed(t.To, err)
		}
		if !c.keep(t.Message, pauses.Next(), err) {
			return err
		}
		if s.Stop.Err() != nil { // the answer may still come, and another copy would double the message
			if err = copied.Late(s.Copying); err == nil || !errors.Is(err, confirm.ErrUnconfirmed) || s.Copying.Err() != nil {
				continue
			}
		}
		copied = c.copy(t, instead)
		err = c.sendAndWait(copied)
	}
	return nil
}

func (c *Copies) confirmed(copied *sending) {
	c.Unconfirmed.works(copied.To)
	copied.Observer.Confirmed(copied.To, copied.instead)
}

// done settles messages of which begin has counted the copies.
func (c *Copies) done(v hand.Verb, ms ...*hand.Message) {
	c.settle(v, ms...)
	c.tasks.Add(-len(ms))
}

func (c *Copies) settle(v hand.Verb, ms ...*hand.Message) {
	yield.Here()
	c.Pool.event(func(now time.Time, out *hand.Out) { c.Hand.Copied(v, now, out, ms...) })
}

// keep waits before a copy is sent again, and reports whether its message may be kept
// until then. At a stop a copy whose answer is missing may be in its place already, and
// a message that goes back to its queue would be there twice: its answer is awaited, or
// it is sent again at once where none can come.
func (c *Copies) keep(m *hand.Message, d time.Duration, err error) bool {
	if c.Hold.HoldLimit()-m.Age(time.Now()) <= d {
		return false
	}
	s := m.In
	if pause.While(s.Copying, s.Stop, d) {
		return true
	}
	return s.Copying.Err() == nil && errors.Is(err, confirm.ErrUnconfirmed)
}

// Close gives up what is not confirmed, and returns when nothing is under way. Every
// session must be over.
func (c *Copies) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.tasks.Wait() // sessions are over, and with them what they send
	return c.Publisher.Close()
}
