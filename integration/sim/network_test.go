package sim

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"time"
)

// network is the way of one process to the broker. It can be broken while both
// ends stay as they are.
type network struct {
	dial func(ctx context.Context, network, address string) (net.Conn, error)

	mu    sync.Mutex
	holes int           // black holes that stand
	up    chan struct{} // closed when the last one ends
	lines map[*line]struct{}
	dials []time.Time // the latest
	most  int         // dials in stormTime
	storm bool
	dead  bool // its process is
}

// A process whose broker is away dials each socket some three times a second. It has two of them, and a
// third if it shares shards.
const (
	stormDials = 40
	stormTime  = 10 * time.Second
)

// note notes a dial.
func (n *network) note(now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.dials = append(n.dials, now); len(n.dials) > n.most {
		n.storm = n.storm || now.Sub(n.dials[0]) < stormTime
		n.dials = n.dials[1:]
	}
}

func newNetwork(dial func(ctx context.Context, network, address string) (net.Conn, error)) *network {
	return &network{dial: dial, most: 2 * stormDials, lines: map[*line]struct{}{}}
}

// Dial is for a connection.Config.
func (n *network) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	n.note(time.Now())
	for {
		n.mu.Lock()
		up := n.up
		standing := n.holes > 0
		n.mu.Unlock()
		if !standing {
			break
		}
		select {
		case <-up:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	conn, err := n.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	l := &line{Conn: conn, network: n}
	l.changed = sync.NewCond(&l.mu)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.dead {
		_ = conn.Close()
		return nil, errReset
	}
	n.lines[l] = struct{}{}
	return l, nil
}

// blackHole swallows what either side sends until the returned function is
// called; then it arrives.
func (n *network) blackHole() (lift func()) {
	n.mu.Lock()
	if n.holes == 0 {
		n.up = make(chan struct{})
	}
	n.holes++
	held := n.all()
	n.mu.Unlock()
	for _, l := range held {
		l.hold(1)
	}
	return func() {
		n.mu.Lock()
		if n.holes--; n.holes == 0 {
			close(n.up)
		}
		n.mu.Unlock()
		for _, l := range held {
			l.hold(-1)
		}
	}
}

// halfOpen ends the broker's side of the connections that there are, and the
// client hears nothing of it.
func (n *network) halfOpen() {
	for _, l := range n.snapshot() {
		l.hold(1)
		_ = l.Conn.Close()
	}
}

// reset ends the client's side of the connections that there are, and the broker
// hears nothing of it.
func (n *network) reset() {
	for _, l := range n.snapshot() {
		l.abandon()
	}
}

// die ends both sides of the connections that there are, and there will be no others.
func (n *network) die() {
	n.mu.Lock()
	n.dead = true
	lines := n.all()
	n.mu.Unlock()
	for _, l := range lines {
		l.abandon()
		_ = l.Conn.Close()
	}
}

func (n *network) snapshot() []*line {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.all()
}

// all needs n.mu held.
func (n *network) all() (lines []*line) {
	for l := range n.lines {
		lines = append(lines, l)
	}
	return lines
}

// line is the client's end of a connection.
type line struct {
	net.Conn
	network *network

	mu       sync.Mutex
	changed  *sync.Cond
	held     int    // nothing passes
	deaf     bool   // the client was told that the connection is reset
	closed   bool   // by the client
	unsent   []byte // written while nothing passed
	reading  time.Time
	received []byte // read while nothing passed
	fails    error  // read while nothing passed
}

var errReset = errors.New("connection reset by peer")

func (l *line) hold(by int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held += by; l.held > 0 {
		return
	}
	if len(l.unsent) > 0 {
		// Into the buffer of the pipe, which waits for no deadline that is so near.
		_ = l.Conn.SetWriteDeadline(time.Now().Add(5 * time.Millisecond))
		if _, err := l.Conn.Write(l.unsent); err != nil {
			_ = l.Conn.Close()
		}
		_ = l.Conn.SetWriteDeadline(time.Time{})
	}
	l.unsent = nil
	if l.closed {
		_ = l.Conn.Close()
	}
	l.changed.Broadcast()
}

func (l *line) abandon() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deaf = true
	_ = l.Conn.SetReadDeadline(time.Now())
	l.changed.Broadcast()
}

func (l *line) Read(p []byte) (int, error) {
	for {
		l.mu.Lock()
		switch {
		case l.deaf:
			l.mu.Unlock()
			return 0, errReset
		case l.closed:
			l.mu.Unlock()
			return 0, net.ErrClosed
		case l.held > 0:
			if !l.reading.IsZero() && time.Until(l.reading) <= 0 {
				l.mu.Unlock()
				return 0, os.ErrDeadlineExceeded
			}
			l.await()
			l.mu.Unlock()
			continue
		case len(l.received) > 0:
			n := copy(p, l.received)
			l.received = l.received[n:]
			l.mu.Unlock()
			return n, nil
		case l.fails != nil:
			err := l.fails
			l.mu.Unlock()
			return 0, err
		}
		l.mu.Unlock()
		n, err := l.Conn.Read(p)
		l.mu.Lock()
		if l.held > 0 && !l.closed && !l.deaf {
			l.received = append(l.received, p[:n]...)
			if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
				l.fails = err
			}
			l.mu.Unlock()
			continue
		}
		if l.deaf {
			err = errReset
		}
		l.mu.Unlock()
		return n, err
	}
}

// await waits for a change, or the deadline of reading. It needs l.mu held.
func (l *line) await() {
	if !l.reading.IsZero() {
		late := time.AfterFunc(time.Until(l.reading), func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.changed.Broadcast()
		})
		defer late.Stop()
	}
	l.changed.Wait()
}

func (l *line) Write(p []byte) (int, error) {
	l.mu.Lock()
	switch {
	case l.deaf:
		l.mu.Unlock()
		return 0, errReset
	case l.closed:
		l.mu.Unlock()
		return 0, net.ErrClosed
	case l.held > 0:
		l.unsent = append(l.unsent, p...)
		l.mu.Unlock()
		return len(p), nil
	}
	l.mu.Unlock()
	return l.Conn.Write(p)
}

func (l *line) Close() error {
	l.network.mu.Lock()
	delete(l.network.lines, l)
	l.network.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.changed.Broadcast()
	if l.deaf || l.held > 0 {
		return l.Conn.SetDeadline(time.Now()) // the broker hears nothing
	}
	return l.Conn.Close()
}

func (l *line) SetReadDeadline(t time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reading = t
	l.changed.Broadcast()
	if l.deaf || l.closed {
		return nil
	}
	return l.Conn.SetReadDeadline(t)
}

func (l *line) SetDeadline(t time.Time) error {
	return errors.Join(l.SetReadDeadline(t), l.SetWriteDeadline(t))
}
