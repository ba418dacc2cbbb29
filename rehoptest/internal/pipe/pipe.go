// Package pipe is a network connection in memory: buffered like a socket, and
// waiting only on condition variables and timers, so that it may be used in a
// bubble of testing/synctest.
package pipe

import (
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// bufferSize is how much may be written that nobody has read, each way.
const bufferSize = 256 << 10

// soon is how near the deadline of a write may be that does not wait for it. A
// writer with so little time holds locks, and in a bubble time stands still while
// another goroutine waits for a lock.
const soon = 10 * time.Millisecond

// New returns both ends.
func New(client, server net.Addr) (net.Conn, net.Conn) {
	up, down := newHalf(), newHalf()
	return &end{in: down, out: up, local: client, remote: server},
		&end{in: up, out: down, local: server, remote: client}
}

// end is one end of a connection.
type end struct {
	in, out       *half
	local, remote net.Addr
}

func (e *end) Read(p []byte) (int, error)  { return e.in.read(p) }
func (e *end) Write(p []byte) (int, error) { return e.out.write(p) }
func (e *end) LocalAddr() net.Addr         { return e.local }
func (e *end) RemoteAddr() net.Addr        { return e.remote }

// Close ends both directions: what was written before can still be read at
// the other end.
func (e *end) Close() error {
	e.out.closeWriter()
	e.in.closeReader()
	return nil
}

func (e *end) SetDeadline(t time.Time) error {
	e.in.reading.set(e.in, t)
	e.out.writing.set(e.out, t)
	return nil
}

func (e *end) SetReadDeadline(t time.Time) error {
	e.in.reading.set(e.in, t)
	return nil
}

func (e *end) SetWriteDeadline(t time.Time) error {
	e.out.writing.set(e.out, t)
	return nil
}

// half is one direction.
type half struct {
	mu               sync.Mutex
	changed          *sync.Cond
	data             []byte // a ring
	start, length    int
	noWriter         bool // closed at the writing end
	noReader         bool // closed at the reading end
	reading, writing deadline
}

func newHalf() *half {
	h := &half{}
	h.changed = sync.NewCond(&h.mu)
	return h
}

func (h *half) read(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for {
		switch {
		case h.noReader:
			return 0, net.ErrClosed
		case h.reading.passed():
			return 0, os.ErrDeadlineExceeded
		case len(p) == 0:
			return 0, nil
		case h.length > 0:
			n := 0
			for n < len(p) && h.length > 0 {
				c := copy(p[n:], h.data[h.start:min(h.start+h.length, len(h.data))])
				n += c
				h.length -= c
				h.start = (h.start + c) % len(h.data)
			}
			h.changed.Broadcast()
			return n, nil
		case h.noWriter:
			return 0, io.EOF
		}
		h.changed.Wait()
	}
}

func (h *half) write(p []byte) (n int, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for {
		switch {
		case h.noWriter:
			return n, net.ErrClosed
		case h.noReader:
			return n, io.ErrClosedPipe
		case h.writing.passed():
			return n, os.ErrDeadlineExceeded
		case n == len(p):
			return n, nil
		}
		h.grow(len(p) - n)
		if free := len(h.data) - h.length; free > 0 {
			part := p[n:min(n+free, len(p))]
			for len(part) > 0 {
				at := (h.start + h.length) % len(h.data)
				c := copy(h.data[at:min(at+free, len(h.data))], part)
				h.length += c
				free -= c
				n += c
				part = part[c:]
			}
			h.changed.Broadcast()
			continue
		}
		if h.writing.within(soon) {
			return n, os.ErrDeadlineExceeded
		}
		h.changed.Wait()
	}
}

// grow makes room for more, up to the size of the buffer: a connection that
// carries little holds little.
func (h *half) grow(more int) {
	want := min(h.length+more, bufferSize)
	if want <= len(h.data) {
		return
	}
	data := make([]byte, min(max(want, 2*len(h.data), 1<<10), bufferSize))
	n := copy(data, h.data[h.start:min(h.start+h.length, len(h.data))])
	copy(data[n:], h.data[:h.length-n])
	h.data, h.start = data, 0
}

func (h *half) closeWriter() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.noWriter = true
	h.writing.stop()
	h.changed.Broadcast()
}

func (h *half) closeReader() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.noReader = true
	h.reading.stop()
	h.changed.Broadcast()
}

// deadline is when reading or writing gives up. Its half's mutex guards it.
type deadline struct {
	at    time.Time
	timer *time.Timer
}

func (d *deadline) set(h *half, at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	d.at = at
	if h.noReader && h.noWriter {
		return
	}
	switch {
	case at.IsZero():
		d.stop()
	case d.timer == nil:
		d.timer = time.AfterFunc(time.Until(at), h.wake)
	default:
		d.timer.Reset(time.Until(at))
	}
	h.changed.Broadcast()
}

func (d *deadline) passed() bool { return d.within(0) }

func (d *deadline) within(left time.Duration) bool { return !d.at.IsZero() && time.Until(d.at) <= left }

func (d *deadline) stop() {
	if d.timer != nil {
		d.timer.Stop()
	}
}

func (h *half) wake() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.changed.Broadcast()
}
