package connection

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"sync/atomic"
)

// frameReader reads frames for the client library. It passes them on as they
// are, but for content headers that the library cannot read: the library would
// end the connection, and the broker deliver the same message to the next one.
// readableFrame removes such headers.
//
// It also leaves out frames that the broker sends on a channel that it has closed: a
// broker of 4.3 delivers once more after a consumer timeout, and the library
// would end the connection.
type frameReader struct {
	net.Conn
	frameMax atomic.Int64 // agreed with the broker, in bytes

	in     *bufio.Reader
	pass   int64  // bytes to pass on unseen
	out    []byte // a content header that was replaced
	closed closedChannels

	listened atomic.Pointer[chan struct{}] // of heard; nil: nobody listens
}

const (
	frameHead   = 7 // type, channel, size
	methodHead  = 4 // class and method
	frameEnd    = 1
	frameBuffer = 32 << 10

	// defaultFrameMax is the limit of the library, which never agrees to more.
	defaultFrameMax = 128 << 10
)

// Types of frames.
const (
	methodFrame    = 1
	headerFrame    = 2
	bodyFrame      = 3
	heartbeatFrame = 8
)

// Classes and methods, as they are in a frame.
const (
	idChannelOpen    = 20<<16 | 10
	idChannelOpenOk  = 20<<16 | 11
	idChannelClose   = 20<<16 | 40
	idChannelCloseOk = 20<<16 | 41
)

func newFrameReader(conn net.Conn) *frameReader {
	r := &frameReader{Conn: conn, in: bufio.NewReaderSize(conn, frameBuffer)}
	r.frameMax.Store(defaultFrameMax)
	return r
}

// heard returns a channel that is closed when the library reads on, having acted on all
// frames that it has read until then.
func (r *frameReader) heard() <-chan struct{} {
	for {
		if heard := r.listened.Load(); heard != nil {
			return *heard
		}
		heard := make(chan struct{})
		if r.listened.CompareAndSwap(nil, &heard) {
			return heard
		}
	}
}

func (r *frameReader) Read(p []byte) (int, error) {
	if r.listened.Load() != nil {
		close(*r.listened.Swap(nil)) // only Read takes it away
	}
	for {
		switch {
		case len(r.out) > 0:
			n := copy(p, r.out)
			r.out = r.out[n:]
			return n, nil
		case r.pass > 0:
			n, err := r.in.Read(p[:min(int64(len(p)), r.pass)])
			r.pass -= int64(n)
			return n, err
		}
		if err := r.next(); err != nil {
			return 0, err
		}
	}
}

// next decides about the next frame, and about those behind it that have
// arrived. It waits for the beginning of a frame and for a whole content header.
func (r *frameReader) next() error {
	head, err := r.in.Peek(frameHead)
	if err != nil {
		if r.pass = int64(r.in.Buffered()); r.pass > 0 {
			return nil // the library reports the missing part
		}
		return err
	}
	size := int64(binary.BigEndian.Uint32(head[3:])) // head is void after the next Peek
	arrived, _ := r.in.Peek(r.in.Buffered())         // cannot fail
	for r.pass+frameHead <= int64(len(arrived)) {
		f := arrived[r.pass:]
		whole := frameHead + int64(binary.BigEndian.Uint32(f[3:])) + frameEnd
		if f[0] == methodFrame {
			if len(f) < frameHead+methodHead {
				if r.pass == 0 {
					return r.methodArrives(size)
				}
				return nil
			}
			r.noteMethod(f)
		}
		if r.stray(f) {
			if r.pass == 0 {
				return r.skip(whole)
			}
			return nil
		}
		switch f[0] {
		case methodFrame, bodyFrame, heartbeatFrame:
		case headerFrame:
			if !r.passes(f, whole) {
				if r.pass == 0 {
					return r.contentHeader(size)
				}
				return nil
			}
		default: // not AMQP: the library says so
			r.pass = math.MaxInt64
			return nil
		}
		r.pass += whole
	}
	return nil
}

// methodArrives waits until the method of a frame can be seen.
func (r *frameReader) methodArrives(size int64) error {
	if size < methodHead {
		r.pass = frameHead + size + frameEnd // no method; the library says so
		return nil
	}
	if head, err := r.in.Peek(frameHead + methodHead); err != nil {
		r.pass = int64(len(head)) // the library reports the missing part
	}
	return nil
}

// noteMethod notes which channels the broker has closed.
func (r *frameReader) noteMethod(f []byte) {
	channel := binary.BigEndian.Uint16(f[1:])
	switch binary.BigEndian.Uint32(f[frameHead:]) {
	case idChannelClose:
		r.closed.add(channel)
	case idChannelOpenOk, idChannelCloseOk:
		r.closed.remove(channel)
	}
}

// stray reports whether a frame is of a channel that the broker has closed, and
// neither its close nor the beginning of the next one of this number.
func (r *frameReader) stray(f []byte) bool {
	if f[0] != methodFrame && f[0] != headerFrame && f[0] != bodyFrame || !r.closed.has(binary.BigEndian.Uint16(f[1:])) {
		return false
	}
	return f[0] != methodFrame || binary.BigEndian.Uint32(f[frameHead:]) != idChannelClose
}

// passes reports whether a content header has arrived as a whole, and is
// readable.
func (r *frameReader) passes(f []byte, whole int64) bool {
	if whole < frameHead+fixedPart+frameEnd {
		return true // no content header; the library says so
	}
	if whole > int64(len(f)) || whole > r.frameMax.Load() {
		return false
	}
	_, changed := readableFrame(f[:whole])
	return !changed
}

// contentHeader takes a content header of size bytes from the socket, and makes
// it readable if it is not.
func (r *frameReader) contentHeader(size int64) error {
	whole := frameHead + size + frameEnd
	if whole > r.frameMax.Load() {
		return r.tooLarge(size)
	}
	frame := make([]byte, whole)
	if _, err := io.ReadFull(r.in, frame); err != nil {
		return err
	}
	r.out, _ = readableFrame(frame)
	return nil
}

// tooLarge replaces a content header beyond frame_max, which the broker sends
// when dead-lettering has made the headers longer. Of the headers it holds
// nothing in memory.
func (r *frameReader) tooLarge(size int64) error {
	head, err := r.in.Peek(int(frameHead + min(size, maxBeforeHeaders)))
	if err != nil {
		r.pass = int64(len(head))
		return nil
	}
	h := locateHeaders(head[frameHead:], size)
	if h.after(size) > maxAfterHeaders {
		h = malformedHeaders(size)
	}
	head = append([]byte(nil), head[:frameHead+h.at]...)
	if err := r.skip(frameHead + int64(h.at) + h.size); err != nil {
		return err
	}
	rest := make([]byte, h.after(size)+frameEnd)
	if _, err := io.ReadFull(r.in, rest); err != nil {
		return err
	}
	why := fmt.Sprintf("a content header of %d bytes, frame_max is %d", size, r.frameMax.Load())
	r.out = withoutHeaders(head, rest, h.malformed, why)
	return nil
}

func (r *frameReader) skip(n int64) error {
	_, err := io.CopyN(io.Discard, r.in, n)
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
