package letter

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Header tables are kept as JSON that a person can read and that gives back
// every type of AMQP exactly. Strings, booleans, null, arrays, tables and
// int64 are the JSON values of these names. Every other type is an object
// with one key, which begins with a dollar sign and names the type:
//
//	{"tenant": "acme", "count": 3, "small": {"$int32": 3}, "at": {"$time": "2026-11-22T08:00:00Z"}}
//
// A string that is not UTF-8 is {"$string": base64}, and a key that is not
// begins with "$base64:". A table that would look like such an object is
// {"$table": {...}}.

// maxDepth bounds the nesting that is read or written; consumers refuse a
// message at 32 levels.
const maxDepth = 64

var errDepth = fmt.Errorf("nested more than %d levels deep", maxDepth)

// EncodeTable returns the JSON of a table; "" for a table without entries.
func EncodeTable(t amqp.Table) (string, error) {
	if len(t) == 0 {
		return "", nil
	}
	var b bytes.Buffer
	if err := writeTable(&b, t, 0); err != nil {
		return "", err
	}
	return b.String(), nil
}

// DecodeTable is the inverse of EncodeTable. No entries are a nil table.
func DecodeTable(text string) (amqp.Table, error) {
	if text == "" {
		return nil, nil
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one JSON value")
	}
	object, ok := v.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("a %T, want an object", v)
	}
	if inner, wrapped := object["$table"].(map[string]any); wrapped && len(object) == 1 {
		object = inner
	}
	return readTable(object, 0)
}

func writeTable(b *bytes.Buffer, t amqp.Table, depth int) error {
	if depth > maxDepth {
		return errDepth
	}
	wrap := looksTyped(t)
	if wrap {
		b.WriteString(`{"$table":`)
	}
	b.WriteByte('{')
	for i, key := range slices.Sorted(maps.Keys(t)) {
		if i > 0 {
			b.WriteByte(',')
		}
		writeString(b, Armour(key))
		b.WriteByte(':')
		if err := writeValue(b, t[key], depth+1); err != nil {
			return fmt.Errorf("%.40q: %w", key, err)
		}
	}
	b.WriteByte('}')
	if wrap {
		b.WriteByte('}')
	}
	return nil
}

// looksTyped reports whether the JSON of t would be taken for that of a value
// with its type.
func looksTyped(t amqp.Table) bool {
	if len(t) != 1 {
		return false
	}
	for key := range t {
		return strings.HasPrefix(Armour(key), "$")
	}
	return false
}

const armoured = "$base64:"

// Armour makes text of any bytes that JSON and every database can hold.
func Armour(s string) string {
	if utf8.ValidString(s) && !strings.HasPrefix(s, armoured) && !strings.ContainsRune(s, 0) {
		return s
	}
	return armoured + base64.StdEncoding.EncodeToString([]byte(s))
}

// Unarmour is the inverse of Armour.
func Unarmour(s string) (string, error) {
	encoded, found := strings.CutPrefix(s, armoured)
	if !found {
		return s, nil
	}
	raw, err := base64.StdEncoding.DecodeString(encoded)
	return string(raw), err
}

func writeString(b *bytes.Buffer, s string) {
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s)         // a string in memory cannot fail
	b.Truncate(b.Len() - 1) // the line end that Encode adds
}

func writeValue(b *bytes.Buffer, v any, depth int) error {
	if depth > maxDepth {
		return errDepth
	}
	typed := func(name, literal string) { fmt.Fprintf(b, `{"$%s":%s}`, name, literal) }
	switch v := v.(type) {
	case nil:
		b.WriteString("null")
	case bool:
		b.WriteString(strconv.FormatBool(v))
	case string:
		if utf8.ValidString(v) && !strings.ContainsRune(v, 0) {
			writeString(b, v)
		} else {
			typed("string", strconv.Quote(base64.StdEncoding.EncodeToString([]byte(v))))
		}
	case int64:
		b.WriteString(strconv.FormatInt(v, 10))
	case int, int8, int16, int32, byte, uint16, uint32:
		typed(fmt.Sprintf("%T", v), fmt.Sprint(v))
	case float32:
		typed("float32", strconv.Quote(formatFloat(float64(v), 32, uint64(math.Float32bits(v)))))
	case float64:
		typed("float64", strconv.Quote(formatFloat(v, 64, math.Float64bits(v))))
	case []byte:
		typed("bytes", strconv.Quote(base64.StdEncoding.EncodeToString(v)))
	case amqp.Decimal:
		typed("decimal", fmt.Sprintf("[%d,%d]", v.Scale, v.Value))
	case time.Time:
		typed("time", TimeJSON(v))
	case amqp.Table:
		return writeTable(b, v, depth)
	case []any:
		b.WriteByte('[')
		for i, item := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			if err := writeValue(b, item, depth+1); err != nil {
				return fmt.Errorf("[%d]: %w", i, err)
			}
		}
		b.WriteByte(']')
	default:
		return fmt.Errorf("a %T, want a type that amqp.Table lists", v)
	}
	return nil
}

// formatFloat writes what is not a number by its bits, of which there are many.
func formatFloat(v float64, size int, bits uint64) string {
	if math.IsNaN(v) {
		return "NaN:" + strconv.FormatUint(bits, 16)
	}
	return strconv.FormatFloat(v, 'g', -1, size)
}

// TimeJSON returns a time as JSON: a date as people read it, or the number of its Unix
// seconds where JSON's dates, of the years 1 to 9999, have none. A timestamp in
// milliseconds is a time after them.
func TimeJSON(t time.Time) string {
	if u := t.UTC(); u.Year() >= 1 && u.Year() <= 9999 {
		return strconv.Quote(u.Format(time.RFC3339Nano))
	}
	return strconv.FormatInt(t.Unix(), 10)
}

func readTable(object map[string]any, depth int) (amqp.Table, error) {
	if depth > maxDepth {
		return nil, errDepth
	}
	t := make(amqp.Table, len(object))
	for key, v := range object {
		name, err := Unarmour(key)
		if err == nil {
			t[name], err = readValue(v, depth+1)
		}
		if err != nil {
			return nil, fmt.Errorf("%.40q: %w", key, err)
		}
	}
	return t, nil
}

func readValue(v any, depth int) (any, error) {
	if depth > maxDepth {
		return nil, errDepth
	}
	switch v := v.(type) {
	case json.Number:
		return strconv.ParseInt(v.String(), 10, 64)
	case []any:
		list := make([]any, len(v))
		for i, item := range v {
			var err error
			if list[i], err = readValue(item, depth+1); err != nil {
				return nil, fmt.Errorf("[%d]: %w", i, err)
			}
		}
		return list, nil
	case map[string]any:
		if len(v) == 1 {
			for key, inner := range v {
				if name, typed := strings.CutPrefix(key, "$"); typed && !strings.HasPrefix(key, armoured) {
					return readTyped(name, inner, depth)
				}
			}
		}
		return readTable(v, depth)
	}
	return v, nil // nil, bool, string
}

// readTyped reads the value of an object like {"$int32": 3}.
func readTyped(name string, v any, depth int) (any, error) {
	switch name {
	case "table":
		object, ok := v.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("$table is a %T, want an object", v)
		}
		return readTable(object, depth)
	case "decimal":
		return readDecimal(v)
	case "time":
		return ReadTime(v)
	}
	text, isString := v.(string)
	number, isNumber := v.(json.Number)
	switch {
	case name == "string" && isString:
		raw, err := base64.StdEncoding.DecodeString(text)
		return string(raw), err
	case name == "bytes" && isString:
		return base64.StdEncoding.DecodeString(text)
	case name == "float32" && isString:
		f, bits, err := parseFloat(text, 32)
		if bits != 0 {
			return math.Float32frombits(uint32(bits)), err
		}
		return float32(f), err
	case name == "float64" && isString:
		f, bits, err := parseFloat(text, 64)
		if bits != 0 {
			return math.Float64frombits(bits), err
		}
		return f, err
	case isNumber:
		return readInteger(name, number.String())
	}
	return nil, fmt.Errorf("$%.40s is a %T: unknown", name, v)
}

func readInteger(name, digits string) (any, error) {
	signed, unsigned := map[string]int{"int": 64, "int8": 8, "int16": 16, "int32": 32}[name], map[string]int{"uint8": 8, "uint16": 16, "uint32": 32}[name]
	if signed > 0 {
		n, err := strconv.ParseInt(digits, 10, signed)
		switch name {
		case "int":
			return int(n), err
		case "int8":
			return int8(n), err
		case "int16":
			return int16(n), err
		}
		return int32(n), err
	}
	if unsigned == 0 {
		return nil, fmt.Errorf("$%.40s is an unknown type", name)
	}
	n, err := strconv.ParseUint(digits, 10, unsigned)
	switch name {
	case "uint8":
		return byte(n), err
	case "uint16":
		return uint16(n), err
	}
	return uint32(n), err
}

func parseFloat(text string, size int) (f float64, bits uint64, err error) {
	if hex, found := strings.CutPrefix(text, "NaN:"); found {
		bits, err = strconv.ParseUint(hex, 16, size)
		return 0, bits, err
	}
	f, err = strconv.ParseFloat(text, size)
	return f, 0, err
}

func readDecimal(v any) (any, error) {
	pair, _ := v.([]any)
	if len(pair) != 2 {
		return nil, errors.New("$decimal is not an array of scale and value")
	}
	scale, errScale := strconv.ParseUint(fmt.Sprint(pair[0]), 10, 8)
	value, errValue := strconv.ParseInt(fmt.Sprint(pair[1]), 10, 32)
	return amqp.Decimal{Scale: uint8(scale), Value: int32(value)}, errors.Join(errScale, errValue)
}

// ReadTime is the inverse of TimeJSON, of a value that a json.Decoder with UseNumber has read.
func ReadTime(v any) (time.Time, error) {
	switch v := v.(type) {
	case string:
		return time.Parse(time.RFC3339Nano, v)
	case json.Number:
		seconds, err := strconv.ParseInt(v.String(), 10, 64)
		return time.Unix(seconds, 0).UTC(), err
	}
	return time.Time{}, fmt.Errorf("a time is a %T, want a string or a number", v)
}
