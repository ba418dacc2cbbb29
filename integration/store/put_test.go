package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/integration/poll"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/store"
	"github.com/rehop/rehop/xdeath"
)

var errAway = fmt.Errorf("no session: %w", connection.ErrSessionLost)

// every is a message with every property and every type of header.
func every(id string) producer.Message {
	return producer.Message{
		Exchange: "shop", RoutingKey: "bytes \x00\xff'?", Body: []byte("\x00\xff body ?"), ID: id,
		Headers: amqp.Table{
			"nil": nil, "bool": true, "byte": byte(200), "int8": int8(-8), "int16": int16(-16), "int32": int32(-32), "int64": int64(math.MinInt64),
			"int": 7, "uint16": uint16(65535), "uint32": uint32(math.MaxUint32), "float32": float32(1.5), "float64": math.Inf(-1),
			"string": "grüße \x00 \xff ?", "bytes": []byte{0, 255}, "decimal": amqp.Decimal{Scale: 2, Value: -314}, "time": time.Unix(1_700_000_000, 0).UTC(),
			"table": amqp.Table{"$int32": "looks like a type", "\xff": int64(1)}, "single": amqp.Table{"$int32": int64(1)}, "array": []any{int32(1), "a", []any{nil}, amqp.Table{"x": false}},
			"x-death": []any{amqp.Table{"count": int64(3)}}, "$table": "dollar",
		},
		ContentType: "text/plain", ContentEncoding: "gzip", Type: "order", CorrelationID: "corr", ReplyTo: "reply", AppID: "app", UserID: "guest",
		Timestamp: time.Unix(1_700_000_000, 0).UTC(), Priority: 9, Expiration: 90 * time.Second, Replays: 2,
	}
}

func find(t testing.TB, s *store.Store, q store.Query) []store.Entry {
	t.Helper()
	letters, _, err := s.Find(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	return letters
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestAMessageComesBackExactly(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		s := p.store(t, store.Config{})
		want := every("m-1")
		must(t, s.Put(t.Context(), want, errAway))
		letters := find(t, s, store.Query{})
		if len(letters) != 1 || !reflect.DeepEqual(letters[0].Message, want) {
			t.Errorf("put\n%#v\nfound\n%#v", want, letters)
		}
		if err := s.Put(t.Context(), producer.Message{ID: "empty", RoutingKey: "k"}, errAway); err != nil {
			t.Error(err)
		}
	})
}

func TestALargeBody(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		s := p.store(t, store.Config{Timeout: time.Minute})
		body := bytes.Repeat([]byte("0123456789abcdef"), 1<<20)
		must(t, s.Put(t.Context(), producer.Message{RoutingKey: "k", ID: "large", Body: body}, errAway))
		if l := find(t, s, store.Query{MessageIDs: []string{"large"}}); len(l) != 1 || !bytes.Equal(l[0].Message.Body, body) {
			t.Errorf("a body of %d bytes did not come back", len(body))
		}
	})
}

func TestWhoseAMessageIs(t *testing.T) {
	rows := []struct {
		rule        string
		cause       error
		state       store.State
		reason      rehop.Cause
		unconfirmed int
	}{
		{"the broker is away: forwarded by itself", errAway, store.Ready, rehop.CauseUnreachable, 0},
		{"blocked: forwarded by itself", &connection.BlockedError{Reason: "low on memory"}, store.Ready, rehop.CauseBlocked, 0},
		{"unconfirmed: forwarded, may be there", fmt.Errorf("x: %w", producer.ErrUnconfirmed), store.Ready, rehop.CauseUnconfirmed, 1},
		{"unconfirmed and then returned: forwarded, may be there", fmt.Errorf("%w: %w", producer.ErrUnconfirmed, producer.ErrReturned), store.Ready, rehop.CauseUnconfirmed, 1},
		{"unroutable waits for a person", producer.ErrReturned, store.Held, rehop.CauseUnroutable, 0},
		{"nacked waits for a person", producer.ErrNacked, store.Held, rehop.CauseNacked, 0},
		{"refused waits for a person", producer.ErrRefused, store.Held, rehop.CauseRefused, 0},
	}
	onEach(t, func(t *testing.T, p place) {
		s := p.store(t, store.Config{})
		for i, row := range rows {
			id := fmt.Sprint("m-", i)
			must(t, s.Put(t.Context(), producer.Message{RoutingKey: "k", ID: id}, row.cause))
			l := find(t, s, store.Query{MessageIDs: []string{id}})[0]
			if l.State != row.state || l.Cause != row.reason || l.Unconfirmed != row.unconfirmed || l.Error != row.cause.Error() || l.Fingerprint == "" || l.Stored.IsZero() {
				t.Errorf("%s: %+v", row.rule, l)
			}
		}
	})
}

func TestTheSameMessageIsStoredOnce(t *testing.T) {
	rows := []struct {
		rule        string
		first, next producer.Message
		letters     int
	}{
		{"the same", producer.Message{ID: "a", RoutingKey: "k", Body: []byte("x")}, producer.Message{ID: "a", RoutingKey: "k", Body: []byte("x")}, 1},
		{"another key", producer.Message{ID: "a", RoutingKey: "k"}, producer.Message{ID: "a", RoutingKey: "l"}, 2},
		{"another exchange", producer.Message{ID: "a", Exchange: "e", RoutingKey: "k"}, producer.Message{ID: "a", RoutingKey: "k"}, 2},
		{"another body", producer.Message{ID: "a", RoutingKey: "k", Body: []byte("x")}, producer.Message{ID: "a", RoutingKey: "k", Body: []byte("y")}, 2},
		{"ids that differ in case", producer.Message{ID: "a", RoutingKey: "k"}, producer.Message{ID: "A", RoutingKey: "k"}, 2},
		{"no ids to tell by", producer.Message{RoutingKey: "k"}, producer.Message{RoutingKey: "k"}, 2},
	}
	onEach(t, func(t *testing.T, p place) {
		for i, row := range rows {
			s := p.store(t, store.Config{Table: fmt.Sprint("letters_", i)})
			must(t, s.Put(t.Context(), row.first, errAway))
			must(t, s.Put(t.Context(), row.next, producer.ErrReturned))
			letters := find(t, s, store.Query{})
			if len(letters) != row.letters {
				t.Errorf("%s: %d letters, want %d", row.rule, len(letters), row.letters)
			}
			if last := letters[len(letters)-1]; last.State != store.Held {
				t.Errorf("%s: state %s, want that of the last Put", row.rule, last.State)
			}
		}
	})
}

func TestManyPutsAtATime(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		s := p.store(t, store.Config{})
		var all sync.WaitGroup
		errs := make(chan error, 4000)
		for g := range 40 {
			all.Go(func() {
				for i := range 100 {
					// Each message by two goroutines: equal rows meet in one transaction.
					errs <- s.Put(t.Context(), producer.Message{RoutingKey: "k", ID: fmt.Sprint(g/2, "-", i)}, errAway)
				}
			})
		}
		all.Wait()
		close(errs)
		for err := range errs {
			must(t, err)
		}
		if n, err := s.Count(t.Context(), store.Query{}); n != 2000 || err != nil {
			t.Errorf("%d letters and %v, want 2000", n, err)
		}
	})
}

func TestOneBadWriteHarmsNoOther(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		s := p.store(t, store.Config{})
		must(t, s.Put(t.Context(), producer.Message{RoutingKey: "k", ID: "edited"}, errAway))
		number := find(t, s, store.Query{})[0].Number
		errBad := errors.New("bad")
		var all sync.WaitGroup
		for i := range 50 {
			all.Go(func() {
				if err := s.Put(t.Context(), producer.Message{RoutingKey: "k", ID: fmt.Sprint(i)}, errAway); err != nil {
					t.Error(err)
				}
			})
			all.Go(func() {
				if err := s.Edit(t.Context(), number, func(*producer.Message) error { return errBad }); !errors.Is(err, errBad) {
					t.Errorf("Edit: %v, want what change returned", err)
				}
			})
		}
		all.Wait()
		if n, _ := s.Count(t.Context(), store.Query{}); n != 51 {
			t.Errorf("%d letters, want 51", n)
		}
	})
}

func TestPutEndsWithItsCtx(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		s := p.store(t, store.Config{})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := s.Put(ctx, producer.Message{RoutingKey: "k", ID: "late"}, errAway); !errors.Is(err, context.Canceled) {
			t.Errorf("Put: %v, want the end of its ctx", err)
		}
		if letters := find(t, s, store.Query{}); len(letters) != 0 {
			t.Errorf("stored behind its caller's back: %v", letters)
		}
	})
}

func TestOutbox(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		s := p.store(t, store.Config{})
		db := p.open(t)
		for _, commit := range []bool{false, true} {
			tx, err := db.BeginTx(t.Context(), nil)
			must(t, err)
			ids, err := s.PutTx(t.Context(), tx, producer.Message{RoutingKey: "k", ID: fmt.Sprint("commit ", commit)}, producer.Message{RoutingKey: "k"})
			must(t, err)
			if len(ids) != 2 || ids[1] == "" {
				t.Errorf("ids %q, want two", ids)
			}
			if commit {
				must(t, tx.Commit())
			} else {
				must(t, tx.Rollback())
			}
		}
		letters := find(t, s, store.Query{})
		if len(letters) != 2 || letters[0].Message.ID != "commit true" || letters[0].State != store.Ready || letters[0].Message.Timestamp.IsZero() {
			t.Errorf("%+v, want the two that were committed", letters)
		}
		tx, err := db.BeginTx(t.Context(), nil)
		must(t, err)
		defer tx.Rollback()
		_, err = s.PutTx(t.Context(), tx, producer.Message{}, producer.Message{RoutingKey: "k"}, producer.Message{RoutingKey: strings.Repeat("k", 300)})
		for _, want := range []string{"messages[0]", "messages[2]"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("PutTx: %v, want the fault of %s", err, want)
			}
		}
		if rehop.ClassOf(err) != rehop.ClassBug {
			t.Errorf("class %v, want a bug", rehop.ClassOf(err))
		}
	})
}

func TestScheduled(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		s := p.store(t, store.Config{})
		due := time.Now().Add(time.Hour).Truncate(time.Millisecond)
		id, err := s.PutAt(t.Context(), due, producer.Message{RoutingKey: "k", ID: "reminder"})
		must(t, err)
		_, err = s.PutAt(t.Context(), time.Now().Add(-time.Hour), producer.Message{RoutingKey: "k", ID: "past"})
		must(t, err)
		if l := find(t, s, store.Query{Scheduled: true}); len(l) != 1 || l[0].Message.ID != id || !l[0].Due.Equal(due) {
			t.Errorf("%+v, want the reminder", l)
		}
		if n, err := s.Cancel(t.Context(), id); n != 1 || err != nil {
			t.Errorf("Cancel: %d, %v", n, err)
		}
		if n, err := s.Cancel(t.Context(), id); n != 0 || err != nil {
			t.Errorf("Cancel again: %d, %v", n, err)
		}
		must(t, s.Put(t.Context(), producer.Message{RoutingKey: "k", ID: "letter"}, producer.ErrReturned))
		if n, _ := s.Cancel(t.Context(), "letter"); n != 0 {
			t.Error("Cancel took a letter that was not scheduled")
		}
	})
}

// TestCancelCountsNoMessageThatMayHaveBeenPublished: it deletes the letter of one whose
// publish had no answer, so that it is not published again.
func TestCancelCountsNoMessageThatMayHaveBeenPublished(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		s := p.store(t, store.Config{})
		for _, key := range []string{"lost", "kept"} { // two messages with one id
			_, err := s.PutAt(t.Context(), time.Time{}, producer.Message{RoutingKey: key, ID: "m"})
			must(t, err)
		}
		stop := forward(t, s, &peer{answer: func(_ context.Context, m producer.Message) error {
			if m.RoutingKey == "lost" {
				return producer.ErrUnconfirmed
			}
			return errAway
		}}, store.ForwardConfig{})
		poll.Until(t, patience, "an answer is missing", func() bool {
			l := find(t, s, store.Query{RoutingKey: "lost"})
			return len(l) == 1 && l[0].Unconfirmed > 0
		})
		stop()
		if n, err := s.Cancel(t.Context(), "m"); n != 1 || err != nil {
			t.Errorf("Cancel: %d, %v; want 1, the one that was not published", n, err)
		}
		if l := find(t, s, store.Query{}); len(l) != 0 {
			t.Errorf("%d letters are left to be published: %+v", len(l), l)
		}
	})
}

// A producer that gives one id to different messages loses none of them.
func TestDifferentMessagesWithOneIDAreKeptApart(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		s := p.store(t, store.Config{})
		same := producer.Message{Exchange: "shop", RoutingKey: "order", ID: "order-7", Body: []byte("7")}
		paid, shipped, keyed := same, same, same
		paid.Type, shipped.Headers, keyed.OrderKey = "paid", amqp.Table{"event": "shipped"}, "anna"
		for _, m := range []producer.Message{same, paid, shipped, keyed, same} {
			must(t, s.Put(t.Context(), m, errAway))
		}
		for _, event := range []string{"paid", "cancelled", "paid"} {
			must(t, s.Collect(t.Context(), &consumer.Delivery{ID: "order-7", Exchange: "shop", RoutingKey: "order", Type: event, Body: []byte("7"),
				History: xdeath.History{Queue: "orders", Failure: xdeath.Failure{Cause: rehop.CauseExhausted}}}))
		}
		if all := find(t, s, store.Query{}); len(all) != 6 {
			t.Errorf("%d entries, want 4 messages and 2 letters", len(all))
		}
	})
}

func TestCollect(t *testing.T) {
	failed := time.Unix(1_700_000_100, 0)
	d := &consumer.Delivery{
		Queue: "orders.dlq", Exchange: "shop", RoutingKey: "order.paid", ID: "o-1", Body: []byte("b"), Type: "order", Priority: 3,
		Headers: amqp.Table{"x-rehop-cause": "exhausted", "x-rehop-expiration": "60000", "tenant": "acme"},
		History: xdeath.History{Queue: "orders", FinalAttempts: 5, Replays: 1, FirstFailed: time.Unix(1_700_000_000, 0),
			Failure: xdeath.Failure{Cause: rehop.CauseExhausted, Error: "order 17: no stock", ErrorType: "*shop.StockError", At: failed}},
	}
	onEach(t, func(t *testing.T, p place) {
		s := p.store(t, store.Config{})
		for range 2 { // the ack was lost
			must(t, s.Collect(t.Context(), d))
		}
		letters := find(t, s, store.Query{Queue: "orders", Cause: rehop.CauseExhausted})
		if len(letters) != 1 {
			t.Fatalf("%d letters, want one", len(letters))
		}
		l := letters[0]
		if l.State != store.Held || l.Attempts != 5 || !l.Failed.Equal(failed) || l.FirstFailed.Unix() != 1_700_000_000 || l.ErrorType != "*shop.StockError" ||
			l.Message.Expiration != time.Minute || l.Message.Replays != 1 || l.Message.Headers["tenant"] != "acme" || l.Message.Priority != 3 {
			t.Errorf("%+v", l)
		}
	})
	s := place{dialect: store.SQLite, source: t.TempDir() + "/x.db"}
	db := s.open(t)
	closed, err := store.Open(t.Context(), db, store.SQLite, store.Config{})
	must(t, err)
	must(t, db.Close())
	if err := closed.Collect(t.Context(), d); consumer.OutcomeOf(err) != consumer.OutcomeOf(consumer.Hold(err)) {
		t.Errorf("with the database away: %v, want a requeue", err)
	}
}
