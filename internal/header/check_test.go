package header

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/internal/header/wiretest"
)

// nested returns a table with that many levels below it.
func nested(levels int) amqp.Table {
	t := amqp.Table{}
	for range levels {
		t = amqp.Table{"k": t}
	}
	return t
}

// wide is an int that needs more than 32 bits, and wraps where it has no more; a variable, so that
// the tests compile there.
var wide = func() int { n := int64(5_000_000_000); return int(n) }()

func TestCheckAccepts(t *testing.T) {
	tests := []struct {
		rule string
		p    amqp.Publishing
	}{
		{"nothing", amqp.Publishing{}},
		{"a body of any size", amqp.Publishing{Body: make([]byte, 1<<20)}},
		{"a key and a property of 255 bytes", amqp.Publishing{MessageId: strings.Repeat("m", 255), Headers: amqp.Table{strings.Repeat("k", 255): nil}}},
		{"32 levels", amqp.Publishing{Headers: nested(32)}},
		{"8192 entries", amqp.Publishing{Headers: amqp.Table{"k": make([]any, 8192)}}},
		{"an int of 32 bits", amqp.Publishing{Headers: amqp.Table{"k": math.MaxInt32, "l": math.MinInt32}}},
		{"an int64 of 64 bits", amqp.Publishing{Headers: amqp.Table{"k": int64(math.MaxInt64)}}},
		{"CC", amqp.Publishing{Headers: amqp.Table{CC: []any{"a", "b"}, BCC: []any{}}}},
		{"expiration 0", amqp.Publishing{Expiration: "0"}},
		{"expiration of ten years", amqp.Publishing{Expiration: "315360000000"}},
		{"any priority", amqp.Publishing{Priority: 255, DeliveryMode: amqp.Persistent}},
		{"headers of the largest size", amqp.Publishing{Headers: amqp.Table{"k": strings.Repeat("v", Max-14-4-2-5)}}},
	}
	for _, tt := range tests {
		t.Run(tt.rule, func(t *testing.T) {
			if err := Check(tt.p); err != nil {
				t.Fatalf("Check = %v, want nil", err)
			}
			wiretest.RoundTrip(t, tt.p) // what is accepted must come back
		})
	}
}

func TestCheckRefuses(t *testing.T) {
	self := amqp.Table{}
	self["me"] = self
	self["and me"] = []any{self}
	long := strings.Repeat("m", 256)
	tests := []struct {
		rule string
		p    amqp.Publishing
		want string
	}{
		{"a long property", amqp.Publishing{MessageId: long}, "MessageId is 256 bytes long, want at most 255"},
		{"a long key", amqp.Publishing{Headers: amqp.Table{long: nil}}, `Headers has a key of 256 bytes ("` + long[:40] + `"...), want at most 255`},
		{"a long key within", amqp.Publishing{Headers: amqp.Table{"k": []any{amqp.Table{long: nil}}}}, `Headers["k"][0] has a key of 256 bytes ("` + long[:40] + `"...), want at most 255`},
		{"a type", amqp.Publishing{Headers: amqp.Table{"k": amqp.Table{"l": []any{uint64(1)}}}}, `Headers["k"]["l"][0] is a uint64, want a type that amqp.Table lists`},
		{"a duration", amqp.Publishing{Headers: amqp.Table{"k": time.Second}}, `Headers["k"] is a time.Duration, want a type that amqp.Table lists`},
		{"a plain map", amqp.Publishing{Headers: amqp.Table{"k": map[string]any{}}}, `Headers["k"] is a map[string]interface {}, want a type that amqp.Table lists`},
		{"infinity", amqp.Publishing{Headers: amqp.Table{"k": math.Inf(-1)}}, `Headers["k"] is -Inf, want a finite number`},
		{"not a number", amqp.Publishing{Headers: amqp.Table{"k": []any{float32(math.NaN())}}}, `Headers["k"][0] is NaN, want a finite number`},
		{"too many entries", amqp.Publishing{Headers: amqp.Table{"k": make([]any, 8193)}}, `Headers["k"] has 8193 entries, want at most 8192`},
		{"CC that is a string", amqp.Publishing{Headers: amqp.Table{CC: "k"}}, `Headers["CC"] is not an array ([]any) of strings`},
		{"BCC of numbers", amqp.Publishing{Headers: amqp.Table{BCC: []any{"k", int64(1)}}}, `Headers["BCC"] is not an array ([]any) of strings`},
		{"expiration in words", amqp.Publishing{Expiration: "60s"}, `Expiration is "60s", want milliseconds, 0 to 315360000000 in decimal digits`},
		{"expiration below 0", amqp.Publishing{Expiration: "-1"}, `Expiration is "-1", want milliseconds, 0 to 315360000000 in decimal digits`},
		{"expiration with a sign", amqp.Publishing{Expiration: "+1"}, `Expiration is "+1", want milliseconds, 0 to 315360000000 in decimal digits`},
		{"expiration beyond ten years", amqp.Publishing{Expiration: "315360000001"}, `Expiration is "315360000001", want milliseconds, 0 to 315360000000 in decimal digits`},
		{"a delivery mode that does not exist", amqp.Publishing{DeliveryMode: 3}, "DeliveryMode is 3, want 0 to 2"},
		{"headers too large", amqp.Publishing{Headers: amqp.Table{"k": strings.Repeat("v", Max-24)}}, "properties and headers are 65537 bytes, want at most 65536 (large data belongs in the body)"},
		{"33 levels", amqp.Publishing{Headers: nested(33)}, `` + ("Headers" + strings.Repeat(`["k"]`, 33))[:80] + `... is nested 33 levels deep, want at most 32`},
		{"a table that contains itself", amqp.Publishing{Headers: self}, `` + ("Headers" + strings.Repeat(`["and me"][0]`, 33))[:80] + `... is nested 33 levels deep, want at most 32`},
		{"all faults at once", amqp.Publishing{Type: long, AppId: long, DeliveryMode: 9, Headers: amqp.Table{"a": uint(1), "b": struct{}{}}},
			"Type is 256 bytes long, want at most 255\nAppId is 256 bytes long, want at most 255\nDeliveryMode is 9, want 0 to 2\n" +
				"Headers[\"a\"] is a uint, want a type that amqp.Table lists\nHeaders[\"b\"] is a struct {}, want a type that amqp.Table lists"},
	}
	for _, tt := range tests {
		t.Run(tt.rule, func(t *testing.T) {
			if err := Check(tt.p); err == nil || err.Error() != tt.want {
				t.Errorf("Check = %v\nwant %s", err, tt.want)
			}
		})
	}
}

// TestCheckRefusesAnIntThatWraps: where an int has 32 bits, none wraps.
func TestCheckRefusesAnIntThatWraps(t *testing.T) {
	want := `Headers["k"] is the int 5000000000, want an int64: an int is sent as 32 bits`
	if math.MaxInt == math.MaxInt32 {
		want = "<nil>"
	}
	if err := Check(amqp.Publishing{Headers: amqp.Table{"k": wide}}); fmt.Sprint(err) != want {
		t.Errorf("Check = %v\nwant %s", err, want)
	}
}

func TestCloneWidensEveryInt(t *testing.T) {
	got := Clone(amqp.Table{"k": wide, "t": amqp.Table{"l": []any{7, "x", []byte{1}, nil}}, "i": int32(1)})
	want := amqp.Table{"k": int64(wide), "t": amqp.Table{"l": []any{int64(7), "x", []byte{1}, nil}}, "i": int32(1)}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("Clone = %v, want %v", got, want)
	}
	self := amqp.Table{}
	self["me"] = self
	Clone(self) // must end
}

func TestPlainHeadersCostNoAllocation(t *testing.T) {
	p := amqp.Publishing{Headers: amqp.Table{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00", "tenant": int64(7)}}
	if n := testing.AllocsPerRun(100, func() { _ = Check(p) }); n > 0 {
		t.Errorf("%v allocations, want none", n)
	}
}
