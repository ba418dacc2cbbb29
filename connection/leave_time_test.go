package connection

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/internal/transport"
)

// answersLate is a peer that answers one method after a time, on channel 1, and
// counts the channels that the client closes.
type answersLate struct {
	peer
	late   method
	after  time.Duration
	mu     sync.Mutex
	closed []uint16
}

func newAnswersLate(m method, after time.Duration) *answersLate {
	p := &answersLate{late: m, after: after}
	p.script = func(c *peerConn, m method, channel uint16) bool {
		switch {
		case m == p.late && channel == 1:
			p.wg.Go(func() {
				time.Sleep(p.after)
				c.answer(m, channel)
			})
			return true
		case m == channelClose:
			p.mu.Lock()
			p.closed = append(p.closed, channel)
			p.mu.Unlock()
		}
		return false
	}
	return p
}

func (p *answersLate) closes() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.closed)
}

func TestACallThatIsLeftEndsItsSessionOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newAnswersLate(basicQos, 20*time.Second)
		c := bubble(t, &p.peer, Config{})
		s, other := session(t, c, Consume), session(t, c, Consume)
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("the request is over"))
		defer cancel()
		began := time.Now()
		check := func(what string, err error) {
			t.Helper()
			if !errors.Is(err, ErrSessionLost) || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "the request is over") {
				t.Errorf("%s = %v", what, err)
			}
			if took := time.Since(began); took != time.Second {
				t.Errorf("%s after %v", what, took)
			}
		}
		check("Do", s.Do(ctx, qos))
		<-s.Done()
		check("Err", s.Err())
		check("the next Do", s.Do(t.Context(), qos))
		if err := s.Close(); err != nil || time.Since(began) != time.Second {
			t.Errorf("Close = %v after %v", err, time.Since(began))
		}
		if err := other.Do(t.Context(), qos); err != nil {
			t.Errorf("the other session: %v", err)
		}
		if n := p.closes(); n != 0 {
			t.Errorf("%d channels closed before the answer", n)
		}
		time.Sleep(time.Hour)
		if n := p.closes(); n != 1 || len(p.accepted()) != 1 || other.Err() != nil {
			t.Errorf("%d channels closed, %d sockets, the other session: %v", n, len(p.accepted()), other.Err())
		}
	})
}

func TestACallWithoutAnswerCostsTheSocketAtOperationTimeoutOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newAnswersLate(basicQos, time.Hour)
		c := bubble(t, &p.peer, Config{})
		s, other := session(t, c, Consume), session(t, c, Consume)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		_ = s.Do(ctx, qos)
		<-other.Done()
		if took := time.Since(began); took != 30*time.Second || !strings.Contains(other.Err().Error(), "no reply from the broker within 30s") {
			t.Errorf("the other session ended after %v: %v", took, other.Err())
		}
	})
}

func TestAChannelThatComesLateIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newAnswersLate(channelOpen, 20*time.Second)
		c := bubble(t, &p.peer, Config{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if _, err := c.Session(ctx, Consume); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("Session = %v after %v", err, time.Since(began))
		}
		session(t, c, Consume)
		time.Sleep(time.Hour)
		if n := p.closes(); n != 1 || len(p.accepted()) != 1 {
			t.Errorf("%d channels closed, %d sockets; want one of each", n, len(p.accepted()))
		}
	})
}

func TestCloseOfASessionIsBounded(t *testing.T) {
	for name, c := range map[string]struct {
		late method
		busy bool
	}{
		"no answer":               {channelClose, false},
		"another call is waiting": {basicQos, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newAnswersLate(c.late, 20*time.Second)
				conn := bubble(t, &p.peer, Config{})
				s := session(t, conn, Consume)
				if c.busy {
					go s.Do(t.Context(), qos)
					synctest.Wait()
				}
				began := time.Now()
				err := s.Close()
				if took := time.Since(began); took != closeTimeout || !errors.Is(err, errCloseTimeout) || rehop.ClassOf(err) != rehop.ClassTransient {
					t.Errorf("Close = %v of class %v after %v", err, rehop.ClassOf(err), took)
				}
				if s.Err() == nil || s.Close() != nil {
					t.Errorf("Err = %v, and Close again is not nil", s.Err())
				}
				time.Sleep(time.Minute)
				if !s.Channel().IsClosed() || len(p.accepted()) != 1 || conn.State(Consume).Status != Up {
					t.Errorf("channel closed: %v, %d sockets", s.Channel().IsClosed(), len(p.accepted()))
				}
			})
		})
	}
}

func TestCloseOfASessionInAnAlarmWaitsForItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newAnswersLate(method{}, 0)
		c := bubble(t, &p.peer, Config{})
		s := session(t, c, Publish)
		p.accepted()[0].send(connectionBlocked, 0, short("low on memory"))
		synctest.Wait()
		if err := s.Close(); err != nil || !errors.Is(s.Err(), ErrSessionLost) {
			t.Errorf("Close = %v, Err = %v", err, s.Err())
		}
		var blocked *BlockedError
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := transport.Inside.Session(s).Ready(ctx); !errors.As(err, &blocked) {
			t.Errorf("Ready = %v", err)
		}
		time.Sleep(time.Hour)
		p.accepted()[0].send(connectionUnblocked, 0)
		synctest.Wait()
		if err := transport.Inside.Session(s).Ready(t.Context()); err != nil || !s.Channel().IsClosed() || c.State(Publish).Status != Up {
			t.Errorf("Ready = %v, channel closed: %v, %+v", err, s.Channel().IsClosed(), c.State(Publish))
		}
	})
}

func TestGivingUpASocketEndsItsSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := new(peer)
		c := bubble(t, p, Config{})
		s, other := session(t, c, Consume), session(t, c, Consume)
		if n := transport.Inside.Session(s).FrameSize(); n != 131072 {
			t.Errorf("FrameSize = %d", n)
		}
		if !transport.Inside.Session(s).Cork() || transport.Inside.Session(other).Cork() {
			t.Error("Cork does not tell the first caller from the second")
		}
		transport.Inside.Session(s).Uncork()
		cause := errors.New("its node is cut off")
		transport.Inside.Session(s).GiveUp(cause)
		<-other.Done()
		if err := other.Err(); !errors.Is(err, cause) || !errors.Is(err, ErrSessionLost) {
			t.Errorf("Err = %v", err)
		}
	})
}

func TestACallThatFailsInDoIsReturnedAsItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := bubble(t, new(peer), Config{})
		s := session(t, c, Consume)
		own := errors.New("mine")
		if err := s.Do(t.Context(), func(*amqp.Channel) error { return own }); !errors.Is(err, own) {
			t.Errorf("Do = %v", err)
		}
		if err := s.Do(t.Context(), qos); err != nil {
			t.Errorf("the next call: %v", err)
		}
	})
}
