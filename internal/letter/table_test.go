package letter

import (
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

func TestTableIsReadable(t *testing.T) {
	rows := []struct {
		rule string
		t    amqp.Table
		want string
	}{
		{"nothing", nil, ``},
		{"JSON's own types", amqp.Table{"a": "<x>", "b": true, "c": int64(3), "d": nil, "e": []any{"y"}, "f": amqp.Table{"g": int64(1)}}, `{"a":"<x>","b":true,"c":3,"d":null,"e":["y"],"f":{"g":1}}`},
		{"other types are named", amqp.Table{"a": int32(3), "b": byte(4)}, `{"a":{"$int32":3},"b":{"$uint8":4}}`},
		{"times are dates", amqp.Table{"a": time.Unix(0, 0), "b": ""}, `{"a":{"$time":"1970-01-01T00:00:00Z"},"b":""}`},
		{"bytes are base64", amqp.Table{"a": []byte("hi"), "b": ""}, `{"a":{"$bytes":"aGk="},"b":""}`},
		{"what looks like a type", amqp.Table{"$int32": int64(3)}, `{"$table":{"$int32":3}}`},
	}
	for _, row := range rows {
		if got, err := EncodeTable(row.t); got != row.want || err != nil {
			t.Errorf("%s: %s, %v; want %s", row.rule, got, err, row.want)
		}
	}
}

func TestTableIsRefused(t *testing.T) {
	loop := amqp.Table{}
	loop["self"] = loop
	for _, table := range []amqp.Table{{"a": uint(1)}, {"a": struct{}{}}, {"a": []string{"b"}}, loop} {
		if got, err := EncodeTable(table); err == nil {
			t.Errorf("%v became %s", table, got)
		}
	}
	for _, text := range []string{`[]`, `{`, `{} {}`, `{"a":1.5}`, `{"a":{"$int8":300}}`, `{"a":{"$what":1}}`, `{"a":{"$time":true}}`, `{"a":{"$decimal":[1]}}`, `{"a":{"$bytes":"*"}}`,
		`{"a":{"$table":1}}`, `{"$base64:*":1}`, `{"a":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`} {
		if got, err := DecodeTable(text); err == nil {
			t.Errorf("%.60s became %v", text, got)
		}
	}
}

func TestNaNsKeepTheirBits(t *testing.T) {
	text, err := EncodeTable(amqp.Table{"a": math.Float32frombits(0x7fc00123), "b": math.Float64frombits(0x7ff8000000000123)})
	if err != nil {
		t.Fatal(err)
	}
	table, err := DecodeTable(text)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := math.Float32bits(table["a"].(float32)), math.Float64bits(table["b"].(float64)); a != 0x7fc00123 || b != 0x7ff8000000000123 {
		t.Errorf("%x, %x", a, b)
	}
}

// FuzzTableRoundTrip builds a table of every type from bytes, and wants it back.
func FuzzTableRoundTrip(f *testing.F) {
	f.Add([]byte("\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10\x11"))
	f.Add([]byte("\x0f$int32\x00\x04"))
	for kind := range byte(20) {
		f.Add([]byte{kind, 3, '$', 'a', 0xff, kind, 1, 2, 3, 4, 5, 6, 7, 8, 9, kind, 0, kind})
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		want := (&tableMaker{data: data}).table(0)
		text, err := EncodeTable(want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeTable(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if len(want) == 0 && got == nil {
			return
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%#v\nwent to %s\nand came back as %#v", want, text, got)
		}
	})
}

// tableMaker turns bytes into values.
type tableMaker struct{ data []byte }

func (m *tableMaker) byte() byte {
	if len(m.data) == 0 {
		return 0
	}
	b := m.data[0]
	m.data = m.data[1:]
	return b
}

func (m *tableMaker) bits() (bits uint64) {
	for range 8 {
		bits = bits<<8 | uint64(m.byte())
	}
	return bits
}

func (m *tableMaker) bytes() []byte {
	n := min(int(m.byte()%20), len(m.data))
	b := append([]byte{}, m.data[:n]...)
	m.data = m.data[n:]
	return b
}

func (m *tableMaker) table(depth int) amqp.Table {
	t := amqp.Table{}
	for range m.byte()%5 + 1 {
		if len(m.data) == 0 {
			break
		}
		t[string(m.bytes())] = m.value(depth)
	}
	return t
}

func (m *tableMaker) value(depth int) any {
	switch m.byte() % 18 {
	case 0:
		return nil
	case 1:
		return m.byte()%2 == 0
	case 2:
		return m.byte()
	case 3:
		return int8(m.byte())
	case 4:
		return int16(m.bits())
	case 5:
		return int32(m.bits())
	case 6:
		return int64(m.bits())
	case 7:
		return int(m.bits())
	case 8:
		return uint16(m.bits())
	case 9:
		return uint32(m.bits())
	case 10: // not a number is not equal to itself, and has a test of its own
		if f := math.Float32frombits(uint32(m.bits())); f == f {
			return f
		}
	case 11:
		if f := math.Float64frombits(m.bits()); f == f {
			return f
		}
	case 12:
		return m.bytes()
	case 13:
		return amqp.Decimal{Scale: m.byte(), Value: int32(m.bits())}
	case 14:
		return time.Unix(int64(m.bits())>>20, 0).UTC()
	case 15:
		if depth < 10 {
			return m.table(depth + 1)
		}
	case 16:
		list := []any{}
		for range m.byte() % 4 {
			if depth < 10 {
				list = append(list, m.value(depth+1))
			}
		}
		return list
	}
	return string(m.bytes())
}

func FuzzDecodeTable(f *testing.F) {
	f.Add(`{"a":{"$int32":3},"$base64:/w==":null}`)
	f.Fuzz(func(t *testing.T, text string) {
		table, err := DecodeTable(text)
		if err != nil {
			return
		}
		if _, err := EncodeTable(table); err != nil {
			t.Errorf("%q became what cannot be written: %v", text, err)
		}
	})
}
