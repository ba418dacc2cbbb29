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
// connection. The broker adds its own headers later, so a message just below
// frame_max closes the connection of every consumer that it is delivered to. Half
// of frame_max leaves room for x-death to grow.
//
// A copy that would be larger is cut in this order, and no further than needed:
// the stack, as a whole if it must; the history, oldest deaths first; the error
// text; the error type; the host. Texts are cut between characters. Three kinds
// are never cut, even if they alone exceed the bound: the user's headers and
// properties, those that count or place the message (attempts, final attempts,
// queue, reason, exchange, routing key, the times), and what is archived.
const MaxHeaderBytes = 64 << 10

// Sizes to which texts are cut in any case.
const (
	maxStackBytes = 8 << 10
	maxErrorBytes = 4 << 10
)

// HeaderLimit returns the bound of HeaderNeed on a connection with this
// frame_max, in bytes: half of it, at most MaxHeaderBytes. The other half is for
// what is added later. A frame of 0 means a connection without a limit, and gives
// MaxHeaderBytes.
func HeaderLimit(frame int) int {
	if frame <= 0 {
		return MaxHeaderBytes
	}
	return min(frame/2, MaxHeaderBytes)
}

// maxDeaths is how many entries x-death can have once a message has been through
// a work queue with the most waits and its dead-letter queue.
const maxDeaths = 18

// HeaderNeed returns HeaderSize and what the broker adds for CC: it repeats these
// keys in each entry of x-death.
func HeaderNeed(p amqp.Publishing) int {
	need := HeaderSize(p)
	if cc, ok := p.Headers[HeaderCC]; ok {
		need += maxDeaths * valueSize(cc)
	}
	return need
}

// fit cuts the headers of a copy to a budget, in the order that MaxHeaderBytes
// documents, such as that of HeaderLimit. The headers must be the copy's own.
func fit(p amqp.Publishing, limit int) {
	if HeaderSize(p) <= limit {
		return
	}
	shorten(p, HeaderStack, limit)
	for HeaderSize(p) > limit {
		list, _ := p.Headers[HeaderHistory].([]any)
		if len(list) <= 1 {
			delete(p.Headers, HeaderHistory)
			break
		}
		p.Headers[HeaderHistory] = list[:len(list)-1]
	}
	shorten(p, HeaderError, limit)
	shorten(p, HeaderErrorType, limit)
	shorten(p, HeaderHost, limit)
}

// shorten cuts one text by as much as the copy is too large.
func shorten(p amqp.Publishing, key string, limit int) {
	over := HeaderSize(p) - limit
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
// amqp091-go writes it. The body does not count. A value of a type that
// amqp091-go refuses counts as nothing; Validate reports it.
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
