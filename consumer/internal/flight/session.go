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

// Session is the ledger of one session: its messages in the order of their delivery
// tags, and all counts of them. A message is open from its arrival until it is
// marked, and unsettled until Settled. End is the last call for each.
type Session struct {
	// Owner is for package consumer.
	Owner any

	all *Unsettled

	mu          sync.Mutex
	first, last *Message // open
	marked      []Told
	closed      bool

	unsettled atomic.Int32
	suspects  atomic.Int32  // unsettled
	alone     atomic.Int32  // suspects that no handler has returned from
	untried   atomic.Int32  // delivered before, and no handler has returned from them
	cleared   chan struct{} // an element: a handler has returned from a suspect
}

// NewSession returns an empty ledger of a Run whose unsettled messages all counts.
func NewSession(all *Unsettled) *Session { return &Session{all: all, cleared: make(chan struct{}, 1)} }

// Arrive notes a message. The messages of a session must come in the order of their
// tags.
func (s *Session) Arrive(m *Message) {
	m.In = s
	s.all.add(1)
	s.unsettled.Add(1)
	if m.Raw.Redelivered {
		s.untried.Add(1)
	}
	if m.Suspect {
		s.suspects.Add(1)
		s.alone.Add(1)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	m.prev = s.last
	if s.last != nil {
		s.last.next = m
	} else {
		s.first = m
	}
	s.last = m
}

// Mark says what the broker is to be told about open messages. It returns false, and
// marks nothing, when the session is closed.
func (s *Session) Mark(v Verb, ms ...*Message) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	for _, m := range ms {
		s.remove(m)
		s.marked = append(s.marked, Told{m, v})
	}
	return true
}

// MarkAll is Mark for messages with verbs of their own: one Take returns them all.
func (s *Session) MarkAll(all []Told) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	for _, t := range all {
		s.remove(t.Message)
	}
	s.marked = append(s.marked, all...)
	return true
}

// Take returns the messages that were marked since the last Take, and the lowest tag
// that is open. Every message below that tag is in the batch or in one before it.
// spent is the batch before, whose memory is used again.
func (s *Session) Take(spent []Told) (batch []Told, open uint64, closed bool) {
	clear(spent)
	s.mu.Lock()
	defer s.mu.Unlock()
	batch, s.marked = s.marked, spent[:0]
	open = math.MaxUint64
	if s.first != nil {
		open = s.first.Raw.DeliveryTag
	}
	return batch, open, s.closed
}

// Close lets nothing be marked any more.
func (s *Session) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

// Settled counts a message that is settled, or that the broker has back.
func (s *Session) Settled(m *Message) {
	s.unsettled.Add(-1)
	m.Returned()
	if m.Suspect {
		s.suspects.Add(-1)
	}
}

// End ends a message that is settled: nobody has it any more.
func (s *Session) End(*Message) { s.all.add(-1) }

// Begun returns the open messages that a worker has, or had, the oldest first.
func (s *Session) Begun() (ms []*Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for m := s.first; m != nil; m = m.next {
		if m.Begun.Load() {
			ms = append(ms, m)
		}
	}
	return ms
}

// OldestOpen returns the oldest open messages, at most so many, and how many of all a
// handler is at work on.
func (s *Session) OldestOpen(most int) (oldest []*Message, running int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for m := s.first; m != nil; m = m.next {
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
func (s *Session) Unsettled() int { return int(s.unsettled.Load()) }

// Suspects returns how many unsettled messages are suspect, and how many of them no
// handler has returned from.
func (s *Session) Suspects() (all, alone int) { return int(s.suspects.Load()), int(s.alone.Load()) }

// Untried returns how many messages were delivered before, and no handler has
// returned from them.
func (s *Session) Untried() int { return int(s.untried.Load()) }

// Cleared has an element when a handler has returned from a suspect.
func (s *Session) Cleared() <-chan struct{} { return s.cleared }

// remove needs s.mu held.
func (s *Session) remove(m *Message) {
	if m.prev != nil {
		m.prev.next = m.next
	} else {
		s.first = m.next
	}
	if m.next != nil {
		m.next.prev = m.prev
	} else {
		s.last = m.prev
	}
	m.prev, m.next = nil, nil
}
