package header

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// The bounds of a message that a consumer with amqp091-go 1.16 or later can read. A
// message beyond them closes its connection, at each delivery again, although the same
// library publishes it.
const (
	maxDepth   = 32   // levels of tables and arrays within the header table
	maxEntries = 8192 // entries in one table or array

	// addedEntries is the room for the headers that the broker, retries and
	// letters add to the message's own.
	addedEntries = 64
)

// maxExpiration is the longest TTL in milliseconds that the broker takes: ten
// years of 365 days.
const maxExpiration = 315_360_000_000

// Check returns nil if amqp091-go and the broker will take the properties and
// headers of this publishing and every consumer can read them, else every fault
// joined into one error, each with field, value and bound. Publishing a faulty
// one costs more than the message: the connection or the channel is closed, with
// all that is in flight on it, or it is the consumers' connections.
//
// It checks: header keys and the string properties, at most 255 bytes; types
// of values; at most 32 levels and 8192 entries, of which 64 of the header table
// are left to what is added later; an int that does not fit in the
// 32 bits that amqp091-go sends of it (Strip makes it an int64); CC and BCC,
// which must be arrays of strings; expiration, milliseconds from 0 to
// 315360000000 in decimal digits; delivery mode 0 to 2; Need, at most
// Max. Any priority fits its byte on the wire.
func Check(p amqp.Publishing) error {
	var c checker
	for _, s := range shortStrings(p) {
		if len(s.value) > MaxName {
			c.fault("%s is %d bytes long, want at most %d", s.field, len(s.value), MaxName)
		}
	}
	if p.Expiration != "" {
		// Digits only: ParseUint alone is as strict, base 10 allows neither sign nor underscore.
		if ms, err := strconv.ParseUint(p.Expiration, 10, 64); err != nil || ms > maxExpiration {
			c.fault("Expiration is %.40q, want milliseconds, 0 to %d in decimal digits", p.Expiration, int64(maxExpiration))
		}
	}
	if p.DeliveryMode > amqp.Persistent {
		c.fault("DeliveryMode is %d, want 0 to %d", p.DeliveryMode, amqp.Persistent)
	}
	c.routingKeys(CC, p.Headers)
	c.routingKeys(BCC, p.Headers)
	if len(p.Headers) > 0 {
		c.table("Headers", p.Headers, 0)
	}
	if n := len(p.Headers); n > maxEntries-addedEntries && n <= maxEntries { // above, table has said so
		c.fault("Headers has %d entries, want at most %d (the broker, retries and letters add theirs)", n, maxEntries-addedEntries)
	}
	if !c.deep { // what has no end has no size
		size := Size(p)
		switch need := Need(p); {
		case size > Max:
			c.fault("properties and headers are %d bytes, want at most %d (large data belongs in the body)", size, Max)
		case need > Max:
			c.fault("properties and headers are %d bytes, and %d once the broker has repeated CC in each entry of x-death, want at most %d (use bindings instead of many keys)", size, need, Max)
		}
	}
	return errors.Join(c.faults...)
}

// shortString is a property that travels as an AMQP short string.
type shortString struct{ field, value string }

func shortStrings(p amqp.Publishing) [9]shortString {
	return [...]shortString{
		{"ContentType", p.ContentType},
		{"ContentEncoding", p.ContentEncoding},
		{"CorrelationId", p.CorrelationId},
		{"ReplyTo", p.ReplyTo},
		{"Expiration", p.Expiration},
		{"MessageId", p.MessageId},
		{"Type", p.Type},
		{"UserId", p.UserId},
		{"AppId", p.AppId},
	}
}

// checker walks a header table and collects what is wrong with it.
type checker struct {
	faults []error
	deep   bool
}

func (c *checker) fault(format string, args ...any) {
	c.faults = append(c.faults, fmt.Errorf(format, args...))
}

func (c *checker) table(path string, t amqp.Table, depth int) {
	if !c.container(path, len(t), depth) {
		return
	}
	if plain(t) {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(t)) { // the same faults in the same order, every time
		if len(key) > MaxName {
			c.fault("%s has a key of %d bytes (%.40q...), want at most %d", path, len(key), key, MaxName)
		}
		c.value(fmt.Sprintf("%s[%.40q]", path, key), t[key], depth)
	}
}

// plain reports whether a table has only short keys and values of types that are always
// right, as most have: then there is no fault to name.
func plain(t amqp.Table) bool {
	for key, v := range t {
		switch v.(type) {
		case nil, bool, byte, int16, int32, int64, string, []byte, time.Time:
		default:
			return false
		}
		if len(key) > MaxName {
			return false
		}
	}
	return true
}

func (c *checker) value(path string, v any, depth int) {
	switch v := v.(type) {
	case amqp.Table:
		c.table(path, v, depth+1)
	case []any:
		if c.container(path, len(v), depth+1) {
			for i, item := range v {
				c.value(fmt.Sprintf("%s[%d]", path, i), item, depth+1)
			}
		}
	case int:
		if int64(v) != int64(int32(v)) {
			c.fault("%s is the int %d, want an int64: an int is sent as 32 bits", path, v)
		}
	case float32:
		c.finite(path, float64(v))
	case float64:
		c.finite(path, v)
	default:
		if err := (amqp.Table{"": v}).Validate(); err != nil {
			c.fault("%s is a %T, want a type that amqp.Table lists", path, v)
		}
	}
}

// finite refuses what a broker closes the whole connection for (541, measured on
// 4.3).
func (c *checker) finite(path string, v float64) {
	if math.IsInf(v, 0) || math.IsNaN(v) {
		c.fault("%s is %v, want a finite number", path, v)
	}
}

func (c *checker) container(path string, entries, depth int) bool {
	switch {
	case c.deep: // said once: a table that contains itself has no end
		return false
	case depth > maxDepth:
		c.deep = true
		c.fault("%.80s... is nested %d levels deep, want at most %d", path, depth, maxDepth)
		return false
	case entries > maxEntries:
		c.fault("%s has %d entries, want at most %d", path, entries, maxEntries)
		return false
	}
	return true
}

// routingKeys checks CC or BCC: the broker closes the channel on anything but
// an array of strings.
func (c *checker) routingKeys(key string, headers amqp.Table) {
	v, found := headers[key]
	if !found {
		return
	}
	list, ok := v.([]any)
	for _, item := range list {
		_, isString := item.(string)
		ok = ok && isString
	}
	if !ok {
		c.fault("Headers[%q] is not an array ([]any) of strings", key)
	}
}
