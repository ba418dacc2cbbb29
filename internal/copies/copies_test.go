package copies

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/internal/header"
	"github.com/rehop/rehop/internal/header/wiretest"
	"github.com/rehop/rehop/xdeath"
)

// delivery has every property set; it has come back to orders after three
// rejections.
func delivery() amqp.Delivery {
	return amqp.Delivery{
		Headers: with(broker4, "user", "header", "nested", amqp.Table{"list": []any{[]byte("bytes")}},
			header.CC, []any{"copy.to"}, header.BCC, []any{"secret.to"}),
		ContentType: "application/json", ContentEncoding: "gzip", DeliveryMode: amqp.Transient, Priority: 7,
		CorrelationId: "c1", ReplyTo: "replies", Expiration: "60000", MessageId: "m1", Timestamp: day1,
		Type: "order", UserId: "alice", AppId: "till", Body: []byte("body"),
		Exchange: "orders.rehop.return", RoutingKey: "orders@2", DeliveryTag: 9,
	}
}

var retryOrders = RetryCopy{Queue: "orders", Returned: true, Attempts: 4, At: day3, User: "rehop"}

func TestRetryKeepsTheMessage(t *testing.T) {
	d := delivery()
	p := Retry(d, retryOrders)
	want := amqp.Publishing{
		Headers:     p.Headers,
		ContentType: "application/json", ContentEncoding: "gzip", DeliveryMode: amqp.Persistent, Priority: 7,
		CorrelationId: "c1", ReplyTo: "replies", MessageId: "m1", Timestamp: day1,
		Type: "order", AppId: "till", Body: []byte("body"),
	}
	if !reflect.DeepEqual(p, want) {
		t.Errorf("Retry = %+v, want %+v", p, want)
	}
	for key, value := range map[string]any{"user": "header", "nested": amqp.Table{"list": []any{[]byte("bytes")}}} {
		if !reflect.DeepEqual(p.Headers[key], value) {
			t.Errorf("%s = %v, want %v", key, p.Headers[key], value)
		}
	}
}

func TestRetryHeaders(t *testing.T) {
	later := with(broker4, header.Prefix+"of-a-later-version", "x")
	tests := []struct {
		rule    string
		headers amqp.Table
		r       RetryCopy
		want    amqp.Table // nil: absent
	}{
		{"it counts, for its queue", broker4, retryOrders, amqp.Table{header.Attempts: int64(4), header.Queue: "orders", header.FinalAttempts: nil}},
		{"it knows the producer's exchange and key", broker4, retryOrders, amqp.Table{header.Exchange: "shop", header.RoutingKey: "order.paid"}},
		{"it knows the first failure", broker4, retryOrders, amqp.Table{header.FirstFailedAt: day1}},
		{"a first failure is this one", nil, RetryCopy{Queue: "orders", Attempts: 1, At: day3},
			amqp.Table{header.Attempts: int64(1), header.FirstFailedAt: day3, header.Exchange: "orders.rehop.return", header.RoutingKey: "orders@2", header.History: nil}},
		{"an unknown time is not written", nil, RetryCopy{Queue: "orders"}, amqp.Table{header.FirstFailedAt: nil, header.NotBefore: nil}},
		{"another life's origin and first failure are not taken over", broker4, RetryCopy{Queue: "orders", Attempts: 1, At: day3},
			amqp.Table{header.FirstFailedAt: day3, header.Exchange: "orders.rehop.return", header.RoutingKey: "orders@2"}},
		{"negative attempts count as 0", nil, RetryCopy{Queue: "orders", Attempts: -1}, amqp.Table{header.Attempts: int64(0)}},
		{"not-before is milliseconds", nil, RetryCopy{Queue: "orders", NotBefore: time.UnixMilli(1500)}, amqp.Table{header.NotBefore: int64(1500)}},
		{"not-before is rounded up", nil, RetryCopy{Queue: "orders", NotBefore: time.UnixMilli(1500).Add(1)}, amqp.Table{header.NotBefore: int64(1501)}},
		{"not-before stays readable", nil, RetryCopy{Queue: "orders", NotBefore: time.Unix(1<<40, 0)}, amqp.Table{header.NotBefore: int64(header.MaxMillis)}},
		{"not-before 1970 is at once", nil, RetryCopy{Queue: "orders", NotBefore: time.Unix(-5, 0)}, amqp.Table{header.NotBefore: int64(0)}},
		{"a time that xdeath.Parse would refuse is not written", nil, RetryCopy{Queue: "orders", At: time.Unix(-5, 0)}, amqp.Table{header.FirstFailedAt: nil}},
		{"the last copy's not-before is gone", amqp.Table{header.NotBefore: int64(1500)}, retryOrders, amqp.Table{header.NotBefore: nil}},
		{"CC and BCC are archived, not sent again", with(nil, header.CC, []any{"a"}, header.BCC, []any{"b"}), retryOrders,
			amqp.Table{header.CC: nil, header.BCC: nil, header.ArchivedCC: []any{"a", "b"}}},
		{"an archive is carried on", amqp.Table{header.ArchivedCC: []any{"a"}}, retryOrders, amqp.Table{header.ArchivedCC: []any{"a"}}},
		{"a later version's header passes", later, retryOrders, amqp.Table{header.Prefix + "of-a-later-version": "x"}},
		{"malformed headers count as none", with(broker4, header.Attempts, "x", header.Death, "x"), retryOrders,
			amqp.Table{header.Attempts: int64(4), header.History: nil, header.Exchange: "orders.rehop.return"}},
	}
	for _, tt := range tests {
		t.Run(tt.rule, func(t *testing.T) {
			d := amqp.Delivery{Headers: tt.headers, Exchange: "orders.rehop.return", RoutingKey: "orders@2"}
			got := Retry(d, tt.r).Headers
			for key, want := range tt.want {
				if !reflect.DeepEqual(got[key], want) {
					t.Errorf("%s = %v, want %v", key, got[key], want)
				}
			}
			for _, key := range header.Family {
				if _, found := got[key]; found {
					t.Errorf("%s is not stripped", key)
				}
			}
		})
	}
}

func TestArchivedProperties(t *testing.T) {
	byBroker := amqp.Table{header.Death: []any{with(entry("orders", xdeath.ReasonRejected, 1, "", day1), "original-expiration", "30000")}}
	tests := []struct {
		rule       string
		d          amqp.Delivery
		user       string // what is kept
		expiration any    // what is archived
		userID     any
	}{
		{"nothing to archive", amqp.Delivery{}, "", nil, nil},
		{"expiration is archived", amqp.Delivery{Expiration: "5"}, "", "5", nil},
		{"one that the broker took off is archived", amqp.Delivery{Headers: byBroker}, "", "30000", nil},
		{"an archived one is carried on", amqp.Delivery{Headers: amqp.Table{header.Expiration: "7"}}, "", "7", nil},
		{"the archive is older than the broker's record", amqp.Delivery{Headers: with(byBroker, header.Expiration, "7")}, "", "7", nil},
		{"a live one is newer than the archive", amqp.Delivery{Expiration: "5", Headers: with(byBroker, header.Expiration, "7")}, "", "5", nil},
		{"our own user-id is kept", amqp.Delivery{UserId: "rehop"}, "rehop", nil, nil},
		{"another's is archived", amqp.Delivery{UserId: "alice"}, "", nil, "alice"},
		{"an archived user-id is carried on", amqp.Delivery{Headers: amqp.Table{header.UserID: "alice"}}, "", nil, "alice"},
		{"a live user-id is newer than the archive", amqp.Delivery{UserId: "bob", Headers: amqp.Table{header.UserID: "alice"}}, "", nil, "bob"},
	}
	for _, tt := range tests {
		t.Run(tt.rule, func(t *testing.T) {
			for name, p := range map[string]amqp.Publishing{
				"Retry":      Retry(tt.d, retryOrders),
				"DeadLetter": DeadLetter(tt.d, Letter{Queue: "orders", User: "rehop"}),
			} {
				if p.Expiration != "" || p.UserId != tt.user {
					t.Errorf("%s: Expiration %q, UserId %q are set, want none and %q", name, p.Expiration, p.UserId, tt.user)
				}
				if p.Headers[header.Expiration] != tt.expiration || p.Headers[header.UserID] != tt.userID {
					t.Errorf("%s archives %v and %v, want %v and %v", name, p.Headers[header.Expiration], p.Headers[header.UserID], tt.expiration, tt.userID)
				}
			}
		})
	}
}

func TestDeadLetter(t *testing.T) {
	p := DeadLetter(delivery(), Letter{Queue: "orders", Returned: true, Attempts: 5, User: "rehop", Failure: xdeath.Failure{
		Cause: rehop.CauseExhausted, Error: "no paper", ErrorType: "*printer.Error", Stack: "main.go:1", At: day3, Host: "h1",
	}})
	h := parsed(t, p.Headers)
	want := xdeath.Failure{Cause: rehop.CauseExhausted, Error: "no paper", ErrorType: "*printer.Error", Stack: "main.go:1", At: day3, Host: "h1"}
	if h.Failure != want {
		t.Errorf("Failure = %+v, want %+v", h.Failure, want)
	}
	if h.FinalAttempts != 5 || h.Queue != "orders" || h.Exchange != "shop" || h.RoutingKey != "order.paid" || !h.FirstFailed.Equal(day1) {
		t.Errorf("dead letter says %+v", h)
	}
	if _, found := p.Headers[header.Attempts]; found {
		t.Error("a dead letter carries attempts: a way back would not start at 1")
	}
	for _, returned := range []bool{true, false} {
		if n := h.Attempt("orders", returned); n != 1 {
			t.Errorf("Attempt of a dead letter that is moved back (returned %v) = %d, want 1", returned, n)
		}
	}
	if p.DeliveryMode != amqp.Persistent || p.Priority != 7 || p.Headers["user"] != "header" || string(p.Body) != "body" {
		t.Errorf("a dead letter lost something of the message: %+v", p)
	}
}

func TestFallback(t *testing.T) {
	original := amqp.Publishing{
		Headers: with(broker4, "user", 1, header.CC, []any{"k"}), Expiration: "5", UserId: "alice", MessageId: "m1", Priority: 3,
	}
	p := Fallback(original, FallbackCopy{Exchange: "shop", RoutingKey: "order.paid", User: "rehop", Failure: xdeath.Failure{
		Cause: rehop.CauseUnroutable, Error: "312 NO_ROUTE", At: day1, Host: "h1",
	}})
	want := amqp.Publishing{DeliveryMode: amqp.Persistent, MessageId: "m1", Priority: 3, Headers: amqp.Table{
		"user": int64(1), header.Exchange: "shop", header.RoutingKey: "order.paid", header.Cause: "unroutable",
		header.Error: "312 NO_ROUTE", header.FailedAt: day1, header.Host: "h1",
		header.Expiration: "5", header.UserID: "alice", header.ArchivedCC: []any{"k"},
	}}
	if !reflect.DeepEqual(p, want) {
		t.Errorf("Fallback = %+v, want %+v", p, want)
	}
	if Fallback(amqp.Publishing{}, FallbackCopy{}).Headers == nil {
		t.Error("Fallback of no headers wrote none")
	}
}

// TestCopiesShareNothing writes into every table, array and byte slice of a copy
// and looks at the original.
func TestCopiesShareNothing(t *testing.T) {
	d, before := delivery(), delivery()
	for _, p := range []amqp.Publishing{
		Retry(d, retryOrders),
		DeadLetter(d, Letter{Queue: "orders"}),
		Fallback(amqp.Publishing{Headers: d.Headers}, FallbackCopy{}),
		{Headers: widened(d.Headers)},
	} {
		scribble(p.Headers)
		if !reflect.DeepEqual(d, before) {
			t.Fatalf("the delivery changed with the copy %v", p.Headers)
		}
	}
}

func scribble(v any) {
	switch v := v.(type) {
	case amqp.Table:
		for key, item := range v {
			scribble(item)
			v[key] = "scribbled"
		}
	case []any:
		for i, item := range v {
			scribble(item)
			v[i] = "scribbled"
		}
	case []byte:
		clear(v)
	}
}

// TestRepublishLoop takes one message through retries as the republish engine
// does, each time over the wire and with the death that the wait queue adds.
func TestRepublishLoop(t *testing.T) {
	d := amqp.Delivery{Exchange: "shop", RoutingKey: "order.paid", Expiration: "60000", Body: []byte("b")}
	returned := false
	for attempt := 1; attempt <= 5; attempt++ {
		h := parsed(t, d.Headers)
		if n := h.Attempt("orders", returned); n != attempt {
			t.Fatalf("Attempt = %d, want %d", n, attempt)
		}
		p := Retry(d, RetryCopy{Queue: "orders", Returned: returned, Attempts: attempt, At: day1.Add(time.Duration(attempt) * time.Minute)})
		d, _ = wiretest.RoundTrip(t, p)
		d.Headers[header.Death] = []any{entry("orders.wait", xdeath.ReasonExpired, 1, "", day2, "orders.wait")}
		d.Exchange, d.RoutingKey = "orders.rehop.return", "orders@1"
		returned = true
	}
	h := parsed(t, d.Headers)
	if e, k, _ := h.Origin("orders"); e != "shop" || k != "order.paid" {
		t.Errorf("Origin = %q, %q, want shop, order.paid", e, k)
	}
	if at, _ := h.FirstFailedAt("orders"); !at.Equal(day1.Add(time.Minute)) {
		t.Errorf("FirstFailedAt = %v, want that of attempt 1", at)
	}
	if h.Archived.Expiration != "60000" {
		t.Errorf("archived expiration = %q, want 60000", h.Archived.Expiration)
	}
	if len(h.Earlier) != 1 || h.Earlier[0].Count != 4 {
		t.Errorf("Earlier = %+v, want four deaths in one entry", h.Earlier)
	}
}

// TestNackThenRepublish mixes the engines: what the broker counted is folded
// into the carried attempts, and it starts to count anew.
func TestNackThenRepublish(t *testing.T) {
	p := Retry(delivery(), retryOrders)
	back := with(p.Headers, header.Death, []any{
		entry("orders", xdeath.ReasonRejected, 2, "orders.rehop.return", day3, "orders@4"),
		entry("orders.wait.4", xdeath.ReasonExpired, 3, "orders.rehop.delay", day3, "orders@4"),
	})
	h := parsed(t, back)
	if n := h.Attempt("orders", true); n != 7 {
		t.Errorf("Attempt = %d, want 1 + 4 carried + 2 rejections", n)
	}
	if e, k, _ := h.Origin("orders"); e != "shop" || k != "order.paid" {
		t.Errorf("Origin = %q, %q: the broker's record is the wiring's now, ours is the producer's", e, k)
	}
}

// TestRetriedDeadLetter is the consumer of a dead-letter queue: the letter says
// why it died until it dies again.
func TestRetriedDeadLetter(t *testing.T) {
	letter := DeadLetter(delivery(), Letter{Queue: "orders", Returned: true, Attempts: 5, Failure: xdeath.Failure{Cause: rehop.CauseExhausted, Error: "no paper", At: day3}})
	d, _ := wiretest.RoundTrip(t, letter)
	d.Exchange, d.RoutingKey = "orders.rehop.unrouted", "orders@4"
	for _, returned := range []bool{true, false} {
		p := Retry(d, RetryCopy{Queue: "orders.dlq", Returned: returned, Attempts: 1})
		if p.Headers[header.Exchange] != "shop" || p.Headers[header.RoutingKey] != "order.paid" {
			t.Errorf("returned %v: the letter's origin is lost: %v", returned, p.Headers)
		}
	}
	first := Retry(d, RetryCopy{Queue: "orders.dlq", Attempts: 1, At: day3})
	h := parsed(t, first.Headers)
	if n := h.Attempt("orders.dlq", true); n != 2 {
		t.Errorf("Attempt = %d, want 2", n)
	}
	if e, k, _ := h.Origin("orders.dlq"); e != "shop" || k != "order.paid" {
		t.Errorf("Origin = %q, %q, want the producer's", e, k)
	}
	if h.Failure.Error != "no paper" || h.Failure.Cause != rehop.CauseExhausted {
		t.Errorf("Failure = %+v, want the letter's", h.Failure)
	}
	lives := func(p amqp.Publishing) string {
		var list []string
		for _, d := range parsed(t, p.Headers).Earlier {
			if d.Reason == "exhausted" || d.Reason == "permanent" {
				list = append(list, fmt.Sprintf("%s %s %d", d.Queue, d.Reason, d.Count))
			}
		}
		return strings.Join(list, ", ")
	}
	if got := lives(first); got != "orders exhausted 1" {
		t.Errorf("history says %q, want orders exhausted 1", got)
	}
	d, _ = wiretest.RoundTrip(t, first)
	second := Retry(d, RetryCopy{Queue: "orders.dlq", Returned: true, Attempts: 2, At: day3})
	if got := lives(second); got != "orders exhausted 1" {
		t.Errorf("a second retry says %q: the letter died once", got)
	}
	d, _ = wiretest.RoundTrip(t, second)
	end := DeadLetter(d, Letter{Queue: "orders.dlq", Returned: true, Attempts: 3, Failure: xdeath.Failure{Cause: rehop.CausePermanent}})
	if got := parsed(t, end.Headers); got.Failure != (xdeath.Failure{Cause: rehop.CausePermanent}) || got.Queue != "orders.dlq" || got.FinalAttempts != 3 {
		t.Errorf("the second letter says %+v", got)
	}
	if got := lives(end); got != "orders exhausted 1" {
		t.Errorf("the second letter's history says %q", got)
	}
}

func TestFold(t *testing.T) {
	a1 := xdeath.Death{Queue: "a", Reason: xdeath.ReasonRejected, Count: 1, Exchange: "first", Time: day1}
	a3 := xdeath.Death{Queue: "a", Reason: xdeath.ReasonRejected, Count: 2, Exchange: "later", Time: day3}
	b2 := xdeath.Death{Queue: "b", Reason: xdeath.ReasonRejected, Count: 1, Time: day2}
	ax := xdeath.Death{Queue: "a", Reason: xdeath.ReasonExpired, Count: 1, Time: day3}
	none := xdeath.Death{Queue: "a", Reason: xdeath.ReasonRejected, Count: 5}
	tests := []struct {
		rule string
		h    xdeath.History
		want []xdeath.Death
	}{
		{"nothing", xdeath.History{}, nil},
		{"counts of a pair are added, the first death tells the rest", xdeath.History{Earlier: []xdeath.Death{a1}, Deaths: []xdeath.Death{a3}},
			[]xdeath.Death{{Queue: "a", Reason: xdeath.ReasonRejected, Count: 3, Exchange: "first", Time: day1}}},
		{"whichever list the first death is in", xdeath.History{Earlier: []xdeath.Death{a3}, Deaths: []xdeath.Death{a1}},
			[]xdeath.Death{{Queue: "a", Reason: xdeath.ReasonRejected, Count: 3, Exchange: "first", Time: day1}}},
		{"queue and reason make the pair", xdeath.History{Deaths: []xdeath.Death{ax, a1}}, []xdeath.Death{ax, a1}},
		{"newest first", xdeath.History{Earlier: []xdeath.Death{a1}, Deaths: []xdeath.Death{b2, ax}}, []xdeath.Death{ax, b2, a1}},
		{"a death without a time is not the first", xdeath.History{Earlier: []xdeath.Death{a1}, Deaths: []xdeath.Death{none}},
			[]xdeath.Death{{Queue: "a", Reason: xdeath.ReasonRejected, Count: 6, Exchange: "first", Time: day1}}},
		{"counts do not overflow", xdeath.History{Earlier: []xdeath.Death{{Queue: "a", Count: header.MaxCount}}, Deaths: []xdeath.Death{{Queue: "a", Count: header.MaxCount}}},
			[]xdeath.Death{{Queue: "a", Count: header.MaxCount}}},
	}
	for _, tt := range tests {
		t.Run(tt.rule, func(t *testing.T) {
			if got := fold(tt.h, false); !reflect.DeepEqual(got, tt.want) {
				t.Errorf("fold = %+v, want %+v", got, tt.want)
			}
		})
	}
	var many []xdeath.Death
	for i := range 40 {
		many = append(many, xdeath.Death{Queue: fmt.Sprint(i), Time: day1.Add(time.Duration(i) * time.Second)})
	}
	if got := fold(xdeath.History{Deaths: many}, false); len(got) != maxPairs || got[0].Queue != "39" || got[31].Queue != "8" {
		t.Errorf("of 40 pairs, %d are left, from %v to %v, want the newest 32", len(got), got[0], got[len(got)-1])
	}
}

// TestWhatEveryCopyKeepsOfTheMessage: what is the message's own goes with it
// wherever a copy of it goes, and what tells its past only as long as that counts.
func TestWhatEveryCopyKeepsOfTheMessage(t *testing.T) {
	own := amqp.Table{header.OrderKey: "customer-7", header.Priority: int64(9), header.Replays: int64(1), header.Redrives: int64(2), header.RedriveID: "so-1"}
	d := amqp.Delivery{Exchange: "orders.rehop.return", RoutingKey: "orders@1",
		Headers: with(own, header.Queue, "orders", header.Attempts, int64(1), header.Snoozes, int64(3), header.FirstSnoozedAt, day1)}
	for _, tt := range []struct {
		rule    string
		p       amqp.Publishing
		snoozes any
		first   time.Time
	}{
		{"a retry copy", Retry(d, RetryCopy{Queue: "orders", Returned: true, Attempts: 2}), int64(3), day1},
		{"a retry copy of one that is put off", Retry(d, RetryCopy{Queue: "orders", Returned: true, Attempts: 1, Snoozed: day2}), int64(4), day1},
		{"a retry copy at another queue", Retry(d, RetryCopy{Queue: "bills", Returned: true, Attempts: 1}), nil, time.Time{}},
		{"a retry copy of a message that did not come back", Retry(d, RetryCopy{Queue: "orders", Attempts: 1}), nil, time.Time{}},
		{"one that did not come back and is put off", Retry(d, RetryCopy{Queue: "orders", Snoozed: day2}), int64(1), day2},
		{"one that is brought back", Back(d, ""), int64(3), day1},
		{"a letter", DeadLetter(d, Letter{Queue: "orders", Returned: true, Attempts: 2}), nil, time.Time{}},
		{"a fallback copy", Fallback(amqp.Publishing{Headers: d.Headers}, FallbackCopy{Exchange: "shop"}), nil, time.Time{}},
	} {
		for name, want := range own {
			if got := tt.p.Headers[name]; got != want {
				t.Errorf("%s: %s is %v, want %v", tt.rule, name, got, want)
			}
		}
		if got := tt.p.Headers[header.Snoozes]; got != tt.snoozes {
			t.Errorf("%s: %s is %v, want %v", tt.rule, header.Snoozes, got, tt.snoozes)
		}
		if got, _ := tt.p.Headers[header.FirstSnoozedAt].(time.Time); !got.Equal(tt.first) {
			t.Errorf("%s: %s is %v, want %v", tt.rule, header.FirstSnoozedAt, got, tt.first)
		}
	}
	h := parsed(t, d.Headers)
	if h.OrderKey != "customer-7" || h.Replays != 1 || h.Redrives != 2 || h.RedriveID != "so-1" || h.Snoozes != 3 {
		t.Errorf("parsed as %+v", h)
	}
}

// TestAMessageThatIsSentStraightToItsQueueKeepsItsOrigin: headers that say where
// the producer published to, and speak for no queue.
func TestAMessageThatIsSentStraightToItsQueueKeepsItsOrigin(t *testing.T) {
	sent := amqp.Delivery{Exchange: "", RoutingKey: "orders", Headers: amqp.Table{header.Exchange: "shop", header.RoutingKey: "order.paid"}}
	for rule, p := range map[string]amqp.Publishing{
		"a retry copy": Retry(sent, RetryCopy{Queue: "orders", Attempts: 1}),
		"a letter":     DeadLetter(sent, Letter{Queue: "orders", Attempts: 1, Failure: xdeath.Failure{Cause: rehop.CausePermanent}}),
	} {
		if exchange, key, ok := parsed(t, p.Headers).Origin("orders"); exchange != "shop" || key != "order.paid" || !ok {
			t.Errorf("%s says that it came from (%q, %q, %t), want shop, order.paid", rule, exchange, key, ok)
		}
	}
	if exchange, key, ok := parsed(t, sent.Headers).Origin("orders"); exchange != "shop" || key != "order.paid" || !ok {
		t.Errorf("at its first attempt Origin is (%q, %q, %t), want shop, order.paid", exchange, key, ok)
	}
}

// TestALetterThatIsPutOffStaysOne copies letters of each origin within their dead-letter
// queue, twice, and compares what they say.
func TestALetterThatIsPutOffStaysOne(t *testing.T) {
	failure := xdeath.Failure{Cause: rehop.CauseExhausted, Error: "no paper", ErrorType: "*printer.Error", Stack: "main.go:1", At: day3, Host: "h1"}
	died := func(reason xdeath.Reason) amqp.Table {
		return with(broker4, header.Death, append([]any{entry("orders", reason, 1, "orders.rehop.return", day3, "orders@2")}, broker4[header.Death].([]any)...))
	}
	spring := amqp.Table{"x-exception-message": "no paper", "x-exception-stacktrace": "at Main", "x-original-exchange": "shop", "x-original-routingKey": "order.paid"}
	for _, tt := range []struct {
		rule    string
		headers amqp.Table
		snoozes int64 // of its dead-letter queue
	}{
		{"a consumer's", DeadLetter(delivery(), Letter{Queue: "orders", Returned: true, Attempts: 5, Failure: failure}).Headers, 0},
		{"a producer's", Fallback(amqp.Publishing{}, FallbackCopy{Exchange: "shop", RoutingKey: "order.paid", Failure: failure}).Headers, 0},
		{"one that has expired", died(xdeath.ReasonExpired), 0},
		{"one of a crash loop", died(xdeath.ReasonDeliveryLimit), 0},
		{"one that was a retry copy", with(died(xdeath.ReasonDeliveryLimit), header.Queue, "orders", header.Attempts, int64(2), header.Exchange, "shop", header.RoutingKey, "order.paid",
			header.FirstFailedAt, day1, header.Snoozes, int64(7), header.NotBefore, day3.UnixMilli(), header.Due, day3.UnixMilli()), 0},
		{"one that a consumer has brought back", Retry(delivery(), retryOrders).Headers, 0},
		{"one that was put off before", with(DeadLetter(delivery(), Letter{Queue: "orders", Attempts: 5, Failure: failure}).Headers, header.Snoozes, int64(3)), 3},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			d := amqp.Delivery{Exchange: "orders.rehop.dlx", RoutingKey: "orders@2", Headers: tt.headers}
			want := parsed(t, d.Headers).Letter()
			for n := int64(1); n <= 2; n++ {
				p := Retry(d, RetryCopy{Queue: "orders.dlq", Returned: true, Letter: true, Snoozed: day1, NotBefore: day3, Due: day2})
				d, _ = wiretest.RoundTrip(t, p)
				d.Exchange, d.RoutingKey = "", "orders.dlq"
				if !header.IsLetter(d.Headers) {
					t.Fatalf("it is no letter: %v", d.Headers)
				}
				got := parsed(t, d.Headers).Letter()
				first, _ := want.FirstFailedAt(want.Queue)
				if got.Failure != want.Failure || got.Queue != want.Queue || got.FinalAttempts != want.FinalAttempts ||
					got.Exchange != want.Exchange || got.RoutingKey != want.RoutingKey || !got.FirstFailed.Equal(first) {
					t.Errorf("it says %+v, want %+v", got, want)
				}
				if !got.NotBefore.Equal(day3) || !got.Due.Equal(day2) || int64(got.Snoozes) != tt.snoozes+n {
					t.Errorf("not before %v, due %v, put off %d times; want %v, %v, %d", got.NotBefore, got.Due, got.Snoozes, day3, day2, tt.snoozes+n)
				}
				if len(got.Earlier) != len(want.Deaths)+len(want.Earlier) {
					t.Errorf("its history is %v", got.Earlier)
				}
			}
		})
	}
	for rule, headers := range map[string]amqp.Table{"somebody has sent it by hand": nil, "another framework's": with(spring, header.Death, []any{entry("orders", xdeath.ReasonRejected, 3, "shop", day1, "order.paid")})} {
		t.Run(rule, func(t *testing.T) {
			d := amqp.Delivery{Exchange: "shop", RoutingKey: "order.paid", Headers: headers}
			for n := int64(1); n <= 2; n++ {
				d = amqp.Delivery{RoutingKey: "orders.dlq", Headers: Retry(d, RetryCopy{Queue: "orders.dlq", Returned: true, Letter: true, Snoozed: day1}).Headers}
				if h := d.Headers; header.IsLetter(h) || h[header.Queue] != nil || h[header.Exchange] != "shop" || h[header.RoutingKey] != "order.paid" || h[header.Snoozes] != n {
					t.Errorf("its headers are %v, want where it was published to, and no reason of rehop's", h)
				}
			}
		})
	}
}
