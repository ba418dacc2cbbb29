package xdeath

import (
	"maps"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/internal/header"
)

var (
	day1 = time.Unix(1_700_000_000, 0)
	day2 = time.Unix(1_700_086_400, 0)
	day3 = time.Unix(1_700_172_800, 0)
)

// entry is one table of x-death as the broker writes it.
func entry(queue string, reason Reason, count int64, exchange string, at time.Time, keys ...any) amqp.Table {
	return amqp.Table{
		"queue": queue, "reason": string(reason), "count": count,
		"exchange": exchange, "time": at, "routing-keys": keys,
	}
}

// broker310 is a message that was rejected three times on 3.10: only the first
// entry has a known place there, and there is no x-last-death-*.
var broker310 = amqp.Table{
	header.Death: []any{
		entry("orders.wait.2", ReasonExpired, 1, "orders.rehop.delay", day3, "orders@2"),
		entry("orders.wait.1", ReasonExpired, 2, "orders.rehop.unrouted", day2, "order.paid"),
		entry("orders", ReasonRejected, 3, "shop", day1, "order.paid", "copy.to"),
	},
	header.FirstDeathQueue:    "orders",
	header.FirstDeathReason:   "rejected",
	header.FirstDeathExchange: "shop",
}

// broker4 is the same message on 4.3, newest entry first.
var broker4 = amqp.Table{
	header.Death: []any{
		entry("orders.wait.2", ReasonExpired, 1, "orders.rehop.delay", day3, "orders@2"),
		entry("orders", ReasonRejected, 3, "shop", day1, "order.paid", "copy.to"),
		entry("orders.wait.1", ReasonExpired, 2, "orders.rehop.unrouted", day2, "order.paid"),
	},
	header.FirstDeathQueue:    "orders",
	header.FirstDeathReason:   "rejected",
	header.FirstDeathExchange: "shop",
	header.LastDeathQueue:     "orders.wait.2",
	header.LastDeathReason:    "expired",
	header.LastDeathExchange:  "orders.rehop.delay",
	header.DeliveryCount:      int64(1),
	header.AcquiredCount:      int32(4),
}

// with returns the table with more headers; nil removes one.
func with(t amqp.Table, pairs ...any) amqp.Table {
	c := amqp.Table{}
	maps.Copy(c, t)
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] == nil {
			delete(c, pairs[i].(string))
			continue
		}
		c[pairs[i].(string)] = pairs[i+1]
	}
	return c
}

// parsed fails the test on a malformed header.
func parsed(t *testing.T, headers amqp.Table) History {
	t.Helper()
	h, err := Parse(headers)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestParseNothing(t *testing.T) {
	for _, headers := range []amqp.Table{nil, {}, {"user": "header", "x-match": 1}} {
		h, err := Parse(headers)
		if !reflect.DeepEqual(h, History{}) || err != nil {
			t.Errorf("Parse(%v) = %+v, %v, want the zero History and nil", headers, h, err)
		}
	}
}

func TestParseBroker(t *testing.T) {
	h := parsed(t, broker4)
	if want := (Point{"orders", ReasonRejected, "shop"}); h.First != want {
		t.Errorf("First = %v, want %v", h.First, want)
	}
	if want := (Point{"orders.wait.2", ReasonExpired, "orders.rehop.delay"}); h.Last != want {
		t.Errorf("Last = %v, want %v", h.Last, want)
	}
	if h.DeliveryCount != 1 || h.AcquiredCount != 4 {
		t.Errorf("DeliveryCount, AcquiredCount = %d, %d, want 1, 4", h.DeliveryCount, h.AcquiredCount)
	}
	if last := parsed(t, broker310).Last; last != (Point{}) {
		t.Errorf("Last = %v on 3.10, want the zero Point", last)
	}
}

func TestSearchDoesNotDependOnTheOrder(t *testing.T) {
	want := Death{
		Queue: "orders", Reason: ReasonRejected, Count: 3,
		Exchange: "shop", RoutingKeys: []string{"order.paid", "copy.to"}, Time: day1,
	}
	for name, headers := range map[string]amqp.Table{"3.10": broker310, "4.3": broker4} {
		h := parsed(t, headers)
		if got, ok := h.death("orders", ReasonRejected); !reflect.DeepEqual(got, want) || !ok {
			t.Errorf("%s: death = %+v, %v, want %+v", name, got, ok, want)
		}
		if n := h.Count("orders.wait.1", ReasonExpired); n != 2 {
			t.Errorf("%s: Count(orders.wait.1, expired) = %d, want 2", name, n)
		}
		if n := h.Count("orders", ReasonExpired); n != 0 {
			t.Errorf("%s: Count(orders, expired) = %d, want 0", name, n)
		}
		if n := h.Attempt("orders", true); n != 4 {
			t.Errorf("%s: Attempt = %d, want 4", name, n)
		}
	}
}

func TestParseTypes(t *testing.T) {
	for _, count := range []any{7, int8(7), int16(7), int32(7), int64(7), uint8(7), uint16(7), uint32(7), uint(7), uint64(7)} {
		h := parsed(t, amqp.Table{
			header.Attempts: count,
			header.Queue:    []byte("orders"),
			header.Death: []any{amqp.Table{
				"queue": []byte("orders"), "reason": []byte("rejected"), "count": count, "routing-keys": []any{[]byte("k")},
			}},
		})
		if n := h.Attempt("orders", true); n != 15 {
			t.Errorf("%T: Attempt = %d, want 15", count, n)
		}
		if _, key, ok := h.Origin("orders"); key != "k" || !ok {
			t.Errorf("Origin of byte slices = %q, %v, want k", key, ok)
		}
	}
	h := parsed(t, amqp.Table{header.Death: []any{entry("q", "a new reason", 1, "", day1)}})
	if n := h.Count("q", "a new reason"); n != 1 {
		t.Errorf("an unknown reason counts %d, want 1", n)
	}
	if n := parsed(t, amqp.Table{header.Replays: int64(2)}).Replays; n != 2 {
		t.Errorf("replays %d, want 2", n)
	}
	if at := parsed(t, amqp.Table{header.NotBefore: int64(1500)}).NotBefore; !at.Equal(time.UnixMilli(1500)) {
		t.Errorf("NotBefore = %v, want 1.5 s after 1970", at)
	}
}

// TestMalformed holds that a malformed header counts as absent, is named, and
// does not take the others with it.
func TestMalformed(t *testing.T) {
	good := entry("orders", ReasonRejected, 2, "shop", day1, "k")
	own := amqp.Table{header.Attempts: int64(3), header.Queue: "orders"}
	tests := []struct {
		rule    string
		headers amqp.Table
		attempt int
		fault   string
	}{
		{"x-death is no array", with(own, header.Death, "junk"), 4, "x-death is a string, want an array"},
		{"x-death holds no table", with(own, header.Death, []any{good, "junk"}), 4, "x-death[1] is a string, want a table"},
		{"a negative count", with(own, header.Death, []any{good, entry("b", ReasonExpired, -1, "", day1)}), 4, "x-death[1].count is -1, want 0 to 2147483647"},
		{"an absurd count", with(own, header.Death, []any{entry("orders", ReasonRejected, math.MaxInt64, "", day1)}), 4, "x-death[0].count is 9223372036854775807, want"},
		{"a count beyond int64", with(own, header.Death, []any{with(good, "count", uint64(math.MaxUint64))}), 4, "x-death[0].count is 9223372036854775807, want"},
		{"no count", with(own, header.Death, []any{with(good, "count", nil)}), 4, "x-death[0].count is absent"},
		{"no queue", with(own, header.Death, []any{with(good, "queue", nil)}), 4, "x-death[0].queue is absent"},
		{"no reason", with(own, header.Death, []any{with(good, "reason", nil)}), 4, "x-death[0].reason is absent"},
		{"a count that is a float", with(own, header.Death, []any{with(good, "count", 2.0)}), 4, "x-death[0].count is a float64, want an integer"},
		{"a queue that is a number", with(own, header.Death, []any{with(good, "queue", int32(1))}), 4, "x-death[0].queue is a int32, want a string"},
		{"keys that are no array", with(own, header.Death, []any{with(good, "routing-keys", "k")}), 4, "x-death[0].routing-keys is a string, want an array"},
		{"a time that is a number", with(own, header.Death, []any{with(good, "time", int64(1))}), 4, "x-death[0].time is a int64, want a timestamp"},
		{"a time before 1970", with(own, header.Death, []any{with(good, "time", time.Unix(-1, 0))}), 4, "x-death[0].time is -1 seconds after 1970"},
		{"a name that is too long", with(own, header.Death, []any{with(good, "queue", strings.Repeat("q", 256))}), 4, "x-death[0].queue is 256 bytes long, want at most 255"},
		{"attempts that are text", with(own, header.Death, []any{good}, header.Attempts, "3"), 3, "x-rehop-attempts is a string, want an integer"},
		{"negative attempts", with(own, header.Death, []any{good}, header.Attempts, int64(-3)), 3, "x-rehop-attempts is -3, want 0 to"},
		{"absurd attempts", with(own, header.Death, []any{good}, header.Attempts, int64(1<<40)), 3, "x-rehop-attempts is 1099511627776, want"},
		{"a queue that is none", with(own, header.Death, []any{good}, header.Queue, true), 3, "x-rehop-queue is a bool, want a string"},
		{"a broker's count", with(own, header.Death, []any{good}, header.DeliveryCount, "x"), 6, "x-delivery-count is a string"},
		{"a broker's point", with(own, header.Death, []any{good}, header.LastDeathReason, int64(1)), 6, "x-last-death-reason is a int64"},
		{"a date", with(own, header.Death, []any{good}, header.NotBefore, int64(math.MaxInt64)), 6, "x-rehop-not-before is 9223372036854775807, want"},
		{"the history", with(own, header.Death, []any{good}, header.History, []any{1}), 6, "x-rehop-history[0] is a int, want a table"},
		{"nil is no value", with(own, header.Death, []any{nil}), 4, "x-death[0] is a <nil>, want a table"},
	}
	for _, tt := range tests {
		t.Run(tt.rule, func(t *testing.T) {
			h, err := Parse(tt.headers)
			if err == nil || !strings.HasPrefix(err.Error(), "xdeath: "+tt.fault) {
				t.Errorf("Parse error is %v, want xdeath: %s...", err, tt.fault)
			}
			if n := h.Attempt("orders", true); n != tt.attempt {
				t.Errorf("Attempt = %d, want %d", n, tt.attempt)
			}
		})
	}
	_, err := Parse(amqp.Table{header.Death: 1, header.Attempts: "x", header.FailedAt: "y"})
	if n := strings.Count(err.Error(), "xdeath: "); n != 3 {
		t.Errorf("three faults are told as %d: %v", n, err)
	}
}

func TestAttempt(t *testing.T) {
	carried := amqp.Table{header.Attempts: int64(3), header.Queue: "orders"}
	tests := []struct {
		rule     string
		headers  amqp.Table
		returned bool
		want     int
	}{
		{"nothing has happened", nil, false, 1},
		{"returned with no trace of it", nil, true, 1},
		{"rejections count on the way back", broker4, true, 4},
		{"a client's x-death is another life", broker4, false, 1},
		{"carried attempts count on the way back", carried, true, 4},
		{"carried attempts are another life's on any other way", carried, false, 1},
		{"both are added", with(broker4, header.Attempts, int64(3), header.Queue, "orders"), true, 7},
		{"attempts carried for another queue do not count", with(carried, header.Queue, "bills"), true, 1},
		{"attempts carried for no queue do not count", with(carried, header.Queue, nil), true, 1},
		{"final attempts never count", amqp.Table{header.FinalAttempts: int64(5), header.Queue: "orders"}, true, 1},
		{"only rejections count", amqp.Table{header.Death: []any{entry("orders", ReasonDeliveryLimit, 9, "", day1), entry("orders", ReasonExpired, 9, "", day1)}}, true, 1},
		{"only this queue's rejections count", amqp.Table{header.Death: []any{entry("bills", ReasonRejected, 9, "", day1)}}, true, 1},
		{"crash redeliveries are not attempts", amqp.Table{header.DeliveryCount: int64(9), header.AcquiredCount: int64(9)}, true, 1},
		{"the sum does not overflow", amqp.Table{header.Attempts: int64(header.MaxCount), header.Queue: "orders", header.Death: []any{entry("orders", ReasonRejected, header.MaxCount, "", day1)}}, true, header.MaxCount},
	}
	for _, tt := range tests {
		t.Run(tt.rule, func(t *testing.T) {
			if got := parsed(t, tt.headers).Attempt("orders", tt.returned); got != tt.want {
				t.Errorf("Attempt(orders, %v) = %d, want %d", tt.returned, got, tt.want)
			}
		})
	}
}

func TestOriginAndFirstFailedAt(t *testing.T) {
	own := amqp.Table{header.Queue: "orders", header.Exchange: "market", header.RoutingKey: "order.new", header.FirstFailedAt: day2}
	tests := []struct {
		rule          string
		headers       amqp.Table
		exchange, key string
		ok            bool
		first         time.Time
	}{
		{"a first attempt knows nothing", nil, "", "", false, time.Time{}},
		{"our own headers", own, "market", "order.new", true, day2},
		{"the broker's record", broker4, "shop", "order.paid", true, day1},
		{"ours win over the broker's", with(broker4, header.Queue, "orders", header.Exchange, "market", header.RoutingKey, "order.new", header.FirstFailedAt, day2), "market", "order.new", true, day2},
		{"the default exchange is an origin", with(own, header.Exchange, ""), "", "order.new", true, day2},
		{"an empty key is an origin", with(own, header.RoutingKey, ""), "market", "", true, day2},
		{"ours for another queue do not count", with(own, header.Queue, "bills"), "", "", false, time.Time{}},
		{"ours for another queue leave it to the broker", with(broker4, header.Queue, "bills", header.Exchange, "m", header.RoutingKey, "k", header.FirstFailedAt, day2), "shop", "order.paid", true, day1},
		{"half of ours is none", with(own, header.RoutingKey, nil), "", "", false, day2},
		{"other reasons are no origin", amqp.Table{header.Death: []any{entry("orders", ReasonExpired, 1, "x", day1, "k")}}, "", "", false, time.Time{}},
		{"a death without keys is no origin", amqp.Table{header.Death: []any{entry("orders", ReasonRejected, 1, "x", day1)}}, "", "", false, day1},
	}
	for _, tt := range tests {
		t.Run(tt.rule, func(t *testing.T) {
			h := parsed(t, tt.headers)
			exchange, key, ok := h.Origin("orders")
			if exchange != tt.exchange || key != tt.key || ok != tt.ok {
				t.Errorf("Origin = %q, %q, %v, want %q, %q, %v", exchange, key, ok, tt.exchange, tt.key, tt.ok)
			}
			first, ok := h.FirstFailedAt("orders")
			if !first.Equal(tt.first) || ok != !tt.first.IsZero() {
				t.Errorf("FirstFailedAt = %v, %v, want %v", first, ok, tt.first)
			}
		})
	}
}

func TestLetterThatTheBrokerMovedSaysWhy(t *testing.T) {
	death := func(reason Reason, exchange, key string, count int) Death {
		return Death{Queue: "orders", Reason: reason, Count: count, Exchange: exchange, RoutingKeys: []string{key}}
	}
	for _, tt := range []struct {
		rule     string
		h        History
		cause    rehop.Cause
		attempts int
	}{
		{"a crash loop at the first attempt", History{Deaths: []Death{death(ReasonDeliveryLimit, "shop", "order.paid", 1)}}, rehop.CauseCrashLoop, 0},
		{"a crash loop after two failures", History{Deaths: []Death{death(ReasonDeliveryLimit, "orders.rehop.return", "orders@2", 1), death(ReasonRejected, "shop", "order.paid", 2)}}, rehop.CauseCrashLoop, 2},
		{"expired after a republish", History{Queue: "orders", Attempts: 3, Exchange: "shop", RoutingKey: "order.paid", hasOrigin: true,
			Deaths: []Death{death(ReasonExpired, "orders.rehop.return", "orders@3", 1)}}, rehop.CauseExpired, 3},
		{"carried back when its work queue was gone", History{Queue: "orders", Attempts: 3, Exchange: "shop", RoutingKey: "order.paid", hasOrigin: true}, rehop.CauseExpired, 3},
		{"full", History{Deaths: []Death{death(ReasonMaxLen, "shop", "order.paid", 1)}}, rehop.CauseMaxLen, 0},
		{"nacked as the last resort", History{Deaths: []Death{death(ReasonRejected, "shop", "order.paid", 1)}}, rehop.CauseRejected, 1},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			got := tt.h.Letter()
			if got.Failure.Cause != tt.cause || got.FinalAttempts != tt.attempts || got.Queue != "orders" || got.Exchange != "shop" || got.RoutingKey != "order.paid" {
				t.Errorf("Letter() = %q in %q after %d attempts, from %q with %q", got.Failure.Cause, got.Queue, got.FinalAttempts, got.Exchange, got.RoutingKey)
			}
		})
	}
	written := History{Failure: Failure{Cause: rehop.CausePermanent}, isLetter: true, Deaths: []Death{death(ReasonExpired, "x", "y", 1)}}
	if got := written.Letter(); got.Failure.Cause != rehop.CausePermanent {
		t.Errorf("what the consumer wrote was overwritten by %q", got.Failure.Cause)
	}
	retried := History{Failure: Failure{Cause: rehop.CausePermanent}, Queue: "orders.dlq", Attempts: 1}
	if got := retried.Letter(); got.Failure.Cause != rehop.CausePermanent {
		t.Errorf("why a letter died that is retried was overwritten by %q", got.Failure.Cause)
	}
	if got := (History{}).Letter(); got.Failure.Cause != "" {
		t.Errorf("a message of which nothing is known has the cause %q", got.Failure.Cause)
	}
}

// The broker's record of a queue and reason keeps the time of the first death.
func TestLetterThatTheBrokerMovedSaysWhenItHappenedOnce(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for count, want := range map[int]time.Time{1: at, 2: {}} {
		d := Death{Queue: "orders", Reason: ReasonExpired, Count: count, Exchange: "shop", RoutingKeys: []string{"order.paid"}, Time: at}
		if got := (History{Deaths: []Death{d}}).Letter().Failure.At; !got.Equal(want) {
			t.Errorf("after %d deaths Failure.At = %v, want %v", count, got, want)
		}
	}
}
