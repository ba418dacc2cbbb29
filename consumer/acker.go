package consumer

import (
	"cmp"
	"math"
	"runtime"
	"slices"
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"
)

// acker sends the acks and nacks of one session. Those that become ready while
// one is being written go out together, neighbours of one kind as a single
// frame; a lone one waits for nobody.
type acker struct {
	channel amqp.Acknowledger
	socket  corker

	mu          sync.Mutex
	first, last *unsettled // in the order of their delivery tags
	ready       []settled  // to be written
	spare       []settled  // memory for the next ready
	writing     bool       // somebody is, and will take what becomes ready
}

// corker is a session that can send several frames in one packet.
type corker interface {
	Cork() bool
	Uncork()
}

// unsettled is a delivery for which the broker waits.
type unsettled struct {
	tag        uint64
	prev, next *unsettled
}

// settled is a delivery about which the broker is to be told.
type settled struct {
	tag uint64
	how how
}

type how uint8

const (
	howAck how = iota + 1
	howNack
	howRequeue
)

// received notes a delivery; the tags of a session must come in their order.
func (a *acker) received(u *unsettled) {
	a.mu.Lock()
	defer a.mu.Unlock()
	u.prev = a.last
	if a.last != nil {
		a.last.next = u
	} else {
		a.first = u
	}
	a.last = u
}

// ack acks deliveries, see settle.
func (a *acker) ack(us ...*unsettled) error { return a.settle(howAck, us...) }

// nack nacks u, see settle.
func (a *acker) nack(u *unsettled, requeue bool) error {
	if requeue {
		return a.settle(howRequeue, u)
	}
	return a.settle(howNack, u)
}

// settle settles deliveries, or leaves that to the caller that is writing. An
// error means that the session is lost and the broker will deliver again.
func (a *acker) settle(h how, us ...*unsettled) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, u := range us {
		a.remove(u)
		a.ready = append(a.ready, settled{u.tag, h})
	}
	if a.writing {
		return nil
	}
	a.writing = true
	defer func() { a.writing = false }()
	if a.first != nil {
		// Others are at work, and what is about to end may come along.
		a.mu.Unlock()
		runtime.Gosched()
		a.mu.Lock()
	}
	for len(a.ready) > 0 {
		batch := a.ready
		a.ready = a.spare[:0]
		open := uint64(math.MaxUint64) // the lowest tag that is not settled
		if a.first != nil {
			open = a.first.tag
		}
		a.mu.Unlock()
		err := a.write(batch, open)
		a.mu.Lock()
		a.spare = batch
		if err != nil {
			return err
		}
	}
	return nil
}

// write tells the broker about a batch. Below the lowest open tag everything is
// in the batch or was written before it, so there each run of one kind is one
// frame. The runs are written from low to high: a frame for a higher one would
// settle a lower one of another kind with it. They leave in one packet.
func (a *acker) write(batch []settled, open uint64) error {
	if len(batch) > 1 && a.socket.Cork() {
		defer a.socket.Uncork()
	}
	slices.SortFunc(batch, func(x, y settled) int { return cmp.Compare(x.tag, y.tag) })
	for i, s := range batch {
		if s.tag > open {
			if err := a.frame(s, false); err != nil {
				return err
			}
			continue
		}
		ends := i+1 == len(batch) || batch[i+1].tag > open || batch[i+1].how != s.how
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

func (a *acker) frame(s settled, multiple bool) error {
	switch s.how {
	case howAck:
		return a.channel.Ack(s.tag, multiple)
	case howNack:
		return a.channel.Nack(s.tag, multiple, false)
	case howRequeue:
		return a.channel.Nack(s.tag, multiple, true)
	}
	panic("consumer: a delivery is settled in no way")
}

// remove needs a.mu held.
func (a *acker) remove(u *unsettled) {
	if u.prev != nil {
		u.prev.next = u.next
	} else {
		a.first = u.next
	}
	if u.next != nil {
		u.next.prev = u.prev
	} else {
		a.last = u.prev
	}
	u.prev, u.next = nil, nil
}
