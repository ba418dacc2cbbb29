package xdeath

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/internal/copies"
)

// delivery has every property set; it has come back to orders after three
// rejections.
func delivery() amqp.Delivery {
	return amqp.Delivery{
		Headers: with(broker4, "user", "header", "nested", amqp.Table{"list": []any{[]byte("bytes")}},
			HeaderCC, []any{"copy.to"}, HeaderBCC, []any{"secret.to"}),
		ContentType: "application/json", ContentEncoding: "gzip", DeliveryMode: amqp.Transient, Priority: 7,
		CorrelationId: "c1", ReplyTo: "replies", Expiration: "60000", MessageId: "m1", Timestamp: day1,
		Type: "order", UserId: "alice", AppId: "till", Body: []byte("body"),
		Exchange: "orders.retry", RoutingKey: "orders@2", DeliveryTag: 9,
	}
}

var retryOrders = copies.RetryCopy{Queue: "orders", Returned: true, Attempts: 4, At: day3, User: "rehop"}

func TestStrip(t *testing.T) {
	all := amqp.Table{"user": 7, HeaderCC: []any{"k"}, HeaderBCC: []any{"k"}, "x-user": "mine", Prefix + "of-a-later-version": "x"}
	for _, key := range append(brokerFamily, ours...) {
		all[key] = "x"
	}
	got := Strip(all)
	want := amqp.Table{"user": int64(7), HeaderCC: []any{"k"}, HeaderBCC: []any{"k"}, "x-user": "mine"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("Strip = %v, want %v", got, want)
	}
	for _, nothing := range []amqp.Table{nil, {}, {HeaderDeath: []any{}}} {
		if got := Strip(nothing); got != nil {
			t.Errorf("Strip(%v) = %v, want nil", nothing, got)
		}
	}
}

func TestRetryKeepsTheMessage(t *testing.T) {
	d := delivery()
	p := retry(d, retryOrders)
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
	later := with(broker4, Prefix+"of-a-later-version", "x")
	tests := []struct {
		rule    string
		headers amqp.Table
		r       copies.RetryCopy
		want    amqp.Table // nil: absent
	}{
		{"it counts, for its queue", broker4, retryOrders, amqp.Table{HeaderAttempts: int64(4), HeaderQueue: "orders", HeaderFinalAttempts: nil}},
		{"it knows the producer's exchange and key", broker4, retryOrders, amqp.Table{HeaderExchange: "shop", HeaderRoutingKey: "order.paid"}},
		{"it knows the first failure", broker4, retryOrders, amqp.Table{HeaderFirstFailedAt: day1}},
		{"a first failure is this one", nil, copies.RetryCopy{Queue: "orders", Attempts: 1, At: day3},
			amqp.Table{HeaderAttempts: int64(1), HeaderFirstFailedAt: day3, HeaderExchange: "orders.retry", HeaderRoutingKey: "orders@2", HeaderHistory: nil}},
		{"an unknown time is not written", nil, copies.RetryCopy{Queue: "orders"}, amqp.Table{HeaderFirstFailedAt: nil, HeaderNotBefore: nil}},
		{"another life's origin and first failure are not taken over", broker4, copies.RetryCopy{Queue: "orders", Attempts: 1, At: day3},
			amqp.Table{HeaderFirstFailedAt: day3, HeaderExchange: "orders.retry", HeaderRoutingKey: "orders@2"}},
		{"negative attempts count as 0", nil, copies.RetryCopy{Queue: "orders", Attempts: -1}, amqp.Table{HeaderAttempts: int64(0)}},
		{"not-before is milliseconds", nil, copies.RetryCopy{Queue: "orders", NotBefore: time.UnixMilli(1500)}, amqp.Table{HeaderNotBefore: int64(1500)}},
		{"not-before is rounded up", nil, copies.RetryCopy{Queue: "orders", NotBefore: time.UnixMilli(1500).Add(1)}, amqp.Table{HeaderNotBefore: int64(1501)}},
		{"not-before stays readable", nil, copies.RetryCopy{Queue: "orders", NotBefore: time.Unix(1<<40, 0)}, amqp.Table{HeaderNotBefore: int64(maxMillis)}},
		{"not-before 1970 is at once", nil, copies.RetryCopy{Queue: "orders", NotBefore: time.Unix(-5, 0)}, amqp.Table{HeaderNotBefore: int64(0)}},
		{"a time that Parse would refuse is not written", nil, copies.RetryCopy{Queue: "orders", At: time.Unix(-5, 0)}, amqp.Table{HeaderFirstFailedAt: nil}},
		{"the last copy's not-before is gone", amqp.Table{HeaderNotBefore: int64(1500)}, retryOrders, amqp.Table{HeaderNotBefore: nil}},
		{"CC and BCC are archived, not sent again", with(nil, HeaderCC, []any{"a"}, HeaderBCC, []any{"b"}), retryOrders,
			amqp.Table{HeaderCC: nil, HeaderBCC: nil, HeaderArchivedCC: []any{"a", "b"}}},
		{"an archive is carried on", amqp.Table{HeaderArchivedCC: []any{"a"}}, retryOrders, amqp.Table{HeaderArchivedCC: []any{"a"}}},
		{"a later version's header passes", later, retryOrders, amqp.Table{Prefix + "of-a-later-version": "x"}},
		{"malformed headers count as none", with(broker4, HeaderAttempts, "x", HeaderDeath, "x"), retryOrders,
			amqp.Table{HeaderAttempts: int64(4), HeaderHistory: nil, HeaderExchange: "orders.retry"}},
	}
	for _, tt := range tests {
		t.Run(tt.rule, func(t *testing.T) {
			d := amqp.Delivery{Headers: tt.headers, Exchange: "orders.retry", RoutingKey: "orders@2"}
			got := retry(d, tt.r).Headers
			for key, want := range tt.want {
				if !reflect.DeepEqual(got[key], want) {
					t.Errorf("%s = %v, want %v", key, got[key], want)
				}
			}
			for _, key := range brokerFamily {
				if _, found := got[key]; found {
					t.Errorf("%s is not stripped", key)
				}
			}
		})
	}
}

func TestArchivedProperties(t *testing.T) {
	byBroker := amqp.Table{HeaderDeath: []any{with(entry("orders", Rejected, 1, "", day1), "original-expiration", "30000")}}
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
		{"an archived one is carried on", amqp.Delivery{Headers: amqp.Table{HeaderExpiration: "7"}}, "", "7", nil},
		{"the archive is older than the broker's record", amqp.Delivery{Headers: with(byBroker, HeaderExpiration, "7")}, "", "7", nil},
		{"a live one is newer than the archive", amqp.Delivery{Expiration: "5", Headers: with(byBroker, HeaderExpiration, "7")}, "", "5", nil},
		{"our own user-id is kept", amqp.Delivery{UserId: "rehop"}, "rehop", nil, nil},
		{"another's is archived", amqp.Delivery{UserId: "alice"}, "", nil, "alice"},
		{"an archived user-id is carried on", amqp.Delivery{Headers: amqp.Table{HeaderUserID: "alice"}}, "", nil, "alice"},
		{"a live user-id is newer than the archive", amqp.Delivery{UserId: "bob", Headers: amqp.Table{HeaderUserID: "alice"}}, "", nil, "bob"},
	}
	for _, tt := range tests {
		t.Run(tt.rule, func(t *testing.T) {
			for name, p := range map[string]amqp.Publishing{
				"Retry":      retry(tt.d, retryOrders),
				"DeadLetter": deadLetter(tt.d, copies.Letter{Queue: "orders", User: "rehop"}),
			} {
				if p.Expiration != "" || p.UserId != tt.user {
					t.Errorf("%s: Expiration %q, UserId %q are set, want none and %q", name, p.Expiration, p.UserId, tt.user)
				}
				if p.Headers[HeaderExpiration] != tt.expiration || p.Headers[HeaderUserID] != tt.userID {
					t.Errorf("%s archives %v and %v, want %v and %v", name, p.Headers[HeaderExpiration], p.Headers[HeaderUserID], tt.expiration, tt.userID)
				}
			}
		})
	}
}

func TestDeadLetter(t *testing.T) {
	p := deadLetter(delivery(), copies.Letter{Queue: "orders", Returned: true, Attempts: 5, User: "rehop", Failure: copies.Failure{
		Cause: string(CauseExhausted), Error: "no paper", ErrorType: "*printer.Error", Stack: "main.go:1", At: day3, Host: "h1",
	}})
	h := parsed(t, p.Headers)
	want := Failure{Cause: CauseExhausted, Error: "no paper", ErrorType: "*printer.Error", Stack: "main.go:1", At: day3, Host: "h1"}
	if h.Failure != want {
		t.Errorf("Failure = %+v, want %+v", h.Failure, want)
	}
	if h.FinalAttempts != 5 || h.Queue != "orders" || h.Exchange != "shop" || h.RoutingKey != "order.paid" || !h.FirstFailed.Equal(day1) {
		t.Errorf("dead letter says %+v", h)
	}
	if _, found := p.Headers[HeaderAttempts]; found {
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
		Headers: with(broker4, "user", 1, HeaderCC, []any{"k"}), Expiration: "5", UserId: "alice", MessageId: "m1", Priority: 3,
	}
	p := fallback(original, copies.FallbackCopy{Exchange: "shop", RoutingKey: "order.paid", User: "rehop", Failure: copies.Failure{
		Cause: string(CauseUnroutable), Error: "312 NO_ROUTE", At: day1, Host: "h1",
	}})
	want := amqp.Publishing{DeliveryMode: amqp.Persistent, MessageId: "m1", Priority: 3, Headers: amqp.Table{
		"user": int64(1), HeaderExchange: "shop", HeaderRoutingKey: "order.paid", HeaderReason: "unroutable",
		HeaderError: "312 NO_ROUTE", HeaderFailedAt: day1, HeaderHost: "h1",
		HeaderExpiration: "5", HeaderUserID: "alice", HeaderArchivedCC: []any{"k"},
	}}
	if !reflect.DeepEqual(p, want) {
		t.Errorf("Fallback = %+v, want %+v", p, want)
	}
	if fallback(amqp.Publishing{}, copies.FallbackCopy{}).Headers == nil {
		t.Error("Fallback of no headers wrote none")
	}
}

// TestCopiesShareNothing writes into every table, array and byte slice of a copy
// and looks at the original.
func TestCopiesShareNothing(t *testing.T) {
	d, before := delivery(), delivery()
	for _, p := range []amqp.Publishing{
		retry(d, retryOrders),
		deadLetter(d, copies.Letter{Queue: "orders"}),
		fallback(amqp.Publishing{Headers: d.Headers}, copies.FallbackCopy{}),
		{Headers: Strip(d.Headers)},
		{Headers: normalize(d.Headers)},
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
		p := retry(d, copies.RetryCopy{Queue: "orders", Returned: returned, Attempts: attempt, At: day1.Add(time.Duration(attempt) * time.Minute)})
		d, _ = roundTrip(t, p)
		d.Headers[HeaderDeath] = []any{entry("orders.wait", Expired, 1, "", day2, "orders.wait")}
		d.Exchange, d.RoutingKey = "orders.retry", "orders@1"
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

// TestLadderThenRepublish mixes the engines: what the broker counted is folded
// into the carried attempts, and it starts to count anew.
func TestLadderThenRepublish(t *testing.T) {
	p := retry(delivery(), retryOrders)
	back := with(p.Headers, HeaderDeath, []any{
		entry("orders", Rejected, 2, "orders.retry", day3, "orders@4"),
		entry("orders.wait.4", Expired, 3, "orders.ladder", day3, "orders@4"),
	})
	h := parsed(t, back)
	if n := h.Attempt("orders", true); n != 7 {
		t.Errorf("Attempt = %d, want 1 + 4 carried + 2 rejections", n)
	}
	if e, k, _ := h.Origin("orders"); e != "shop" || k != "order.paid" {
		t.Errorf("Origin = %q, %q: the broker's record is the ladder's now, ours is the producer's", e, k)
	}
}

// TestRetriedDeadLetter is the consumer of a dead-letter queue: the letter says
// why it died until it dies again.
func TestRetriedDeadLetter(t *testing.T) {
	letter := deadLetter(delivery(), copies.Letter{Queue: "orders", Returned: true, Attempts: 5, Failure: copies.Failure{Cause: string(CauseExhausted), Error: "no paper", At: day3}})
	d, _ := roundTrip(t, letter)
	d.Exchange, d.RoutingKey = "orders.rest", "orders@4"
	for _, returned := range []bool{true, false} {
		p := retry(d, copies.RetryCopy{Queue: "orders.dlq", Returned: returned, Attempts: 1})
		if p.Headers[HeaderExchange] != "shop" || p.Headers[HeaderRoutingKey] != "order.paid" {
			t.Errorf("returned %v: the letter's origin is lost: %v", returned, p.Headers)
		}
	}
	first := retry(d, copies.RetryCopy{Queue: "orders.dlq", Attempts: 1, At: day3})
	h := parsed(t, first.Headers)
	if n := h.Attempt("orders.dlq", true); n != 2 {
		t.Errorf("Attempt = %d, want 2", n)
	}
	if e, k, _ := h.Origin("orders.dlq"); e != "shop" || k != "order.paid" {
		t.Errorf("Origin = %q, %q, want the producer's", e, k)
	}
	if h.Failure.Error != "no paper" || h.Failure.Cause != CauseExhausted {
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
	d, _ = roundTrip(t, first)
	second := retry(d, copies.RetryCopy{Queue: "orders.dlq", Returned: true, Attempts: 2, At: day3})
	if got := lives(second); got != "orders exhausted 1" {
		t.Errorf("a second retry says %q: the letter died once", got)
	}
	d, _ = roundTrip(t, second)
	end := deadLetter(d, copies.Letter{Queue: "orders.dlq", Returned: true, Attempts: 3, Failure: copies.Failure{Cause: string(CausePermanent)}})
	if got := parsed(t, end.Headers); got.Failure != (Failure{Cause: CausePermanent}) || got.Queue != "orders.dlq" || got.FinalAttempts != 3 {
		t.Errorf("the second letter says %+v", got)
	}
	if got := lives(end); got != "orders exhausted 1" {
		t.Errorf("the second letter's history says %q", got)
	}
}

func TestFold(t *testing.T) {
	a1 := Death{Queue: "a", Reason: Rejected, Count: 1, Exchange: "first", Time: day1}
	a3 := Death{Queue: "a", Reason: Rejected, Count: 2, Exchange: "later", Time: day3}
	b2 := Death{Queue: "b", Reason: Rejected, Count: 1, Time: day2}
	ax := Death{Queue: "a", Reason: Expired, Count: 1, Time: day3}
	none := Death{Queue: "a", Reason: Rejected, Count: 5}
	tests := []struct {
		rule string
		h    History
		want []Death
	}{
		{"nothing", History{}, nil},
		{"counts of a pair are added, the first death tells the rest", History{Earlier: []Death{a1}, Deaths: []Death{a3}},
			[]Death{{Queue: "a", Reason: Rejected, Count: 3, Exchange: "first", Time: day1}}},
		{"whichever list the first death is in", History{Earlier: []Death{a3}, Deaths: []Death{a1}},
			[]Death{{Queue: "a", Reason: Rejected, Count: 3, Exchange: "first", Time: day1}}},
		{"queue and reason make the pair", History{Deaths: []Death{ax, a1}}, []Death{ax, a1}},
		{"newest first", History{Earlier: []Death{a1}, Deaths: []Death{b2, ax}}, []Death{ax, b2, a1}},
		{"a death without a time is not the first", History{Earlier: []Death{a1}, Deaths: []Death{none}},
			[]Death{{Queue: "a", Reason: Rejected, Count: 6, Exchange: "first", Time: day1}}},
		{"counts do not overflow", History{Earlier: []Death{{Queue: "a", Count: maxCount}}, Deaths: []Death{{Queue: "a", Count: maxCount}}},
			[]Death{{Queue: "a", Count: maxCount}}},
	}
	for _, tt := range tests {
		t.Run(tt.rule, func(t *testing.T) {
			if got := fold(tt.h); !reflect.DeepEqual(got, tt.want) {
				t.Errorf("fold = %+v, want %+v", got, tt.want)
			}
		})
	}
	var many []Death
	for i := range 40 {
		many = append(many, Death{Queue: fmt.Sprint(i), Time: day1.Add(time.Duration(i) * time.Second)})
	}
	if got := fold(History{Deaths: many}); len(got) != maxPairs || got[0].Queue != "39" || got[31].Queue != "8" {
		t.Errorf("of 40 pairs, %d are left, from %v to %v, want the newest 32", len(got), got[0], got[len(got)-1])
	}
}

func TestAgainIsTheMessageThatWasPublished(t *testing.T) {
	original := amqp.Delivery{Exchange: "shop", RoutingKey: "order.paid", MessageId: "m1", UserId: "alice", Expiration: "5000", Priority: 3,
		DeliveryMode: amqp.Transient, Headers: amqp.Table{"user": "h", HeaderCC: []any{"k"}}, Body: []byte("b")}
	letter := deadLetter(original, copies.Letter{Queue: "orders", Attempts: 5, User: "rehop", Failure: copies.Failure{Cause: string(CauseExhausted)}})
	d := amqp.Delivery{Exchange: "", RoutingKey: "orders.dlq", MessageId: letter.MessageId, UserId: letter.UserId, Priority: letter.Priority,
		DeliveryMode: letter.DeliveryMode, Headers: with(letter.Headers, HeaderDeliveryCount, int64(2)), Body: letter.Body}
	got := Again(d)
	if got.MessageId != "m1" || got.Expiration != "5000" || got.Priority != 3 || string(got.Body) != "b" || got.DeliveryMode != amqp.Persistent {
		t.Errorf("%+v, want the properties of the message, and those that were archived", got)
	}
	if len(got.Headers) != 2 || got.Headers["user"] != "h" || got.Headers[HeaderPriority] != int64(3) {
		t.Errorf("headers %v, want the user's and the priority's alone", got.Headers)
	}
	if h, err := Parse(got.Headers); err != nil || h.Attempt("orders", true) != 1 {
		t.Errorf("it starts at attempt %d, %v", h.Attempt("orders", true), err)
	}
	if first := Again(original); first.DeliveryMode != amqp.Transient || first.Expiration != "5000" || first.UserId != "alice" {
		t.Errorf("of a message that nobody has copied: %+v", first)
	}
}
