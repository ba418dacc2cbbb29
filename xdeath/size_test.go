package xdeath

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/internal/copies"
)

func TestHeaderSizeIsWhatAmqp091Writes(t *testing.T) {
	every := amqp.Table{
		"nil": nil, "bool": true, "byte": byte(1), "int8": int8(1), "int16": int16(1), "int32": int32(1),
		"int64": int64(1), "int": 1, "uint16": uint16(1), "uint32": uint32(1), "float32": float32(1),
		"float64": 1.0, "string": "äöü", "empty": "", "bytes": []byte{1, 2, 3}, "decimal": amqp.Decimal{Scale: 2, Value: 314},
		"time": time.Unix(1e9, 0), "table": amqp.Table{"a": amqp.Table{"b": "c"}}, "array": []any{1, "x", []any{}, amqp.Table{}},
		"no table": amqp.Table(nil), "no array": []any(nil), "no bytes": []byte(nil),
	}
	tests := []struct {
		rule string
		p    amqp.Publishing
	}{
		{"nothing set", amqp.Publishing{}},
		{"the body does not count", amqp.Publishing{Body: []byte("body")}},
		{"an empty header table is not sent", amqp.Publishing{Headers: amqp.Table{}}},
		{"every type of value", amqp.Publishing{Headers: every}},
		{"every property", amqp.Publishing{
			Headers: amqp.Table{"k": "v"}, ContentType: "text/plain", ContentEncoding: "gzip", DeliveryMode: 2, Priority: 4,
			CorrelationId: "c", ReplyTo: "r", Expiration: "1000", MessageId: "m", Timestamp: time.Unix(1e9, 0),
			Type: "t", UserId: "u", AppId: "a",
		}},
		{"a property of 255 bytes", amqp.Publishing{MessageId: strings.Repeat("m", 255)}},
		{"a large header", amqp.Publishing{Headers: amqp.Table{"k": strings.Repeat("v", 200_000)}}},
		{"priority 0 is not sent", amqp.Publishing{Priority: 0, DeliveryMode: 1}},
	}
	for _, tt := range tests {
		t.Run(tt.rule, func(t *testing.T) {
			_, want := roundTrip(t, tt.p)
			if got := HeaderSize(tt.p); got != want {
				t.Errorf("HeaderSize = %d, amqp091-go wrote %d", got, want)
			}
		})
	}
}

func TestCut(t *testing.T) {
	tests := []struct {
		rule  string
		s     string
		limit int
		want  string
	}{
		{"short enough", "abc", 3, "abc"},
		{"cut at a byte", "abc", 2, "ab"},
		{"never half a character of two", "aä", 2, "a"},
		{"never half a character of four", "a😀", 4, "a"},
		{"a whole character at the end stays", "ä😀", 6, "ä😀"},
		{"a whole character before the cut stays", "äb", 2, "ä"},
		{"what was broken before is replaced", "a\xffb", 9, "a?b"},
		{"broken at the cut", "abc\xff\xff\xffd", 5, "abc?"},
		{"nothing left", "abc", 0, ""},
		{"less than nothing", "abc", -1, ""},
		{"no room for the first character", "😀", 3, ""},
	}
	for _, tt := range tests {
		t.Run(tt.rule, func(t *testing.T) {
			got := cut(tt.s, tt.limit)
			if got != tt.want || !utf8.ValidString(got) {
				t.Errorf("cut(%q, %d) = %q, want %q", tt.s, tt.limit, got, tt.want)
			}
		})
	}
}

// TestOrderOfCuts gives a dead letter less and less room, by a user's header
// that grows, and checks what each step has cost.
func TestOrderOfCuts(t *testing.T) {
	var deaths []any
	for i := range 40 {
		deaths = append(deaths, amqp.Table{
			"queue": fmt.Sprintf("q%02d", i), "reason": "expired", "count": int64(1),
			"exchange": strings.Repeat("x", 200), "routing-keys": []any{"k"}, "time": time.Unix(int64(1e9+i), 0),
		})
	}
	letter := func(user int) amqp.Publishing {
		return deadLetter(
			amqp.Delivery{
				Exchange: "shop", RoutingKey: "order.paid",
				Headers: amqp.Table{HeaderDeath: deaths, "user": strings.Repeat("u", user)},
			},
			copies.Letter{Queue: "orders", Attempts: 5, Failure: copies.Failure{
				Cause: string(CauseExhausted), Error: strings.Repeat("ä", 5000), ErrorType: strings.Repeat("t", 300),
				Stack: strings.Repeat("s", 10000), Host: "host", At: time.Unix(2e9, 0),
			}})
	}
	tests := []struct {
		rule                             string
		user                             int
		stack, history, err, types, host int // lengths that remain
	}{
		{"everything fits, within the caps of each", 1000, 8192, 32, 4096, 255, 4},
		{"the stack is the first to go, no further than needed", 46_000, 5084, 32, 4096, 255, 4},
		{"then the history", 54_000, 0, 22, 4096, 255, 4},
		{"then the error", 63_000, 0, 0, 1980, 255, 4},
		{"then the type", 65_000, 0, 0, 0, 254, 4},
		{"then the host", 65_280, 0, 0, 0, 0, 2},
		{"and never anything else", 100_000, 0, 0, 0, 0, 0},
	}
	for _, tt := range tests {
		t.Run(tt.rule, func(t *testing.T) {
			p := letter(tt.user)
			h, err := Parse(p.Headers)
			if err != nil {
				t.Fatal(err)
			}
			f := h.Failure
			got := []int{len(f.Stack), len(h.Earlier), len(f.Error), len(f.ErrorType), len(f.Host)}
			want := []int{tt.stack, tt.history, tt.err, tt.types, tt.host}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("stack, history, error, type, host have %v, want %v", got, want)
			}
			if size := HeaderSize(p); size > MaxHeaderBytes && f != (Failure{Cause: f.Cause, At: f.At}) {
				t.Errorf("%d bytes, and not all is cut", size)
			}
			if len(p.Headers["user"].(string)) != tt.user || h.FinalAttempts != 5 || h.Queue != "orders" ||
				f.Cause != CauseExhausted || h.Exchange != "shop" || h.RoutingKey != "order.paid" || f.At.IsZero() {
				t.Error("a header that must never be cut is gone")
			}
			if len(h.Earlier) > 0 && h.Earlier[0].Queue != "q39" {
				t.Errorf("the newest death is %s, want q39: the oldest go first", h.Earlier[0].Queue)
			}
			if !utf8.ValidString(f.Error) {
				t.Error("the error was cut within a character")
			}
		})
	}
}
