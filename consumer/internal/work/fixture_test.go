package work

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/consumer/internal/hand"
	"github.com/rehop/rehop/internal/route"
)

// hands is a Hand of one lane with its Pool, and the test in the place of its workers.
type hands struct {
	*hand.Hand
	lane   *hand.Lane
	pool   *Pool
	worker hand.Worker
}

// newHands returns hands with so many slots. With batch messages that wait are one grant.
func newHands(slots, batch int) *hands {
	h := hand.New(slots, false)
	lane := h.Lane(hand.Limits{Slots: slots, Batch: hand.Batch{Size: batch, Bytes: 1}})
	return &hands{Hand: h, lane: lane, pool: NewPool(h), worker: hand.Worker{Woken: hand.NewSignal()}}
}

// opened is a session with its Writer, and what its messages are told.
type opened struct {
	*hand.Session
	*ends
	hands  *hands
	writer *Writer
}

// open returns a session, which is to be closed. Stop, or Copying, may be nil: it does not end.
func (h *hands) open(t *testing.T, l *channel, stop, copying context.Context) *opened {
	ever := context.WithoutCancel(t.Context())
	if stop == nil {
		stop = ever
	}
	if copying == nil {
		copying = ever
	}
	_, leave := context.WithCancelCause(ever)
	s := h.lane.Session(hand.Contexts{Stop: stop, Cancel: leave, Working: ever, Copying: copying})
	return &opened{Session: s, ends: &ends{}, hands: h, writer: h.pool.Write(s, l, l)}
}

// start returns a session of its own hands that is closed at the end of the test.
func start(t *testing.T, l *channel, stop context.Context) *opened {
	s := newHands(64, 0).open(t, l, stop, nil)
	t.Cleanup(s.writer.Close)
	return s
}

// deliver has messages come.
func (s *opened) deliver(tags ...uint64) (ms []*hand.Message) {
	var out hand.Out // the test is the worker that is to be started
	for _, tag := range tags {
		m := &hand.Message{Raw: amqp.Delivery{DeliveryTag: tag}, Received: time.Now(), Observer: &observer{s.ends, tag}}
		s.Delivered(m, &out)
		ms = append(ms, m)
	}
	return ms
}

// take has a worker take what waits.
func (h *hands) take(t *testing.T) *hand.Grant {
	t.Helper()
	g, _ := h.Next(&h.worker, time.Now())
	if g == nil {
		t.Fatal("a worker gets no message")
	}
	h.worker.Out.Clear() // it calls the next worker, which is the test
	return g
}

// arrived has messages come, and a worker take each.
func (s *opened) arrived(t *testing.T, tags ...uint64) []*hand.Message {
	t.Helper()
	ms := s.deliver(tags...)
	for range ms {
		s.hands.take(t)
	}
	return ms
}

// settle settles messages of which workers have the grants.
func (h *hands) settle(v hand.Verb, ms ...*hand.Message) {
	var out hand.Out
	for _, m := range ms {
		h.Settle(time.Now(), &out, hand.Told{Message: m, Verb: v})
	}
	h.pool.Do(&out)
}

// ends is what the Observers of a session's messages are told.
type ends struct {
	mu   sync.Mutex
	errs map[uint64]error
}

// of returns how a message has ended.
func (b *ends) of(tag uint64) (told bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	err, told = b.errs[tag]
	return told, err
}

// count returns how many messages have ended.
func (b *ends) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.errs)
}

// observer is the Observer of one message.
type observer struct {
	ends *ends
	tag  uint64
}

func (o *observer) Copied(route.Target)             {}
func (o *observer) Confirmed(route.Target, bool)    {}
func (o *observer) Unconfirmed(route.Target, error) {}

func (o *observer) Settled(_ hand.Verb, err error) {
	b := o.ends
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.errs == nil {
		b.errs = map[uint64]error{}
	}
	if _, again := b.errs[o.tag]; again {
		err = errors.New("settled twice")
	}
	b.errs[o.tag] = err
}
