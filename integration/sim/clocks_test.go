package sim

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"time"

	"github.com/rehop/rehop/internal/header"
)

// All processes of a bubble have one clock. A process whose clock differs reads other
// dates on its messages, and writes others, which is all that the clock of a process
// has to do with another: so its connections change the dates on their way.

// dial is a Dial of a connection.Config.
type dial func(ctx context.Context, network, address string) (net.Conn, error)

// ahead returns the Dial of a process whose clock is ahead by d, or behind if d is negative.
func (to dial) ahead(d time.Duration) dial {
	if d == 0 {
		return to
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := to(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &shifted{
			Conn:    conn,
			written: frameReader{greets: true, by: d},
			read:    frameReader{by: -d},
			buffer:  make([]byte, 32<<10),
		}, nil
	}
}

// shifted is the client's end of a connection that shifts dates.
type shifted struct {
	net.Conn
	written, read frameReader
	buffer        []byte
	whole         []byte // read, and shifted
}

func (s *shifted) Write(p []byte) (int, error) {
	if whole := s.written.shift(p); len(whole) > 0 {
		if _, err := s.Conn.Write(whole); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

func (s *shifted) Read(p []byte) (int, error) {
	for len(s.whole) == 0 {
		n, err := s.Conn.Read(s.buffer)
		s.whole = s.read.shift(s.buffer[:n])
		if err != nil && len(s.whole) == 0 {
			return 0, err
		}
	}
	n := copy(p, s.whole)
	s.whole = s.whole[n:]
	return n, nil
}

// frameReader makes frames of what goes one way on a connection, and shifts the dates in
// them.
type frameReader struct {
	by     time.Duration
	greets bool   // the protocol header is still to come
	rest   []byte // of a frame that is not complete
}

const (
	greeting    = 8 // bytes of the protocol header
	frameHeader = 7 // type, channel and size
	headerFrame = 2
)

// shift takes what comes next, and returns the frames that are complete.
func (r *frameReader) shift(p []byte) (whole []byte) {
	r.rest = append(r.rest, p...)
	end := 0
	if r.greets {
		if len(r.rest) < greeting {
			return nil
		}
		r.greets, end = false, greeting
	}
	for end+frameHeader <= len(r.rest) {
		next := end + frameHeader + int(binary.BigEndian.Uint32(r.rest[end+3:])) + 1
		if next > len(r.rest) {
			break
		}
		if r.rest[end] == headerFrame {
			shiftDates(r.rest[end:next], r.by)
		}
		end = next
	}
	whole = bytes.Clone(r.rest[:end])
	r.rest = r.rest[end:]
	return whole
}

// shiftDates shifts the dates that consumers write on messages: int64, milliseconds, or
// timestamps, seconds.
func shiftDates(frame []byte, by time.Duration) {
	for name, unit := range map[string]time.Duration{
		header.Due + "l": time.Millisecond, header.NotBefore + "l": time.Millisecond,
		header.FirstFailedAt + "T": time.Second, header.FirstSnoozedAt + "T": time.Second,
	} {
		key := string(rune(len(name)-1)) + name
		if at := bytes.Index(frame, []byte(key)); at >= 0 {
			date := frame[at+len(key):]
			binary.BigEndian.PutUint64(date, binary.BigEndian.Uint64(date)+uint64(by/unit)) //nolint:gosec // it wraps around as int64 does
		}
	}
}

// apart is how much the clocks of the processes that consume differ at most.
func (p plan) apart() time.Duration {
	var first, last time.Duration
	for i, c := range p.consumers {
		for j, l := range c.lives {
			if i == 0 && j == 0 {
				first, last = l.ahead, l.ahead
			}
			first, last = min(first, l.ahead), max(last, l.ahead)
		}
	}
	return last - first
}

// clocks sets the clocks of some processes wrong: by seconds to months.
func (m maker) clocks(p *plan) {
	for i := range p.consumers {
		for j := range p.consumers[i].lives {
			l := &p.consumers[i].lives[j]
			if l.ahead = m.between(time.Second, 100*24*time.Hour); m.chance(50) {
				l.ahead = -l.ahead
			}
			if m.chance(30) {
				l.ahead = 0
			}
		}
	}
}
