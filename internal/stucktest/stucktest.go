// Package stucktest imitates, for tests, a broker whose channel is stuck at a queue without a leader.
package stucktest

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// A Holder stands between a client and a broker and does what a broker's channel
// does on the first message to a quorum queue without a leader: from there on it
// holds back the whole channel.
type Holder struct {
	dial func(ctx context.Context, network, address string) (net.Conn, error)

	mu     sync.Mutex
	stuck  map[string]bool // routing keys
	conns  []*heldConn
	opened int // channels
	asked  int // questions after an exchange

	// Latency is of what clients send, a time.Duration.
	Latency atomic.Int64
}

// New returns a Holder in front of a broker.
func New(dial func(ctx context.Context, network, address string) (net.Conn, error)) *Holder {
	return &Holder{dial: dial, stuck: map[string]bool{}}
}

// Channels returns how many channels were opened.
func (h *Holder) Channels() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.opened
}

// Questions returns how often a client asked whether an exchange exists.
func (h *Holder) Questions() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.asked
}

// Dial connects to the broker. A frame of a channel that is held back is passed on
// by Release.
func (h *Holder) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := h.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c := &heldConn{Conn: conn, holder: h, held: map[uint16]*channelHeld{}, later: make(chan delayed, 10_000), closed: make(chan struct{})}
	go c.deliver()
	h.mu.Lock()
	h.conns = append(h.conns, c)
	h.mu.Unlock()
	return c, nil
}

// Hold makes keys stuck.
func (h *Holder) Hold(keys ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, key := range keys {
		h.stuck[key] = true
	}
}

// Release lets a key answer again.
func (h *Holder) Release(key string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.stuck, key)
	for _, c := range h.conns {
		for id, held := range c.held {
			if held.key == key {
				frames := held.frames
				delete(c.held, id)
				for _, f := range frames {
					_ = c.pass(f)
				}
			}
		}
	}
}

type channelHeld struct {
	key    string
	frames [][]byte
}

type heldConn struct {
	net.Conn
	holder *Holder
	buffer []byte
	held   map[uint16]*channelHeld

	later  chan delayed
	once   sync.Once
	closed chan struct{}
}

type delayed struct {
	due   time.Time
	frame []byte
}

// deliver passes on what is late.
func (c *heldConn) deliver() {
	for {
		select {
		case d := <-c.later:
			select {
			case <-time.After(time.Until(d.due)):
			case <-c.closed:
				return
			}
			if _, err := c.Conn.Write(d.frame); err != nil {
				return
			}
		case <-c.closed:
			return
		}
	}
}

// SetWriteDeadline does nothing: a late frame has a deadline that is over.
func (c *heldConn) SetWriteDeadline(time.Time) error { return nil }

func (c *heldConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

func (c *heldConn) Write(p []byte) (int, error) {
	c.holder.mu.Lock()
	defer c.holder.mu.Unlock()
	c.buffer = append(c.buffer, p...)
	if bytes.HasPrefix(c.buffer, []byte("AMQP")) && len(c.buffer) >= 8 {
		if _, err := c.Conn.Write(c.buffer[:8]); err != nil {
			return 0, err
		}
		c.buffer = c.buffer[8:]
	}
	for len(c.buffer) >= 7 {
		size := 8 + int(binary.BigEndian.Uint32(c.buffer[3:]))
		if len(c.buffer) < size {
			break
		}
		frame := bytes.Clone(c.buffer[:size])
		c.buffer = c.buffer[size:]
		if err := c.pass(frame); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// pass sends a frame on, or holds it back.
func (c *heldConn) pass(frame []byte) error {
	id := binary.BigEndian.Uint16(frame[1:])
	if frame[0] == 1 {
		switch class, method := binary.BigEndian.Uint16(frame[7:]), binary.BigEndian.Uint16(frame[9:]); {
		case class == 20 && method == 10:
			c.holder.opened++
		case class == 40 && method == 10:
			c.holder.asked++
		case class == 60 && method == 40 && c.held[id] == nil:
			exchange := frame[13:]
			key := exchange[1+exchange[0]:]
			if k := string(key[1 : 1+key[0]]); c.holder.stuck[k] {
				c.held[id] = &channelHeld{key: k}
			}
		}
	}
	if held := c.held[id]; held != nil {
		held.frames = append(held.frames, frame)
		return nil
	}
	if d := time.Duration(c.holder.Latency.Load()); d > 0 {
		c.later <- delayed{time.Now().Add(d), frame}
		return nil
	}
	_, err := c.Conn.Write(frame)
	return err
}
