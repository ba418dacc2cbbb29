package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/store"
	"github.com/rehop/rehop/store/sqlite"
)

// odd is what other clients send: milliseconds where AMQP has seconds, a priority above
// those of rehop, and the user-id of another login.
func (s *shell) odd(id string) rehoptest.Message {
	s.Helper()
	m := rehoptest.Message{RoutingKey: "orders.dlq", Publishing: amqp.Publishing{
		MessageId: id, Timestamp: time.Unix(1_700_000_000_123, 0), Priority: 200, UserId: "shop", Expiration: "", Body: []byte(`{"order":7}`),
		Headers: amqp.Table{
			"x-rehop-queue": "orders", "x-rehop-exchange": []byte("shop"), "x-rehop-routing-key": "order.paid", "x-rehop-order-key": []byte("anna\xff"),
			"x-rehop-error": "odd", "x-rehop-failed-at": time.Unix(1_700_000_000_123, 0), "at": []any{amqp.Table{"ms": time.Unix(-1<<40, 0)}},
		},
	}}
	_, err := s.broker.Publish(m)
	must(s, err)
	return m
}

// sent checks the odd letter that was sent to its queue, or that a letter of it is.
func (s *shell) sent(id string) {
	s.Helper()
	all := s.broker.Drain("orders")
	if len(all) != 1 || all[0].MessageId != id {
		s.Errorf("in the queue: %v, want message %s", all, id)
		return
	}
	m := all[0]
	if m.Timestamp.Unix() != 1_700_000_000_123 || m.Priority != 9 || m.UserId != "" || m.Headers["x-rehop-user-id"] != "shop" || m.Headers["x-rehop-order-key"] != "anna\xff" ||
		m.Headers["at"].([]any)[0].(amqp.Table)["ms"].(time.Time).Unix() != -1<<40 {
		s.Errorf("sent as %+v", m)
	}
}

// only is the id of the only letter of a source.
func (s *shell) only(source ...string) string {
	s.Helper()
	s.run(exitDone, append([]string{"dlq", "list", "-o", "json"}, source...)...)
	var list struct{ Letters []letterJSON }
	must(s, json.Unmarshal([]byte(s.out), &list))
	if len(list.Letters) != 1 {
		s.Fatalf("%d letters, want 1", len(list.Letters))
	}
	return list.Letters[0].ID
}

func TestALetterThatOthersHaveWrittenStopsNoCommand(t *testing.T) {
	s := open(t)
	s.odd("odd")
	s.run(exitDone, "dlq", "list", "orders.dlq", "-o", "json")
	for _, line := range []string{"dlq list orders.dlq -o wide", "dlq groups orders.dlq", "dlq groups orders.dlq -o json", "dlq peek orders.dlq", "dlq show orders.dlq m-5"} {
		s.run(exitDone, strings.Fields(line)...)
	}
	s.run(exitDone, "dlq", "show", "orders.dlq", "odd")
	s.prints("x-rehop-failed-at: 1700000000123\n", `at: [{"ms":{"$time":-1099511627776}}]`)
	s.run(exitDone, "dlq", "show", "orders.dlq", "odd", "-o", "json")
	var shown letterJSON
	must(t, json.Unmarshal([]byte(s.out), &shown))
	s.run(exitDone, "dlq", "export", "orders.dlq")
	if n := strings.Count(s.out, "\n"); n != 7 {
		t.Errorf("%d of 7 letters are exported", n)
	}
	s.prints(`"timestamp":1700000000123`, `"priority":200`)
}

func TestALetterThatOthersHaveWrittenLeavesByEveryWay(t *testing.T) {
	s := open(t)
	s.broker.Drain("orders.dlq")
	dir := t.TempDir()

	s.odd("live")
	s.run(exitDone, "dlq", "send", "orders.dlq", "--all", "--yes")
	s.sent("live")

	s.odd("edited")
	s.run(exitDone, "dlq", "edit", "orders.dlq", s.only("orders.dlq"), "--header", "tenant=acme")
	s.sent("edited")

	dropped := filepath.Join(dir, "dropped.jsonl")
	s.odd("dropped")
	s.run(exitDone, "dlq", "drop", "orders.dlq", "--all", "--copy", dropped, "--yes")
	s.has("orders.dlq", 0)
	s.run(exitDone, "dlq", "import", "orders.dlq", dropped)
	if m := s.broker.Drain("orders.dlq")[0]; m.Timestamp.Unix() != 1_700_000_000_123 || m.Priority != 200 || m.Headers["x-rehop-user-id"] != "shop" {
		t.Errorf("imported as %+v", m)
	}

	s.odd("stored")
	letters := s.collect("orders.dlq")
	s.run(exitDone, "dlq", "show", "--store", letters, "stored", "-o", "json")
	s.run(exitDone, "dlq", "send", "--store", letters, "--all", "--yes")
	s.sent("stored")

	s.odd("stored and edited")
	letters = s.collect("orders.dlq")
	s.run(exitDone, "dlq", "edit", "--store", letters, s.only("--store", letters), "--header", "tenant=acme", "--send")
	s.sent("stored and edited")

	s.odd("kept")
	letters = s.collect("orders.dlq")
	exported := filepath.Join(dir, "kept.jsonl")
	s.run(exitDone, "dlq", "export", "--store", letters, "--file", exported)
	text, err := os.ReadFile(exported)
	must(t, err)
	if !strings.Contains(string(text), `"timestamp":1700000000123`) || strings.Count(string(text), "\n") != 1 {
		t.Errorf("exported: %s", text)
	}
	s.run(exitDone, "dlq", "drop", "--store", letters, "--all", "--copy", dropped, "--yes")
	s.run(exitDone, "dlq", "import", "orders.dlq", exported)
	s.run(exitDone, "dlq", "send", "orders.dlq", "--all", "--yes")
	s.sent("kept")
}

// A flag that would select nothing, or a queue that would not be looked at, is refused: a drop
// would take more than was meant.
func TestAFilterThatIsForTheOtherPlaceIsRefused(t *testing.T) {
	s := open(t)
	letters := filepath.Join(t.TempDir(), "letters.db")
	for _, line := range []string{
		"dlq drop orders.dlq --state archived --copy " + letters + ".jsonl --yes", "dlq send orders.dlq --state held --yes", "dlq list orders.dlq --state ready",
		"dlq groups orders.dlq --state held", "dlq export orders.dlq --state held",
	} {
		s.run(exitUsage, strings.Fields(line)...)
		s.prints("--state is for --store")
	}
	s.has("orders.dlq", 6)
	letters = s.collect("orders.dlq")
	for _, line := range []string{"dlq drop orders.dlq --all --copy " + letters + ".jsonl --yes --store " + letters, "dlq list nosuchqueue --store " + letters, "dlq export orders.dlq --store " + letters} {
		s.run(exitUsage, strings.Fields(line)...)
		s.prints("--store: letters are in one of them", "--queue")
	}
	s.run(exitDone, "dlq", "list", "--store", letters)
	s.prints("m-0", "m-5")
}

// What a store has as fields goes along with a message that has never reached its queue.
func TestAMessageThatHasNeverReachedItsQueueKeepsItsKeyOnEachWay(t *testing.T) {
	s := open(t)
	s.broker.Drain("orders.dlq")
	name := filepath.Join(t.TempDir(), "letters.db")
	db, err := sqlite.Open(name)
	must(t, err)
	letters, err := store.Open(t.Context(), db, store.SQLite, store.Config{})
	must(t, err)
	must(t, letters.Put(t.Context(), producer.Message{RoutingKey: "orders", ID: "unsent", OrderKey: "anna", Priority: 7}, producer.ErrReturned))
	must(t, db.Close())
	exported := filepath.Join(t.TempDir(), "all.jsonl")
	s.run(exitDone, "dlq", "export", "--store", name, "--file", exported)
	s.run(exitDone, "dlq", "import", "orders.dlq", exported)
	s.run(exitDone, "dlq", "move", "--store", name, "--all", "--yes", "--to", "orders.dlq")
	for _, m := range s.broker.Drain("orders.dlq") {
		if m.Headers["x-rehop-order-key"] != "anna" || m.Headers["x-rehop-priority"] != int64(7) || m.Priority != 7 {
			t.Errorf("%+v", m)
		}
	}
}

func TestALineThatIsNoLetterIsNotImported(t *testing.T) {
	s := open(t)
	file := filepath.Join(t.TempDir(), "fixed.json")
	must(t, os.WriteFile(file, []byte(`{"fixed":true}`), 0o600))
	s.run(exitFailed, "dlq", "import", "orders.dlq", file)
	s.prints(`unknown field "fixed"`, "line 1")
	s.has("orders.dlq", 6)
}

func TestNoPasswordOfAWrongPlaceIsShown(t *testing.T) {
	s := open(t)
	for _, place := range []string{"AMQP://u:sekret@h", "http://u:sekret@h", "postgres://u:sekret@h/db", "guest:sekret@h"} {
		for _, line := range []string{"dlq list", "dlq peek", "dlq move --all --yes --to orders"} {
			s.run(exitUsage, append(strings.Fields(line), place)...)
			if strings.Contains(s.out+s.err, "sekret") {
				t.Errorf("%s %s: %s%s", line, place, s.out, s.err)
			}
		}
		for _, line := range []string{"--vhost %s queues", "--config %s queues", "--config=%s queues", "dlq import orders.dlq %s", "redrives stop %s", "dlq export orders.dlq --file %s"} {
			s.run(-1, strings.Fields(strings.Replace(line, "%s", place, 1))...)
			if strings.Contains(s.out+s.err, "sekret") {
				t.Errorf("%s with %s: %s%s", line, place, s.out, s.err)
			}
		}
	}
}
