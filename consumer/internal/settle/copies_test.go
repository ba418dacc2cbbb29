package settle

import (
	"context"
	"errors"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/consumer/internal/flight"
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

func longHold() time.Duration { return time.Minute }

func letterInstruction() *Instruction {
	o := &Instruction{Move: Copy, To: route.Target{RoutingKey: "orders.dlq"}}
	o.Letter.Failure.Cause = rehop.CausePermanent
	return o
}

// A Run ends with copies on their way, and their answers come meanwhile.
func TestCloseOfCopiesWaitsForAnswersThatComeMeanwhile(t *testing.T) {
	for range 100 {
		stop, cancel := context.WithCancel(t.Context())
		copying, end := context.WithCancel(t.Context())
		released := 0
		p := &latePublisher{after: make(chan struct{})}
		c := NewCopies(CopiesConfig{
			Publisher: p, Slots: 4, Slot: itself,
			Hold:    longHold,
			Release: func(*flight.Message) { released++ },
			Failed:  func(*flight.Message, route.Target, error) {},
		})
		l, b := &channel{}, &ends{}
		s := NewAcker(Config{Ledger: flight.NewLedger(flight.NewUnsettled()), Channel: l, Socket: l, Copies: c, Copying: copying, Stop: stop, Ended: b.ended})
		m := arrived(s, 1)[0]
		m.Received = time.Now()
		if s.Do(Task{m, letterInstruction()}) != 1 {
			t.Fatal("its slot is free before the answer")
		}
		cancel()
		end()
		s.Close()
		close(p.after) // before the session is over it could still give the message back
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		if err, told := b.errs[1]; !told || !errors.Is(err, ErrSessionOver) || released != 1 {
			t.Fatalf("told %t, %v, released %d times; want once, by %v", told, err, released, ErrSessionOver)
		}
	}
}

// A handler that ignores the stop may return after Run.
func TestACopyAfterCloseIsNotSent(t *testing.T) {
	stop, cancel := context.WithCancel(t.Context())
	cancel()
	released := 0
	c := NewCopies(CopiesConfig{Publisher: &latePublisher{}, Slots: 4, Slot: itself, Hold: longHold, Release: func(*flight.Message) { released++ }})
	l, b := &channel{}, &ends{}
	s := NewAcker(Config{Ledger: flight.NewLedger(flight.NewUnsettled()), Channel: l, Socket: l, Copies: c, Copying: stop, Stop: stop, Ended: b.ended})
	m := arrived(s, 1)[0]
	s.Close()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	s.Do(Task{m, letterInstruction()})
	if err, told := b.errs[1]; !told || !errors.Is(err, ErrSessionOver) || released != 1 {
		t.Errorf("told %t, %v, released %d times; want once, by %v", told, err, released, ErrSessionOver)
	}
}

// togetherPublisher answers what was sent when answer is called, all at once.
type togetherPublisher struct{ sent []*confirm.Message }

func (p *togetherPublisher) Send(_ context.Context, messages ...*confirm.Message) {
	p.sent = append(p.sent, messages...)
}
func (p *togetherPublisher) Close() error { return nil }

// After a reconnect copies of the session before and of the new one may be confirmed
// together. Their messages have the same tags.
func TestAnAckIsWrittenOnTheChannelOfItsOwnSession(t *testing.T) {
	p := &togetherPublisher{}
	c := NewCopies(CopiesConfig{Publisher: p, Slots: 8, Slot: itself, Hold: longHold, Release: func(*flight.Message) {}})
	var sessions []*Acker
	channels := []*channel{{}, {}}
	told := []*ends{{}, {}}
	for i, l := range channels {
		sessions = append(sessions, NewAcker(Config{Ledger: flight.NewLedger(flight.NewUnsettled()), Channel: l, Socket: l, Copies: c,
			Copying: t.Context(), Stop: t.Context(), Ended: told[i].ended}))
	}
	before, after := arrived(sessions[0], 1, 2, 3), arrived(sessions[1], 1, 2, 3)
	for _, m := range []struct {
		s *Acker
		m *flight.Message
	}{{sessions[0], before[0]}, {sessions[1], after[2]}, {sessions[0], before[1]}, {sessions[1], after[1]}} {
		m.s.Do(Task{m.m, letterInstruction()})
	}
	p.sent[0].Report.Answered(p.sent)
	for _, s := range sessions {
		s.Close()
	}
	for i, want := range []map[uint64]string{{1: "ack", 2: "ack"}, {2: "ack", 3: "ack"}} {
		if got := channels[i].settled; !maps.Equal(got, want) {
			t.Errorf("on the channel of session %d: %v, want %v", i+1, got, want)
		}
		if n := len(told[i].errs); n != len(want) {
			t.Errorf("session %d is told of %d messages, want %d", i+1, n, len(want))
		}
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// itself gives each message a slot of its own.
func itself(m *flight.Message) any { return m }
