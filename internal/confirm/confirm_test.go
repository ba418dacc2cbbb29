package confirm

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/transport"
)

// reports collects what is reported.
type reports struct {
	mu      sync.Mutex
	batches [][]*Message
	all     sync.WaitGroup
}

func (r *reports) Answered(messages []*Message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.batches = append(r.batches, append([]*Message(nil), messages...))
	r.all.Add(-len(messages))
}

func TestOutcomes(t *testing.T) {
	for _, reported := range []bool{false, true} {
		t.Run(fmt.Sprintf("reported %t", reported), func(t *testing.T) {
			inBubble(t, Limits{Messages: 10}, func(s *fixture) {
				s.declare(nil, "open")
				s.declare(amqp.Table{"x-max-length": int64(1), "x-overflow": "reject-publish"}, "full")
				if err := s.publish(s.Context(), to("full", "first")); err != nil {
					s.Fatal(err)
				}
				wrongUser := to("open", "user")
				wrongUser.Publishing.UserId = "somebody-else"
				nowhere := to("open", "nowhere")
				nowhere.Exchange = "nowhere"
				tooLarge := to("open", "large")
				tooLarge.Header = s.frame()
				for _, tt := range []struct {
					rule string
					m    *Message
					want error
				}{
					{"confirmed", to("open", "1"), nil},
					{"returned", to("missing", "2"), ErrReturned},
					{"nacked", to("full", "3"), ErrNacked},
					{"refused", wrongUser, ErrRefused},
					{"exchange missing", nowhere, ErrReturned},
					{"too large for a frame", tooLarge, ErrRefused},
					{"confirmed after all that", to("open", "4"), nil},
				} {
					var err error
					if reported {
						r := &reports{}
						r.all.Add(1)
						tt.m.Report = r
						s.p.Send(s.Context(), tt.m)
						r.all.Wait()
						err = tt.m.Err
					} else {
						err = s.publish(s.Context(), tt.m)
					}
					for _, known := range []error{ErrReturned, ErrNacked, ErrRefused, ErrUnconfirmed} {
						if errors.Is(err, known) != errors.Is(tt.want, known) {
							s.Errorf("%s: %v", tt.rule, err)
						}
					}
				}
				if n := s.in("open"); n != 2 {
					s.Errorf("%d messages in the queue, want 2", n)
				}
			})
		})
	}
}

func (s *fixture) frame() int {
	session, err := s.conn.Session(s.Context(), connection.Publish)
	if err != nil {
		s.Fatal(err)
	}
	defer session.Close()
	return transport.Inside.Session(session).FrameSize()
}

// All that is in flight when the broker closes the channel gets its own answer.
func TestARefusedMessageHarmsNoOther(t *testing.T) {
	inBubble(t, Limits{Messages: 100}, func(s *fixture) {
		s.declare(nil, "open")
		r := &reports{}
		var messages []*Message
		for i := range 50 {
			m := to("open", fmt.Sprint(i))
			m.Report = r
			if i == 20 {
				m.Publishing.UserId = "somebody-else"
			}
			messages = append(messages, m)
		}
		r.all.Add(len(messages))
		s.p.Send(s.Context(), messages...)
		r.all.Wait()
		for i, m := range messages {
			if i == 20 {
				if !errors.Is(m.Err, ErrRefused) || m.Repeated {
					s.Errorf("the refused message: %v, repeated %t", m.Err, m.Repeated)
				}
			} else if m.Err != nil {
				s.Errorf("message %d: %v", i, m.Err)
			}
		}
	})
}

// Messages that are confirmed together are reported together, in their order.
func TestReportsComeInTheOrderOfSending(t *testing.T) {
	inBubble(t, Limits{Messages: 10}, func(s *fixture) {
		s.declare(nil, "open")
		const n = 100 // ten times the window
		r := &reports{}
		r.all.Add(n)
		messages := make([]*Message, n)
		for i := range messages {
			messages[i] = to("open", fmt.Sprint(i))
			messages[i].Report, messages[i].Number = r, i
		}
		s.p.Send(s.Context(), messages...)
		r.all.Wait()
		reported := map[int]bool{}
		for _, batch := range r.batches {
			for i, m := range batch {
				if m.Err != nil || reported[m.Number] || i > 0 && m.Number <= batch[i-1].Number {
					s.Fatalf("message %d (%v) is number %d of a report", m.Number, m.Err, i)
				}
				reported[m.Number] = true
			}
		}
		if n := s.in("open"); n != 100 {
			s.Errorf("%d messages in the queue, want 100", n)
		}
	})
}

// The room of a message that nobody waits for is taken until it is answered.
func TestTheWindowIsAWindow(t *testing.T) {
	inBubble(t, Limits{Messages: 2}, func(s *fixture) {
		s.declare(amqp.Table{"x-queue-type": "quorum"}, "q")
		if err := s.publish(s.Context(), to("q", "0")); err != nil {
			s.Fatal(err)
		}
		s.broker.Refuse("q", true)
		for i := range 2 {
			brief, cancel := context.WithTimeout(s.Context(), 10*time.Millisecond)
			defer cancel()
			if err := s.publish(brief, to("q", fmt.Sprint(i))); !errors.Is(err, ErrUnconfirmed) || !errors.Is(err, context.DeadlineExceeded) {
				s.Errorf("a message without an answer: %v", err)
			}
		}
		briefer, cancel := context.WithTimeout(s.Context(), 10*time.Millisecond)
		defer cancel()
		err := s.publish(briefer, to("q", "2"))
		if err == nil || errors.Is(err, ErrUnconfirmed) || rehop.ClassOf(err) != rehop.ClassTransient {
			s.Errorf("a message for which there is no room: %v, %v", err, rehop.ClassOf(err))
		}
		s.broker.Refuse("q", false)
		if err := s.publish(s.Context(), to("q", "3")); err != nil {
			s.Error(err)
		}
		if n := s.in("q"); n != 4 {
			s.Errorf("%d messages in the queue, want 4", n)
		}
	})
}

func TestTheWindowIsBoundedInBytes(t *testing.T) {
	inBubble(t, Limits{Messages: 100, Bytes: 1000}, func(s *fixture) {
		s.declare(amqp.Table{"x-queue-type": "quorum"}, "q")
		s.broker.Refuse("q", true)
		r := &reports{}
		sized := func(n int) *Message {
			m := to("q", "")
			m.Publishing.Body, m.Report = make([]byte, n), r
			r.all.Add(1)
			return m
		}
		var sent [4]bool
		for i, n := range []int{5000, 400, 400, 400} { // the first one is let through, alone
			go func() {
				s.p.Send(s.Context(), sized(n))
				sent[i] = true
			}()
			synctest.Wait()
		}
		if sent != [4]bool{true, false, false, false} {
			s.Errorf("sent beside a message larger than the bound: %v", sent)
		}
		s.broker.Refuse("q", false)
		synctest.Wait()
		r.all.Wait()
	})
}

// A message whose Timeout ends is unconfirmed; one that was not sent is not.
func TestTimeout(t *testing.T) {
	inBubble(t, Limits{Messages: 1}, func(s *fixture) {
		s.declare(amqp.Table{"x-queue-type": "quorum"}, "q")
		if err := s.publish(s.Context(), to("q", "0")); err != nil {
			s.Fatal(err)
		}
		s.broker.Refuse("q", true)
		for _, reported := range []bool{false, true} {
			for i, unconfirmed := range []bool{!reported, false} {
				m := to("q", "x")
				m.Timeout = 500 * time.Millisecond
				began := time.Now()
				var err error
				if reported {
					r := &reports{}
					r.all.Add(1)
					m.Report = r
					s.p.Send(s.Context(), m)
					r.all.Wait()
					err = m.Err
				} else {
					err = s.publish(s.Context(), m)
				}
				if !errors.Is(err, ErrLate) || errors.Is(err, ErrUnconfirmed) != unconfirmed {
					s.Errorf("message %d, reported %t: %v", i, reported, err)
				}
				if took := time.Since(began); took != 500*time.Millisecond {
					s.Errorf("it took %v", took)
				}
			}
		}
		s.broker.Refuse("q", false)
	})
}
