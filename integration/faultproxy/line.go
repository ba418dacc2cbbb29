package faultproxy

import (
	"bytes"
	"errors"
	"io"
	"net"
	"time"
)

// line carries the bytes of one direction of one connection: receive takes them
// from one socket and paces them, queue delays them, deliver hands them to the
// other socket.
//
// The news that an end has closed or is gone travels like bytes from that end,
// and is dropped where they would be.
type line struct {
	conn     *conn
	way      *way
	from, to *net.TCPConn
	back     *line // the opposite direction
	queue    *queue

	// Guarded by Proxy.mu.
	dark bool  // something was lost: nothing may follow it
	left int64 // bytes until the cut, 0 for no cut
}

// receive ends with the stream of the sender, or with the connection.
func (l *line) receive() {
	buf := make([]byte, 32<<10)
	for {
		n, err := l.from.Read(buf)
		latency := l.received(n)
		if !l.pace(bytes.Clone(buf[:n]), latency) {
			break
		}
		if err != nil {
			l.queue.put(chunk{end: err, due: time.Now().Add(latency)})
			return
		}
	}
	// Cut or closed: what still comes is read, lest it turn the close into a reset.
	_, _ = io.Copy(io.Discard, l.from)
}

// received counts, and returns the latency of what was received.
func (l *line) received(n int) time.Duration {
	p := l.conn.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	l.way.traffic.Received += int64(n)
	p.notify()
	return l.way.latency
}

// pace puts data into the queue, slice by slice while it is throttled. It
// reports false once the connection has ended.
func (l *line) pace(data []byte, latency time.Duration) bool {
	for len(data) > 0 {
		n := len(data)
		if rate, changed := l.rate(); rate > 0 {
			n = min(n, max(1, rate/50)) // 20 ms worth
			takes := (int64(n)*int64(time.Second) + int64(rate) - 1) / int64(rate)
			select {
			case <-time.After(time.Duration(takes)):
			case <-changed:
				continue
			case <-l.queue.done:
				return false
			}
		}
		if !l.queue.put(chunk{data: data[:n], due: time.Now().Add(latency)}) {
			return false
		}
		data = data[n:]
	}
	return true
}

func (l *line) rate() (int, <-chan struct{}) {
	p := l.conn.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	return l.way.rate, l.way.rateChanged
}

// deliver ends with what ended receive, or with the connection.
func (l *line) deliver() {
	for {
		c, ok := l.queue.take()
		if !ok {
			return
		}
		if c.end != nil {
			l.passEnd(c.end)
			return
		}
		if !l.pass(c.data) {
			return
		}
	}
}

// passEnd tells the receiver how the stream of the sender ended.
func (l *line) passEnd(end error) {
	switch {
	case l.loses(0):
	case errors.Is(end, io.EOF):
		_ = l.to.CloseWrite()
	default:
		l.conn.reset()
	}
}

// pass hands data to the receiver, or drops it. It reports false when it has
// ended the connection.
func (l *line) pass(data []byte) bool {
	if l.loses(len(data)) {
		return true
	}
	n, cut := l.spend(len(data))
	n, err := l.to.Write(data[:n])
	l.passed(n)
	data = data[n:]
	switch {
	case cut:
		l.conn.cut()
		return false
	case err == nil:
		return true
	case l.back.loses(0): // that the receiver is gone
		l.darken(len(data))
		return true
	default:
		l.conn.reset()
		return false
	}
}

// loses reports whether the line drops the next n bytes, or news if n is 0.
func (l *line) loses(n int) bool {
	p := l.conn.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	l.dark = l.dark || l.way.blackHole
	if l.dark {
		l.way.traffic.Dropped += int64(n)
		p.notify()
	}
	return l.dark
}

// darken drops n bytes and whatever follows.
func (l *line) darken(n int) {
	p := l.conn.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	l.dark = true
	l.way.traffic.Dropped += int64(n)
	p.notify()
}

// spend returns how many of the next n bytes may pass, and whether the cut
// follows them.
func (l *line) spend(n int) (int, bool) {
	l.conn.proxy.mu.Lock()
	defer l.conn.proxy.mu.Unlock()
	if l.left == 0 {
		return n, false
	}
	n = int(min(int64(n), l.left))
	l.left -= int64(n)
	return n, l.left == 0
}

func (l *line) passed(n int) {
	p := l.conn.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	l.way.traffic.Passed += int64(n)
	p.notify()
}
