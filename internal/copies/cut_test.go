package copies

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/internal/header"
	"github.com/rehop/rehop/xdeath"
)

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
		return DeadLetter(
			amqp.Delivery{
				Exchange: "shop", RoutingKey: "order.paid",
				Headers: amqp.Table{header.Death: deaths, "user": strings.Repeat("u", user)},
			},
			Letter{Queue: "orders", Attempts: 5, Failure: xdeath.Failure{
				Cause: rehop.CauseExhausted, Error: strings.Repeat("ä", 5000), ErrorType: strings.Repeat("t", 300),
				Stack: strings.Repeat("s", 10000), Host: "host", At: time.Unix(2e9, 0),
			}})
	}
	tests := []struct {
		rule                             string
		user                             int
		stack, history, err, types, host int // lengths that remain
	}{
		{"everything fits, within the caps of each", 1000, 8192, 32, 4096, 255, 4},
		{"the stack is the first to go, no further than needed", 46_000, 5085, 32, 4096, 255, 4},
		{"then the history", 54_000, 0, 22, 4096, 255, 4},
		{"then the error", 63_000, 0, 0, 1980, 255, 4},
		{"then the type", 65_000, 0, 0, 0, 255, 4},
		{"then the host", 65_280, 0, 0, 0, 0, 3},
		{"and never anything else", 100_000, 0, 0, 0, 0, 0},
	}
	for _, tt := range tests {
		t.Run(tt.rule, func(t *testing.T) {
			p := letter(tt.user)
			h, err := xdeath.Parse(p.Headers)
			if err != nil {
				t.Fatal(err)
			}
			f := h.Failure
			got := []int{len(f.Stack), len(h.Earlier), len(f.Error), len(f.ErrorType), len(f.Host)}
			want := []int{tt.stack, tt.history, tt.err, tt.types, tt.host}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("stack, history, error, type, host have %v, want %v", got, want)
			}
			if size := header.Size(p); size > header.Max && f != (xdeath.Failure{Cause: f.Cause, At: f.At}) {
				t.Errorf("%d bytes, and not all is cut", size)
			}
			if len(p.Headers["user"].(string)) != tt.user || h.FinalAttempts != 5 || h.Queue != "orders" ||
				f.Cause != rehop.CauseExhausted || h.Exchange != "shop" || h.RoutingKey != "order.paid" || f.At.IsZero() {
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
