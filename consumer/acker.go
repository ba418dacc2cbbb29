package consumer

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
)

// acker tells the broker what becomes of the deliveries of one session. Its
// goroutine writes what is ready: what becomes ready during a write goes out
// with the next one, neighbours of one kind as a single frame, and a lone ack
// waits for nobody.
type acker struct {
	channel amqp.Acknowledger
	socket  corker
	settled func(*message, error) // told of each message, once its frame is written
	stop    context.Context       // ends when Run is to stop

	mu          sync.Mutex
	first, last *message     // unsettled, in the order of their delivery tags
	ready       []settlement // to be written
	spare       []settlement // memory for the next ready
	back        []*message   // to be requeued when the fetching has ended
	cancelled   bool         // the fetching has ended
	closed      bool
	wake        chan struct{}
	written     chan struct{} // closed when the goroutine has ended
	frames      int           // that it has written; to be read after its end
}

// corker is a session that can send several frames in one packet.
type corker interface {
	Cork() bool
	Uncork()
}

// settlement is a message about which the broker is to be told.
type settlement struct {
	*message
	how how
}

type how uint8

const (
	howAck how = iota + 1
	howNack
	howRequeue
)

// errSessionOver says that a message was not settled on its session in time.
var errSessionOver = connection.WithClass(errors.New("the session is over"), connection.Transient)

func newAcker(stop context.Context, channel amqp.Acknowledger, socket corker, settled func(*message, error)) *acker {
	a := &acker{channel: channel, socket: socket, settled: settled, stop: stop,
		wake: make(chan struct{}, 1), written: make(chan struct{})}
	go a.run() // until close
	return a
}

// received notes a message; the tags of a session must come in their order.
func (a *acker) received(m *message) {
	a.mu.Lock()
	defer a.mu.Unlock()
	m.prev = a.last
	if a.last != nil {
		a.last.next = m
	} else {
		a.first = m
	}
	a.last = m
}

// inHand returns the unsettled messages that a worker has, or had, the oldest
// first.
func (a *acker) inHand() (ms []*message) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for m := a.first; m != nil; m = m.next {
		if m.begun.Load() {
			ms = append(ms, m)
		}
	}
	return ms
}

// ack acks messages. Like nack and requeue it waits for nothing: settled is
// called when the frame is written, or with an error when it cannot be, which
// means that the broker delivers the message again.
func (a *acker) ack(ms ...*message) { a.settle(howAck, ms) }

// nack nacks a message without requeue: the broker dead-letters it.
func (a *acker) nack(m *message) { a.settle(howNack, []*message{m}) }

// requeue gives messages back to their queue. While Run stops they wait until
// the fetching has ended: they would come back here at once, and before 4.3 each
// return counts towards the delivery limit.
func (a *acker) requeue(ms ...*message) {
	if a.stop.Err() != nil && a.postpone(ms) {
		return
	}
	a.settle(howRequeue, ms)
}

func (a *acker) postpone(ms []*message) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.cancelled || a.closed {
		return false
	}
	a.back = append(a.back, ms...)
	return true
}

// fetchingEnded lets go what was to be requeued meanwhile.
func (a *acker) fetchingEnded() {
	a.mu.Lock()
	back := a.back
	a.back, a.cancelled = nil, true
	a.mu.Unlock()
	a.settle(howRequeue, back)
}

func (a *acker) settle(h how, ms []*message) {
	a.mu.Lock()
	if a.closed {
		a.mu.Unlock()
		for _, m := range ms {
			a.settled(m, errSessionOver)
		}
		return
	}
	for _, m := range ms {
		a.remove(m)
		a.ready = append(a.ready, settlement{m, h})
	}
	a.mu.Unlock()
	a.call()
}

func (a *acker) call() {
	select {
	case a.wake <- struct{}{}:
	default: // it is on its way
	}
}

// close writes what is ready and ends the goroutine. What is settled later is
// not: an ack for a channel that is closed ends the connection.
func (a *acker) close() {
	a.mu.Lock()
	a.closed = true
	back := a.back
	a.back = nil
	a.mu.Unlock()
	for _, m := range back {
		a.settled(m, errSessionOver)
	}
	a.call()
	<-a.written
}

// run writes what is ready until close.
func (a *acker) run() {
	defer close(a.written)
	for range a.wake {
		for batch, open, closed := a.take(); ; batch, open, closed = a.take() {
			if len(batch) == 0 {
				if closed {
					return
				}
				break
			}
			err := a.write(batch, open)
			for _, s := range batch {
				a.settled(s.message, err)
			}
			clear(batch)
			a.spare = batch[:0]
		}
	}
}

// take returns what is ready, and the lowest tag that is not settled.
func (a *acker) take() (batch []settlement, open uint64, closed bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	batch = a.ready
	if len(batch) > 0 {
		a.ready = a.spare
		a.spare = nil
	}
	open = math.MaxUint64
	if a.first != nil {
		open = a.first.raw.DeliveryTag
	}
	return batch, open, a.closed
}

// write tells the broker about a batch. Below the lowest open tag everything is
// in the batch or was written before it, so there each run of one kind is one
// frame. The runs are written from low to high: a frame for a higher one would
// settle a lower one of another kind with it. They leave in one packet.
func (a *acker) write(batch []settlement, open uint64) error {
	if len(batch) > 1 {
		slices.SortFunc(batch, func(x, y settlement) int { return cmp.Compare(x.raw.DeliveryTag, y.raw.DeliveryTag) })
		if !oneFrame(batch, open) && a.socket.Cork() {
			defer a.socket.Uncork()
		}
	}
	for i, s := range batch {
		if s.raw.DeliveryTag > open {
			if err := a.frame(s, false); err != nil {
				return err
			}
			continue
		}
		ends := i+1 == len(batch) || batch[i+1].raw.DeliveryTag > open || batch[i+1].how != s.how
		if !ends {
			continue
		}
		several := i > 0 && batch[i-1].how == s.how
		if err := a.frame(s, several); err != nil {
			return err
		}
	}
	return nil
}

// oneFrame reports whether a sorted batch is a single run.
func oneFrame(batch []settlement, open uint64) bool {
	if batch[len(batch)-1].raw.DeliveryTag > open {
		return false
	}
	return !slices.ContainsFunc(batch, func(s settlement) bool { return s.how != batch[0].how })
}

func (a *acker) frame(s settlement, multiple bool) error {
	a.frames++
	switch s.how {
	case howAck:
		return a.channel.Ack(s.raw.DeliveryTag, multiple)
	case howNack:
		return a.channel.Nack(s.raw.DeliveryTag, multiple, false)
	case howRequeue:
		return a.channel.Nack(s.raw.DeliveryTag, multiple, true)
	}
	panic("consumer: a delivery is settled in no way")
}

// remove needs a.mu held.
func (a *acker) remove(m *message) {
	if m.prev != nil {
		m.prev.next = m.next
	} else {
		a.first = m.next
	}
	if m.next != nil {
		m.next.prev = m.prev
	} else {
		a.last = m.prev
	}
	m.prev, m.next = nil, nil
}
