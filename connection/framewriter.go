package connection

import (
	"encoding/binary"
	"io"
	"math"
	"net"
	"sync/atomic"
)

// frameWriter writes frames for the client library. It passes them on as they are,
// except on a channel that is closed. The library lets a command through that was about
// to be written when it answered the broker's close, and commands that come while the
// broker has not answered the library's own close. For such a command the broker would end
// the connection, with every other channel on it. Nothing is lost without it: the broker
// carries out no command that comes after a close, whichever side has sent the close. But
// the broker wants each command as a whole: the header and the bodies of a message pass if
// its method has.
type frameWriter struct {
	to     io.Writer
	closed *closedChannels

	ended    map[uint16]struct{} // the channels that the library has closed, until it opens them again
	left     int64               // bytes until the next frame begins
	dropping bool                // those are left out
	leftOut  map[uint16]struct{} // the channels whose latest method was left out
	partial  []byte              // the beginning of a frame, too short to decide
}

// framed is a connection whose frames are looked at in both directions.
type framed struct {
	net.Conn // for reading, and all the rest
	out      *frameWriter
}

func (f framed) Write(p []byte) (int, error) { return f.out.Write(p) }

// preamble is the protocol header, which the library writes before the first frame.
const preamble = "AMQP\x00\x00\x09\x01"

func newFrameWriter(to io.Writer, closed *closedChannels) *frameWriter {
	return &frameWriter{to: to, closed: closed, left: int64(len(preamble)), ended: map[uint16]struct{}{}, leftOut: map[uint16]struct{}{}}
}

// Write is called by one goroutine at a time.
func (w *frameWriter) Write(p []byte) (int, error) {
	n := len(p)
	if len(w.partial) > 0 {
		p = append(w.partial, p...)
		w.partial = nil
	}
	begin := 0 // p[begin:at] is to be passed on
	for at := 0; at < len(p); {
		if w.left == 0 {
			head := p[at:]
			if len(head) < frameHead || head[0] == methodFrame && len(head) < frameHead+methodHead {
				w.partial = append(w.partial, head...)
				p = p[:at]
				break
			}
			w.left = frameHead + int64(binary.BigEndian.Uint32(head[3:])) + frameEnd
			if drops := w.stray(head); drops != w.dropping {
				if drops {
					if err := w.pass(p[begin:at]); err != nil {
						return 0, err
					}
				}
				begin, w.dropping = at, drops
			}
		}
		step := min(w.left, int64(len(p)-at))
		at += int(step)
		w.left -= step
	}
	if w.dropping {
		return n, nil
	}
	return n, w.pass(p[begin:])
}

func (w *frameWriter) pass(p []byte) error {
	if len(p) == 0 {
		return nil
	}
	_, err := w.to.Write(p)
	return err
}

// stray reports whether a frame is left out: of a closed channel, a method that is neither
// the answer to the broker's close nor the beginning of the next channel of this number, and
// what follows such a method.
func (w *frameWriter) stray(f []byte) bool {
	channel := binary.BigEndian.Uint16(f[1:])
	if f[0] != methodFrame {
		_, out := w.leftOut[channel]
		return out
	}
	_, ended := w.ended[channel]
	id := binary.BigEndian.Uint32(f[frameHead:])
	switch {
	case id == idChannelOpen:
		delete(w.ended, channel)
	case id == idChannelCloseOk:
	case ended || w.closed.has(channel):
		w.leftOut[channel] = struct{}{}
		return true
	case id == idChannelClose:
		w.ended[channel] = struct{}{}
	}
	delete(w.leftOut, channel)
	return false
}

// closedChannels are the channels of a connection that the broker has closed, until
// they are open again, a bit for each. The reader of the connection changes them,
// and the writer looks at them.
type closedChannels [(math.MaxUint16 + 1) / 64]atomic.Uint64

func (c *closedChannels) add(channel uint16) { c[channel/64].Or(1 << (channel % 64)) }

func (c *closedChannels) remove(channel uint16) { c[channel/64].And(^(uint64(1) << (channel % 64))) }

func (c *closedChannels) has(channel uint16) bool {
	return c[channel/64].Load()&(1<<(channel%64)) != 0
}
