package desk

import (
	"bytes"
	"context"
	"encoding/json"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/store"
	"github.com/rehop/rehop/store/sqlite"
	"github.com/rehop/rehop/topology"
)

// collect takes n letters of a queue into a store in a file.
func (w *fixture) collect(queue string, n int) (*store.Store, Keeper) {
	w.Helper()
	db, err := sqlite.Open(filepath.Join(w.TempDir(), "letters.db"))
	must(w.T, err)
	w.Cleanup(func() { must(w.T, db.Close()) })
	s, err := store.Open(w.Context(), db, store.SQLite, store.Config{})
	must(w.T, err)
	c, err := NewCollected(s, w.conn, CollectedConfig{Journal: w.journal})
	must(w.T, err)
	ctx, stop := context.WithCancel(w.Context())
	ended := make(chan error, 1)
	go func() { _, err := c.Collect(ctx, []string{queue}, By{}, nil); ended <- err }()
	w.has(queue, 0)
	stop()
	must(w.T, <-ended)
	if have, err := s.Count(w.Context(), store.Query{}); err != nil || have != n {
		w.Fatalf("%d letters are collected, want %d: %v", have, n, err)
	}
	return s, c
}

// lines exports a source, without the names of places and the counts of looks.
func lines(w *fixture, s Source) (all []map[string]any) {
	w.Helper()
	var b bytes.Buffer
	_, err := s.Export(w.Context(), Filter{}, 0, &b, By{})
	must(w.T, err)
	for line := range bytes.Lines(b.Bytes()) {
		var one map[string]any
		must(w.T, json.Unmarshal(line, &one))
		delete(one, "from")
		if headers, _ := one["headers"].(map[string]any); headers != nil { // the looks that a quorum queue has counted
			delete(headers, "x-delivery-count")
			delete(headers, "x-acquired-count")
			if len(headers) == 0 {
				delete(one, "headers")
			}
		}
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b map[string]any) int {
		id := func(one map[string]any) string {
			s, _ := one["properties"].(map[string]any)["message_id"].(string)
			return s
		}
		return bytes.Compare([]byte(id(a)), []byte(id(b)))
	})
	return all
}

// A letter that was collected is exported, moved and dropped as it lay in its queue: it has the
// expiration, the delivery mode and the priority that it had, and no other.
func TestALetterThatIsCollectedStaysAsItLay(t *testing.T) {
	onEach(t, func(w *fixture) {
		w.dead()
		for _, queue := range []string{"moved", "copied"} {
			must(t, topology.Declare(w.Context(), w.conn, topology.DeadLetterQueue{Name: queue}))
		}
		ours := func() amqp.Table {
			return amqp.Table{"x-rehop-cause": "permanent", "x-rehop-queue": "orders", "x-rehop-exchange": "shop", "x-rehop-routing-key": "order.paid"}
		}
		died := deathOf("orders")
		died["original-expiration"] = "1500"
		archived := ours()
		archived["x-rehop-expiration"] = "1500"
		w.publish("orders.dlq",
			amqp.Publishing{MessageId: "1 plain", Headers: ours(), DeliveryMode: amqp.Persistent},
			amqp.Publishing{MessageId: "2 transient", Headers: ours(), DeliveryMode: amqp.Transient},
			amqp.Publishing{MessageId: "3 no mode", Headers: ours()},
			amqp.Publishing{MessageId: "4 expires", Headers: ours(), Expiration: "86400000"},
			amqp.Publishing{MessageId: "5 had a TTL", Headers: amqp.Table{"x-death": []any{died}}},
			amqp.Publishing{MessageId: "6 had a TTL", Headers: archived},
			amqp.Publishing{MessageId: "7 put off", Headers: amqp.Table{"x-rehop-cause": "permanent", "x-rehop-queue": "orders", "x-rehop-due": int64(1_800_000_000_000)}, Expiration: "86400001"},
			amqp.Publishing{MessageId: "8 priority", Headers: ours(), Priority: 200},
			amqp.Publishing{MessageId: "9 of others", Priority: 5},
		)
		want := lines(w, w.live())
		if len(want) != 9 {
			t.Fatalf("%d letters in the queue", len(want))
		}
		_, collected := w.collect("orders.dlq", 9)
		same := func(what string, all []map[string]any) {
			t.Helper()
			for i, got := range all {
				if !reflect.DeepEqual(got["properties"], want[i]["properties"]) || !reflect.DeepEqual(got["headers"], want[i]["headers"]) {
					t.Errorf("%s:\n%v\nwant\n%v", what, got, want[i])
				}
			}
		}
		same("collected and exported", lines(w, collected))

		copies := filepath.Join(t.TempDir(), "dropped.jsonl")
		synctest.Wait()
		p, err := collected.Execute(w.Context(), Redrive{Action: Drop, Filter: Filter{MessageIDs: []string{"2 transient", "4 expires", "5 had a TTL"}}, CopyTo: copies}, nil)
		if err != nil || p.Done != 3 {
			t.Errorf("dropped: %v, %v", p, err)
		}
		_, err = Import(w.Context(), w.conn, bytes.NewReader(readFile(t, copies)), w.journal, ImportOptions{Queue: "moved"})
		must(t, err)
		p, err = collected.Execute(w.Context(), Redrive{Action: Move, All: true, To: address("moved")}, nil)
		if err != nil || p.Done != 6 {
			t.Errorf("moved: %v, %v", p, err)
		}
		moved, err := NewLive(w.conn, "moved", LiveConfig{Journal: w.journal})
		must(t, err)
		same("moved", lines(w, moved))
	})
}

// A collector knows to whom a queue belongs.
func TestALetterOfAnotherQueueIsCollectedWithItsDoubt(t *testing.T) {
	inBubble(t, "4.3", func(w *fixture) {
		w.dead()
		w.queue("payments", amqp.Table{"x-queue-type": "quorum"})
		w.publish("orders.dlq", amqp.Publishing{MessageId: "forged", Headers: forgeries["of a consumer"]}, amqp.Publishing{MessageId: "own", Headers: amqp.Table{"x-rehop-cause": "permanent", "x-rehop-queue": "orders"}})
		_, collected := w.collect("orders.dlq", 2)
		synctest.Wait()
		p, err := collected.Execute(w.Context(), Redrive{Action: Send, All: true}, nil)
		if err != nil || p.Done != 1 || p.Skipped != 1 || p.Failed != 0 {
			t.Errorf("%v, %v", p, err)
		}
		w.has("payments", 0)
		w.has("orders", 1)
	})
}
