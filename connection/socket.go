package connection

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rehop/rehop/internal/pause"
)

// socket is the TCP connection under one AMQP connection. It owns the
// deadlines, because amqp091-go leaves three gaps: no read deadline between
// the handshake and the first frame, so that a peer which falls silent there
// is never noticed; none that moves on while a writer is stuck, so that a
// broker which blocks publishers but sends heartbeats counts as dead; and no
// write deadline at all.
type socket struct {
	net.Conn
	heard        atomic.Bool   // something has come from the other side
	writeTimeout time.Duration // a write without any progress for so long fails

	sending  sync.Mutex
	corked   bool
	buffered []byte        // written and not sent yet
	drained  chan struct{} // nil, or closed once the peer has taken all buffered bytes
	unread   time.Time     // since when drained is not nil

	mu        sync.Mutex
	phase     phase
	idle      time.Duration // a read without data for so long fails; 0: for ever
	blocked   bool          // the broker has said that it does not read: it is not dead
	unblocked time.Time     // when it last said that it reads again
	fault     error         // the first failed read or write
}

type phase uint8

const (
	handshake phase = iota // under the deadline of the try
	live                   // each read and write sets its own
	closing                // under the deadline of CloseDeadline
)

// arm ends the handshake.
func (s *socket) arm(idle time.Duration) {
	s.mu.Lock()
	s.phase, s.idle = live, idle
	s.mu.Unlock()
	s.extend(s.Conn.SetReadDeadline, &s.idle)
}

// extend sets a deadline d from now, except in the handshake and when closing,
// whose deadlines stand. d may point to a field, which it reads under the lock:
// the library's reader runs before arm.
func (s *socket) extend(set func(time.Time) error, d *time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase == live && *d > 0 {
		_ = set(time.Now().Add(*d)) // fails only on a closed socket
	}
}

// Read closes the socket when it fails. The library would do so only after it
// has taken its locks, and a writer stuck in this socket may hold them.
func (s *socket) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	if n > 0 && !s.heard.Load() {
		s.heard.Store(true)
	}
	if err != nil {
		return n, s.fail(err, "the broker was silent for %v, one and a half heartbeats", &s.idle)
	}
	s.extend(s.Conn.SetReadDeadline, &s.idle)
	return n, nil
}

// Bounds of the buffer, in bytes.
const (
	maxCorked = 32 << 10  // by a corked socket
	maxKept   = 256 << 10 // of memory, when the buffer is empty
)

// handOver is how long a writer waits for a peer that does not read. Then a
// goroutine of the socket takes over, and writers do not wait any more. It gets the
// bytes of the callers that were about to write, and of no other caller: a later caller
// waits before it writes (see sessionInside.Ready).
const handOver = 10 * time.Millisecond

// cork holds writes back until uncork, or until there are enough of them. It
// returns false if the socket is corked already; then its first caller uncorks.
func (s *socket) cork() bool {
	s.sending.Lock()
	defer s.sending.Unlock()
	first := !s.corked
	s.corked = true
	return first
}

// uncork sends the buffered bytes. If that fails it closes the socket, and so
// every writer learns of it.
func (s *socket) uncork() {
	s.sending.Lock()
	defer s.sending.Unlock()
	s.corked = false
	_ = s.flush()
}

// Write sends p after the buffered bytes, or adds a copy to them.
func (s *socket) Write(p []byte) (int, error) {
	s.sending.Lock()
	defer s.sending.Unlock()
	if err := s.firstFault(); err != nil {
		return 0, err
	}
	s.buffered = append(s.buffered, p...)
	if s.corked && len(s.buffered) <= maxCorked {
		return len(p), nil
	}
	return len(p), s.flush()
}

// flush sends the buffered bytes, and leaves to drain those which the peer does not
// take at once. It needs s.sending held.
func (s *socket) flush() error {
	if len(s.buffered) == 0 || s.drained != nil {
		return nil
	}
	brief := handOver
	s.extend(s.Conn.SetWriteDeadline, &brief)
	n, err := s.Conn.Write(s.buffered)
	s.buffered = s.buffered[:copy(s.buffered, s.buffered[n:])]
	switch {
	case err == nil:
		if cap(s.buffered) > maxKept {
			s.buffered = nil
		}
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded) && s.is(live):
		s.drained, s.unread = make(chan struct{}), time.Now()
		go s.drain() // ends at the latest with the socket
		return nil
	}
	return s.fail(err, "the broker read nothing for %v", &s.writeTimeout)
}

// drain sends the buffered bytes, and the bytes that come meanwhile.
func (s *socket) drain() {
	s.sending.Lock()
	defer s.sending.Unlock()
	for len(s.buffered) > 0 && s.firstFault() == nil {
		batch := s.buffered
		s.buffered = nil
		s.sending.Unlock()
		_ = s.send(batch) // a fault closes the socket
		s.sending.Lock()
	}
	close(s.drained)
	s.drained = nil
}

// wait returns nil once drain has nothing left to send, or an error when ctx ends
// first.
func (s *socket) wait(ctx context.Context) error {
	s.sending.Lock()
	drained := s.drained
	s.sending.Unlock()
	if drained == nil {
		return nil
	}
	select {
	case <-drained:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("connection: the broker does not read: %w", pause.Ended(ctx))
	}
}

// unreadSince returns a channel that is closed when the peer has taken all written bytes,
// and since when it has not; nil and zero if it has.
func (s *socket) unreadSince() (drained <-chan struct{}, since time.Time) {
	s.sending.Lock()
	defer s.sending.Unlock()
	if s.drained == nil {
		return nil, time.Time{}
	}
	return s.drained, s.unread
}

// send waits on while there is progress, and while the broker blocks this
// connection: it then still sends heartbeats, and if it stops, Read fails.
func (s *socket) send(p []byte) error {
	for {
		s.extend(s.Conn.SetWriteDeadline, &s.writeTimeout)
		n, err := s.Conn.Write(p)
		p = p[n:]
		if err == nil {
			return nil
		}
		slow := errors.Is(err, os.ErrDeadlineExceeded) && (n > 0 || s.excused())
		if !slow || !s.is(live) {
			return s.fail(err, "the broker read nothing for %v", &s.writeTimeout)
		}
	}
}

// setBlocked notes that the broker says it does not read, or does again.
func (s *socket) setBlocked(active bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.blocked = active
	if !active {
		s.unblocked = time.Now()
	}
}

// excused reports that a write without progress says nothing about the broker:
// the time counts anew from the end of an alarm.
func (s *socket) excused() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.blocked || time.Since(s.unblocked) < s.writeTimeout
}

// SetDeadline is called by the library to clear the deadline of the handshake
// and, once the socket is live, only by CloseDeadline.
func (s *socket) SetDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase == live {
		s.phase = closing
	}
	return s.Conn.SetDeadline(t)
}

// SetReadDeadline is called by the library's heartbeater and has no effect:
// see extend.
func (s *socket) SetReadDeadline(time.Time) error { return nil }

func (s *socket) is(p phase) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.phase == p
}

// fail closes the socket, explains a timeout and returns the first fault: what
// fails later, on the closed socket, is a consequence, and may reach the
// library before its cause does.
func (s *socket) fail(err error, format string, d *time.Duration) error {
	defer s.Conn.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fault == nil {
		if s.phase == live && errors.Is(err, os.ErrDeadlineExceeded) {
			err = fmt.Errorf(format+": %w", *d, err)
		}
		s.fault = err
	}
	return s.fault
}

// firstFault returns the error of the first failed read or write, or nil.
func (s *socket) firstFault() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fault
}
