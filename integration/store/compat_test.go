package store_test

import (
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/integration/poll"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/store"
	"github.com/rehop/rehop/xdeath"
)

var update = flag.Bool("update", false, "write testdata/v0/letters.json")

// release is the folder that this version writes. Until v0.1.0 is released, -update may
// change it; after that a change of the rows needs a folder of its own.
const release = "v0"

// letterRow is a row of the table of letters: texts, numbers as float64, and the body in base64.
type letterRow map[string]any

// passing are the columns that differ from run to run.
var passing = []string{"id", "stored", "next_try", "lease", "failed", "first_failed", "seq"}

// rich is a message with every property.
func rich() producer.Message {
	m := every("away")
	m.RoutingKey = "order.paid"
	m.Headers = amqp.Table{"tenant": "grüße", "items": int32(3), "at": time.Unix(1_700_000_000, 0).UTC(), "list": []any{int64(1), amqp.Table{"x": false}}, "bytes": []byte{0, 255}}
	return m
}

// fillRelease stores a message in each way that there is.
func fillRelease(t *testing.T, p place) {
	t.Helper()
	s := p.store(t, store.Config{})
	must(t, s.Put(t.Context(), rich(), errAway))
	inTx(t, p.open(t), func(tx *sql.Tx) bool {
		_, err := s.PutTx(t.Context(), tx, producer.Message{Exchange: "shop", RoutingKey: "order.paid", ID: "outbox", OrderKey: "anna", Timestamp: time.Unix(1_700_000_000, 0)})
		must(t, err)
		first, err := s.Once(t.Context(), tx, "orders", "handled")
		must(t, err)
		return first
	})
	_, err := s.PutAt(t.Context(), time.Unix(1_700_000_300, 0), producer.Message{RoutingKey: "k", ID: "later", Timestamp: time.Unix(1_700_000_000, 0)})
	must(t, err)
	must(t, s.Put(t.Context(), producer.Message{Exchange: "shop", RoutingKey: "nobody", ID: "returned", Timestamp: time.Unix(1_700_000_000, 0)}, producer.ErrReturned))
	must(t, s.Collect(t.Context(), &consumer.Delivery{
		Queue: "orders.dlq", Exchange: "shop", RoutingKey: "order.paid", ID: "dead", Body: []byte("b"), Priority: 3, Timestamp: time.Unix(1_700_000_000, 0),
		Headers: amqp.Table{"x-rehop-expiration": "60000"},
		History: xdeath.History{Queue: "orders", FinalAttempts: 5, Replays: 1, Redrives: 2, RedriveID: "send-1", FirstFailed: time.Unix(1_700_000_000, 0),
			Failure: xdeath.Failure{Cause: rehop.CauseExhausted, Error: "order 17: no stock", ErrorType: "*shop.StockError", At: time.Unix(1_700_000_100, 0)}},
	}))
}

// rows returns the table of letters by message id.
func rows(t *testing.T, db *sql.DB) map[string]letterRow {
	t.Helper()
	found, err := db.QueryContext(t.Context(), "SELECT * FROM rehop_letters ORDER BY seq")
	must(t, err)
	defer func() { _ = found.Close() }()
	names, err := found.Columns()
	must(t, err)
	all := map[string]letterRow{}
	for found.Next() {
		values, into := make([]any, len(names)), make([]any, len(names))
		for i := range values {
			into[i] = &values[i]
		}
		must(t, found.Scan(into...))
		r := letterRow{}
		for i, name := range names {
			switch v := values[i].(type) {
			case []byte:
				r[name] = base64.StdEncoding.EncodeToString(v)
			case int64:
				r[name] = float64(v)
			default:
				r[name] = v
			}
		}
		all[r["message_id"].(string)] = r
	}
	must(t, found.Err())
	return all
}

func readRows(t *testing.T, folder string) (all map[string]letterRow) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", folder, "letters.json"))
	must(t, err)
	must(t, json.Unmarshal(text, &all))
	return all
}

// TestRowsOfTheRelease: today's rows are those of the release.
func TestRowsOfTheRelease(t *testing.T) {
	t.Parallel()
	p := newPlace(t, store.SQLite)
	fillRelease(t, p)
	got := rows(t, p.open(t))
	if *update {
		text, err := json.MarshalIndent(got, "", "\t")
		must(t, err)
		must(t, os.MkdirAll(filepath.Join("testdata", release), 0o755))
		must(t, os.WriteFile(filepath.Join("testdata", release, "letters.json"), append(text, '\n'), 0o644))
	}
	want := readRows(t, release)
	if !slices.Equal(slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want))) {
		t.Fatalf("messages %q, want %q", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	}
	for id, row := range got {
		for name, value := range row {
			former, there := want[id][name]
			if !there || fmt.Sprintf("%T", former) != fmt.Sprintf("%T", value) || !slices.Contains(passing, name) && former != value {
				t.Errorf("%s of %s is %v, want %v (%v)", name, id, value, former, there)
			}
		}
		if len(row) != len(want[id]) {
			t.Errorf("%s has %d columns, want %d", id, len(row), len(want[id]))
		}
	}
}

// TestStoreOfTheRelease: a store that the release has made and filled opens, forwards what
// is ready, keeps what waits for people, and knows what is handled. A row that a program
// of the release adds meanwhile is forwarded too.
func TestStoreOfTheRelease(t *testing.T) {
	folders, err := filepath.Glob(filepath.Join("testdata", "v*"))
	must(t, err)
	if len(folders) == 0 {
		t.Fatal("no release")
	}
	onEach(t, func(t *testing.T, p place) {
		for i, folder := range folders {
			if i > 0 {
				p = newPlace(t, p.dialect)
			}
			storeOfRelease(t, p, filepath.Base(folder))
		}
	})
}

func storeOfRelease(t *testing.T, p place, folder string) {
	db := p.open(t)
	name := map[store.Dialect]string{store.SQLite: "sqlite", store.MySQL: "mysql", store.PostgreSQL: "postgresql"}[p.dialect]
	text, err := os.ReadFile(filepath.Join("..", "..", "store", "testdata", folder, name+".sql"))
	must(t, err)
	for statement := range strings.SplitSeq(strings.ReplaceAll(string(text), "{collation}", "utf8mb4_nopad_bin"), ";\n") {
		if statement != "" {
			_, err := db.ExecContext(t.Context(), statement)
			must(t, err)
		}
	}
	all := readRows(t, folder)
	late := all["outbox"]
	delete(all, "outbox")
	for _, id := range slices.Sorted(maps.Keys(all)) {
		insert(t, db, p.dialect, all[id])
	}
	_, err = db.ExecContext(t.Context(), "INSERT INTO rehop_letters_inbox (queue, message_id, handled) VALUES ('orders', 'handled', "+fmt.Sprint(time.Now().UnixMilli())+")")
	must(t, err)

	s := p.store(t, store.Config{})
	broker := &peer{}
	forward(t, s, broker, store.ForwardConfig{})
	poll.Until(t, time.Minute, "the letters of the machine are forwarded", func() bool { return len(broker.ids()) >= 2 })
	insert(t, db, p.dialect, late)
	poll.Until(t, time.Minute, "the letter that came later is forwarded", func() bool { return len(broker.ids()) >= 3 })
	if got := slices.Sorted(slices.Values(broker.ids())); !slices.Equal(got, []string{"away", "later", "outbox"}) {
		t.Errorf("forwarded: %q", got)
	}
	broker.mu.Lock()
	for _, m := range broker.sent {
		if m.ID != "away" {
			continue
		}
		want := rich()
		want.Replays++
		if !reflect.DeepEqual(m, want) {
			t.Errorf("forwarded: %+v, want %+v", m, want)
		}
	}
	broker.mu.Unlock()

	held := find(t, s, store.Query{States: []store.State{store.Held}})
	if len(held) != 2 {
		t.Fatalf("%d letters wait for people, want 2", len(held))
	}
	for _, l := range held {
		switch l.Message.ID {
		case "dead":
			if l.Cause != rehop.CauseExhausted || l.Attempts != 5 || l.Redrives != 2 || l.RedriveID != "send-1" || l.Queue != "orders" || l.ErrorType != "*shop.StockError" || !l.Failed.Equal(time.Unix(1_700_000_100, 0)) {
				t.Errorf("dead letter %+v", l)
			}
		case "returned":
			if l.Cause != rehop.CauseUnroutable || l.Message.Exchange != "shop" || l.Message.RoutingKey != "nobody" {
				t.Errorf("returned %+v", l)
			}
		default:
			t.Errorf("held: %+v", l)
		}
	}
	groups, more, err := s.Groups(t.Context(), store.Query{})
	if err != nil || more || len(groups) != 2 {
		t.Errorf("%d groups, %v, %v; want 2", len(groups), more, err)
	}
	handler := s.OnceHandler(func(context.Context, *consumer.Delivery) error {
		t.Error("handled twice")
		return nil
	})
	must(t, handler(t.Context(), &consumer.Delivery{Queue: "orders", ID: "handled"}))
}

// insert adds a row as the release has written it.
func insert(t *testing.T, db *sql.DB, d store.Dialect, r letterRow) {
	t.Helper()
	var names, marks []string
	var values []any
	for _, name := range slices.Sorted(maps.Keys(r)) {
		if name == "seq" {
			continue
		}
		value := r[name]
		switch v := value.(type) {
		case float64:
			value = int64(v)
		case string:
			if name == "body" {
				body, err := base64.StdEncoding.DecodeString(v)
				must(t, err)
				value = body
			}
		}
		names, values = append(names, name), append(values, value)
		if d == store.PostgreSQL {
			marks = append(marks, fmt.Sprintf("$%d", len(values)))
		} else {
			marks = append(marks, "?")
		}
	}
	_, err := db.ExecContext(t.Context(), "INSERT INTO rehop_letters ("+strings.Join(names, ", ")+") VALUES ("+strings.Join(marks, ", ")+")", values...)
	must(t, err)
}
