package rehoptest

import (
	"errors"
	"io"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/rehop/rehop/rehoptest/internal/model"
	"github.com/rehop/rehop/rehoptest/internal/wire"
)

// conn is one connection of a client. One goroutine reads from it, another
// writes what is in out.
type conn struct {
	b        *Broker
	net      net.Conn
	frames   *wire.FrameReader
	maxFrame uint32
	maxChan  uint16
	beat     time.Duration
	user     string
	name     string // as the client says; guarded by b.mu
	model    *model.Broker
	channels map[uint16]*channel // guarded by b.mu
	told     bool                // that it is blocked; guarded by b.mu
	dead     bool                // closed by Disconnect, or with the broker; guarded by b.mu
	unsent   []*channel          // with confirms to send; guarded by b.mu
	wantsTo  struct{ cancels, blocks, authFailure bool }

	mu        sync.Mutex // guards the bytes to be written
	out       []byte
	marks     []mark // when the parts of out were sent, while the broker is slow
	finishing bool   // close when out is written
	wake      chan struct{}
	gone      chan struct{} // closed by cut
	once      sync.Once
}

// serve serves a connection. The caller holds b.mu.
func (b *Broker) serve(n net.Conn) {
	c := &conn{
		b: b, net: n, frames: wire.NewFrameReader(n), maxFrame: 131072, channels: map[uint16]*channel{},
		wake: make(chan struct{}, 1), gone: make(chan struct{}),
	}
	b.conns[c] = struct{}{}
	b.wg.Go(c.write)
	b.wg.Go(func() {
		c.read()
		c.finish()
		b.enter()
		defer b.leave()
		c.closeChannels()
		delete(b.conns, c)
	})
}

// closeChannels ends the channels: messages that they have not settled go back to the
// queues.
func (c *conn) closeChannels() {
	for _, id := range slices.Sorted(maps.Keys(c.channels)) {
		c.channels[id].model.Close()
		delete(c.channels, id)
	}
	if c.model != nil {
		c.model.CloseConnection(c)
	}
}

// cut ends the connection at once.
func (c *conn) cut() {
	c.once.Do(func() {
		close(c.gone)
		_ = c.net.Close()
	})
}

// isCut reports whether the connection is cut. The broker knows it until its reader ends.
func (c *conn) isCut() bool {
	select {
	case <-c.gone:
		return true
	default:
		return false
	}
}

// finish ends the connection when all is written.
func (c *conn) finish() {
	c.mu.Lock()
	c.finishing = true
	c.mu.Unlock()
	c.signal()
}

func (c *conn) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// send queues the bytes that fill appends.
func (c *conn) send(fill func([]byte) []byte) {
	c.mu.Lock()
	c.out = fill(c.out)
	if c.b.latency.Load() > 0 {
		c.mark(time.Now())
	}
	c.mu.Unlock()
	c.signal()
}

// mark is the end of what was sent until a time.
type mark struct {
	end int
	at  time.Time
}

// mark notes when the latest bytes of c.out were sent: all are to be late by the same
// time, however many are under way. c.mu must be held.
func (c *conn) mark(now time.Time) {
	if n := len(c.marks); n > 0 && c.marks[n-1].at.Equal(now) {
		c.marks[n-1].end = len(c.out)
		return
	}
	c.marks = append(c.marks, mark{len(c.out), now})
}

// take returns what was sent at one time, or all that is not late, and when that was;
// zero if it is not late. It leaves the rest in spare. c.mu must be held.
func (c *conn) take(spare []byte) (part []byte, at time.Time) {
	part, c.out = c.out, spare[:0]
	if len(c.marks) == 0 {
		return part, time.Time{}
	}
	first := c.marks[0]
	c.out = append(c.out, part[first.end:]...)
	c.marks = c.marks[1:]
	for i := range c.marks {
		c.marks[i].end -= first.end
	}
	return part[:first.end], first.at
}

// closing is how long a client has to take the last words.
const closing = 10 * time.Second

func (c *conn) write() {
	defer c.cut()
	var spare []byte
	beat := time.NewTimer(time.Hour)
	defer beat.Stop()
	for {
		c.mu.Lock()
		var part []byte
		var at time.Time
		finishing, every := c.finishing, c.beat/2
		if len(c.out) > 0 {
			part, at = c.take(spare)
			spare = nil
		}
		c.mu.Unlock()
		if len(part) > 0 {
			if !c.pause(at) {
				return
			}
			if finishing {
				_ = c.net.SetWriteDeadline(time.Now().Add(closing))
			}
			if _, err := c.net.Write(part); err != nil {
				return
			}
			if spare = part; cap(spare) > 1<<20 {
				spare = nil
			}
			continue
		}
		if finishing {
			return
		}
		if every <= 0 {
			every = time.Hour
		}
		beat.Reset(every)
		select {
		case <-c.wake:
		case <-c.gone:
			return
		case <-beat.C:
			if c.beat > 0 {
				c.send(wire.AppendHeartbeat)
			}
		}
	}
}

// errDone ends the reading of a connection that was closed in good order.
var errDone = errors.New("done")

func (c *conn) read() {
	if !c.handshake() {
		return
	}
	for {
		if c.beat > 0 {
			_ = c.net.SetReadDeadline(time.Now().Add(2 * c.beat))
		}
		f, err := c.frames.Next(c.maxFrame)
		if err != nil {
			c.refuseFrame(err)
			return
		}
		if !c.awaitResume() {
			return
		}
		if err := c.handle(f); err != nil {
			c.end(err)
			return
		}
	}
}

// end sends the exception that ends the connection, and waits for the client's
// close-ok.
func (c *conn) end(err error) {
	var fault *fault
	if !errors.As(err, &fault) {
		return
	}
	c.b.enter()
	c.closeChannels()
	c.b.leave()
	c.send(func(b []byte) []byte {
		return wire.AppendClose(b, fault.exception.Code, fault.exception.Reply(), fault.method)
	})
	_ = c.net.SetReadDeadline(time.Now().Add(closing))
	if fault.exception.Code == model.FrameError { // no frames follow
		_, _ = io.Copy(io.Discard, c.net)
		return
	}
	for {
		f, err := c.frames.Next(c.maxFrame)
		if err != nil {
			return
		}
		if f.Type != wire.FrameMethod || f.Channel != 0 {
			continue
		}
		switch _, m, _ := wire.DecodeMethod(f.Payload); m.(type) {
		case *wire.CloseOk:
			return
		case *wire.Close:
			c.send(func(b []byte) []byte { return wire.AppendOk(b, 0, wire.ClassConnection, 51) })
			return
		}
	}
}

// fault is an exception with the method that it is about.
type fault struct {
	exception *model.Error
	method    wire.ID
}

func (f *fault) Error() string { return f.exception.Error() }

func failed(err *model.Error, method wire.ID) error {
	if err == nil {
		return nil
	}
	return &fault{err, method}
}

// refuseFrame answers bytes that are no frame. A connection that was lost is not
// answered.
func (c *conn) refuseFrame(err error) {
	var large *wire.TooLargeError
	switch {
	case errors.As(err, &large):
		c.end(failed(model.Fail(model.FrameError, "type %d, all octets = <<>>: {frame_too_large,%d,%d}", large.Type, large.Size, large.Max), wire.ID{}))
	case errors.Is(err, wire.ErrFrameEnd):
		c.end(failed(model.Fail(model.FrameError, "frame end octet is missing"), wire.ID{}))
	}
}

// handle carries out a frame.
func (c *conn) handle(f wire.Frame) error {
	if f.Type == wire.FrameHeartbeat || f.Channel == 0 {
		c.b.enter()
		c.flush() // who published before it waits
		c.b.leave()
	}
	switch {
	case f.Type == wire.FrameHeartbeat:
		return nil
	case f.Channel == 0:
		return c.handleOwn(f)
	}
	if err := c.hold(f); err != nil {
		return err
	}
	c.b.enter()
	defer c.b.leave()
	if c.dead {
		return nil // until the client answers
	}
	ch := c.channels[f.Channel]
	if ch == nil {
		return c.openChannel(f)
	}
	err := ch.frame(f)
	if len(c.unsent) > 0 && (err != nil || !c.frames.Buffered()) {
		c.flush()
	}
	return err
}

// flush sends the confirms that have gathered. The caller holds b.mu.
func (c *conn) flush() {
	for _, ch := range c.unsent {
		ch.flush()
	}
	c.unsent = c.unsent[:0]
}

// handleOwn carries out a frame of channel 0.
func (c *conn) handleOwn(f wire.Frame) error {
	if f.Type != wire.FrameMethod {
		return failed(model.Fail(model.UnexpectedFrame, "frame of type %d on channel 0", f.Type), wire.ID{})
	}
	id, m, err := wire.DecodeMethod(f.Payload)
	if err != nil {
		return unreadable(err, id)
	}
	switch m.(type) {
	case *wire.Close:
		c.b.enter()
		c.closeChannels()
		c.b.leave()
		c.send(func(b []byte) []byte { return wire.AppendOk(b, 0, wire.ClassConnection, 51) })
		return errDone
	case *wire.CloseOk:
		return errDone
	case *wire.UpdateSecret:
		// RabbitMQ's own users accept any.
		c.send(func(b []byte) []byte { return wire.AppendOk(b, 0, wire.ClassConnection, 71) })
		return nil
	}
	return failed(model.Fail(model.CommandInvalid, "method %d.%d on channel 0", id.Class, id.Method), id)
}

func (c *conn) openChannel(f wire.Frame) error {
	id, m, _ := decode(f)
	if _, ok := m.(*wire.ChannelOpen); !ok {
		if _, ok := m.(*wire.ChannelCloseOk); ok {
			return nil
		}
		return failed(model.Fail(model.ChannelError, "expected 'channel.open'"), id)
	}
	if c.maxChan > 0 && len(c.channels) >= int(c.maxChan) {
		return failed(model.Fail(model.NotAllowed, "number of channels opened (%d) has reached the negotiated channel_max (%d)", len(c.channels), c.maxChan), id)
	}
	ch := &channel{conn: c, id: f.Channel}
	ch.model = c.model.NewChannel(c, f.Channel, ch)
	c.channels[f.Channel] = ch
	c.send(func(b []byte) []byte { return wire.AppendChannelOpenOk(b, f.Channel) })
	return nil
}

func decode(f wire.Frame) (wire.ID, any, error) {
	if f.Type != wire.FrameMethod {
		return wire.ID{}, nil, wire.ErrSyntax
	}
	return wire.DecodeMethod(f.Payload)
}

// hold stops reading from a connection that publishes while publishers are
// blocked.
func (c *conn) hold(f wire.Frame) error {
	if f.Type == wire.FrameMethod && len(f.Payload) >= 4 && [4]byte(f.Payload) != [4]byte{0, wire.ClassBasic, 0, 40} {
		return nil
	}
	for {
		c.b.mu.Lock()
		reason, unblocked := c.b.blocked, c.b.unblocked
		if reason != "" {
			c.flush()
		}
		if reason != "" && !c.told {
			c.told = true
			if c.wantsTo.blocks {
				c.send(func(b []byte) []byte { return wire.AppendBlocked(b, reason) })
			}
		}
		c.b.mu.Unlock()
		if reason == "" {
			return nil
		}
		select {
		case <-unblocked:
		case <-c.gone:
			return errDone
		}
	}
}

// unblock tells a connection that it may publish again. The caller holds b.mu.
func (c *conn) unblock() {
	if c.told && c.wantsTo.blocks {
		c.send(wire.AppendUnblocked)
	}
	c.told = false
}

// awaitResume waits while the broker is stalled, and tells whether the
// connection is still there.
func (c *conn) awaitResume() bool {
	for {
		c.b.mu.Lock()
		stalled := c.b.stalled
		c.b.mu.Unlock()
		if stalled == nil {
			return true
		}
		select {
		case <-stalled:
		case <-c.gone:
			return false
		}
	}
}

// pause waits before something is written that was sent at a time, while the broker is
// stalled or slow.
func (c *conn) pause(at time.Time) bool {
	if latency := time.Duration(c.b.latency.Load()); latency > 0 && !at.IsZero() {
		t := time.NewTimer(time.Until(at.Add(latency)))
		defer t.Stop()
		select {
		case <-t.C:
		case <-c.gone:
			return false
		}
	}
	return c.awaitResume()
}

func (c *conn) isEnding() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.finishing
}
