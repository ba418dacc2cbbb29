package consumer

import (
	"errors"
	"fmt"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer/internal/durations"
	"github.com/rehop/rehop/internal/route"
	"github.com/rehop/rehop/internal/transport"
)

// A broker that cannot hand over one message ends the socket of all consumers of a Conn (541
// INTERNAL_ERROR), at each delivery, and does not say of which queue the message is. So once
// that has happened again, each queue has a socket of its own for a session. Only the queue of
// the message loses that one too.
//
// The broker gives the same answer for other faults, such as two nodes of three that are
// down, or on 3.10 a consumer of a queue that is just being declared. No frame tells them
// apart. So a queue is found out by what happens to it alone, and queues that part for
// another reason share a socket again soon.

// errNoSocket is why a session has no socket of its own.
var errNoSocket = fmt.Errorf("consumer: no socket of its own within %v", durations.OpensWithin)

// errShares ends a session that has shown that its queue harms no other.
var errShares = errors.New("consumer: its queue shares the socket of the other queues of the Conn again")

// moves reports whether a session ended by our own choice, for another socket or process to consume its queue.
func moves(why error) bool { return errors.Is(why, errShares) || errors.Is(why, errElsewhere) }

// faults are the internal errors that ended the socket which the consumers of a Conn share.
type faults struct {
	generation uint64    // of the latest socket that one has ended; an earlier one has counted
	at         time.Time // when; zero: it does not count any more
	partings   uint64    // how often the queues had to part
}

// with returns the faults after another one, which each queue of the socket notes.
func (f faults) with(generation uint64, now time.Time) faults {
	if generation <= f.generation {
		return f
	}
	f.generation = generation
	if f.at.IsZero() || now.Sub(f.at) > durations.PartsWithin {
		f.at = now
		return f
	}
	f.at, f.partings = time.Time{}, f.partings+1
	return f
}

// place is where a queue is consumed: on the socket that the queues of a Conn share, which is
// the zero value, or on its own.
type place struct {
	apart    bool
	failed   int    // sessions in a row that the broker has ended there with an internal error
	partings uint64 // that the queue knows of
}

// next returns where the next session is.
func (p place) next(partings uint64) place {
	p.apart = p.apart || p.partings != partings
	p.partings = partings
	return p
}

// reach is how far a session has come.
type reach uint8

const (
	unopened reach = iota
	opened         // it had a channel
	consumed       // the broker has answered basic.consume
)

// ended is how a session has ended.
type ended struct {
	reach      reach
	generation uint64        // of its socket
	lived      time.Duration // since it began to consume
	partings   uint64        // by then
	err        error
}

// internalError reports whether an internal error of the broker has ended the session.
func (e ended) internalError() bool {
	var reason *amqp.Error
	return e.reach >= opened && errors.Is(e.err, connection.ErrSessionLost) && errors.As(e.err, &reason) && reason.Code == amqp.InternalError
}

// fault reports whether that has ended the consuming. Before the answer to basic.consume the reason may
// be the consume itself, as in a race of declarations on 3.10.
func (e ended) fault() bool { return e.reach == consumed && e.internalError() }

// after returns the place after a session there has ended.
func (p place) after(e ended) place {
	switch {
	case p.apart && e.fault():
		p.failed++
	case p.apart && (e.lived >= durations.SharesAfter || e.reach == unopened && p.failed == 0):
		return place{partings: e.partings}
	}
	return p
}

// pause returns how long to wait before the next session. A queue with a delivery limit gets
// rid of the message by short pauses.
func (p place) pause(usual time.Duration, known *route.Facts) time.Duration {
	beyond := p.failed
	if known != nil {
		beyond -= known.DeliveryLimit
	}
	switch {
	case beyond <= 0:
		return usual
	case beyond > 10: // no overflow
		return durations.LongestPauseApart
	}
	return min(durations.LongestPauseConsumed<<beyond, durations.LongestPauseApart)
}

// sharing is what the consumers of a Conn know of their socket.
type sharing struct {
	mu       sync.Mutex
	faults   faults
	channels int // that they keep open
}

type sharingKey struct{}

func sharingOf(conn *connection.Conn) *sharing {
	return transport.Inside.Conn(conn).Keep(sharingKey{}, func() any { return new(sharing) }).(*sharing)
}

// note notes that an internal error has ended the socket of a generation, and reports
// whether the queues part now.
func (s *sharing) note(generation uint64, now time.Time) (part bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.faults
	s.faults = before.with(generation, now)
	return s.faults.partings != before.partings
}

func (s *sharing) partings() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.faults.partings
}

// socket returns the Conn for the next session, and what ends the use of it.
func (r *run) socket() (*connection.Conn, func()) {
	r.place = r.place.next(r.sharing.partings())
	if !r.place.apart {
		return r.conn, func() {}
	}
	own := transport.Inside.Conn(r.conn).Apart(r.queue).(*connection.Conn)
	return own, func() {
		go func() { _ = own.Close() }() // within 5 s; the Close of the Conn waits for it
	}
}

// noteEnd decides where the next session is. It reports whether it has told health and log
// that the queue is not handled.
func (r *run) noteEnd(e ended) (told bool) {
	e.partings = r.sharing.partings()
	if !r.place.apart && e.internalError() && r.sharing.note(e.generation, time.Now()) {
		r.log.Warn("an internal error of the broker has ended the socket of the consumers again: each queue has a socket of its own now, to find the one whose messages the broker cannot hand over", "error", e.err)
	}
	before := r.place
	r.place = before.after(e)
	switch {
	case r.place.failed > before.failed:
		err := &undeliverableError{queue: r.queue, cause: e.err}
		r.health.note(&r.health.stuck, err)
		r.faultLog.Error("a queue is not handled", err, "queue", r.queue)
		// Each lost socket counts for all that was sent before the message, and handlers had no time for those.
		r.bound.OneAtATime(r.ordered(), r.handled.Load(), time.Now())
		return true
	case r.place.failed == 0 && before.failed > 0:
		r.health.note(&r.health.stuck, nil)
		r.log.Info("the queue is handled again", "queue", r.queue)
	}
	return false
}

// undeliverableError says that a queue is not handled because of the message at its head.
type undeliverableError struct {
	queue string
	cause error
}

func (e *undeliverableError) Error() string {
	return fmt.Sprintf("consumer: queue %q is not handled: the broker ends the connection with an internal error when the queue is consumed, as it does if it cannot hand over the message at the head of the queue, such as one that was sent over AMQP 1.0: a queue with a delivery limit gets rid of it within a minute; from another one take it out with a consumer over AMQP 1.0, or purge the queue: %v", e.queue, e.cause)
}

func (e *undeliverableError) Unwrap() error { return e.cause }
