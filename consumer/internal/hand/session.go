package hand

import (
	"context"
	"math"
	"time"
)

// Session has the messages that have come on one channel, in the order of their tags, and what
// the broker is to be told about them. A message is open from its arrival until it is marked, and
// counts as unsettled until its frame is written.
type Session struct {
	Contexts

	Frames Signal // there are frames to be written, or the session is closed

	lane        *Lane
	first, last *Message // open
	marked      []Told   // to be written
	course      course

	counts    Counts
	consumers int // that have begun
}

// Counts are of the messages of a session.
type Counts struct {
	Unsettled int
	Bytes     int // of their bodies
	Recent    int // unsettled messages of the latest consumer; those of a consumer that it has replaced do not count towards its prefetch
	Suspects  int // unsettled
	Uncleared int // suspects that no handler has returned from
	Untried   int // delivered before, and no handler has returned from them
	Retained  int // of Recent: their handlers have returned, or none will have them, and it is not known yet how they end
}

// Contexts are those of a session. Package hand looks whether they have ended, and waits for
// none of them.
type Contexts struct {
	// Stop ends when the session is to end in order: with Run, or alone, by Cancel, which
	// package hand never calls.
	Stop   context.Context
	Cancel context.CancelCauseFunc

	// Working is the ctx of handlers. It ends with the session, or when a stop has lasted for
	// DrainTimeout.
	Working context.Context

	// Copying is the ctx of copies. It ends with the session, or at the end of the stop: what a
	// handler has returned is still settled.
	Copying context.Context
}

// course is how far the end of a session has come. It only rises.
type course uint8

const (
	fetching     course = iota // a message goes back at once, or if Stop has ended with the fetching
	keeping                    // what goes back stays until the end of the fetching, or of the channel
	fetchingOver               // a message goes back at once
	channelOver                // nothing is marked any more
)

// Lane returns the lane of the session.
func (s *Session) Lane() *Lane { return s.lane }

// Verb is how a message is settled.
type Verb uint8

// The verbs. The zero value settles nothing.
const (
	_       Verb = iota
	Ack          // it is done with
	Nack         // the broker dead-letters it
	Requeue      // it goes back to its queue
	Copy         // a copy goes to another place, and is confirmed, and then it is acked
)

// Told is a message, and what the broker is to be told about it.
type Told struct {
	*Message
	Verb Verb
}

// Session begins a session of the lane, which is then its latest.
func (l *Lane) Session(ctx Contexts) *Session {
	h := l.hand
	h.mu.Lock()
	defer h.mu.Unlock()
	s := &Session{Contexts: ctx, lane: l, Frames: NewSignal()}
	l.latest = s
	return s
}

// Delivered takes a message that has come. The messages of a session must come in the order of
// their tags.
func (s *Session) Delivered(m *Message, out *Out) {
	l := s.lane
	h := l.hand
	h.mu.Lock()
	defer h.mu.Unlock()
	s.arrive(m)
	l.heard = m.Received
	if l.keys.push(m) {
		l.enqueue(m)
		if l.blocked.isNow() || m.Key != l.blocked.key {
			l.blocked = blocked{}
		}
	}
	if len(h.lanes) > 1 {
		l.meets(m, out)
	}
	l.lookAtKeys(m.Received, out)
	h.call(m.Received, out)
}

// arrive notes a message that has come. It needs mu held.
func (s *Session) arrive(m *Message) {
	m.In, m.prev = s, s.last
	if s.last != nil {
		s.last.next = m
	} else {
		s.first = m
	}
	s.last = m
	s.lane.unsettled++
	s.counts.Unsettled++
	s.counts.Bytes += len(m.Raw.Body)
	m.consumer = s.consumers
	s.counts.Recent++
	if m.hasCome() {
		s.counts.Untried++
	}
	if m.IsSuspect() {
		s.counts.Suspects++
		s.counts.Uncleared++
	}
}

// tried notes that a handler has returned from a message, or that none will have it. It needs
// mu held.
func (s *Session) tried(m *Message) {
	if m.hasCome() {
		s.counts.Untried--
		s.lane.Changed.set()
	}
	if m.IsSuspect() {
		s.counts.Uncleared--
	}
}

// settle settles a message that a worker has, or that nobody has. It needs mu held.
func (m *Message) settle(v Verb, now time.Time, out *Out) {
	s := m.In
	switch v {
	case Ack, Nack:
		s.mark(m, v, out)
	case Requeue:
		s.giveBack(m, out)
	case Copy:
		m.comes(copies)
		s.lane.copying.began(m, now)
		return // it needs its slot until the copy is confirmed
	default:
		panic("consumer: a message is settled without a verb")
	}
	m.leavesSlot(now, out)
}

// mark has the broker told about a message. It needs mu held.
func (s *Session) mark(m *Message, v Verb, out *Out) {
	m.comes(marked)
	if s.course == channelOver { // it stays among the open ones, so that no frame that is still to be written takes it along
		out.Over = append(out.Over, Told{m, v})
		return
	}
	s.remove(m)
	s.marked = append(s.marked, Told{m, v})
	s.Frames.set()
}

// giveBack gives a message back to its queue. While the session ends in order it waits until
// the fetching has ended: it would come back here at once, and before 4.3 each return counts
// towards the delivery limit. It needs mu held.
func (s *Session) giveBack(m *Message, out *Out) {
	if s.course >= fetchingOver || s.course == fetching && s.Stop.Err() == nil {
		s.mark(m, Requeue, out)
		return
	}
	m.comes(postponed)
}

// remove removes a message from the open ones. It needs mu held.
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

// GiveBack gives back a message that has come when nothing is to be handled any more.
func (s *Session) GiveBack(m *Message, out *Out) {
	h := s.lane.hand
	h.mu.Lock()
	defer h.mu.Unlock()
	s.arrive(m)
	m.comes(isNext)
	s.giveBack(m, out)
}

// Fetched says that the fetching has ended. Messages that were to go back meanwhile go back.
func (s *Session) Fetched(out *Out) {
	h := s.lane.hand
	h.mu.Lock()
	defer h.mu.Unlock()
	s.course = max(s.course, fetchingOver)
	s.lastGoBack(out)
}

// lastGoBack gives back the messages that were to go back later. It needs mu held.
func (s *Session) lastGoBack(out *Out) {
	for m := s.first; m != nil; {
		next := m.next
		if m.phase == Back {
			s.mark(m, Requeue, out)
		}
		m = next
	}
}

// Close lets nothing be marked any more: an ack for a channel that is closed ends the
// connection. The messages that nobody has go back with the channel.
func (s *Session) Close(out *Out) {
	h := s.lane.hand
	h.mu.Lock()
	defer h.mu.Unlock()
	s.course = channelOver
	s.lastGoBack(out)
	s.Frames.set()
}

// Take returns the messages that were marked since the last Take, and the lowest tag
// that is open. Every message below that tag is in the batch or in one before it.
// spent is the batch before, whose memory is used again.
func (s *Session) Take(spent []Told) (batch []Told, open uint64, closed bool) {
	clear(spent)
	h := s.lane.hand
	h.mu.Lock()
	defer h.mu.Unlock()
	batch, s.marked = s.marked, spent[:0]
	open = math.MaxUint64
	if s.first != nil {
		open = s.first.Raw.DeliveryTag
	}
	return batch, open, s.course == channelOver
}

// Settled says that the frames of messages are written, or cannot be. They may be of several
// sessions. Hooked is the last event of each.
func (h *Hand) Settled(all []Told, now time.Time, out *Out) {
	h.mu.Lock()
	defer h.mu.Unlock()
	suspects := false
	for _, t := range all {
		m, s := t.Message, t.In
		if l := s.lane; len(h.lanes) > 1 && l.session == s && s.counts.Recent >= l.prefetch {
			l.mayCome(now)
		}
		m.comes(isTold)
		s.counts.Unsettled--
		s.counts.Bytes -= len(m.Raw.Body)
		if m.consumer == s.consumers {
			s.counts.Recent--
		}
		if m.IsSuspect() {
			s.counts.Suspects--
			suspects = true
		}
		s.lane.lookAtKeys(now, out)
	}
	if len(h.lanes) > 1 {
		if suspects {
			h.nextTurn(now, out)
		}
		h.nothingCame(now, out)
		h.call(now, out)
	}
}

// Hooked says that the Observer of a message that is settled has been told: nobody has the
// message any more.
func (h *Hand) Hooked(m *Message) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := m.In.lane
	if l.unsettled--; l.unsettled == 0 {
		l.None.set()
	}
}

// Taken returns the open messages that a worker has, or had, the oldest first.
func (s *Session) Taken() (ms []Seen) {
	h := s.lane.hand
	h.mu.Lock()
	defer h.mu.Unlock()
	for m := s.first; m != nil; m = m.next {
		if m.phase.isAtWork() || m.phase == Back && m.grant != nil {
			ms = append(ms, m.seen())
		}
	}
	return ms
}

// Oldest returns the oldest open message that no worker has had, or that goes back, and whether
// it goes back; nil for none.
func (s *Session) Oldest() (oldest *Message, goesBack bool) {
	h := s.lane.hand
	h.mu.Lock()
	defer h.mu.Unlock()
	for m := s.first; m != nil; m = m.next {
		if m.phase.isOpen() && !m.phase.isAtWork() {
			return m, m.phase == Back
		}
	}
	return nil, false
}

// Seen is a message in the phase that it had at a look.
type Seen struct {
	*Message
	Phase    Phase
	WasTaken bool // a worker had it, or a copy of it was on its way

	Again time.Time // when it is handled again at the earliest; zero: it is not held, or nobody knows
}

// seen needs mu held.
func (m *Message) seen() Seen {
	s := Seen{Message: m, Phase: m.phase, WasTaken: m.grant != nil || m.phase.isAtWork()}
	if m.phase == Held || m.phase == Early {
		s.Again = m.grant.hold.due
	}
	return s
}

// IsHandled reports whether a handler had the message.
func (s Seen) IsHandled() bool { return s.Phase.isWithHandler() }

// Look returns the oldest open messages, at most so many, how many of all a
// handler is at work on, and how many messages are unsettled: of the latest session of the lane.
func (l *Lane) Look(most int) (oldest []Seen, running, unsettled int) {
	l.hand.mu.Lock()
	defer l.hand.mu.Unlock()
	s := l.latest
	if s == nil {
		return nil, 0, 0
	}
	for m := s.first; m != nil; m = m.next {
		if len(oldest) < most && m.phase.isOpen() {
			oldest = append(oldest, m.seen())
		}
		if m.phase.isWithHandler() {
			running++
		}
	}
	return oldest, running, s.counts.Unsettled
}

// Counts returns how many messages of the session are so.
func (s *Session) Counts() Counts { return s.Room(0).Counts }

// Room is what decides how many messages the broker is to send.
type Room struct {
	Counts
	Wants   int       // unsettled messages that the lane wants
	Waiting int       // messages of the lane that wait for a worker, or for their keys
	Oldest  time.Time // when the message came that waits longest for a worker; zero: none waits
	Blocked bool      // slots are free, and no message of another key can come
}

// Room returns the Counts of the session and the wants of its lane, given the prefetch of an open gate.
func (s *Session) Room(prefetch int) Room {
	l := s.lane
	l.hand.mu.Lock()
	defer l.hand.mu.Unlock()
	r := Room{Counts: s.counts, Wants: l.room(prefetch), Waiting: l.waiting() + l.keys.waiting, Blocked: l.isBlocked()}
	if l.waiting() > 0 {
		r.Oldest = l.queue[l.head].Received
	}
	return r
}
