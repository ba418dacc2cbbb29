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
	"github.com/rehop/rehop/internal/confirm"
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

// A shard that is gone, or full, keeps no letter of another shard in its place. Once it has refused ten, no letter of it is tried.
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
		if !errors.Is(err, ErrTarget) || p.State != Failed || p.Done != 3 || p.Failed != 2*failuresInARow || p.Skipped != 0 || p.Matched != 60 {
			w.Errorf("%v: %+v, want the letters of the shards that are there sent", err, p)
		}
		for _, want := range []string{`queues "bills.02", "bills.03" refused 20 letters`, "37 letters to such queues were not tried"} {
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
		if !errors.Is(err, ErrTarget) || p.State != Failed || p.Done != 3 || !strings.Contains(p.Error, `queues "bills.02", "bills.03" refused 20 letters`) {
			w.Errorf("%v: %+v, want the letters of the shards that are there sent", err, p)
		}
		left := len(queues) - p.Done - p.Failed
		if p.Failed != 2*failuresInARow || p.Matched != len(queues) || p.Skipped != 0 || !strings.Contains(p.Error, fmt.Sprintf("%d letters to such queues were not tried", left)) {
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
				if !errors.Is(err, ErrTarget) || p.State != Failed || p.Failed != failuresInARow || p.Done+p.Failed != tt.limit || p.Skipped != 0 {
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

// Where ever more queues refuse letters, the redrive ends, and its error names some of them.
func TestTooManyQueuesThatRefuseEndARedrive(t *testing.T) {
	var queues []string
	for i := range 300 {
		queues = append(queues, fmt.Sprintf("gone.%03d", i))
	}
	queues = append(queues, "bills.00")
	texts := map[string]bool{}
	onBoth(t, queues, func(w *fixture, source Source) {
		p, err := source.Execute(w.Context(), Redrive{Action: Send, All: true}, nil)
		if !errors.Is(err, ErrTarget) || p.State != Failed || p.Done != 0 || p.Failed != refusingQueues || p.Skipped != 0 {
			w.Errorf("%v: %+v, want an end", err, p)
		}
		if want := `queues "gone.000", "gone.001", "gone.002", "gone.003", "gone.004" and 95 more refused 100 letters`; !strings.Contains(p.Error, want) || len(p.Error) > 1000 {
			w.Errorf("%q, want %q in it", p.Error, want)
		}
		texts[p.Error] = true
		w.has("bills.00", 0)
	})
	if len(texts) != 1 {
		t.Errorf("%v, want one text for letters in a queue and in a store", texts)
	}
}

// A queue gets no more letters for what other queues have refused.
func TestAQueueIsShutByItsOwnRefusals(t *testing.T) {
	var queues []string
	for i := range 90 {
		queues = append(queues, fmt.Sprintf("gone.%02d", i), "gone.00")
	}
	queues = append(queues, "bills.00")
	texts := map[string]bool{}
	onBoth(t, queues, func(w *fixture, source Source) {
		p, err := source.Execute(w.Context(), Redrive{Action: Send, All: true}, nil)
		if !errors.Is(err, ErrTarget) || p.State != Failed || p.Done != 1 || p.Failed != failuresInARow+89 || p.Matched != 181 {
			w.Errorf("%v: %+v, want one letter of each of 89 queues tried", err, p)
		}
		if !strings.Contains(p.Error, `queue "gone.00" refused 10 letters`) || !strings.Contains(p.Error, "81 letters to such queues were not tried") {
			w.Errorf("%q, want the queue that refused ten, and no other", p.Error)
		}
		texts[p.Error] = true
	})
	if len(texts) != 1 {
		t.Errorf("%v, want one text for letters in a queue and in a store", texts)
	}
}

func TestOutcomes(t *testing.T) {
	queue := func(name string) topology.Address { return topology.Address{RoutingKey: name} }
	type step struct {
		to  topology.Address
		err error // nil: it was taken
		n   int
	}
	late := errors.New("no answer")
	full, missing := fmt.Errorf("full: %w", confirm.ErrNacked), fmt.Errorf("missing: %w", confirm.ErrReturned)
	exchange := topology.Address{Exchange: "shop", RoutingKey: "a"}
	for _, tt := range []struct {
		rule    string
		one     bool
		steps   []step
		shut    int
		ends    string // empty: it goes on
		untried string // of err
	}{
		{"nine refusals are too few", false, []step{{queue("a"), missing, 9}}, 0, "", ""},
		{"ten shut the queue", false, []step{{queue("a"), full, 10}}, 1, "", `queue "a" refused 10 letters, for one: full`},
		{"a letter that is taken between begins a new count", false, []step{{queue("a"), full, 9}, {queue("a"), nil, 1}, {queue("a"), full, 9}}, 0, "", ""},
		{"one that another queue takes does not", false, []step{{queue("a"), full, 9}, {queue("b"), nil, 1}, {queue("a"), full, 1}}, 1, "", `queue "a" refused 10 letters`},
		{"a queue that takes a late one stays shut", false, []step{{queue("a"), full, 10}, {queue("a"), nil, 1}}, 1, "", `queue "a" refused 10 letters`},
		{"other failures end the redrive", false, []step{{queue("a"), late, 10}}, 0, "10 letters in a row, the last: no answer", ""},
		{"also of several targets", false, []step{{queue("a"), late, 5}, {exchange, missing, 5}}, 0, "10 letters in a row, the last: missing", ""},
		{"refusals between are counted", false, []step{{queue("a"), late, 5}, {queue("b"), full, 2}, {queue("a"), late, 5}}, 0, "12 letters in a row, the last: no answer", ""},
		{"a letter that is taken begins a new row", false, []step{{queue("a"), late, 9}, {queue("b"), nil, 1}, {queue("a"), late, 9}}, 0, "", ""},
		{"with one target its refusals end the redrive", true, []step{{queue("a"), missing, 10}}, 0, "10 letters in a row, the last: missing", ""},
	} {
		o := outcomes{one: tt.one}
		for _, s := range tt.steps {
			for range s.n {
				if o.sent(s.to); s.err == nil {
					o.taken(s.to)
				} else {
					o.failed(s.to, s.err)
				}
			}
		}
		if o.shut != tt.shut || o.ending() != (tt.ends != "") {
			t.Errorf("%s: %+v", tt.rule, o)
		}
		for _, text := range []struct {
			is   error
			want string
		}{{o.end(), tt.ends}, {o.err(0), tt.untried}} {
			if (text.is != nil) != (text.want != "") || text.is != nil && (!errors.Is(text.is, ErrTarget) || !strings.Contains(text.is.Error(), text.want)) {
				t.Errorf("%s: %v, want %q", tt.rule, text.is, text.want)
			}
		}
	}
}

// However many targets a redrive has, what it knows of them is bounded, and a queue that has refused is not forgotten.
func TestWhatIsKnownOfTargetsIsBounded(t *testing.T) {
	var o outcomes
	refusing := topology.Address{RoutingKey: "refusing"}
	o.sent(refusing)
	o.failed(refusing, confirm.ErrReturned)
	for i := range 3 * knownTargets {
		to := topology.Address{RoutingKey: fmt.Sprint(i)}
		o.sent(to)
		o.taken(to)
	}
	if len(o.targets) > knownTargets || o.targets[refusing] == nil || o.refusing != 1 {
		t.Errorf("%d targets are known, %d refuse", len(o.targets), o.refusing)
	}
}

// Letters that a redrive does not try fill what it takes of a queue. It says so, and the letters behind them stay.
func TestLettersBehindThoseThatAreNotTried(t *testing.T) {
	onEach(t, func(w *fixture) {
		deadBills(w, false, append(slices.Repeat([]string{"bills.07"}, 60), "bills.00"))
		live, err := NewLive(w.conn, "bills.dlq", LiveConfig{Journal: w.journal, Window: 40})
		must(w.T, err)
		p, err := live.Execute(w.Context(), Redrive{Action: Send, All: true}, nil)
		if !errors.Is(err, ErrTarget) || p.Done != 0 || p.Failed != failuresInARow || !strings.Contains(p.Note, "were not looked at: collect them") {
			w.Errorf("%v: %+v, want a note of the letters behind", err, p)
		}
		w.has("bills.dlq", 61)
	})
}

func TestSomeThatMayBeSent(t *testing.T) {
	var o outcomes
	to := func(name string) topology.Address { return topology.Address{RoutingKey: name} }
	for range 3 {
		o.sent(to("refuses"))
		o.failed(to("refuses"), confirm.ErrReturned)
	}
	o.sent(to("serves"))
	o.taken(to("serves"))
	for _, tt := range []struct {
		rule   string
		names  []string
		window int
		want   []int
	}{
		{"one that has refused three gets seven more", slices.Repeat([]string{"refuses"}, 12), 128, []int{0, 1, 2, 3, 4, 5, 6}},
		{"behind them go those of another one", append(slices.Repeat([]string{"refuses"}, 8), "serves"), 128, []int{0, 1, 2, 3, 4, 5, 6, 8}},
		{"no more than the window", slices.Repeat([]string{"serves"}, 12), 4, []int{0, 1, 2, 3}},
		{"a new one gets ten", slices.Repeat([]string{"new"}, 12), 128, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}},
		{"not from far behind", append(slices.Repeat([]string{"refuses"}, 8*9), "serves"), 9, []int{0, 1, 2, 3, 4, 5, 6}},
	} {
		if got := o.some(len(tt.names), tt.window, 0, func(i int) topology.Address { return to(tt.names[i]) }); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.rule, got, tt.want)
		}
	}
}

// A letter without a target takes its place in the limit, and costs no other turn: each turn counts as a delivery of every letter.
func TestALetterWithoutATargetCostsNoOtherTurn(t *testing.T) {
	inBubble(t, "4.3", func(w *fixture) {
		must(w.T, topology.Declare(w.Context(), w.conn, topology.Shards{Name: "bills", Count: 1}))
		for i := range 5 {
			_, err := w.broker.Publish(rehoptest.Message{RoutingKey: "bills.dlq", Publishing: amqp.Publishing{MessageId: fmt.Sprint("m-", i), DeliveryMode: amqp.Persistent}})
			must(w.T, err)
		}
		live, err := NewLive(w.conn, "bills.dlq", LiveConfig{Journal: w.journal})
		must(w.T, err)
		p, err := live.Execute(w.Context(), Redrive{Action: Send, All: true, Limit: 1}, nil)
		if err != nil || p.Skipped != 1 || p.Done != 0 || p.Note != errNoTarget.Error() {
			w.Errorf("%v: %+v, want one letter left out, and its reason", err, p)
		}
		w.has("bills.dlq", 5)
	})
}

// A queue that takes none hides no note of letters that were left for another reason.
func TestARedriveThatLeavesAQueueOutKeepsItsNotes(t *testing.T) {
	onBoth(t, append(slices.Repeat([]string{"bills.07"}, 12), "bills.00"), func(w *fixture, source Source) {
		list, err := source.List(w.Context(), Filter{}, Page{Look: true})
		must(w.T, err)
		gaveBack := make(chan error, 1)
		note := "1 letter in the hands of another process were left"
		switch from := source.(type) {
		case *storeSource:
			go func() {
				_, err := from.store.Replay(w.Context(), slowPublisher{}, store.Query{MessageIDs: []string{"m-12"}}, store.ReplayOptions{})
				gaveBack <- err
			}()
		case *Live:
			d, got, err := w.channel().Get("bills.dlq", false)
			if err != nil || !got {
				w.Fatalf("%v: %v", got, err)
			}
			gaveBack <- d.Ack(false)
			note = "1 letter of the look did not come"
		}
		time.Sleep(time.Second)
		p, err := source.Execute(w.Context(), Redrive{Action: Send, All: true, Look: list.Seen.At}, nil)
		if !errors.Is(err, ErrTarget) || p.Failed != failuresInARow || !strings.Contains(p.Note, note) {
			w.Errorf("%v: %+v, want the note %q", err, p, note)
		}
		must(w.T, <-gaveBack)
	})
}

// Of letters that nothing tells apart each is counted, once: as sent, failed, left out or not tried.
func TestEachOfEqualLettersIsCounted(t *testing.T) {
	others := make([]string, 12)
	for i := range others {
		others[i] = fmt.Sprint("m-", i)
	}
	equal := []string{"equal", "equal", "equal"}
	for _, tt := range []struct {
		rule    string
		ids     []string
		skipped int
		untried string
	}{
		{"behind those that shut the queue", slices.Concat(others, equal), 0, "5 letters to such queues were not tried"},
		{"before them", slices.Concat(equal, others), 2, "3 letters to such queues were not tried"},
		{"judged before the queue was shut", slices.Concat(others[:10], equal, others[10:]), 0, "5 letters to such queues were not tried"},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			inBubble(t, "4.3", func(w *fixture) {
				live := deadBills(w, false, nil).(*Live)
				for _, id := range tt.ids {
					_, err := w.broker.Publish(rehoptest.Message{RoutingKey: "bills.dlq", Publishing: amqp.Publishing{MessageId: id, DeliveryMode: amqp.Persistent,
						Headers: amqp.Table{"x-rehop-queue": "bills.07", "x-rehop-cause": "exhausted"}}})
					must(w.T, err)
				}
				p, err := live.Execute(w.Context(), Redrive{Action: Send, All: true}, nil)
				if !errors.Is(err, ErrTarget) || p.Matched != 15 || p.Failed != failuresInARow || p.Skipped != tt.skipped || !strings.Contains(p.Error, tt.untried) {
					w.Errorf("%v: %+v, want 15 matched, %d left out and %q", err, p, tt.skipped, tt.untried)
				}
			})
		})
	}
}

// Headers that name no exchange and no routing key name no target, and shut none for letters without headers.
func TestAnEmptyAddressIsNoTarget(t *testing.T) {
	inBubble(t, "4.3", func(w *fixture) {
		live := deadBills(w, false, []string{"bills.00"}).(*Live)
		for i := range 14 {
			headers := amqp.Table{"x-exception-message": "no stock", "x-original-exchange": "", "x-original-routingKey": ""}
			if i > 11 {
				headers = nil
			}
			_, err := w.broker.Publish(rehoptest.Message{RoutingKey: "bills.dlq", Publishing: amqp.Publishing{MessageId: fmt.Sprint("e-", i), DeliveryMode: amqp.Persistent, Headers: headers}})
			must(w.T, err)
		}
		p, err := live.Execute(w.Context(), Redrive{Action: Send, All: true}, nil)
		if err != nil || p.Done != 1 || p.Failed != 0 || p.Skipped != 14 || p.Note != "14 letters were left for want of a target; of the first one: its headers do not say which queue failed: name a target" {
			w.Errorf("%v: %+v, want 14 left without a target", err, p)
		}
	})
	inBubble(t, "4.3", func(w *fixture) {
		source := deadBills(w, true, []string{"bills.00"})
		for i := range 12 {
			must(w.T, source.(*storeSource).store.Collect(w.Context(), &consumer.Delivery{ID: fmt.Sprint("e-", i), Queue: "bills.dlq"}))
		}
		time.Sleep(time.Second)
		p, err := source.Execute(w.Context(), Redrive{Action: Send, All: true}, nil)
		if err != nil || p.Done != 1 || p.Failed != 0 || p.Skipped != 12 || p.Note != "12 letters were left for want of a target; of the first one: its headers do not say which queue failed: name a target" {
			w.Errorf("%v: %+v, want 12 left without a target", err, p)
		}
	})
}
