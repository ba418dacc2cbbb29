package desk

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/store"
	"github.com/rehop/rehop/store/sqlite"
	"github.com/rehop/rehop/topology"
	"github.com/rehop/rehop/xdeath"
)

// bills are letters of shards, of which the last two do not exist any more.
func bills(w *fixture) (shards topology.Shards, queues []string) {
	shards = topology.Shards{Name: "bills", Count: 2}
	must(w.T, topology.Declare(w.Context(), w.conn, shards))
	for i := range 60 {
		queue := fmt.Sprintf("bills.%02d", 2+i%2)
		if i%20 == 19 {
			queue = fmt.Sprintf("bills.%02d", i/20%2)
		}
		queues = append(queues, queue)
	}
	return shards, queues
}

// A shard that is gone, or full, keeps no letter of another shard in its place. After ten failures no letter of it is tried.
func TestAShardThatTakesNothingKeepsNoOtherLetters(t *testing.T) {
	onEach(t, func(w *fixture) {
		shards, queues := bills(w)
		for i, queue := range queues {
			_, err := w.broker.Publish(rehoptest.Message{RoutingKey: "bills.dlq", Publishing: amqp.Publishing{MessageId: fmt.Sprint("m-", i), DeliveryMode: amqp.Persistent,
				Headers: amqp.Table{"x-rehop-queue": queue, "x-rehop-cause": "exhausted"}}})
			must(w.T, err)
		}
		live, err := NewLive(w.conn, "bills.dlq", LiveConfig{Journal: w.journal})
		must(w.T, err)
		p, err := live.Execute(w.Context(), Redrive{Action: Send, All: true}, nil)
		if !errors.Is(err, ErrTarget) || p.State != Failed || p.Done != 3 || p.Failed != failuresInARow || p.Skipped != 0 || p.Matched != 60 {
			w.Errorf("%v: %+v, want the letters of the shards that are there sent", err, p)
		}
		for _, want := range []string{`queue "bills.02"`, `queue "bills.03"`, "47 letters to such queues were not tried"} {
			if !strings.Contains(p.Error, want) {
				w.Errorf("no %q in %s", want, p.Error)
			}
		}
		w.has("bills.00", 2)
		w.has("bills.01", 1)
		w.has("bills.dlq", 57)

		shards.Count = 4
		must(w.T, topology.Declare(w.Context(), w.conn, shards))
		p, err = live.Resume(w.Context(), p.Redrive.ID, By{}, nil)
		if err != nil || p.State != Done || p.Done != 60 || p.MaybeDuplicate != 0 {
			w.Errorf("with all shards: %v: %+v", err, p)
		}
		w.has("bills.02", 30)
		w.has("bills.03", 27)
		w.has("bills.dlq", 0)
	})
}

// So it is with collected letters.
func TestAShardThatTakesNothingKeepsNoOtherCollectedLetters(t *testing.T) {
	db, err := sqlite.Open(filepath.Join(t.TempDir(), "letters.db"))
	must(t, err)
	defer db.Close()
	inBubble(t, "4.3", func(w *fixture) {
		letters, err := store.Open(w.Context(), db, store.SQLite, store.Config{})
		must(w.T, err)
		shards, queues := bills(w)
		queues = append(slices.Repeat([]string{"bills.02"}, 2*replayWindow), queues...)
		for i, queue := range queues {
			d := &consumer.Delivery{ID: fmt.Sprint("m-", i), RoutingKey: queue, Queue: "bills.dlq"}
			d.History.Queue, d.History.Failure = queue, xdeath.Failure{Cause: rehop.CauseExhausted}
			must(w.T, letters.Collect(w.Context(), d))
		}
		time.Sleep(time.Second)
		collected, err := NewCollected(letters, w.conn, CollectedConfig{Journal: w.journal})
		must(w.T, err)
		p, err := collected.Execute(w.Context(), Redrive{Action: Send, All: true}, nil)
		if !errors.Is(err, ErrTarget) || p.State != Failed || p.Done != 3 || !strings.Contains(p.Error, `queue "bills.02"`) {
			w.Errorf("%v: %+v, want the letters of the shards that are there sent", err, p)
		}
		left := len(queues) - p.Done - p.Failed
		if p.Failed != 227 || p.Matched != len(queues) || p.Skipped != 0 || !strings.Contains(p.Error, fmt.Sprintf("%d letters to such queues were not tried", left)) {
			w.Errorf("%+v, want the letters that were not tried in no other count", p)
		}
		untried := 0
		for after := int64(0); ; {
			entries, next, err := letters.Find(w.Context(), store.Query{Limit: 500, After: after})
			must(w.T, err)
			for _, one := range entries {
				if one.Tries == 0 && one.TryError == "" && one.State == store.Held {
					untried++
				}
			}
			if after = next; next == 0 {
				break
			}
		}
		if untried != left {
			w.Errorf("%d letters in the store are as they were, want the %d that were not tried", untried, left)
		}
		w.has("bills.00", 2)
		w.has("bills.01", 1)
		shards.Count = 4
		must(w.T, topology.Declare(w.Context(), w.conn, shards))
		p, err = collected.Resume(w.Context(), p.Redrive.ID, By{}, nil)
		if err != nil || p.State != Done || p.Done != len(queues) {
			w.Errorf("with all shards: %v: %+v", err, p)
		}
		w.has("bills.02", 2*replayWindow+30)
		w.has("bills.03", 27)
	})
}

// deadBills puts letters into a dead-letter queue of shards of which only the first exists, or into a store.
func deadBills(w *fixture, collected bool, queues []string) Source {
	w.Helper()
	must(w.T, topology.Declare(w.Context(), w.conn, topology.Shards{Name: "bills", Count: 1}))
	if !collected {
		for i, queue := range queues {
			_, err := w.broker.Publish(rehoptest.Message{RoutingKey: "bills.dlq", Publishing: amqp.Publishing{MessageId: fmt.Sprint("m-", i), DeliveryMode: amqp.Persistent,
				Headers: amqp.Table{"x-rehop-queue": queue, "x-rehop-cause": "exhausted"}}})
			must(w.T, err)
		}
		live, err := NewLive(w.conn, "bills.dlq", LiveConfig{Journal: w.journal})
		must(w.T, err)
		return live
	}
	db, err := sqlite.Open(filepath.Join(w.TempDir(), "letters.db"))
	must(w.T, err)
	w.Cleanup(func() { must(w.T, db.Close()) })
	letters, err := store.Open(w.Context(), db, store.SQLite, store.Config{})
	must(w.T, err)
	for i, queue := range queues {
		d := &consumer.Delivery{ID: fmt.Sprint("m-", i), RoutingKey: queue, Queue: "bills.dlq"}
		d.History.Queue, d.History.Failure = queue, xdeath.Failure{Cause: rehop.CauseExhausted}
		must(w.T, letters.Collect(w.Context(), d))
	}
	time.Sleep(time.Second)
	source, err := NewCollected(letters, w.conn, CollectedConfig{Journal: w.journal})
	must(w.T, err)
	return source
}

// onBoth runs a test on letters in a queue, and on collected ones.
func onBoth(t *testing.T, queues []string, do func(w *fixture, source Source)) {
	for _, collected := range []bool{false, true} {
		t.Run(map[bool]string{false: "live", true: "collected"}[collected], func(t *testing.T) {
			inBubble(t, "4.3", func(w *fixture) { do(w, deadBills(w, collected, queues)) })
		})
	}
}

// Letters that are not tried are none of those that Limit and Rate count.
func TestLimitAndRateCountLettersThatAreTried(t *testing.T) {
	queues := append(slices.Repeat([]string{"bills.07"}, 400), slices.Repeat([]string{"bills.00"}, 300)...)
	for _, tt := range []struct {
		rule  string
		limit int
		rate  float64
	}{
		{"a limit", 250, 0},
		{"a limit and a rate", 40, 10},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			onBoth(t, queues, func(w *fixture, source Source) {
				began := time.Now()
				p, err := source.Execute(w.Context(), Redrive{Action: Send, All: true, Limit: tt.limit, Rate: tt.rate}, nil)
				if !errors.Is(err, ErrTarget) || p.State != Failed || p.Done == 0 || p.Done+p.Failed != tt.limit || p.Skipped != 0 {
					w.Errorf("%v: %+v, want as many tried as the limit says", err, p)
				}
				w.has("bills.00", p.Done)
				if took, want := time.Since(began).Seconds(), float64(tt.limit)/max(tt.rate, 1); tt.rate > 0 && (took < want*0.7 || took > want*1.3) {
					w.Errorf("%v letters a second took %.1f s, want about %.1f", tt.rate, took, want)
				}
			})
		})
	}
}
