package hand

import (
	"time"
)

// Batch says which messages a worker takes together.
type Batch struct {
	Size   int           // of them at most; 0 and 1: no batches
	Linger time.Duration // after the arrival of the first of them, at most
	Bytes  int           // of their bodies together, where they are several
}

// isAlone reports whether a message is handled in no batch with others.
func (m *Message) isAlone() bool { return m.IsSuspect() || m.Alone }

// count adds a message to the sums of the queue, or with sign -1 takes it out. With them
// the look whether a batch is complete takes the same time however many messages wait.
func (l *Lane) count(m *Message, sign int) {
	l.bytes += sign * len(m.Raw.Body)
	if m.isAlone() {
		l.alone += sign
	}
}

// complete reports whether a worker takes what waits, of which there is something, and
// if not, when at the latest. It needs mu held.
//
// In an outage one message at a time finds out whether it is over. And nothing can be
// added to a batch that is followed by a message that goes alone, or by one of another
// session.
func (l *Lane) complete(now time.Time) (ok bool, until time.Time) {
	if l.Batch.Size <= 1 || l.waiting() >= l.Batch.Size || l.bytes >= l.Batch.Bytes || l.alone > 0 || !l.gate.isOpen() {
		return true, time.Time{}
	}
	first := l.queue[l.head]
	if l.queue[len(l.queue)-1].In != first.In {
		return true, time.Time{}
	}
	until = first.Received.Add(l.Batch.Linger)
	return !now.Before(until), until
}

// takeBatch appends the messages at the head that are handled together. It needs mu
// held.
func (l *Lane) takeBatch(to []*Message) []*Message {
	first := l.take()
	to = append(to, first)
	if l.Batch.Size <= 1 || first.isAlone() || !l.gate.isOpen() {
		return to
	}
	for bytes := len(first.Raw.Body); len(to) < l.Batch.Size && l.waiting() > 0; {
		next := l.queue[l.head]
		if bytes += len(next.Raw.Body); next.In != first.In || next.isAlone() || bytes > l.Batch.Bytes {
			break
		}
		to = append(to, l.take())
	}
	return to
}
