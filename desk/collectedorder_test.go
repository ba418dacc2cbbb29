package desk

import (
	"context"
	"testing"
	"time"

	"github.com/rehop/rehop/internal/confirm"
	"github.com/rehop/rehop/internal/resend"
	"github.com/rehop/rehop/producer"
)

// A letter that is on its way while somebody stops the order is confirmed, or resuming
// the order would send it twice.
func TestAStopAwaitsTheAnswer(t *testing.T) {
	inBubble(t, "4.3", func(w *fixture) {
		w.dead()
		b, err := w.journal.begin(Order{ID: "o-1", Source: "store letters", Action: Send, Created: time.Now()}, nil)
		must(w.T, err)
		publisher := confirm.New(w.conn, confirm.Limits{Messages: replayWindow})
		run, stop := context.WithCancelCause(w.Context())
		sender := resend.Sender{Publisher: &marking{order: &storeOrder{book: b, order: b.order, stop: stop}, publisher: publisher}}
		send := func(id string) []producer.Receipt { // as a Replay does
			return sender.Publish(run, []producer.Message{{RoutingKey: "orders", ID: id}}, func(int) bool { return false }, func(err error) { w.Error(err) })
		}

		send("m-0") // opens the channel
		w.broker.Slow(2 * time.Second)
		time.AfterFunc(time.Second, func() { stop(ErrStopped) })
		receipts := send("m-1")
		if run.Err() == nil {
			w.Fatal("the answer came before the stop")
		}
		if r := receipts[0]; r.Place != producer.PlaceQueue || r.Err != nil {
			w.Errorf("%+v, want it in the queue", r)
		}

		if r := send("m-2")[0]; r.Place != 0 || r.Err == nil {
			w.Errorf("after the stop: %+v, want an error", r)
		}
		w.broker.Slow(0)
		must(w.T, b.end(Progress{Order: b.order, State: Stopped}))
		must(w.T, publisher.Close())
		w.has("orders", 2)
	})
}
