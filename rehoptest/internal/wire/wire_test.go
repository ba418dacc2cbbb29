package wire

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// every holds a value of each type that a table may hold.
var every = amqp.Table{
	"bool": true, "int8": int8(-1), "byte": byte(2), "int16": int16(-3), "uint16": uint16(4), "int32": int32(-5),
	"uint32": uint32(6), "int64": int64(-7), "float32": float32(1.5), "float64": 2.5, "decimal": amqp.Decimal{Scale: 2, Value: 314},
	"text": "text", "binary": []byte{0, 1}, "time": time.Unix(1_700_000_000, 0), "nothing": nil,
	"table": amqp.Table{"in": amqp.Table{"deep": "er"}}, "array": []any{"a", int64(1), []any{}},
}

func TestTableRoundTrip(t *testing.T) {
	r := reader{b: AppendTable(nil, every)}
	got := r.table()
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, every) {
		t.Errorf("got  %v\nwant %v", got, every)
	}
}

func TestPropertiesRoundTrip(t *testing.T) {
	want := Properties{
		Flags: 0xFFFC, ContentType: "a", ContentEncoding: "b", Headers: every, DeliveryMode: 2, Priority: 9, CorrelationID: "c",
		ReplyTo: "d", Expiration: "5", MessageID: "e", Timestamp: time.Unix(1, 0), Type: "f", UserID: "g", AppID: "h", ClusterID: "i",
	}
	b := AppendContent(nil, 3, 4096, &want, bytes.Repeat([]byte("x"), 5000))
	frames := NewFrameReader(bytes.NewReader(b))
	f, err := frames.Next(4096)
	if err != nil || f.Type != FrameHeader || f.Channel != 3 {
		t.Fatal(f, err)
	}
	h, err := DecodeContentHeader(f.Payload)
	if err != nil || h.Size != 5000 || !reflect.DeepEqual(h.Properties, want) {
		t.Errorf("%v, %d octets, got\n%v, want\n%v", err, h.Size, h.Properties, want)
	}
	var body []byte
	for range 2 {
		f, err := frames.Next(4096)
		if err != nil || f.Type != FrameBody {
			t.Fatal(f, err)
		}
		body = append(body, f.Payload...)
	}
	if len(body) != 5000 {
		t.Errorf("a body of %d octets, want 5000", len(body))
	}
	if _, err := frames.Next(4096); !errors.Is(err, io.EOF) {
		t.Errorf("after the last frame: %v, want io.EOF", err)
	}
}

func TestFrameFaults(t *testing.T) {
	whole := AppendHeartbeat(nil)
	broken := bytes.Clone(whole)
	broken[len(broken)-1] = 0
	large := AppendFrame(nil, FrameBody, 1, func(b []byte) []byte { return append(b, make([]byte, 5000)...) })
	for name, test := range map[string]struct {
		bytes []byte
		is    func(error) bool
	}{
		"no end octet": {broken, func(err error) bool { return errors.Is(err, ErrFrameEnd) }},
		"cut off":      {whole[:7], func(err error) bool { return errors.Is(err, io.ErrUnexpectedEOF) }},
		"too large":    {large, func(err error) bool { var e *TooLargeError; return errors.As(err, &e) && e.Size == 5000 }},
	} {
		if _, err := NewFrameReader(bytes.NewReader(test.bytes)).Next(4096); !test.is(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNestingIsBounded(t *testing.T) {
	b := AppendTable(nil, amqp.Table{})
	for range maxDepth + 1 {
		inner := b
		b = appendLong(nil, string(append(append([]byte{1, 'k'}, 'F'), inner...)))
	}
	r := reader{b: b}
	r.table()
	if err := r.end(); !errors.Is(err, ErrSyntax) {
		t.Errorf("a table nested %d deep: %v, want a syntax error", maxDepth+1, err)
	}
}

// Whatever is decoded can be encoded, and is then decoded as the same.
func FuzzDecode(f *testing.F) {
	f.Add(AppendTable(nil, every))
	f.Add([]byte{0, 60, 0, 40, 0, 0, 0, 0, 0})
	f.Add(AppendContent(nil, 1, 4096, &Properties{Flags: FlagHeaders, Headers: every}, []byte("x"))[7:])
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _, _ = DecodeMethod(b)
		if h, err := DecodeContentHeader(b); err == nil {
			again := h.Properties.append(nil)
			r := reader{b: again}
			var p Properties
			p.decode(&r)
			if err := r.end(); err != nil {
				t.Errorf("encoded again: %v", err)
			}
		}
		r := reader{b: b}
		table := r.table()
		if r.end() != nil {
			return
		}
		again := reader{b: AppendTable(nil, table)}
		if got := again.table(); again.end() != nil || len(got) != len(table) {
			t.Errorf("%v became %v", table, got)
		}
	})
}
