package flight

import (
	"math"
	"sync"
	"sync/atomic"
)

// Verb is what the broker is told about a message.
type Verb uint8

// The verbs. The zero value is none.
const (
	_       Verb = iota
	Ack          // it is done with
	Nack         // it is dead-lettered by the broker
	Requeue      // it goes back to its queue
)

// Told is a message about which the broker is to be told.
type Told struct {
	*Message
	Verb Verb
}

// Ledger has the messages of one session, in the order of their delivery tags, and all
// counts of them. A message is open from its arrival until it is
// marked, and unsettled until Settled. End is the last call for each.
type Ledger struct {
	// Owner is for package consumer.
	Owner any

	all *Unsettled

	mu          sync.Mutex
	first, last *Message // open
	marked      []Told
	closed      bool

	unsettled atomic.Int32
	suspects  atomic.Int32  // unsettled
	uncleared atomic.Int32  // suspects that no handler has returned from
	untried   atomic.Int32  // delivered before, and no handler has returned from them
	cleared   chan struct{} // an element: a handler has returned from a suspect
}

// NewLedger returns an empty Ledger. Its messages count in all, too.
func NewLedger(all *Unsettled) *Ledger { return &Ledger{all: all, cleared: make(chan struct{}, 1)} }

// Arrive notes a message. The messages of a session must come in the order of their
// tags.
func (l *Ledger) Arrive(m *Message) {
	m.In = l
	l.all.add(1)
	l.unsettled.Add(1)
	if m.Raw.Redelivered {
		l.untried.Add(1)
	}
	if m.Suspect {
		l.suspects.Add(1)
		l.uncleared.Add(1)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	m.prev = l.last
	if l.last != nil {
		l.last.next = m
	} else {
		l.first = m
	}
	l.last = m
}

// Mark says what the broker is to be told about open messages. One Take returns them all.
// Mark returns false, and marks nothing, when the session is closed.
func (l *Ledger) Mark(all ...Told) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	for _, t := range all {
		l.remove(t.Message)
	}
	l.marked = append(l.marked, all...)
	return true
}

// Take returns the messages that were marked since the last Take, and the lowest tag
// that is open. Every message below that tag is in the batch or in one before it.
// spent is the batch before, whose memory is used again.
func (l *Ledger) Take(spent []Told) (batch []Told, open uint64, closed bool) {
	clear(spent)
	l.mu.Lock()
	defer l.mu.Unlock()
	batch, l.marked = l.marked, spent[:0]
	open = math.MaxUint64
	if l.first != nil {
		open = l.first.Raw.DeliveryTag
	}
	return batch, open, l.closed
}

// Close lets nothing be marked any more.
func (l *Ledger) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
}

// Settled counts a message that is settled, or that the broker has back.
func (l *Ledger) Settled(m *Message) {
	l.unsettled.Add(-1)
	m.Returned()
	if m.Suspect {
		l.suspects.Add(-1)
	}
}

// End ends a message that is settled: nobody has it any more.
func (l *Ledger) End(*Message) { l.all.add(-1) }

// Begun returns the open messages that a worker has, or had, the oldest first.
func (l *Ledger) Begun() (ms []*Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for m := l.first; m != nil; m = m.next {
		if m.Begun.Load() {
			ms = append(ms, m)
		}
	}
	return ms
}

// OldestWaiting returns the oldest open message that no worker has had, or that goes back;
// nil for none.
func (l *Ledger) OldestWaiting() *Message {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := l.first
	for m != nil && m.isAtWork() {
		m = m.next
	}
	return m
}

// IsAtWork reports whether an open message is one that a worker has, or had, and that does
// not go back.
func (l *Ledger) IsAtWork() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for m := l.first; m != nil; m = m.next {
		if m.isAtWork() {
			return true
		}
	}
	return false
}

func (m *Message) isAtWork() bool { return m.Begun.Load() && !m.Back.Load() }

// OldestOpen returns the oldest open messages, at most so many, and how many of all a
// handler is at work on.
func (l *Ledger) OldestOpen(most int) (oldest []*Message, running int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for m := l.first; m != nil; m = m.next {
		if len(oldest) < most {
			oldest = append(oldest, m)
		}
		if m.Running.Load() {
			running++
		}
	}
	return oldest, running
}

// Unsettled returns how many messages are unsettled.
func (l *Ledger) Unsettled() int { return int(l.unsettled.Load()) }

// Suspects returns how many unsettled messages are suspect, and how many of them no
// handler has returned from.
func (l *Ledger) Suspects() (all, uncleared int) {
	return int(l.suspects.Load()), int(l.uncleared.Load())
}

// Untried returns how many messages were delivered before, and no handler has
// returned from them.
func (l *Ledger) Untried() int { return int(l.untried.Load()) }

// Cleared has an element when a handler has returned from a suspect.
func (l *Ledger) Cleared() <-chan struct{} { return l.cleared }

// remove needs l.mu held.
func (l *Ledger) remove(m *Message) {
	if m.prev != nil {
		m.prev.next = m.next
	} else {
		l.first = m.next
	}
	if m.next != nil {
		m.next.prev = m.prev
	} else {
		l.last = m.prev
	}
	m.prev, m.next = nil, nil
}
