package header

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const (
	// MaxName is the length in bytes of an AMQP short string: every name of a queue
	// or an exchange, every routing key and every header name fits in it.
	MaxName = 255

	// MaxCount bounds every count that is read or written, so that sums cannot
	// overflow an int of 32 bits and a forged header cannot reach one.
	MaxCount = math.MaxInt32

	// MaxMillis is the last millisecond of the year 9999. Later instants are no
	// dates but mistakes of unit.
	MaxMillis = 253_402_300_799_999
)

// Text returns a value as a string, and false for one that is none.
func Text(v any) (string, bool) {
	switch s := v.(type) {
	case string:
		return s, true
	case []byte:
		return string(s), true
	}
	return "", false
}

// Name returns a value that is a string of up to MaxName bytes, and else "".
func Name(v any) string {
	s, _ := Text(v)
	if len(s) > MaxName {
		return ""
	}
	return s
}

// Texts returns the strings of an array, and leaves out what is none. A single
// string is an array of one.
func Texts(v any) []string {
	if s, ok := Text(v); ok {
		return []string{s}
	}
	array, _ := v.([]any)
	var list []string
	for _, item := range array {
		if s, ok := Text(item); ok {
			list = append(list, s)
		}
	}
	return list
}

// IsInstant reports whether a time is one that a header can hold.
func IsInstant(t time.Time) bool { return t.Unix() >= 0 && t.Unix() <= MaxMillis/1000 }

func isName(v any) bool {
	s, ok := Text(v)
	return ok && len(s) <= MaxName
}

// IsOurs reports whether rehop or the broker writes the header of this name.
func IsOurs(name string) bool {
	return strings.HasPrefix(name, Prefix) || slices.Contains(Family, name)
}

// Strip returns a copy of the headers without the Family of the broker and
// without any that begins with Prefix. A producer applies it to each publish, because
// a message that is published starts at attempt 1. CC and BCC stay, because the
// producer asked for them. Values of type int are converted to int64, because
// amqp091-go sends an int as 32 bits. If no headers are left, Strip returns nil.
func Strip(headers amqp.Table) amqp.Table {
	if len(headers) == 0 {
		return nil
	}
	kept := make(amqp.Table, len(headers))
	for key, v := range headers {
		if !IsOurs(key) {
			kept[key] = Clone(v)
		}
	}
	if len(kept) == 0 {
		return nil
	}
	return kept
}

// Clone returns a deep copy of a header's value in which every int is an int64, in
// tables and arrays at any level: amqp091-go sends an int as 32 bits and wraps what
// does not fit, silently.
func Clone(v any) any { return clone(v, 1) }

// clone copies a value within a number of tables and arrays. Beyond the depth that
// anyone can read it shares instead of copying: a table that contains itself must
// not end the process.
func clone(v any, depth int) any {
	switch v := v.(type) {
	case int:
		return int64(v)
	case []byte:
		return bytes.Clone(v)
	case amqp.Table:
		if v != nil && depth <= maxDepth {
			c := make(amqp.Table, len(v))
			for key, item := range v {
				c[key] = clone(item, depth+1)
			}
			return c
		}
	case []any:
		if v != nil && depth <= maxDepth {
			c := make([]any, len(v))
			for i, item := range v {
				c[i] = clone(item, depth+1)
			}
			return c
		}
	}
	return v
}
