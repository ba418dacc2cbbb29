// Package faultproxy stands between a client and a broker and breaks their
// connections on purpose.
//
// Three faults happen at once to the connections that live: [Proxy.Cut],
// [Proxy.Reset] and [Proxy.HalfOpen]. The others stand, for live connections
// and for future ones, until they are lifted: [Proxy.BlackHole],
// [Proxy.Latency], [Proxy.Throttle], [Proxy.CutAfter] and [Proxy.Refuse].
// Standing faults work together; a direction may be slow and late at once.
//
// Where no fault stands, the proxy passes on what it gets: bytes as bytes, a
// close as a close (of that direction only, if only that one was closed) and a
// reset as a reset.
//
// A client's dial returns before the proxy has taken the connection. Tests that
// are about to break it first wait for it, with [Proxy.Wait].
package faultproxy

import (
	"context"
	"fmt"
	"net"
	"sync"
)

// Proxy listens on 127.0.0.1 and connects each client to its target. It is safe
// for concurrent use.
type Proxy struct {
	target string
	addr   *net.TCPAddr
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu       sync.Mutex // guards all below, and the ways and lines; held for moments only
	listener *net.TCPListener
	toBroker way
	toClient way
	conns    map[*conn]struct{} // those that have ended included, until their sockets are closed
	opened   int
	live     int
	changed  chan struct{} // closed and replaced when what Stats reports changes
	stopped  bool
}

// Start returns a proxy that listens on a port of its own and has no fault. The
// target is the host and port of the broker; nobody dials it before a client
// comes. Call Close when done.
func Start(target string) (*Proxy, error) {
	if _, _, err := net.SplitHostPort(target); err != nil {
		return nil, fmt.Errorf("faultproxy: target: %w", err)
	}
	l, err := listenAnywhere()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &Proxy{
		target:   target,
		addr:     l.Addr().(*net.TCPAddr),
		ctx:      ctx,
		cancel:   cancel,
		listener: l,
		conns:    make(map[*conn]struct{}),
		changed:  make(chan struct{}),
	}
	p.toBroker.rateChanged = make(chan struct{})
	p.toClient.rateChanged = make(chan struct{})
	p.wg.Go(func() { p.accept(l) })
	return p, nil
}

// Addr returns the host and port for clients. It stays the same for the life of
// the proxy.
func (p *Proxy) Addr() string { return p.addr.String() }

// Close stops listening, closes all connections and returns when nothing of the
// proxy runs any more. Closing again does nothing.
func (p *Proxy) Close() {
	p.cancel()
	p.mu.Lock()
	if p.listener != nil {
		p.listener.Close()
		p.listener = nil
	}
	conns := p.snapshot(func(*conn) bool { return true })
	p.mu.Unlock()
	for _, c := range conns {
		c.close()
	}
	p.wg.Wait()

	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = true
	p.notify()
}

// accept serves clients until the listener is closed.
func (p *Proxy) accept(l *net.TCPListener) {
	for {
		client, err := l.AcceptTCP()
		if err != nil {
			return
		}
		p.wg.Go(func() { p.serve(client) })
	}
}

// serve connects one client to the target until that connection has ended. A
// client for whom there is no broker is reset.
func (p *Proxy) serve(client *net.TCPConn) {
	var d net.Dialer
	broker, err := d.DialContext(p.ctx, "tcp", p.target)
	if err != nil {
		reset(client)
		return
	}
	c := newConn(p, client, broker.(*net.TCPConn))
	if !p.add(c) {
		reset(c.client)
		reset(c.broker)
		return
	}
	c.run()
	p.remove(c)
}

// add reports false if the proxy was closed, or began to refuse, meanwhile.
func (p *Proxy) add(c *conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener == nil {
		return false
	}
	p.conns[c] = struct{}{}
	for _, l := range c.lines {
		l.left = l.way.cutAfter
	}
	p.opened++
	p.live++
	p.notify()
	return true
}

func (p *Proxy) remove(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

// snapshot returns the connections that match. The caller holds mu.
func (p *Proxy) snapshot(match func(*conn) bool) []*conn {
	var found []*conn
	for c := range p.conns {
		if match(c) {
			found = append(found, c)
		}
	}
	return found
}
