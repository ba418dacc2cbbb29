package confirm

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
)

func inFlight(id, key string) *Message {
	return &Message{Exchange: "shop", RoutingKey: key, Publishing: amqp.Publishing{MessageId: id}}
}

func TestAReturnIsMatchedByIDExchangeAndKey(t *testing.T) {
	c := &channel{returns: make(chan amqp.Return, 8)}
	other, twin1, twin2, key := inFlight("1", "a"), inFlight("2", "a"), inFlight("2", "a"), inFlight("2", "b")
	for _, m := range []*Message{other, twin1, twin2, key} {
		c.add(m)
	}
	c.returns <- amqp.Return{Exchange: "shop", RoutingKey: "a", MessageId: "2", ReplyCode: 312}
	c.returns <- amqp.Return{Exchange: "shop", RoutingKey: "a", MessageId: "gone"}
	c.drainReturns()
	for _, tt := range []struct {
		rule string
		m    *Message
		want bool
	}{
		{"another id", other, false},
		{"the same id", twin1, true},
		{"a message of the same id: rather doubled than lost", twin2, true},
		{"another key", key, false},
	} {
		if got := tt.m.returned != nil; got != tt.want {
			t.Errorf("%s: returned = %t, want %t", tt.rule, got, tt.want)
		}
	}
}

func TestMessagesInFlightLeaveInAnyOrder(t *testing.T) {
	ch := &channel{}
	a, b, c := inFlight("a", ""), inFlight("b", ""), inFlight("c", "")
	for _, m := range []*Message{a, b, c} {
		ch.add(m)
	}
	ch.remove(b)
	if ch.first != a || ch.last != c || a.next != c || c.prev != a || ch.count != 2 {
		t.Error("removing the middle breaks the list")
	}
	ch.remove(c)
	ch.remove(a)
	if ch.first != nil || ch.last != nil || ch.count != 0 {
		t.Error("the list is not empty at the end")
	}
}

func TestTheHeadIsTheMessageThatWasWrittenFirst(t *testing.T) {
	for _, tt := range []struct {
		rule string
		tags []uint64 // in the order in which the messages got their room
		want int
	}{
		{"written in order", []uint64{1, 2, 3}, 0},
		{"a later one was quicker", []uint64{2, 1, 3}, 1},
		{"the last is not written yet", []uint64{3, 2, 0}, 1},
		{"the first is not written yet", []uint64{0, 3, 2}, 2},
		{"one alone", []uint64{7}, 0},
	} {
		c := &channel{}
		var all []*Message
		for _, tag := range tt.tags {
			m := inFlight("", "")
			m.tag.Store(tag)
			c.add(m)
			all = append(all, m)
		}
		if got := c.head(); got != all[tt.want] {
			t.Errorf("%s: the head has tag %d, want %d", tt.rule, got.tag.Load(), tt.tags[tt.want])
		}
	}
}

// The channel ends at the moment at which it is asked whether it is closed, and
// releases the confirm of a message that was cut.
func TestTheEndOfAChannelIsNoRefusal(t *testing.T) {
	inBubble(t, Limits{Messages: 10}, func(s *fixture) {
		s.declare(nil, "silent")
		s.broker.Refuse("silent", true)
		session, err := s.conn.Session(s.Context(), connection.Publish)
		if err != nil {
			s.Fatal(err)
		}
		ch := session.Channel()
		if err := ch.Confirm(false); err != nil {
			s.Fatal(err)
		}
		m := to("silent", "1")
		m.cut = errHeldUp
		if m.confirm, err = ch.PublishWithDeferredConfirm("", m.RoutingKey, true, false, m.Publishing); err != nil {
			s.Fatal(err)
		}
		lost := readAnswers([]*Message{m}, func() bool {
			closed := ch.IsClosed()
			_ = session.Close()
			<-m.confirm.Done()
			return closed
		})
		if m.cut == nil && !lost {
			s.Error("a message whose channel ended counts as nacked by the broker")
		}
	})
}

func TestWhatARefusalIs(t *testing.T) {
	missing := &RefusedError{Exchange: "nowhere", Cause: &amqp.Error{Code: amqp.NotFound}}
	tooLarge := &RefusedError{Cause: &amqp.Error{Code: amqp.PreconditionFailed}}
	returned := &ReturnedError{}
	for _, tt := range []struct {
		rule      string
		err, is   error
		isNothing error
	}{
		{"a missing exchange takes no message", missing, ErrReturned, ErrRefused},
		{"a message that is not allowed", tooLarge, ErrRefused, ErrReturned},
		{"too large for a frame", &TooLargeError{}, ErrRefused, ErrReturned},
		{"no queue", returned, ErrReturned, ErrRefused},
	} {
		if !errors.Is(tt.err, tt.is) || errors.Is(tt.err, tt.isNothing) || errors.Is(tt.err, ErrUnconfirmed) {
			t.Errorf("%s: %v is of the wrong kind", tt.rule, tt.err)
		}
	}
}

// The collector takes the kick of a message that is being written, and does not have the
// message yet.
func TestAReportedMessageThatIsCutWhileItIsWrittenIsReported(t *testing.T) {
	inBubble(t, Limits{Messages: 10}, func(s *fixture) {
		s.declare(nil, "silent")
		s.broker.Refuse("silent", true)
		r := &reports{}
		before, m := to("silent", "1"), to("silent", "2")
		before.Report, m.Report = r, r
		r.all.Add(2)
		ctx, cancel := context.WithCancel(s.Context())
		defer cancel()
		s.p.Send(ctx, before)
		m.begin(ctx, &s.p.waiters)
		c := s.p.admit(m)
		if c == nil {
			s.Fatal("there is no room")
		}
		c.mu.Lock()
		c.cutOff(m, ErrLate)
		c.mu.Unlock()
		synctest.Wait()
		if err := c.write(m); err != nil {
			s.Fatal(err)
		}
		time.Sleep(lastTick)
		synctest.Wait()
		if len(r.batches) != 1 || r.batches[0][0] != m || !errors.Is(m.Err, ErrLate) {
			s.Errorf("reported: %v, with %v", r.batches, m.Err)
		}
		cancel()
		r.all.Wait()
	})
}

// A message that was not written goes to another channel.
func TestTheEndOfTheWaitingOnOneChannelSaysNothingOnTheNext(t *testing.T) {
	inBubble(t, Limits{Messages: 10}, func(s *fixture) {
		s.declare(nil, "open")
		if err := s.publish(s.Context(), to("open", "1")); err != nil {
			s.Fatal(err)
		}
		m := to("open", "2")
		m.begin(s.Context(), &s.p.waiters)
		c := s.p.admit(m)
		if c == nil {
			s.Fatal("there is no room")
		}
		c.mu.Lock()
		c.cutOff(m, errHeldUp)
		c.mu.Unlock()
		c.withdraw(m)
		if c = s.p.admit(m); c == nil {
			s.Fatal("there is no room")
		}
		if err := c.write(m); err != nil {
			s.Fatal(err)
		}
		if err := m.Wait(s.Context()); err != nil {
			s.Error(err)
		}
	})
}

func TestAStopLetsAMessageOnAChannelOfItsOwnAwaitItsAnswer(t *testing.T) {
	inBubble(t, Limits{Messages: 10}, func(s *fixture) {
		s.declare(nil, "silent")
		s.broker.Refuse("silent", true)
		stop, cancel := context.WithCancel(s.Context())
		m := to("silent", "1")
		sent := make(chan error, 1)
		go func() { sent <- s.publish(StopSending(Alone(s.Context()), stop), m) }()
		synctest.Wait()
		cancel()
		synctest.Wait()
		s.broker.Refuse("silent", false)
		if err := <-sent; err != nil {
			s.Errorf("a message that was written before the stop: %v", err)
		}
		if err := s.publish(StopSending(Alone(s.Context()), stop), to("silent", "2")); !errors.Is(err, ErrStopped) || errors.Is(err, ErrUnconfirmed) {
			s.Errorf("a message after the stop: %v", err)
		}
	})
}
