package model

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// typeName is what the broker calls the type of a value in a table.
func typeName(v any) string {
	switch v.(type) {
	case bool:
		return "bool"
	case int8:
		return "byte"
	case byte:
		return "unsignedbyte"
	case int16:
		return "short"
	case uint16:
		return "unsignedshort"
	case int32:
		return "signedint"
	case uint32:
		return "unsignedint"
	case int64, int:
		return "long"
	case float32:
		return "float"
	case float64:
		return "double"
	case amqp.Decimal:
		return "decimal"
	case string:
		return "longstr"
	case []byte:
		return "binary"
	case time.Time:
		return "timestamp"
	case amqp.Table:
		return "table"
	case []any:
		return "array"
	}
	return "void"
}

func integer(v any) (int64, bool) {
	switch v := v.(type) {
	case int8:
		return int64(v), true
	case byte:
		return int64(v), true
	case int16:
		return int64(v), true
	case uint16:
		return int64(v), true
	case int32:
		return int64(v), true
	case uint32:
		return int64(v), true
	case int64:
		return v, true
	case int:
		return int64(v), true
	}
	return 0, false
}

func real(v any) (float64, bool) {
	switch v := v.(type) {
	case float32:
		return float64(v), true
	case float64:
		return v, true
	}
	return 0, false
}

// asText returns a value that is text, whichever of the two types of text it has.
func asText(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case []byte:
		return string(v), true
	}
	return "", false
}

// term writes a value as Erlang does. Values that the broker takes for equal have
// the same term: it knows neither the width of a number nor the type of a text, but
// does look at the types of what is in a table or an array.
func term(v any) string {
	if n, ok := integer(v); ok {
		return strconv.FormatInt(n, 10)
	}
	if s, ok := asText(v); ok {
		return binary(s)
	}
	switch v := v.(type) {
	case bool:
		return strconv.FormatBool(v)
	case float32:
		return float(float64(v))
	case float64:
		return float(v)
	case amqp.Decimal:
		return fmt.Sprintf("{%d,%d}", v.Scale, uint32(v.Value))
	case time.Time:
		return strconv.FormatInt(v.Unix(), 10)
	case amqp.Table:
		var list []string
		for _, name := range sortedNames(v) {
			list = append(list, fmt.Sprintf("{%s,%s,%s}", binary(name), typeName(v[name]), term(v[name])))
		}
		return "[" + strings.Join(list, ",") + "]"
	case []any:
		var list []string
		for _, e := range v {
			list = append(list, fmt.Sprintf("{%s,%s}", typeName(e), term(e)))
		}
		return "[" + strings.Join(list, ",") + "]"
	}
	return "undefined"
}

func binary(s string) string {
	if s == "" {
		return "<<>>"
	}
	return "<<" + strconv.Quote(s) + ">>"
}

func float(f float64) string {
	s := strconv.FormatFloat(f, 'g', -1, 64)
	if !strings.ContainsAny(s, ".e") {
		s += ".0"
	}
	return s
}

// looseTerm is term for brokers that compare a number by its value alone.
func looseTerm(v any) string {
	if f, ok := real(v); ok && f == math.Trunc(f) && math.Abs(f) < 1<<53 {
		return term(int64(f))
	}
	return term(v)
}

// sameHeader tells whether the value of a header is that of a binding. Since 4.0 the
// time in a message counts milliseconds, and that in a binding seconds.
func (b *Broker) sameHeader(bound, got any) bool {
	if !b.atLeast(4, 0) {
		return looseTerm(bound) == looseTerm(got)
	}
	if t, ok := got.(time.Time); ok {
		got = t.Unix() * 1000
	}
	return term(bound) == term(got)
}

// shown is a value with its type as the texts of errors have it.
func shown(v any, present bool) string {
	if !present {
		return "none"
	}
	return fmt.Sprintf("the value '%s' of type '%s'", plain(v), typeName(v))
}

// plain is a value as the texts of errors have it.
func plain(v any) string {
	if s, ok := asText(v); ok {
		return s
	}
	return term(v)
}

// quoted is a value without its type as the texts of errors have it.
func quoted(v any) string {
	if typeName(v) == "void" {
		return "none"
	}
	return "'" + plain(v) + "'"
}
