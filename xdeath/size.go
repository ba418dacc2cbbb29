package xdeath

import (
	"strings"
	"time"
	"unicode/utf8"

	amqp "github.com/rabbitmq/amqp091-go"
)

// MaxHeaderBytes bounds the properties and headers of every copy, as HeaderSize
// counts them. All of them travel in one frame that cannot be split: above
// frame_max (128 KiB unless configured) the broker closes the publisher's
// connection, and a message just below it, to which the broker adds its own
// headers later, closes that of every consumer it is delivered to. Half of it
// leaves room for x-death to grow.
//
// A copy that would be larger is cut, in this order and no further than
// needed: the stack, which goes first and as a whole if it must; the history,
// oldest deaths first; the error text; the error type; the host. Texts are cut
// at a character. Never cut are the user's headers and properties, those that
// count or place the message (attempts, final attempts, queue, reason, exchange,
// routing key, the times) and what is archived, even if they alone exceed the
// budget.
const MaxHeaderBytes = 64 << 10

// Sizes to which texts are cut in any case.
const (
	maxStackBytes = 8 << 10
	maxErrorBytes = 4 << 10
)

// fit cuts the headers of a copy to the budget, in the order that MaxHeaderBytes
// documents. The headers must be the copy's own.
func fit(p amqp.Publishing) {
	if HeaderSize(p) <= MaxHeaderBytes {
		return
	}
	shorten(p, HeaderStack)
	for HeaderSize(p) > MaxHeaderBytes {
		list, _ := p.Headers[HeaderHistory].([]any)
		if len(list) <= 1 {
			delete(p.Headers, HeaderHistory)
			break
		}
		p.Headers[HeaderHistory] = list[:len(list)-1]
	}
	shorten(p, HeaderError)
	shorten(p, HeaderErrorType)
	shorten(p, HeaderHost)
}

// shorten cuts one text by as much as the copy is too large.
func shorten(p amqp.Publishing, key string) {
	over := HeaderSize(p) - MaxHeaderBytes
	if over <= 0 {
		return
	}
	s, _ := p.Headers[key].(string)
	if s = cut(s, len(s)-over); s == "" {
		delete(p.Headers, key)
		return
	}
	p.Headers[key] = s
}

// cut returns at most limit bytes of s, as valid UTF-8 and without half a
// character at the end.
func cut(s string, limit int) string {
	if limit <= 0 {
		return ""
	}
	if len(s) > limit {
		s = s[:limit]
		for i := 1; i < utf8.UTFMax && i <= len(s); i++ { // drop a last character that the cut has split
			if last := s[len(s)-i:]; utf8.RuneStart(last[0]) {
				if !utf8.FullRuneInString(last) {
					s = s[:len(s)-i]
				}
				break
			}
		}
	}
	return strings.ToValidUTF8(s, "?") // one byte for each broken run: never longer
}

// HeaderSize returns the length in bytes of the publishing's content header, the
// payload of the one frame that carries all properties and headers, exactly as
// amqp091-go writes it. The body does not count. Values of a type that
// amqp091-go refuses count as nothing; Validate names them.
func HeaderSize(p amqp.Publishing) int {
	size := 2 + 2 + 8 + 2 // class, weight, body size, flags
	for _, s := range shortStrings(p) {
		if s.value != "" {
			size += 1 + len(s.value)
		}
	}
	if p.DeliveryMode > 0 {
		size++
	}
	if p.Priority > 0 {
		size++
	}
	if !p.Timestamp.IsZero() {
		size += 8
	}
	if len(p.Headers) > 0 {
		size += tableSize(p.Headers)
	}
	return size
}

func tableSize(t amqp.Table) int {
	size := 4
	for key, v := range t {
		size += 1 + len(key) + valueSize(v)
	}
	return size
}

// valueSize includes the byte that names the type.
func valueSize(v any) int {
	switch v := v.(type) {
	case nil:
		return 1
	case bool, byte, int8:
		return 2
	case int16, uint16:
		return 3
	case int, int32, uint32, float32:
		return 5
	case amqp.Decimal:
		return 6
	case int64, float64, time.Time:
		return 9
	case string:
		return 5 + len(v)
	case []byte:
		return 5 + len(v)
	case amqp.Table:
		return 1 + tableSize(v)
	case []any:
		size := 5
		for _, item := range v {
			size += valueSize(item)
		}
		return size
	}
	return 0
}
