package consumer

import (
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"
)

// acker sends the acks of one session. Those that become ready while one is
// being written go out together, neighbours as a single frame; a lone ack
// waits for nobody.
type acker struct {
	channel amqp.Acknowledger

	mu          sync.Mutex
	first, last *unsettled // in the order of their delivery tags
	ready       []uint64   // to be acked
	writing     bool       // somebody is, and will take what becomes ready
}

// unsettled is a delivery for which the broker waits.
type unsettled struct {
	tag        uint64
	prev, next *unsettled
}

// received notes a delivery; the tags of a session must come in their order.
func (a *acker) received(tag uint64) *unsettled {
	a.mu.Lock()
	defer a.mu.Unlock()
	u := &unsettled{tag: tag, prev: a.last}
	if a.last != nil {
		a.last.next = u
	} else {
		a.first = u
	}
	a.last = u
	return u
}

// ack acks u, or leaves that to the caller that is writing. An error means
// that the session is lost and the broker will deliver again.
func (a *acker) ack(u *unsettled) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.remove(u)
	a.ready = append(a.ready, u.tag)
	if a.writing {
		return nil
	}
	a.writing = true
	defer func() { a.writing = false }()
	for len(a.ready) > 0 {
		batch := a.ready
		a.ready = nil
		all := a.first == nil
		var open uint64 // the lowest tag that is not settled
		if !all {
			open = a.first.tag
		}
		a.mu.Unlock()
		err := a.write(batch, open, all)
		a.mu.Lock()
		if err != nil {
			return err
		}
	}
	return nil
}

// nack nacks u. It is written before u leaves the list: a multiple ack that
// overtook it would settle u as done.
func (a *acker) nack(u *unsettled, requeue bool) error {
	err := a.channel.Nack(u.tag, false, requeue)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.remove(u)
	return err
}

// write acks the tags of a batch: those below the lowest open tag as one.
func (a *acker) write(batch []uint64, open uint64, all bool) error {
	var low uint64
	lows := 0
	for _, tag := range batch {
		if all || tag < open {
			low = max(low, tag)
			lows++
			continue
		}
		if err := a.channel.Ack(tag, false); err != nil {
			return err
		}
	}
	if lows == 0 {
		return nil
	}
	return a.channel.Ack(low, lows > 1)
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
