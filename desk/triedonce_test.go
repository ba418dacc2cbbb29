package desk

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/internal/pause"
	"github.com/rehop/rehop/internal/resend"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/store"
	"github.com/rehop/rehop/xdeath"
)

// slowPublisher is that of a process which has leased letters and gives them back unsent.
type slowPublisher struct{}

// PublishAll is that of store.Publisher.
func (slowPublisher) PublishAll(_ context.Context, messages []producer.Message) ([]producer.Receipt, error) {
	pause.For(context.Background(), 20*time.Second)
	return slices.Repeat([]producer.Receipt{{Err: resend.ErrUntried}}, len(messages)), nil
}

// cutOffWith begins a redrive as a process does that dies when it has tried letters.
func (w *fixture) cutOffWith(source Source, r Redrive, tried ...store.Entry) {
	w.Helper()
	r.Source, r.Created = source.About().Name, time.Now()
	b, err := w.journal.begin(r, nil)
	must(w.T, err)
	var keys []string
	for _, one := range tried {
		m, err := resend.Edited(resend.Message(one.Message, one.Queue), one.Queue, nil, nil)
		must(w.T, err)
		keys = append(keys, identityOf(m, one.Number))
	}
	must(w.T, errors.Join(b.write(entry{Try: keys}), b.file.Close(), b.release()))
}

// While a resumed redrive waits for a letter in other hands, it tries no letter again that was refused.
func TestARefusedLetterIsTriedOnceByAResume(t *testing.T) {
	inBubble(t, "4.3", func(w *fixture) {
		source := deadBills(w, true, []string{"bills.00", "bills.07"})
		letters := source.(*storeSource).store
		w.cutOffWith(source, Redrive{ID: "mine", Action: Send, All: true})
		gaveBack := make(chan error, 1)
		go func() {
			_, err := letters.Replay(w.Context(), slowPublisher{}, store.Query{MessageIDs: []string{"m-0"}}, store.ReplayOptions{})
			gaveBack <- err
		}()
		synctest.Wait()
		p, err := source.Resume(w.Context(), "mine", By{}, nil)
		if err != nil || p.State != Done || p.Done != 1 || p.Failed != 1 || p.Matched != 2 {
			w.Errorf("%v: %+v, want one sent and one refused", err, p)
		}
		must(w.T, <-gaveBack)
		found, _, err := letters.Find(w.Context(), store.Query{})
		if err != nil || len(found) != 1 || found[0].Message.ID != "m-1" || found[0].Tries != 1 {
			w.Errorf("%v: %+v, want the letter that was refused, tried once", err, found)
		}
	})
}

// A letter that an earlier process has tried, and that is refused now, takes one place in the limit.
func TestARefusedLetterTakesOnePlaceInTheLimit(t *testing.T) {
	inBubble(t, "4.3", func(w *fixture) {
		source := deadBills(w, true, append(slices.Repeat([]string{"bills.07"}, 3), slices.Repeat([]string{"bills.00"}, 10)...))
		found, _, err := source.(*storeSource).store.Find(w.Context(), store.Query{Limit: 3})
		must(w.T, err)
		w.cutOffWith(source, Redrive{ID: "mine", Action: Send, All: true, Limit: 6}, found...)
		p, err := source.Resume(w.Context(), "mine", By{}, nil)
		if err != nil || p.Done != 3 || p.Failed != 3 {
			w.Errorf("%v: %+v, want 3 refused and 3 sent", err, p)
		}
		w.has("bills.00", 3)
	})
}

// A redrive that waits for the letters of a process which has died meets those that cannot be sent in each of its passes.
// Each has one place in the limit, and no count of the progress falls.
func TestALetterThatCannotBeSentHasOnePlaceInTheLimit(t *testing.T) {
	inBubble(t, "4.3", func(w *fixture) {
		w.dead()
		letters, source := w.stored(0)
		for _, id := range []string{"no target", "too large 1", "too large 2", "m-0", "m-1", "m-2", "m-3"} {
			d := &consumer.Delivery{ID: id, RoutingKey: "orders", Queue: "orders.dlq"}
			d.History.Queue = "orders"
			switch {
			case id == "no target":
				d.RoutingKey, d.History.Queue = "", ""
			case strings.HasPrefix(id, "too large"):
				d.Headers = amqp.Table{"large": strings.Repeat("x", 70_000)}
			}
			d.History.Failure = xdeath.Failure{Cause: rehop.CauseExhausted, Error: "no stock"}
			must(w.T, letters.Collect(w.Context(), d))
		}
		time.Sleep(time.Second)
		w.cutOffWith(source, Redrive{ID: "mine", Action: Send, All: true, Limit: 7, Rate: 2})
		gaveBack := make(chan error, 1)
		go func() {
			_, err := letters.Replay(w.Context(), slowPublisher{}, store.Query{MessageIDs: []string{"m-0", "m-1"}}, store.ReplayOptions{})
			gaveBack <- err
		}()
		synctest.Wait()
		var last Progress
		p, err := source.Resume(w.Context(), "mine", By{}, func(p Progress) {
			if p.Failed < last.Failed || p.Skipped < last.Skipped || p.Done < last.Done || p.Matched < last.Matched {
				w.Errorf("%+v, and then %+v", last, p)
			}
			last = p
		})
		if err != nil || p.Done != 4 || p.Failed != 2 || p.Skipped != 1 || p.Matched != 7 {
			w.Errorf("%v: %+v, want 4 sent, 2 failed and 1 without a target", err, p)
		}
		must(w.T, <-gaveBack)
	})
}
