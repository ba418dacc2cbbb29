package settle

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/rehop/rehop/consumer/internal/flight"
	"github.com/rehop/rehop/internal/confirm"
	"github.com/rehop/rehop/internal/pause"
	"github.com/rehop/rehop/internal/route"
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
	Publisher Publisher
	Slots     int                  // of which each may have messages whose copies are not confirmed
	Timeout   time.Duration        // of a copy
	Hold      func() time.Duration // how long after its arrival a message is kept at most

	Slot      func(*flight.Message) any                   // which slot it has
	Release   func(*flight.Message)                       // it needs its slot no longer
	Copied    func(*flight.Message, route.Target)        // hook; nil for none
	Confirmed func(*flight.Message, route.Target)        // hook; nil for none
	Instead   func(*flight.Message)                       // the copy of Instruction.Instead is confirmed
	GivesBack func(*flight.Message)                       // its copy is not, and it is about to go back to its queue; nil for none
	Failed    func(*flight.Message, route.Target, error) // for the log
}

// Publisher is the part of a confirm.Publisher that is used here.
type Publisher interface {
	Send(ctx context.Context, messages ...*confirm.Message)
	Close() error
}

// NewCopies returns Copies, which must be closed.
func NewCopies(cfg CopiesConfig) *Copies {
	return &Copies{CopiesConfig: cfg, Unconfirmed: newUnconfirmed(cfg.Slots)}
}

// sending is a copy on its way.
type sending struct {
	confirm.Message
	message     *flight.Message
	instruction *Instruction
	in          *Acker
}

// send sends the copies of messages. The messages are settled later.
func (c *Copies) send(a *Acker, tasks ...Task) {
	messages := make([]*confirm.Message, 0, len(tasks))
	for _, t := range tasks {
		if !c.begin(t.Message) {
			a.Requeue(t.Message)
			c.Release(t.Message)
			continue
		}
		copied := c.copy(a, t.Message, t.Instruction)
		if c.Copied != nil { // the hook comes before that of the confirm, which would not wait
			go func() { c.finish(copied, c.sendAndWait(copied)) }()
			continue
		}
		copied.Report = c
		messages = append(messages, &copied.Message)
	}
	yield.Here()
	if len(messages) > 0 {
		c.Publisher.Send(a.Copying, messages...)
	}
}

// begin counts a message, unless Close has been called.
func (c *Copies) begin(m *flight.Message) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.tasks.Add(1)
	c.Unconfirmed.began(c.Slot(m))
	return true
}

func (c *Copies) copy(a *Acker, m *flight.Message, i *Instruction) *sending {
	p, headers := i.Publishing(m.Raw, time.Now())
	copied := &sending{message: m, instruction: i, in: a, Message: confirm.Message{
		Exchange:   i.To.Exchange,
		RoutingKey: i.To.RoutingKey,
		Publishing: p,
		Header:     headers,
		Timeout:    c.timeoutOf(m),
	}}
	copied.Owner = copied
	return copied
}

// timeoutOf returns the time to wait for the confirm of a message's copy. It ends at the
// hold limit. A copy that starts late gets a sixteenth of the hold limit, so that the
// message can go back before the broker takes it away.
func (c *Copies) timeoutOf(m *flight.Message) time.Duration {
	hold := c.Hold()
	return min(c.Timeout, max((hold-m.Age())/2, hold/16))
}

// sendAndWait sends a copy and waits for its confirm.
func (c *Copies) sendAndWait(copied *sending) error {
	c.Publisher.Send(copied.in.Copying, &copied.Message)
	if c.Copied != nil && copied.Sent() {
		c.Copied(copied.message, copied.instruction.To)
	}
	return copied.Wait(copied.in.Copying)
}

// Answered implements confirm.Reporter. It acks all messages with a confirmed copy
// together.
func (c *Copies) Answered(messages []*confirm.Message) {
	yield.Here()
	var confirmed []*sending
	for _, message := range messages {
		copied := message.Owner.(*sending) //nolint:forcetypeassert // copy sets it
		if err := copied.Err; err != nil {
			go c.finish(copied, err)
			continue
		}
		c.confirmed(copied)
		confirmed = append(confirmed, copied)
	}
	for len(confirmed) > 0 { // of one session each time
		var of []*flight.Message
		for _, copied := range confirmed {
			if copied.in != confirmed[0].in {
				break
			}
			of = append(of, copied.message)
		}
		c.done(confirmed[0].in, flight.Ack, of...)
		confirmed = confirmed[len(of):]
	}
}

// finish settles a message after the answer to its copy. After an error it sends the
// copy again until it is confirmed, or the message can be kept no longer. Then it sends
// the one that is ordered instead, or gives the message back.
func (c *Copies) finish(copied *sending, err error) {
	a, m, i := copied.in, copied.message, copied.instruction
	if err != nil {
		err = c.sendAgain(copied, err)
	}
	if err != nil && i.Instead != nil && a.Copying.Err() == nil {
		copied = c.copy(a, m, i.Instead)
		if err = c.sendAndWait(copied); err != nil {
			err = c.sendAgain(copied, err)
		}
		if err == nil {
			c.Instead(m)
		}
	}
	verb := flight.Requeue
	switch {
	case err == nil:
		c.confirmed(copied)
		verb = flight.Ack
	case i.Scarce && !answered(err) && a.Stop.Err() == nil && a.Copying.Err() == nil:
		a.Leave(&NoConfirmsError{err}) // the session delivers nothing more that would have to go back
	case c.GivesBack != nil:
		c.GivesBack(m)
	}
	c.done(a, verb, m)
}

// sendAgain sends a copy again until it is confirmed, and then returns nil, or until its
// message can be kept no longer, and then returns the latest error.
func (c *Copies) sendAgain(copied *sending, err error) error {
	a, m, i := copied.in, copied.message, copied.instruction
	c.Unconfirmed.held(i.To)
	defer c.Unconfirmed.over(i.To)
	for pauses := pause.Grow(100*time.Millisecond, 10*time.Second); err != nil; {
		if a.Copying.Err() == nil {
			c.Unconfirmed.failed(i.To, err)
			c.Failed(m, i.To, err)
		}
		if !c.keep(a, m, pauses.Next(), err) {
			return err
		}
		if a.Stop.Err() != nil { // the answer may still come, and another copy would double the message
			if err = copied.Late(a.Copying); err == nil || !errors.Is(err, confirm.ErrUnconfirmed) || a.Copying.Err() != nil {
				continue
			}
		}
		copied = c.copy(a, m, i)
		err = c.sendAndWait(copied)
	}
	return nil
}

func (c *Copies) confirmed(copied *sending) {
	c.Unconfirmed.works(copied.instruction.To)
	if c.Confirmed != nil {
		c.Confirmed(copied.message, copied.instruction.To)
	}
}

// done settles messages of one session.
func (c *Copies) done(a *Acker, v flight.Verb, ms ...*flight.Message) {
	if v == flight.Requeue {
		a.Requeue(ms...)
	} else {
		a.mark(toldOf(v, ms)...)
	}
	for _, m := range ms {
		c.Unconfirmed.ended(c.Slot(m))
		c.Release(m)
	}
	c.tasks.Add(-len(ms))
}

// keep waits before a copy is sent again, and reports whether its message may be kept
// until then. At a stop a copy whose answer is missing may be in its place already, and
// a message that goes back to its queue would be there twice: its answer is awaited, or
// it is sent again at once where none can come.
func (c *Copies) keep(a *Acker, m *flight.Message, d time.Duration, err error) bool {
	if c.Hold()-m.Age() <= d {
		return false
	}
	if pause.While(a.Copying, a.Stop, d) {
		return true
	}
	return a.Copying.Err() == nil && errors.Is(err, confirm.ErrUnconfirmed)
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
