package header

import (
	"math"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Count returns a value that is a count from 0 to MaxCount, and else 0 and false.
func Count(v any) (n int64, ok bool) {
	n, ok = Integer(v)
	if !ok || n < 0 || n > MaxCount {
		return 0, false
	}
	return n, true
}

// IsCopy reports whether the headers are those of a copy for its next attempt.
func IsCopy(headers amqp.Table) bool {
	_, is := Count(headers[Attempts])
	return is
}

// Integer converts every integer type that a table can hold, from the wire or from Go
// code.
func Integer(v any) (int64, bool) {
	switch n := v.(type) {
	case int:
		return int64(n), true
	case int8:
		return int64(n), true
	case int16:
		return int64(n), true
	case int32:
		return int64(n), true
	case int64:
		return n, true
	case uint8:
		return int64(n), true
	case uint16:
		return int64(n), true
	case uint32:
		return int64(n), true
	case uint:
		return saturate(uint64(n)), true
	case uint64:
		return saturate(n), true
	}
	return 0, false
}

func saturate(n uint64) int64 { return int64(min(n, math.MaxInt64)) }
