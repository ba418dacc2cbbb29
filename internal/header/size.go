package header

import (
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Max bounds the properties and headers of every copy, as Size
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
const Max = 64 << 10

// Limit returns the bound of Need on a connection with this
// frame_max, in bytes: half of it, at most Max. The other half is for
// what is added later. A frame of 0 means a connection without a limit, and gives
// Max.
func Limit(frame int) int {
	if frame <= 0 {
		return Max
	}
	return min(frame/2, Max)
}

// maxDeaths is how many entries x-death can have once a message has been through
// a work queue with the most waits and its dead-letter queue.
const maxDeaths = 18

// Need returns Size and what the broker adds for CC: it repeats these
// keys in each entry of x-death.
func Need(p amqp.Publishing) int {
	need := Size(p)
	if cc, ok := p.Headers[CC]; ok {
		need += maxDeaths * valueSize(cc)
	}
	return need
}

// Size returns the length in bytes of the publishing's content header, the
// payload of the one frame that carries all properties and headers, exactly as
// amqp091-go writes it. The body does not count. A value of a type that
// amqp091-go refuses counts as nothing; Check reports it.
func Size(p amqp.Publishing) int {
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
