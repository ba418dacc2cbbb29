package desk

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/rehoptest"
)

// letters publishes letters of a work queue, each with a body of so many bytes.
func (w *fixture) letters(prefix string, n, size int) {
	w.Helper()
	for i := range n {
		_, err := w.broker.Publish(rehoptest.Message{RoutingKey: "orders.dlq", Publishing: amqp.Publishing{
			MessageId: fmt.Sprint(prefix, i), Body: make([]byte, size), Headers: amqp.Table{"x-rehop-queue": "orders", "x-rehop-cause": "exhausted"},
		}})
		must(w.T, err)
	}
}

// Letters that a look has handed back, of whatever process, are taken again by a redrive, all or none.
func TestARedriveAfterALookKeepsTheOrder(t *testing.T) {
	for name, redrive := range map[string]Redrive{
		"one of the first":      {Filter: Filter{MessageIDs: []string{"m-2"}}},
		"as many as the limit":  {All: true, Limit: 1},
		"all, and one by one":   {All: true, Limit: 3, Rate: 10},
		"one that is behind":    {Filter: Filter{MessageIDs: []string{"m-55"}}},
		"one that is not there": {Filter: Filter{MessageIDs: []string{"m-99"}}},
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(w *fixture) {
				w.dead()
				w.letters("m-", 60, 1000)
				other, err := NewLive(w.conn, "orders.dlq", LiveConfig{Journal: w.journal, Window: 40})
				must(w.T, err)
				_, err = other.Peek(w.Context(), 1)
				must(w.T, err)
				w.has("orders.dlq", 60)
				live, err := NewLive(w.conn, "orders.dlq", LiveConfig{Journal: w.journal, WindowBytes: 20_000})
				must(w.T, err)
				redrive.Action = Send
				p, err := live.Execute(w.Context(), redrive, nil)
				must(w.T, err)
				var want []string
				sent := map[string]bool{}
				q, _ := w.broker.Queue("orders")
				for _, m := range q.Ready {
					sent[m.MessageId] = true
				}
				for i := range 60 {
					if id := fmt.Sprint("m-", i); !sent[id] {
						want = append(want, id)
					}
				}
				w.has("orders.dlq", 60-p.Done)
				if got := w.ids("orders.dlq"); got != fmt.Sprint(want) || len(sent) != p.Done {
					w.Errorf("%d sent; the order is\n%s, want\n%s", p.Done, got, want)
				}
				list, err := other.Peek(w.Context(), 1)
				if err != nil || len(list.Letters) != 1 || list.Letters[0].Publishing.MessageId != want[0] {
					w.Errorf("a later look: %v: %+v", err, list)
				}
				w.has("orders.dlq", 60-p.Done)
				if got := w.ids("orders.dlq"); got != fmt.Sprint(want) {
					w.Errorf("after a look the order is\n%s, want\n%s", got, want)
				}
			})
		})
	}
}

// Nobody tells a redrive that the letters behind the first ones are large.
func TestARedriveIsBoundedByWhatItTakes(t *testing.T) {
	const large = 256 << 10
	for name, tt := range map[string]struct {
		redrive Redrive
		done    int
	}{
		"all":      {Redrive{All: true}, 16 + 60},
		"the last": {Redrive{Filter: Filter{MessageIDs: []string{"large-59"}}}, 1},
		"a canary": {Redrive{All: true, Canary: time.Minute}, 16 + 60},
		"none":     {Redrive{Filter: Filter{Text: "none"}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(w *fixture) {
				w.dead()
				w.letters("small-", 16, 100)
				w.letters("large-", 60, large)
				live, err := NewLive(w.conn, "orders.dlq", LiveConfig{Journal: w.journal, WindowBytes: 4 << 20})
				must(w.T, err)
				most := 0
				live.gap = func(moment string) {
					if moment != "tried" {
						return
					}
					q, _ := w.broker.Queue("orders.dlq")
					n := 0
					for _, m := range q.Unacked {
						n += len(m.Body)
					}
					most = max(most, n)
				}
				tt.redrive.Action = Send
				p, err := live.Execute(w.Context(), tt.redrive, nil)
				must(w.T, err)
				if p.Done != tt.done || p.Note != "" && p.Note != noMatch {
					w.Errorf("%+v, want %d done", p, tt.done)
				}
				if name == "all" && most > 2*16*large+1<<20 {
					w.Errorf("%d KiB were in hand", most>>10)
				}
				w.has("orders.dlq", 76-tt.done)
				ids := strings.Fields(strings.Trim(w.ids("orders.dlq"), "[]"))
				if !slices.IsSortedFunc(ids, func(a, b string) int { return strings.Compare(b[:1], a[:1]) }) {
					w.Errorf("the order is %v", ids)
				}
			})
		})
	}
}

// A letter that a redrive does not send needs no memory while it is in hand.
func TestARedriveKeepsNoBodyThatItDoesNotSend(t *testing.T) {
	inBubble(t, "4.3", func(w *fixture) {
		w.dead()
		w.letters("m-", 100, 1000)
		live := w.live()
		r := &liveRedrive{live: live, redrive: Redrive{Action: Send, Filter: Filter{MessageIDs: []string{"m-99"}}}}
		r.held = map[uint64]amqp.Delivery{}
		r.hold(amqp.Delivery{DeliveryTag: 1, ConsumerTag: "a", Body: make([]byte, 10)}, unlimited)
		r.hold(amqp.Delivery{DeliveryTag: 2, ConsumerTag: "a", Body: make([]byte, 10), Headers: amqp.Table{"x-delivery-count": int64(20)}}, 20)
		if len(r.held) != 2 || r.held[1].Body != nil || r.held[2].Body == nil {
			w.Errorf("%+v", r.held)
		}
	})
}
