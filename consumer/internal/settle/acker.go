package settle

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer/internal/flight"
	"github.com/rehop/rehop/internal/yield"
)

// Session settles the messages of one session. Its goroutine tells the broker what
// is marked in the ledger: messages that are marked during a write go out with the
// next one, neighbours with one verb as a single frame, and a lone ack waits for
// nobody.
type Session struct {
	Config
	wake    chan struct{}
	written chan struct{} // closed when the goroutine has ended
	frames  int           // that it has written; to be read after its end

	mu      sync.Mutex
	later   []*flight.Message // to be requeued when the fetching has ended
	fetched bool              // the fetching has ended
	closed  bool
}

// Config of a Session.
type Config struct {
	Ledger  *flight.Session
	Channel amqp.Acknowledger
	Socket  Corker
	Copies  *Copies
	Copying context.Context // of copies
	Stop    context.Context // ends when Run is to stop

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
var ErrSessionOver = connection.WithClass(errors.New("the session is over"), connection.Transient)

// NewSession returns a Session, which must be closed.
func NewSession(cfg Config) *Session {
	s := &Session{Config: cfg, wake: make(chan struct{}, 1), written: make(chan struct{})}
	go s.run() // until Close
	return s
}

// Do carries out an order, which must not be changed any more. It reports whether
// the message is settled as far as its slot is concerned; if not, Copies.Release is
// called when it is. Do waits for nothing.
func (s *Session) Do(m *flight.Message, o *Order) (free bool) {
	switch o.Move {
	case Ack, Nack:
		s.tell(flight.Verb(o.Move), m)
	case Requeue:
		s.Requeue(m)
	case Copy:
		s.Copies.send(s, Task{m, o})
		return false
	default:
		panic("consumer: an order without a move")
	}
	return true
}

// Task is a message and its order, which must not be changed any more.
type Task struct {
	*flight.Message
	*Order
}

// DoAll carries out several orders, as few frames as possible, and returns how many of
// the messages are not settled yet: for each of them Copies.Release is called when it is.
func (s *Session) DoAll(tasks []Task) (kept int) {
	var told []flight.Told
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
			panic("consumer: an order without a move")
		}
	}
	if s.Stop.Err() == nil || !s.postpone(back) {
		for _, m := range back {
			told = append(told, flight.Told{Message: m, Verb: flight.Requeue})
		}
	}
	s.tellAll(told)
	s.Copies.send(s, copied...)
	return len(copied)
}

// Requeue gives messages back to their queue. While Run stops they wait until the
// fetching has ended: they would come back here at once, and before 4.3 each return
// counts towards the delivery limit.
func (s *Session) Requeue(ms ...*flight.Message) {
	if s.Stop.Err() != nil && s.postpone(ms) {
		return
	}
	s.tell(flight.Requeue, ms...)
}

func (s *Session) postpone(ms []*flight.Message) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fetched || s.closed {
		return false
	}
	s.later = append(s.later, ms...)
	return true
}

// Fetched lets go the messages that were to be requeued meanwhile.
func (s *Session) Fetched() {
	s.mu.Lock()
	later := s.later
	s.later, s.fetched = nil, true
	s.mu.Unlock()
	s.tell(flight.Requeue, later...)
}

func (s *Session) tell(v flight.Verb, ms ...*flight.Message) {
	if !s.Ledger.Mark(v, ms...) {
		for _, m := range ms {
			s.Ended(m, v, ErrSessionOver)
		}
		return
	}
	yield.Here()
	s.call()
}

func (s *Session) tellAll(all []flight.Told) {
	if len(all) == 0 {
		return
	}
	if !s.Ledger.MarkAll(all) {
		for _, t := range all {
			s.Ended(t.Message, t.Verb, ErrSessionOver)
		}
		return
	}
	yield.Here()
	s.call()
}

func (s *Session) call() {
	select {
	case s.wake <- struct{}{}:
	default: // it is on its way
	}
}

// Close writes what is marked and ends the goroutine. A message that is settled
// later is not told of: an ack for a channel that is closed ends the connection.
func (s *Session) Close() {
	s.mu.Lock()
	s.closed = true
	later := s.later
	s.later = nil
	s.mu.Unlock()
	yield.Here()
	s.Ledger.Close()
	yield.Here()
	for _, m := range later {
		s.Ended(m, flight.Requeue, ErrSessionOver)
	}
	s.call()
	<-s.written
}

// run writes what is marked until Close.
func (s *Session) run() {
	defer close(s.written)
	var spent []flight.Told
	for range s.wake {
		for {
			yield.Here()
			batch, open, closed := s.Ledger.Take(spent)
			if len(batch) == 0 {
				if closed {
					return
				}
				spent = batch
				break
			}
			err := s.write(batch, open)
			yield.Here()
			for _, t := range batch {
				s.Ended(t.Message, t.Verb, err)
			}
			spent = batch
		}
	}
}

// write tells the broker about a batch. Below the lowest open tag everything is
// in the batch or was written before it, so there each run of one verb is one
// frame. The runs are written from low to high: a frame for a higher one would
// settle a lower one of another verb with it. They leave in one packet.
func (s *Session) write(batch []flight.Told, open uint64) error {
	if len(batch) > 1 {
		slices.SortFunc(batch, func(x, y flight.Told) int { return cmp.Compare(x.Raw.DeliveryTag, y.Raw.DeliveryTag) })
		if !oneFrame(batch, open) && s.Socket.Cork() {
			defer s.Socket.Uncork()
		}
	}
	for i, t := range batch {
		if t.Raw.DeliveryTag > open {
			if err := s.frame(t, false); err != nil {
				return err
			}
			continue
		}
		ends := i+1 == len(batch) || batch[i+1].Raw.DeliveryTag > open || batch[i+1].Verb != t.Verb
		if !ends {
			continue
		}
		several := i > 0 && batch[i-1].Verb == t.Verb
		if err := s.frame(t, several); err != nil {
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

func (s *Session) frame(t flight.Told, multiple bool) error {
	s.frames++
	switch t.Verb {
	case flight.Ack:
		return s.Channel.Ack(t.Raw.DeliveryTag, multiple)
	case flight.Nack:
		return s.Channel.Nack(t.Raw.DeliveryTag, multiple, false)
	case flight.Requeue:
		return s.Channel.Nack(t.Raw.DeliveryTag, multiple, true)
	}
	panic("consumer: a message is marked without a verb")
}
