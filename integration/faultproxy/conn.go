package faultproxy

import (
	"net"
	"sync"
	"time"
)

// linger is how long a cut connection waits for its two sides to close. A
// socket closed with bytes unread sends a reset, and a reset takes from the
// other end what it has not read yet.
const linger = 10 * time.Second

// conn is one client connected to the broker: two sockets, and a line in each
// direction.
type conn struct {
	proxy          *Proxy
	client, broker *net.TCPConn
	lines          [2]*line
	ended          bool // guarded by Proxy.mu
}

func newConn(p *Proxy, client, broker *net.TCPConn) *conn {
	c := &conn{proxy: p, client: client, broker: broker}
	up := &line{conn: c, way: &p.toBroker, from: client, to: broker, queue: newQueue()}
	down := &line{conn: c, way: &p.toClient, from: broker, to: client, queue: newQueue()}
	up.back, down.back = down, up
	c.lines = [2]*line{up, down}
	return c
}

// run carries bytes until both lines have ended, and closes the sockets.
func (c *conn) run() {
	var wg sync.WaitGroup
	for _, l := range c.lines {
		wg.Go(l.receive)
		wg.Go(l.deliver)
	}
	wg.Wait()
	c.close()
}

func (c *conn) cut() {
	if !c.end() {
		return
	}
	for _, socket := range []*net.TCPConn{c.client, c.broker} {
		_ = socket.CloseWrite()
		_ = socket.SetReadDeadline(time.Now().Add(linger))
	}
}

func (c *conn) reset() {
	if !c.end() {
		return
	}
	reset(c.client)
	reset(c.broker)
}

func (c *conn) halfOpen() {
	c.proxy.mu.Lock()
	for _, l := range c.lines {
		l.dark = true
	}
	c.proxy.mu.Unlock()
	c.broker.Close()
}

func (c *conn) close() {
	c.end()
	c.client.Close()
	c.broker.Close()
}

// end makes the lines carry nothing more. It reports whether this call did.
func (c *conn) end() bool {
	p := c.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.ended {
		return false
	}
	c.ended = true
	for _, l := range c.lines {
		l.queue.close()
	}
	p.live--
	p.notify()
	return true
}

func reset(socket *net.TCPConn) {
	_ = socket.SetLinger(0)
	socket.Close()
}
