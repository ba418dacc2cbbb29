// Package wire is AMQP 0-9-1 as bytes: frames, methods, tables and properties,
// from the point of view of a server. It knows nothing of queues.
package wire

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Types of frames.
const (
	FrameMethod    = 1
	FrameHeader    = 2
	FrameBody      = 3
	FrameHeartbeat = 8

	frameEnd = 0xCE
)

// FrameOverhead is what a frame is longer than its payload.
const FrameOverhead = 8

// Protocol is what a client of AMQP 0-9-1 sends first.
var Protocol = [8]byte{'A', 'M', 'Q', 'P', 0, 0, 9, 1}

// Frame is one frame. Payload is good until the next one is read.
type Frame struct {
	Type    byte
	Channel uint16
	Payload []byte
}

// ErrFrameEnd is returned for a frame without its end octet.
var ErrFrameEnd = errors.New("no frame end octet")

// TooLargeError is returned for a frame beyond what was negotiated.
type TooLargeError struct {
	Type      byte
	Size, Max uint32
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("frame of type %d with %d octets, want at most %d", e.Type, e.Size, e.Max)
}

// FrameReader reads frames one after another.
type FrameReader struct {
	r   *bufio.Reader
	buf []byte
}

func NewFrameReader(r io.Reader) *FrameReader {
	return &FrameReader{r: bufio.NewReaderSize(r, 32<<10)}
}

// Preamble reads the protocol header.
func (f *FrameReader) Preamble() (p [8]byte, err error) {
	_, err = io.ReadFull(f.r, p[:])
	return p, err
}

// Buffered tells whether more has arrived than was read.
func (f *FrameReader) Buffered() bool { return f.r.Buffered() > 0 }

// Next reads a frame whose payload is not longer than maxFrame allows.
func (f *FrameReader) Next(maxFrame uint32) (Frame, error) {
	var head [7]byte
	if _, err := io.ReadFull(f.r, head[:]); err != nil {
		return Frame{}, err
	}
	fr := Frame{Type: head[0], Channel: binary.BigEndian.Uint16(head[1:])}
	size := binary.BigEndian.Uint32(head[3:])
	if limit := maxFrame - FrameOverhead; size > limit {
		return fr, &TooLargeError{Type: fr.Type, Size: size, Max: limit}
	}
	if n := int(size) + 1; cap(f.buf) < n {
		f.buf = make([]byte, n)
	}
	f.buf = f.buf[:size+1]
	if _, err := io.ReadFull(f.r, f.buf); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return Frame{}, err
	}
	if f.buf[size] != frameEnd {
		return fr, ErrFrameEnd
	}
	fr.Payload = f.buf[:size]
	return fr, nil
}

// AppendFrame appends a frame whose payload fill appends.
func AppendFrame(b []byte, frameType byte, channel uint16, fill func([]byte) []byte) []byte {
	b = append(b, frameType, byte(channel>>8), byte(channel), 0, 0, 0, 0)
	start := len(b)
	b = fill(b)
	binary.BigEndian.PutUint32(b[start-4:], uint32(len(b)-start))
	return append(b, frameEnd)
}

// AppendHeartbeat appends a heartbeat.
func AppendHeartbeat(b []byte) []byte {
	return append(b, FrameHeartbeat, 0, 0, 0, 0, 0, 0, frameEnd)
}

// AppendContent appends the header frame and the body frames of a message.
func AppendContent(b []byte, channel uint16, maxFrame uint32, p *Properties, body []byte) []byte {
	b = AppendFrame(b, FrameHeader, channel, func(b []byte) []byte {
		b = append(b, 0, ClassBasic, 0, 0)
		b = binary.BigEndian.AppendUint64(b, uint64(len(body)))
		return p.append(b)
	})
	for limit := int(maxFrame - FrameOverhead); len(body) > 0; {
		part := body[:min(len(body), limit)]
		body = body[len(part):]
		b = append(b, FrameBody, byte(channel>>8), byte(channel))
		b = binary.BigEndian.AppendUint32(b, uint32(len(part)))
		b = append(b, part...)
		b = append(b, frameEnd)
	}
	return b
}

// ContentHeader is what a header frame says.
type ContentHeader struct {
	Class      uint16
	Size       uint64
	Properties Properties
	Encoded    int // octets of the properties
}

// DecodeContentHeader decodes the payload of a header frame.
func DecodeContentHeader(payload []byte) (ContentHeader, error) {
	r := reader{b: payload}
	h := ContentHeader{Class: r.u16()}
	_ = r.u16() // weight
	h.Size = r.u64()
	h.Encoded = len(r.b)
	h.Properties.decode(&r)
	return h, r.end()
}
