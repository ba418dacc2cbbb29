package hand_test

import (
	"slices"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/consumer/internal/hand"
	"github.com/rehop/rehop/consumer/internal/work"
	"github.com/rehop/rehop/internal/route"
)

// pool is a Hand with one lane and one session, whose workers are goroutines. It is the
// work.Lane of the lane.
type pool struct {
	*work.Pool
	hand   *hand.Hand
	lane   *hand.Lane
	in     *hand.Session
	handle func(*hand.Grant) run
}

// run is what becomes of a grant when its handler has returned: done, kept or a hand.Hold.
type run struct {
	hold hand.Hold
	kept func(confirm func())
}

// done has all messages of the grant acked.
var done run

// kept has all messages of the grant settled by copies. Each of those is confirmed when
// later, or somebody else for it, calls its argument.
func kept(later func(confirm func())) run { return run{kept: later} }

// held has the grant come again.
func held(h hand.Hold) run { return run{hold: h} }

func newPool(t *testing.T, limits hand.Limits, handle func(*hand.Grant) run) *pool {
	h := hand.New(limits.Slots, false)
	p := &pool{Pool: work.NewPool(h), hand: h, lane: h.Lane(limits), handle: handle}
	p.Add(p)
	ctx := t.Context()
	p.in = p.lane.Session(hand.Contexts{Stop: ctx, Cancel: func(error) {}, Working: ctx, Copying: ctx})
	return p
}

// deliver has a message come.
func (p *pool) deliver(tag uint64, key string) {
	var out hand.Out
	p.in.Delivered(&hand.Message{Raw: amqp.Delivery{DeliveryTag: tag}, Key: key, Received: time.Now(), Observer: observer{}}, &out)
	p.Do(&out)
}

// Handle is called by package work.
func (p *pool) Handle(w *hand.Worker, g *hand.Grant) (next *hand.Grant, ended bool) {
	p.hand.Runs(time.Now(), g.Of...)
	r := p.handle(g)
	switch {
	case r.kept != nil:
		ms := slices.Clone(g.Of)
		p.settle(hand.Copy, ms)
		r.kept(func() {
			var out hand.Out
			p.hand.CopyEnded(hand.Ack, time.Now(), &out, ms...)
			p.Do(&out)
		})
		return p.hand.Handled(w, g, time.Now())
	case r.hold.Kind != 0:
		return p.hand.Hold(w, g, r.hold, time.Now())
	}
	return p.hand.Handled(w, g, time.Now(), told(hand.Ack, g.Of)...)
}

// settle settles messages of a grant before its handler has returned.
func (p *pool) settle(v hand.Verb, ms []*hand.Message) {
	var out hand.Out
	p.hand.Settle(time.Now(), &out, told(v, ms)...)
	p.Do(&out)
}

func told(v hand.Verb, ms []*hand.Message) (all []hand.Told) {
	for _, m := range ms {
		all = append(all, hand.Told{Message: m, Verb: v})
	}
	return all
}

// acked checks that these are all the messages that the broker is to be told of, each once
// and by an ack.
func (p *pool) acked(t *testing.T, first, last uint64) {
	t.Helper()
	all, _, _ := p.in.Take(nil)
	times := map[uint64]int{}
	for _, a := range all {
		if a.Verb == hand.Ack {
			times[a.Raw.DeliveryTag]++
		}
	}
	for tag := first; tag <= last; tag++ {
		if times[tag] != 1 {
			t.Errorf("message %d is acked %d times", tag, times[tag])
		}
	}
	if n := int(last - first + 1); len(all) != n {
		t.Errorf("%d messages are settled, want %d", len(all), n)
	}
}

// end ends the workers.
func (p *pool) end() {
	p.Close()
	p.Wait()
}

// Copy is called by package work, and so is OutageBegan.
func (p *pool) Copy([]*hand.Message) {}

// OutageBegan is for nobody.
func (p *pool) OutageBegan() {}

// Blocked is for nobody.
func (p *pool) Blocked() {}

func (p *pool) TurnBegan() {}

// observer observes nothing.
type observer struct{}

func (observer) Copied(route.Target)             {}
func (observer) Confirmed(route.Target, bool)    {}
func (observer) Unconfirmed(route.Target, error) {}
func (observer) Settled(hand.Verb, error)        {}
