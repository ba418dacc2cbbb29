package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf8"
)

// ErrSyntax is wrapped by every error about bytes that are not AMQP.
var ErrSyntax = errors.New("syntax error")

// ErrText is returned for a method with a short string that is not UTF-8. RabbitMQ
// takes any in basic.publish and in the properties of a message.
var ErrText = errors.New("Malformed UTF-8 in shortstr") //nolint:staticcheck // RabbitMQ's text

// reader takes values off a payload. After the first fault all it returns is
// zero.
type reader struct {
	b    []byte
	err  error
	text error // a short string was no UTF-8
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s", ErrSyntax, fmt.Sprintf(format, args...))
	}
	r.b = nil
}

func (r *reader) take(n int) []byte {
	if r.err != nil || n > len(r.b) {
		r.fail("%d octets wanted, %d there", n, len(r.b))
		return nil
	}
	part := r.b[:n]
	r.b = r.b[n:]
	return part
}

func (r *reader) u8() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) u16() uint16 {
	if b := r.take(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (r *reader) u32() uint32 {
	if b := r.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (r *reader) u64() uint64 {
	if b := r.take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (r *reader) short() string {
	b := r.take(int(r.u8()))
	if r.text == nil && !utf8.Valid(b) {
		r.text = ErrText
	}
	return string(b)
}

func (r *reader) long() []byte {
	n := r.u32()
	if uint64(n) > uint64(len(r.b)) {
		r.fail("%d octets wanted, %d there", n, len(r.b))
		return nil
	}
	return r.take(int(n))
}

// end returns the fault there was, if any; octets beyond the known fields are one.
func (r *reader) end() error {
	if r.err == nil && len(r.b) > 0 {
		r.fail("%d octets too many", len(r.b))
	}
	return r.err
}

func appendShort(b []byte, s string) []byte {
	if len(s) > 255 {
		s = s[:255]
	}
	b = append(b, byte(len(s)))
	return append(b, s...)
}

func appendLong(b []byte, s string) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(s)))
	return append(b, s...)
}
