package work

import (
	"context"
	"errors"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/consumer/internal/consumertimeout"
	"github.com/rehop/rehop/consumer/internal/hand"
	"github.com/rehop/rehop/internal/confirm"
	"github.com/rehop/rehop/internal/route"
)

// latePublisher answers, without a confirm, when after is closed.
type latePublisher struct {
	after   chan struct{}
	answers sync.WaitGroup
}

var errNoAnswer = errors.New("no answer")

func (p *latePublisher) Send(_ context.Context, messages ...*confirm.Message) {
	p.answers.Go(func() {
		<-p.after
		for _, m := range messages {
			m.Err = errNoAnswer
			m.Report.Answered([]*confirm.Message{m})
		}
	})
}

func (p *latePublisher) Close() error {
	p.answers.Wait()
	return nil
}

func letterInstruction() *Instruction {
	o := &Instruction{Move: hand.Copy, To: route.Target{RoutingKey: "orders.dlq"}}
	o.Letter.Failure.Cause = rehop.CausePermanent
	return o
}

// copies returns the Copies of hands. They are kept for the longest time.
func (h *hands) copies(p Publisher) *Copies {
	return NewCopies(CopiesConfig{Pool: h.pool, Hand: h.Hand, Publisher: p, Hold: &consumertimeout.ConsumerTimeout{}})
}

// copy has the handler of a grant's one message return, and the message settled by a copy.
func (h *hands) copy(c *Copies, g *hand.Grant) {
	m := g.Of[0]
	h.settle(hand.Copy, m)
	c.Send(Task{m, letterInstruction()})
	h.Handled(&h.worker, g, time.Now())
}

// free fails the test if a slot is taken, or a message unsettled.
func (h *hands) free(t *testing.T) {
	t.Helper()
	now := h.lane.State(time.Now())
	full, copying := now.Copying, now.Copies
	if busy, left := h.lane.Busy(), h.lane.Unsettled(); busy != 0 || left != 0 || copying != 0 || !full.IsZero() {
		t.Fatalf("%d slots are taken, %d messages unsettled, %d copies awaited, since %v; want none", busy, left, copying, full)
	}
}

// A Run ends with copies on their way, and their answers come meanwhile.
func TestCloseOfCopiesWaitsForAnswersThatComeMeanwhile(t *testing.T) {
	for range 100 {
		stop, cancel := context.WithCancel(t.Context())
		copying, end := context.WithCancel(t.Context())
		p := &latePublisher{after: make(chan struct{})}
		h := newHands(1, 0)
		c := h.copies(p)
		s := h.open(t, &channel{}, stop, copying)
		s.deliver(1)
		h.copy(c, h.take(t))
		if h.lane.Busy() != 1 {
			t.Fatal("its slot is free before the answer")
		}
		cancel()
		end()
		s.writer.Close()
		close(p.after) // before the session is over it could still give the message back
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		if told, err := s.of(1); !told || !errors.Is(err, ErrSessionOver) {
			t.Fatalf("told %t, %v; want once, by %v", told, err, ErrSessionOver)
		}
		h.free(t)
	}
}

// A handler that ignores the stop may return after Run.
func TestACopyAfterCloseIsNotSent(t *testing.T) {
	stop, cancel := context.WithCancel(t.Context())
	cancel()
	p := &togetherPublisher{}
	h := newHands(1, 0)
	c := h.copies(p)
	s := h.open(t, &channel{}, stop, stop)
	s.deliver(1)
	g := h.take(t)
	s.writer.Close()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	h.copy(c, g)
	if told, err := s.of(1); !told || !errors.Is(err, ErrSessionOver) {
		t.Errorf("told %t, %v; want once, by %v", told, err, ErrSessionOver)
	}
	if len(p.sent) > 0 {
		t.Error("the copy is sent by a Publisher that is closed")
	}
	h.free(t)
}

// togetherPublisher answers what was sent when the test says so, all at once.
type togetherPublisher struct{ sent []*confirm.Message }

func (p *togetherPublisher) Send(_ context.Context, messages ...*confirm.Message) {
	p.sent = append(p.sent, messages...)
}
func (p *togetherPublisher) Close() error { return nil }

// After a reconnect copies of the session before and of the new one may be confirmed
// together. Their messages have the same tags.
func TestAnAckIsWrittenOnTheChannelOfItsOwnSession(t *testing.T) {
	p := &togetherPublisher{}
	h := newHands(8, 0)
	c := h.copies(p)
	var sessions []*opened
	var grants [][]*hand.Grant // by session, in the order of the tags
	channels := []*channel{{}, {}}
	for _, l := range channels {
		s := h.open(t, l, nil, nil)
		s.deliver(1, 2, 3)
		sessions, grants = append(sessions, s), append(grants, []*hand.Grant{h.take(t), h.take(t), h.take(t)})
	}
	before, after := grants[0], grants[1]
	for _, g := range []*hand.Grant{before[0], after[2], before[1], after[1]} {
		h.copy(c, g)
	}
	p.sent[0].Report.Answered(p.sent)
	for _, s := range sessions {
		s.writer.Close()
	}
	for i, want := range []map[uint64]string{{1: "ack", 2: "ack"}, {2: "ack", 3: "ack"}} {
		if got := channels[i].settled; !maps.Equal(got, want) {
			t.Errorf("on the channel of session %d: %v, want %v", i+1, got, want)
		}
		if n := sessions[i].count(); n != len(want) {
			t.Errorf("session %d is told of %d messages, want %d", i+1, n, len(want))
		}
	}
	if busy := h.lane.Busy(); busy != 2 {
		t.Errorf("%d slots are taken, want 2: of the messages that are not settled", busy)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// A copy whose session ends says nothing of its place: its first failure is that end.
func TestACopyThatEndsWithItsSessionIsNoFaultOfItsPlace(t *testing.T) {
	copying, end := context.WithCancel(t.Context())
	p := &latePublisher{after: make(chan struct{})}
	h := newHands(1, 0)
	c := h.copies(p)
	s := h.open(t, &channel{}, nil, copying)
	s.deliver(1)
	h.copy(c, h.take(t))
	end()
	close(p.after)
	s.writer.Close()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if err := c.Unconfirmed.Check("orders", time.Time{}, 0, time.Now()); err != nil {
		t.Errorf("Health says %v of a place that had no time to answer", err)
	}
	h.free(t)
}
