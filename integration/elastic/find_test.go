package elastic_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/integration/poll"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/store"
	"github.com/rehop/rehop/store/elastic"
	"github.com/rehop/rehop/xdeath"
)

// finds waits for a number of letters to be found, and returns them.
func finds(t testing.TB, s *elastic.Store, q elastic.Query, n int) (found []elastic.Document) {
	t.Helper()
	got, last := -1, error(nil)
	defer func() {
		if t.Failed() {
			t.Logf("found %d, %v", got, last)
		}
	}()
	poll.Until(t, time.Minute, fmt.Sprintf("%d letters for %+v", n, q), func() bool {
		found, last = s.Find(t.Context(), q)
		got = len(found)
		return last == nil && got == n
	})
	return found
}

// every is a message with every property and every type of header.
func every(id string) producer.Message {
	return producer.Message{
		Exchange: "shop", RoutingKey: "key \xff", ID: id, Body: []byte("<text> of a \x00 \u2028 body"), ContentType: "text/plain",
		ContentEncoding: "identity", Type: "t", CorrelationID: "c", ReplyTo: "r", AppID: "a", UserID: "guest",
		Timestamp: time.Unix(1_790_000_000, 0).UTC(), Priority: 3, Expiration: 1234567 * time.Millisecond, Replays: 2,
		Headers: amqp.Table{
			"nil": nil, "bool": true, "string": "s", "binary": "\xff\x00", "bytes": []byte{0, 255}, "\xfe": "key",
			"byte": byte(200), "int8": int8(-8), "int16": int16(-16), "int32": int32(-32), "int64": int64(1<<62 + 1), "int": 7,
			"uint16": uint16(16), "uint32": uint32(1 << 31), "float32": float32(0.1), "float64": 0.1,
			"decimal": amqp.Decimal{Scale: 2, Value: 314}, "time": time.Unix(1, 0).UTC(),
			"table": amqp.Table{"a.b": int32(1), "$int32": int64(2)}, "list": []any{"x", int32(2), amqp.Table{"y": nil}},
		},
	}
}

func TestEveryTypeComesBack(t *testing.T) {
	s := onServer(t)
	binary := every("binary")
	binary.Body = []byte{0xff, 0, 1, 2}
	for _, m := range []producer.Message{every("text"), binary} {
		must(t, s.Put(t.Context(), m, fmt.Errorf("wrapped: %w", producer.ErrNacked)))
		l := finds(t, s, elastic.Query{MessageIDs: []string{m.ID}}, 1)[0]
		if !reflect.DeepEqual(l.Message, m) {
			t.Errorf("put  %+v\nfound %+v", m, l.Message)
		}
		if l.Cause != rehop.CauseNacked || l.Error != "wrapped: "+producer.ErrNacked.Error() || l.Fingerprint == "" || l.Unconfirmed || time.Since(l.Stored).Abs() > time.Minute || l.ID == "" {
			t.Errorf("%+v", l)
		}
	}
}

func dead(i int) *consumer.Delivery {
	return &consumer.Delivery{Exchange: "shop", RoutingKey: "order.paid", ID: fmt.Sprintf("d-%03d", i), Body: fmt.Appendf(nil, `{"customer": "anna", "order": "o%d"}`, i),
		Headers: amqp.Table{"tenant": "acme"},
		History: xdeath.History{Queue: "orders", FinalAttempts: 5, Failure: xdeath.Failure{Cause: rehop.CauseExhausted, Error: fmt.Sprintf("no stock of item %d", i), ErrorType: "*E", At: time.Now()}}}
}

func TestTwiceIsOne(t *testing.T) {
	s := onServer(t)
	for range 2 {
		must(t, s.Collect(t.Context(), dead(1)))
		must(t, s.Put(t.Context(), producer.Message{RoutingKey: "k", ID: "same"}, producer.ErrReturned))
		finds(t, s, elastic.Query{}, 2)
	}
	again := dead(1)
	again.History.Failure.Error = "later"
	must(t, s.Collect(t.Context(), again))
	finds(t, s, elastic.Query{Text: "later"}, 1)
	finds(t, s, elastic.Query{}, 2)
}

func TestFind(t *testing.T) {
	s := onServer(t)
	began := time.Now()
	for i := range 20 {
		must(t, s.Collect(t.Context(), dead(i)))
	}
	must(t, s.Put(t.Context(), producer.Message{Exchange: "x", RoutingKey: "y", ID: "z", Type: "invoice", Body: []byte("other")}, producer.ErrReturned))
	all := finds(t, s, elastic.Query{}, 21)
	rows := []struct {
		rule string
		q    elastic.Query
		want int
	}{
		{"message ids", elastic.Query{MessageIDs: []string{"d-003", "z", "none"}}, 2},
		{"ids", elastic.Query{IDs: []string{all[4].ID}}, 1},
		{"queue", elastic.Query{Queue: "orders"}, 20},
		{"exchange and key", elastic.Query{Exchange: "x", RoutingKey: "y"}, 1},
		{"both must match", elastic.Query{Exchange: "x", Queue: "orders"}, 0},
		{"cause", elastic.Query{Cause: rehop.CauseExhausted}, 20},
		{"error type", elastic.Query{ErrorType: "*E"}, 20},
		{"fingerprint", elastic.Query{Fingerprint: all[0].Fingerprint}, 20},
		{"words of the error", elastic.Query{Text: "STOCK 7"}, 1},
		{"words of the body", elastic.Query{Text: "anna o7"}, 1},
		{"words of the headers", elastic.Query{Text: "acme"}, 20},
		{"words of the properties", elastic.Query{Text: "invoice"}, 1},
		{"words of two fields", elastic.Query{Text: "acme o7"}, 0},
		{"from", elastic.Query{From: began.Add(-time.Second)}, 21},
		{"from later", elastic.Query{From: began.Add(time.Hour)}, 0},
		{"before", elastic.Query{Before: began.Add(-time.Second)}, 0},
		{"a clause", elastic.Query{Clause: json.RawMessage(`{"prefix": {"message_id": "d-01"}}`)}, 10},
		{"limit", elastic.Query{Limit: 3}, 3},
	}
	for _, row := range rows {
		found, err := s.Find(t.Context(), row.q)
		if err != nil || len(found) != row.want {
			t.Errorf("%s: found %d, %v; want %d", row.rule, len(found), err, row.want)
		}
		if n, err := s.Count(t.Context(), row.q); row.q.Limit == 0 && (err != nil || n != row.want) {
			t.Errorf("%s: counted %d, %v; want %d", row.rule, n, err, row.want)
		}
	}
}

// TestManyAtOnce: what is put from many goroutines is found page by page, in the
// order of storing, each once.
func TestManyAtOnce(t *testing.T) {
	const n = 1000
	s := onServer(t)
	var all sync.WaitGroup
	for worker := range 50 {
		all.Go(func() {
			for i := range n / 50 {
				if err := s.Collect(context.WithoutCancel(t.Context()), dead(worker*n/50+i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	poll.Until(t, time.Minute, "all are counted", func() bool {
		got, err := s.Count(t.Context(), elastic.Query{})
		return err == nil && got == n
	})
	seen := map[string]bool{}
	var last time.Time
	for after := ""; ; {
		page, err := s.Find(t.Context(), elastic.Query{After: after, Limit: 30})
		must(t, err)
		if len(page) == 0 {
			break
		}
		for _, l := range page {
			if seen[l.ID] || l.Stored.Before(last) {
				t.Fatalf("%s comes twice, or too late", l.ID)
			}
			seen[l.ID], last = true, l.Stored
		}
		after = page[len(page)-1].Cursor
	}
	if len(seen) != n {
		t.Errorf("%d letters on the pages, want %d", len(seen), n)
	}
}

// TestNothingStoredYet: an index that is not there has no letters, and gets the
// first one.
func TestNothingStoredYet(t *testing.T) {
	s := onServer(t)
	for range 2 {
		report, err := s.Replay(t.Context(), nil, elastic.Query{All: true}, store.ReplayOptions{DryRun: true})
		if found, errFind := s.Find(t.Context(), elastic.Query{}); err != nil || errFind != nil || report.Matched != 0 || len(found) != 0 {
			t.Errorf("%+v, %v; %v, %v", report, err, found, errFind)
		}
	}
	must(t, s.Collect(t.Context(), dead(1)))
	finds(t, s, elastic.Query{}, 1)
}

// TestServerAway: while it is away Put says so, and that it does not know; what
// was acknowledged is there when the server is back.
func TestServerAway(t *testing.T) {
	srv, err := newServer()
	must(t, err)
	defer func() { srv.kill() }()
	s := letters(t, srv.address, elastic.Config{})
	for i := range 20 {
		must(t, s.Collect(t.Context(), dead(i)))
	}
	finds(t, s, elastic.Query{}, 20)
	srv.kill()
	err = s.Put(t.Context(), producer.Message{RoutingKey: "k", ID: "lost"}, producer.ErrReturned)
	if err == nil || errors.Is(err, producer.ErrUnconfirmed) { // a refused connection carries nothing
		t.Errorf("Put while the server is away: %v", err)
	}
	must(t, srv.start())
	finds(t, s, elastic.Query{}, 20)
	must(t, s.Put(t.Context(), producer.Message{RoutingKey: "k", ID: "lost"}, producer.ErrReturned))
	finds(t, s, elastic.Query{}, 21)
}
