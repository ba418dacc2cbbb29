package settle

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/consumer/internal/flight"
	"github.com/rehop/rehop/internal/yield"
)

// Acker settles the messages of one session. Its goroutine tells the broker what
// is marked in the ledger: messages that are marked during a write go out with the
// next one, neighbours with one verb as a single frame, and a lone ack waits for
// nobody.
type Acker struct {
	Config
	wake    chan struct{}
	written chan struct{} // closed when the goroutine has ended
	frames  int           // that it has written; to be read after its end

	mu      sync.Mutex
	later   []*flight.Message // to be requeued when the fetching has ended
	inOrder bool              // they stay until the end of the channel
	fetched bool              // the fetching has ended
	closed  bool
}

// Config of an Acker.
type Config struct {
	Ledger  *flight.Ledger
	Channel amqp.Acknowledger
	Socket  Corker
	Copies  *Copies
	Copying context.Context // of copies
	Stop    context.Context // ends when the session is to end in order

	// Leave has the session end in order, for a cause.
	Leave context.CancelCauseFunc

	// Ended is told of each message, once, when its frame is written, or with an
	// error when the frame cannot be written: then the broker delivers the message
	// again.
	Ended func(*flight.Message, flight.Verb, error)
}

// Corker is a socket that can send several frames in one packet.
type Corker interface {
	Cork() bool
	Uncork()
}

// ErrSessionOver says that a message was not settled on its session in time.
var ErrSessionOver = rehop.WithClass(errors.New("the session is over"), rehop.ClassTransient)

// NewAcker returns an Acker, which must be closed.
func NewAcker(cfg Config) *Acker {
	a := &Acker{Config: cfg, wake: make(chan struct{}, 1), written: make(chan struct{})}
	go a.run() // until Close
	return a
}

// Task is a message and its instruction, which must not be changed any more.
type Task struct {
	*flight.Message
	*Instruction
}

// Do carries out instructions, and tells the broker in as few frames as possible. It waits for
// nothing, and returns how many messages still need their slot, because their copy is not
// confirmed. Copies.Release is called when such a message is settled.
func (a *Acker) Do(tasks ...Task) (kept int) {
	var one [1]flight.Told // of most calls, which allocate nothing
	told := one[:0]
	var back []*flight.Message
	var copied []Task
	for _, t := range tasks {
		switch t.Move {
		case Ack, Nack:
			told = append(told, flight.Told{Message: t.Message, Verb: flight.Verb(t.Move)})
		case Requeue:
			back = append(back, t.Message)
		case Copy:
			copied = append(copied, t)
		default:
			panic("consumer: an instruction without a move")
		}
	}
	if len(back) > 0 && !a.postpone(back) {
		told = append(told, toldOf(flight.Requeue, back)...)
	}
	a.mark(told...)
	if len(copied) > 0 {
		a.Copies.send(a, copied...)
	}
	return len(copied)
}

// Requeue gives messages back to their queue. While the session ends in order they wait
// until the fetching has ended: they would come back here at once, and before 4.3 each
// return counts towards the delivery limit.
func (a *Acker) Requeue(ms ...*flight.Message) {
	if !a.postpone(ms) {
		a.mark(toldOf(flight.Requeue, ms)...)
	}
}

func toldOf(v flight.Verb, ms []*flight.Message) []flight.Told {
	told := make([]flight.Told, len(ms))
	for i, m := range ms {
		told[i] = flight.Told{Message: m, Verb: v}
	}
	return told
}

// postpone puts messages off until Fetched, while they must not go back yet.
func (a *Acker) postpone(ms []*flight.Message) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.Stop.Err() == nil && !a.inOrder || a.fetched || a.closed {
		return false
	}
	for _, m := range ms {
		m.Back.Store(true)
	}
	a.later = append(a.later, ms...)
	return true
}

// KeepForOrder keeps messages that go back from now on until the end of the channel, which
// alone puts all messages of the session back into their order.
func (a *Acker) KeepForOrder() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.inOrder = true
}

// Fetched lets go the messages that were to be requeued meanwhile.
func (a *Acker) Fetched() {
	a.mu.Lock()
	later := a.later
	a.later, a.fetched = nil, true
	a.mu.Unlock()
	a.mark(toldOf(flight.Requeue, later)...)
}

// mark has the goroutine tell the broker about messages.
func (a *Acker) mark(told ...flight.Told) {
	if len(told) == 0 {
		return
	}
	if !a.Ledger.Mark(told...) {
		for _, t := range told {
			a.Ended(t.Message, t.Verb, ErrSessionOver)
		}
		return
	}
	yield.Here()
	a.call()
}

func (a *Acker) call() {
	select {
	case a.wake <- struct{}{}:
	default: // it is on its way
	}
}

// Close writes what is marked and ends the goroutine. A message that is settled
// later is not told of: an ack for a channel that is closed ends the connection.
func (a *Acker) Close() {
	a.mu.Lock()
	a.closed = true
	later := a.later
	a.later = nil
	a.mu.Unlock()
	yield.Here()
	a.Ledger.Close()
	yield.Here()
	for _, m := range later {
		a.Ended(m, flight.Requeue, ErrSessionOver)
	}
	a.call()
	<-a.written
}

// run writes what is marked until Close.
func (a *Acker) run() {
	defer close(a.written)
	var spent []flight.Told
	for range a.wake {
		for {
			yield.Here()
			batch, open, closed := a.Ledger.Take(spent)
			if len(batch) == 0 {
				if closed {
					return
				}
				spent = batch
				break
			}
			err := a.write(batch, open)
			yield.Here()
			for _, t := range batch {
				a.Ended(t.Message, t.Verb, err)
			}
			spent = batch
		}
	}
}

// write tells the broker about a batch. Below the lowest open tag everything is
// in the batch or was written before it, so there each run of one verb is one
// frame. The runs are written from low to high: a frame for a higher one would
// settle a lower one of another verb with it. They leave in one packet.
func (a *Acker) write(batch []flight.Told, open uint64) error {
	if len(batch) > 1 {
		slices.SortFunc(batch, func(x, y flight.Told) int { return cmp.Compare(x.Raw.DeliveryTag, y.Raw.DeliveryTag) })
		if !oneFrame(batch, open) && a.Socket.Cork() {
			defer a.Socket.Uncork()
		}
	}
	for i, t := range batch {
		if t.Raw.DeliveryTag > open {
			if err := a.frame(t, false); err != nil {
				return err
			}
			continue
		}
		ends := i+1 == len(batch) || batch[i+1].Raw.DeliveryTag > open || batch[i+1].Verb != t.Verb
		if !ends {
			continue
		}
		several := i > 0 && batch[i-1].Verb == t.Verb
		if err := a.frame(t, several); err != nil {
			return err
		}
	}
	return nil
}

// oneFrame reports whether a sorted batch is a single run.
func oneFrame(batch []flight.Told, open uint64) bool {
	if batch[len(batch)-1].Raw.DeliveryTag > open {
		return false
	}
	return !slices.ContainsFunc(batch, func(t flight.Told) bool { return t.Verb != batch[0].Verb })
}

func (a *Acker) frame(t flight.Told, multiple bool) error {
	a.frames++
	switch t.Verb {
	case flight.Ack:
		return a.Channel.Ack(t.Raw.DeliveryTag, multiple)
	case flight.Nack:
		return a.Channel.Nack(t.Raw.DeliveryTag, multiple, false)
	case flight.Requeue:
		return a.Channel.Nack(t.Raw.DeliveryTag, multiple, true)
	}
	panic("consumer: a message is marked without a verb")
}
