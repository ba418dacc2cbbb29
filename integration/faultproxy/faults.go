package faultproxy

import (
	"fmt"
	"net"
	"time"
)

// Direction says which bytes a fault is about.
type Direction int

const (
	ToBroker Direction = 1 << iota // what the client sends
	ToClient                       // what the broker sends
	Both     = ToBroker | ToClient
)

// way is what stands in one direction, and what went there. Guarded by
// Proxy.mu.
type way struct {
	blackHole   bool
	latency     time.Duration
	rate        int           // bytes per second, 0 for no limit
	rateChanged chan struct{} // closed and replaced when rate is set
	cutAfter    int64         // 0 for never
	traffic     Traffic
}

// Cut closes both sides of every live connection politely: each side reads what
// was passed on to it, and then the end of the stream. Bytes still under way in
// the proxy are lost. What the two sides send from now on is dropped; a side
// that has not closed after a second and goes on sending is reset.
func (p *Proxy) Cut() {
	for _, c := range p.liveConns() {
		c.cut()
	}
}

// Reset resets both sides of every live connection (RST), those included that
// HalfOpen or a black hole left behind. Bytes under way are lost, even some that
// a side has received and not yet read.
func (p *Proxy) Reset() {
	for _, c := range p.liveConns() {
		c.reset()
	}
}

// HalfOpen closes the broker's side of every live connection and does not tell
// the client: its connection stays open and live, what it sends is dropped, and
// but for a write that has begun it receives nothing more. It stays so until the
// client closes it, or Cut, Reset or Close does; nothing can lift it. Future
// connections are whole.
func (p *Proxy) HalfOpen() {
	for _, c := range p.liveConns() {
		c.halfOpen()
	}
}

// BlackHole drops what would be passed on in the direction from now on, bytes
// under way included, and sets or lifts that. Nothing is closed, and the other
// end hears of no close and no reset. Only a write that has begun may complete.
//
// As TCP never delivers a stream with a gap, a live connection that has lost
// anything in a direction passes on nothing more in it after the fault is
// lifted; one that has lost nothing goes on.
func (p *Proxy) BlackHole(d Direction, on bool) {
	p.set(d, func(w *way) { w.blackHole = on })
}

// Latency passes on what is received from now on no sooner than delay after it
// was received, in order and whatever the amount; zero lifts it. Bytes that are
// under way keep the delay they have. A close or a reset is late like a byte. A
// new connection itself is not delayed.
func (p *Proxy) Latency(d Direction, delay time.Duration) {
	p.set(d, func(w *way) { w.latency = delay })
}

// Throttle passes on no more than so many bytes per second in the direction, on
// each connection for itself and without bursts: n bytes take at least
// n/bytesPerSecond seconds. Zero lifts it, at once. The sender soon feels it, as
// the proxy reads no more than 32 KiB ahead.
func (p *Proxy) Throttle(d Direction, bytesPerSecond int) {
	p.set(d, func(w *way) {
		w.rate = bytesPerSecond
		close(w.rateChanged)
		w.rateChanged = make(chan struct{})
	})
}

// CutAfter passes on n more bytes in the direction and then cuts the
// connection, as Cut does. A live connection counts from now, a future one from
// its first byte, and each for itself. It stands for every connection until
// lifted, by n zero.
func (p *Proxy) CutAfter(d Direction, n int64) {
	n = max(n, 0)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.ways(d) {
		w.cutAfter = n
		for c := range p.conns {
			for _, l := range c.lines {
				if l.way == w {
					l.left = n
				}
			}
		}
	}
}

// Refuse makes the system refuse new connections, as if nobody listened, and
// sets or lifts that. Live connections stay. It returns an error if the proxy is
// closed or cannot have its port back.
func (p *Proxy) Refuse(on bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.ctx.Err() != nil:
		return fmt.Errorf("faultproxy: %w", net.ErrClosed)
	case on && p.listener != nil:
		p.listener.Close()
		p.listener = nil
	case !on && p.listener == nil:
		l, err := net.ListenTCP("tcp4", p.addr)
		if err != nil {
			return fmt.Errorf("faultproxy: accept again: %w", err)
		}
		p.listener = l
		p.wg.Go(func() { p.accept(l) })
	}
	return nil
}

// Lift lifts every fault that stands. The error is that of Refuse.
func (p *Proxy) Lift() error {
	p.BlackHole(Both, false)
	p.Latency(Both, 0)
	p.Throttle(Both, 0)
	p.CutAfter(Both, 0)
	return p.Refuse(false)
}

func (p *Proxy) set(d Direction, change func(*way)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.ways(d) {
		change(w)
	}
}

func (p *Proxy) ways(d Direction) []*way {
	var ws []*way
	if d&ToBroker != 0 {
		ws = append(ws, &p.toBroker)
	}
	if d&ToClient != 0 {
		ws = append(ws, &p.toClient)
	}
	return ws
}

func (p *Proxy) liveConns() []*conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.snapshot(func(c *conn) bool { return !c.ended })
}
