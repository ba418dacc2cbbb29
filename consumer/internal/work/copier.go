package work

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/rehop/rehop/consumer/internal/consumertimeout"
	"github.com/rehop/rehop/consumer/internal/durations"
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

// sending is a copy on its way, or one that is sent again later.
type sending struct {
	Task
	copy    *confirm.Message // of the latest try
	err     error            // of that
	instead bool             // it is the copy of Instruction.Instead
	pauses  *pause.Growing   // between the tries; nil: the first has not failed
}

// Send sends the copies of messages, of which package hand has been told. They are settled later.
func (c *Copies) Send(tasks ...Task) {
	messages := make([]*confirm.Message, 0, len(tasks)) // all of one session
	for _, t := range tasks {
		if !c.begin() {
			c.settle(hand.Requeue, t.Message)
			continue
		}
		s := &sending{Task: t}
		if c.Hooks { // the hook comes before that of the confirm, which would not wait
			go c.try(s)
			continue
		}
		c.make(s)
		s.copy.Report = c
		messages = append(messages, s.copy)
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

// make makes the copy for the next try.
func (c *Copies) make(s *sending) {
	now := time.Now()
	p, headers := s.Publishing(s.Raw, now)
	s.copy = &confirm.Message{
		Exchange:   s.To.Exchange,
		RoutingKey: s.To.RoutingKey,
		Publishing: p,
		Header:     headers,
		Timeout:    c.timeoutOf(s.Message, now),
		Owner:      s,
	}
}

// try sends a copy and waits for its answer.
func (c *Copies) try(s *sending) {
	c.make(s)
	ctx := s.In.Copying
	c.Publisher.Send(ctx, s.copy)
	if s.copy.Sent() {
		s.Observer.Copied(s.To)
	}
	c.answered(s, s.copy.Wait(ctx))
}

// timeoutOf returns the time to wait for the confirm of a message's copy: at most half of what
// is left until the hold limit, so that it can be sent once more. A copy that starts late gets a
// sixteenth of the hold limit, so that the message can go back before the broker takes it away.
func (c *Copies) timeoutOf(m *hand.Message, now time.Time) time.Duration {
	hold := c.Hold.HoldLimit()
	return min(c.Timeout, max((hold-m.Age(now))/2, hold/16))
}

// Answered implements confirm.Reporter. It acks all messages with a confirmed copy
// together.
func (c *Copies) Answered(messages []*confirm.Message) {
	yield.Here()
	var confirmed []*hand.Message
	for _, message := range messages {
		s := message.Owner.(*sending) //nolint:forcetypeassert // make sets it
		if message.Err != nil {
			go c.answered(s, message.Err) // the log may take its time
			continue
		}
		c.confirmed(s)
		confirmed = append(confirmed, s.Message)
	}
	if len(confirmed) > 0 {
		c.done(hand.Ack, confirmed...)
	}
}

// answered settles a message whose copy is confirmed. One whose copy is not is kept, and its copy
// sent again later, while it may be kept.
func (c *Copies) answered(s *sending, err error) {
	if err == nil {
		c.confirmed(s)
		c.done(hand.Ack, s.Message)
		return
	}
	s.err = err
	if s.In.Copying.Err() != nil { // the place is not at fault
		c.giveUp(s)
		return
	}
	if s.pauses == nil {
		s.pauses = pause.Grow(durations.FirstCopyPause, durations.LongestCopyPause)
		c.Unconfirmed.held(s.To)
	}
	c.Unconfirmed.failed(s.To, err)
	s.Observer.Unconfirmed(s.To, err)
	wait := s.pauses.Next()
	if c.Hold.HoldLimit()-s.Age(time.Now()) <= wait {
		c.giveUp(s)
		return
	}
	rests, end := context.WithTimeout(s.In.Copying, wait) // a message whose copy rests has no goroutine
	unwatch := context.AfterFunc(s.In.Stop, end)
	context.AfterFunc(rests, func() {
		unwatch()
		end()
		c.again(s) // a place that does not answer holds up no other
	})
}

// again sends a copy again. When the session is lost its message goes back instead. At a stop the
// message goes back too, but not if the answer to the copy is missing: the copy may be in its place
// already, and the message would be there twice. Then the answer is awaited, or the copy is sent
// again at once where none can come.
func (c *Copies) again(s *sending) {
	in := s.In
	if in.Stop.Err() != nil && in.Copying.Err() == nil {
		if !errors.Is(s.err, confirm.ErrUnconfirmed) {
			c.giveUp(s)
			return
		}
		if late := s.copy.Late(in.Copying); !errors.Is(late, confirm.ErrUnconfirmed) {
			c.answered(s, late)
			return
		}
	}
	if in.Copying.Err() != nil {
		c.giveUp(s)
		return
	}
	c.try(s)
}

// giveUp sends the copy that is ordered instead, or gives the message back.
func (c *Copies) giveUp(s *sending) {
	if s.pauses != nil {
		c.Unconfirmed.over(s.To)
	}
	in, instead := s.In, s.Instead
	if in.Copying.Err() != nil {
		instead = nil
	}
	switch {
	case instead != nil && instead.Move == hand.Copy:
		c.try(&sending{Task: Task{s.Message, instead}, instead: true})
		return
	case instead != nil && !answered(s.err) && in.Stop.Err() == nil:
		in.Cancel(&NoConfirmsError{s.err}) // the session delivers nothing more that would have to go back
	default:
		c.Pool.Event(func(now time.Time, out *hand.Out) { in.BeginNoMore(hand.ErrHeld, now, out) })
	}
	c.done(hand.Requeue, s.Message)
}

func (c *Copies) confirmed(s *sending) {
	if s.pauses != nil {
		c.Unconfirmed.over(s.To)
	}
	c.Unconfirmed.works(s.To)
	s.Observer.Confirmed(s.To, s.instead)
}

// done settles messages of which begin has counted the copies.
func (c *Copies) done(v hand.Verb, ms ...*hand.Message) {
	c.settle(v, ms...)
	c.tasks.Add(-len(ms))
}

func (c *Copies) settle(v hand.Verb, ms ...*hand.Message) {
	yield.Here()
	c.Pool.Event(func(now time.Time, out *hand.Out) { c.Hand.CopyEnded(v, now, out, ms...) })
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
