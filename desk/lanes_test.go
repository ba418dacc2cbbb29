package desk

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/internal/letter"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/store"
	"github.com/rehop/rehop/store/sqlite"
	"github.com/rehop/rehop/topology"
	"github.com/rehop/rehop/xdeath"
)

// The lanes of one work queue fail for one reason, and each letter goes back to its lane.
func TestLettersOfLanesAreOneGroup(t *testing.T) {
	onEach(t, func(w *fixture) {
		sms := topology.Lanes{Name: "eu.sms", Lanes: []topology.Lane{{Name: "express"}, {Name: "of.normal"}}, OneDeadLetterQueue: true}
		must(w.T, topology.Declare(w.Context(), w.conn, sms))
		for i := range 6 {
			queue := []string{"eu.sms.express", "eu.sms.of.normal", "bills"}[i%3]
			_, err := w.broker.Publish(rehoptest.Message{RoutingKey: "eu.sms.dlq", Publishing: amqp.Publishing{MessageId: fmt.Sprint("m-", i), DeliveryMode: amqp.Persistent,
				Headers: amqp.Table{"x-rehop-queue": queue, "x-rehop-cause": "exhausted", "x-rehop-error": fmt.Sprintf("no route to %d", i)}}})
			must(w.T, err)
		}
		live, err := NewLive(w.conn, "eu.sms.dlq", LiveConfig{Journal: w.journal})
		must(w.T, err)
		groups, err := live.Groups(w.Context(), Filter{})
		if err != nil || len(groups.Groups) != 2 || groups.Groups[0].Count != 4 {
			w.Fatalf("%v: %+v, want one group of both lanes, and one of another queue", err, groups.Groups)
		}
		byLane := letter.Fingerprint("eu.sms.express", "", rehop.CauseExhausted, "", "no route to 0") // of an earlier version
		if list, err := live.List(w.Context(), Filter{Fingerprint: byLane}, Page{}); err != nil || list.Matched != 2 {
			w.Errorf("%v: %d letters, want those of the lane", err, list.Matched)
		}
		p, err := live.Execute(w.Context(), Redrive{Action: Send, Filter: Filter{Fingerprint: groups.Groups[0].Fingerprint}}, nil)
		if err != nil || p.Done != 4 {
			w.Errorf("%v: %+v, want the group", err, p)
		}
		w.has("eu.sms.express", 2)
		w.has("eu.sms.of.normal", 2)
	})
}

// Lanes that have a dead-letter queue each are known by the exchange that leads to them.
func TestCollectedLettersOfLanesAreOneGroup(t *testing.T) {
	for _, tt := range []struct {
		rule, exchange string
		letters        func(lane string) string
		groups         int
	}{
		{"one dead-letter queue", "", func(string) string { return "sms.dlq" }, 1},
		{"a dead-letter queue each", "sms.lanes", func(lane string) string { return lane + ".dlq" }, 1},
		{"a dead-letter queue each, published to another exchange", "shop", func(lane string) string { return lane + ".dlq" }, 2},
		{"queues that are no lanes", "other.lanes", func(lane string) string { return lane + ".dlq" }, 2},
	} {
		t.Run(tt.rule, func(t *testing.T) { collectedLanes(t, tt.exchange, tt.letters, tt.groups) })
	}
}

func collectedLanes(t *testing.T, exchange string, deadLetters func(lane string) string, want int) {
	db, err := sqlite.Open(filepath.Join(t.TempDir(), "letters.db"))
	must(t, err)
	defer db.Close()
	letters, err := store.Open(t.Context(), db, store.SQLite, store.Config{})
	must(t, err)
	for i := range 4 {
		lane := []string{"sms.express", "sms.normal"}[i%2]
		d := &consumer.Delivery{ID: fmt.Sprint("m-", i), Exchange: exchange, RoutingKey: "sms", Queue: deadLetters(lane)}
		d.History.Queue, d.History.Failure = lane, xdeath.Failure{Cause: rehop.CauseExhausted, Error: fmt.Sprintf("no route to %d", i)}
		must(t, letters.Collect(t.Context(), d))
	}
	journal, err := OpenJournal(t.TempDir())
	must(t, err)
	collected, err := NewCollected(letters, nil, CollectedConfig{Journal: journal})
	must(t, err)
	for _, when := range []string{"collected", "edited"} {
		groups, err := collected.Groups(t.Context(), Filter{})
		if err != nil || len(groups.Groups) != want || groups.Groups[0].Count != 4/want {
			t.Errorf("%s: %v: %+v, want %d groups", when, err, groups.Groups, want)
		}
		body := []byte("mended")
		must(t, collected.Edit(t.Context(), groups.Groups[0].Example.ID, Edit{Body: &body}, By{}))
		if when == "edited" && !strings.HasPrefix(groups.Groups[0].Example.Queue, "sms.") {
			t.Errorf("the queue is %q", groups.Groups[0].Example.Queue)
		}
	}
}
