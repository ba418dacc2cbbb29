package connection

import (
	"encoding/binary"
	"fmt"

	"github.com/rehop/rehop/internal/transport"
)

// Limits of the client library's parser. A message beyond them ends the
// connection of each consumer that it is delivered to, until nobody consumes.
const (
	maxNesting = 32   // levels of tables and arrays within the headers
	maxEntries = 8192 // of one table or array
)

// Sizes of the parts of a content header, in bytes.
const (
	fixedPart        = 2 + 2 + 8 + 2                   // class, weight, body size, flags
	maxBeforeHeaders = fixedPart + 2*256 + tableLength // with content-type and content-encoding
	tableLength      = 4                               // the length of a table
	maxAfterHeaders  = 1 + 1 + 8 + 8*256               // the other properties
)

// Property flags, from the first property to the last.
const (
	flagContentType     = 1 << 15
	flagContentEncoding = 1 << 14
	flagHeaders         = 1 << 13
	flagDeliveryMode    = 1 << 12
	flagPriority        = 1 << 11
	flagCorrelationID   = 1 << 10
	flagReplyTo         = 1 << 9
	flagExpiration      = 1 << 8
	flagMessageID       = 1 << 7
	flagTimestamp       = 1 << 6
	flagType            = 1 << 5
	flagUserID          = 1 << 4
	flagAppID           = 1 << 3
	flagClusterID       = 1 << 2
)

// afterHeaders are the properties that follow the headers, with their sizes; 0
// is a short string.
var afterHeaders = [...]struct{ flag, size int }{
	{flagDeliveryMode, 1}, {flagPriority, 1},
	{flagCorrelationID, 0}, {flagReplyTo, 0}, {flagExpiration, 0}, {flagMessageID, 0},
	{flagTimestamp, 8},
	{flagType, 0}, {flagUserID, 0}, {flagAppID, 0}, {flagClusterID, 0},
}

// readableFrame returns the frame of a content header as it is if the client
// library can read it. Otherwise it returns another one of the same channel,
// class, body size and properties, whose only header is
// transport.HeaderUnreadable.
func readableFrame(frame []byte) (readable []byte, changed bool) {
	payload := frame[frameHead : len(frame)-frameEnd]
	h := locateHeaders(payload, int64(len(payload)))
	rest := payload[int64(h.at)+h.size:]
	why := "malformed properties"
	if !h.malformed && wellFormed(flagsOf(payload), rest) {
		if h.size == 0 {
			return frame, false
		}
		if why = unreadable(payload[h.at+tableLength:][:h.size-tableLength], 0, true); why == "" {
			return frame, false
		}
	}
	why = fmt.Sprintf("%s, in a content header of %d bytes", why, len(payload))
	return withoutHeaders(frame[:frameHead+h.at:frameHead+h.at], frame[frameHead+int64(h.at)+h.size:], h.malformed, why), true
}

// headers is where the headers of a content header are.
type headers struct {
	at        int   // offset in the payload; where they would be, if there are none
	size      int64 // with their length; 0 if there are none
	malformed bool  // the bytes after at make no sense
}

// after returns how many bytes follow the headers, in a payload of size bytes.
func (h headers) after(size int64) int64 { return size - int64(h.at) - h.size }

// locateHeaders finds the headers in the beginning of a payload of size bytes,
// which holds at least maxBeforeHeaders of them, or all.
func locateHeaders(payload []byte, size int64) headers {
	at, flags := fixedPart, flagsOf(payload)
	for _, flag := range []int{flagContentType, flagContentEncoding} {
		if flags&flag == 0 {
			continue
		}
		if at >= len(payload) {
			return malformedHeaders(size)
		}
		at += 1 + int(payload[at])
	}
	if flags&flagHeaders == 0 && at <= len(payload) {
		return headers{at: at}
	}
	if at+tableLength > len(payload) {
		return malformedHeaders(size)
	}
	h := headers{at: at, size: tableLength + int64(binary.BigEndian.Uint32(payload[at:]))}
	if h.after(size) < 0 {
		return malformedHeaders(size)
	}
	return h
}

func malformedHeaders(size int64) headers {
	return headers{at: fixedPart, size: size - fixedPart, malformed: true}
}

func flagsOf(payload []byte) int { return int(binary.BigEndian.Uint16(payload[fixedPart-2:])) }

// wellFormed reports whether the properties after the headers are there.
func wellFormed(flags int, rest []byte) bool {
	for _, property := range afterHeaders {
		if flags&property.flag == 0 {
			continue
		}
		n := property.size
		if n == 0 {
			if len(rest) == 0 {
				return false
			}
			n = 1 + int(rest[0])
		}
		if len(rest) < n {
			return false
		}
		rest = rest[n:]
	}
	return true
}

// withoutHeaders builds a frame from the head of a frame, up to its headers, and the
// rest behind them, with the frame's end. It leaves out malformed properties.
func withoutHeaders(head, rest []byte, malformed bool, why string) []byte {
	flags := flagsOf(head[frameHead:]) | flagHeaders
	end := rest[len(rest)-frameEnd]
	rest = rest[:len(rest)-frameEnd]
	if malformed {
		flags = flagHeaders
	}
	if malformed || !wellFormed(flags, rest) {
		flags &= flagContentType | flagContentEncoding | flagHeaders
		rest = nil
	}
	name := transport.HeaderUnreadable
	frame := append([]byte(nil), head...)
	frame = binary.BigEndian.AppendUint32(frame, uint32(1+len(name)+1+4+len(why)))
	frame = append(append(frame, byte(len(name))), name...)
	frame = binary.BigEndian.AppendUint32(append(frame, 'S'), uint32(len(why)))
	frame = append(append(frame, why...), rest...)
	binary.BigEndian.PutUint32(frame[3:], uint32(len(frame)-frameHead))
	binary.BigEndian.PutUint16(frame[frameHead+fixedPart-2:], uint16(flags))
	return append(frame, end)
}

// unreadable says why the client library cannot read the fields of a table, or
// the values of an array; "" if it can.
func unreadable(b []byte, level int, table bool) (why string) {
	const malformed = "a malformed table"
	if level > maxNesting {
		return fmt.Sprintf("tables nested in more than %d levels", maxNesting)
	}
	for n := 0; len(b) > 0; n++ {
		// The library counts a name that comes twice once; brokers send no such.
		if n == maxEntries {
			return fmt.Sprintf("a table or array of more than %d entries", maxEntries)
		}
		if table {
			name := 1 + int(b[0])
			if name >= len(b) {
				return malformed
			}
			b = b[name:]
		}
		kind := b[0]
		b = b[1:]
		size := 0
		switch kind {
		case 'V':
		case 't', 'b', 'B':
			size = 1
		case 's', 'u':
			size = 2
		case 'I', 'i', 'f':
			size = 4
		case 'D':
			size = 5
		case 'l', 'd', 'T':
			size = 8
		case 'S', 'x', 'A', 'F':
			if len(b) < 4 {
				return malformed
			}
			length := binary.BigEndian.Uint32(b)
			b = b[4:]
			if uint64(length) > uint64(len(b)) {
				return malformed
			}
			size = int(length)
			if kind == 'A' || kind == 'F' {
				if why := unreadable(b[:size], level+1, kind == 'F'); why != "" {
					return why
				}
			}
		default:
			return fmt.Sprintf("a field of unknown type %q", kind)
		}
		if len(b) < size {
			return malformed
		}
		b = b[size:]
	}
	return ""
}
