package sim

import (
	"cmp"
	"context"
	"fmt"

	"github.com/rehop/rehop/consumer"
)

// orderKeys is how many keys the messages have, in turns, where a plan does not say.
const orderKeys = 8

func (p plan) orderKeys() int { return cmp.Or(p.keys, orderKeys) }

func (p plan) orderKey(n int) string { return fmt.Sprintf("customer-%d", n%p.orderKeys()) }

// slots returns how many messages of so many keys a service handles at a time.
func (c consumerPlan) slots(keys int) int {
	if c.perKey == 0 {
		return c.concurrency
	}
	return min(c.concurrency, c.perKey*keys)
}

// hands are the runs of handlers with a key in one process.
type hands map[*consumer.Delivery]context.Context

// With a limit of 1 a delivery keeps its key until it is settled: no other is handled between
// its attempts in place, nor while it is held.
//
// take notes that a handler of a process begins, and that no more of one key are at work
// than the process allows. end notes its end. A handler whose ctx has ended counts no
// more: its session is lost, or its time is over, and another may have begun.
func (w *trial) take(ctx context.Context, d *consumer.Delivery, name string) (end func()) {
	limit := w.perKey(name)
	if limit == 0 {
		return func() {}
	}
	w.mu.Lock()
	where := name + " " + d.Queue + " " + d.OrderKey // each lane counts its own
	body := &d.Body[0]
	between := limit == 1 && w.begun[body] && w.own[where] != body
	w.begun[body], w.own[where] = true, body
	inHand := w.inHand[where]
	if inHand == nil {
		inHand = hands{}
		w.inHand[where] = inHand
	}
	inHand[d] = ctx
	alive := 0
	for _, one := range inHand {
		if one.Err() == nil {
			alive++
		}
	}
	w.mu.Unlock()
	if between {
		w.violate("%s: another message of its key is handled between attempts of message %s, want one at a time", name, d.ID)
	}
	if alive > limit {
		w.violate("%s: message %s is handled beside %d of its key, want %d at a time", name, d.ID, alive-1, limit)
	}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(inHand, d)
	}
}

// keepsOrder notes that a handler begins with a message, and that none of its key which was
// published later has been before it, if the scenario makes none overtake another.
func (w *trial) keepsOrder(d *consumer.Delivery, n int) {
	if !w.plan.ordered {
		return
	}
	w.mu.Lock()
	latest := w.latest[d.OrderKey]
	w.latest[d.OrderKey] = max(latest, n)
	w.mu.Unlock()
	if n < latest {
		w.violate("message %s is handled after one of its key that was published later", d.ID)
	}
}

// perKey returns the KeyLimit of a process.
func (w *trial) perKey(name string) int {
	for i, c := range w.plan.consumers {
		if consumerName(i) == name {
			return c.perKey
		}
	}
	return 0
}
