package confirm

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rehop/rehop/internal/transport"
)

// counted is a socket that counts how often it is asked.
type counted struct {
	transport.Transport
	asked atomic.Int64
}

func (c *counted) Unready() (<-chan struct{}, time.Time) {
	c.asked.Add(1)
	return c.Transport.Unready()
}

// sendReported sends m and returns the reports that it will be among.
func (s *fixture) sendReported(ctx context.Context, m *Message) *reports {
	r := &reports{}
	r.all.Add(1)
	m.Report = r
	s.p.Send(ctx, m)
	return r
}

// inAnAlarm runs a test in a bubble where the broker has just blocked publishers, with m
// written and not read.
func inAnAlarm(t *testing.T, ctx func(context.Context) context.Context, m *Message, test func(s *fixture, r *reports, socket *counted)) {
	t.Helper()
	inBubble(t, Limits{Messages: 10}, func(s *fixture) {
		s.declare(nil, m.RoutingKey)
		if err := s.publish(s.Context(), to(m.RoutingKey, "before")); err != nil {
			s.Fatal(err)
		}
		time.Sleep(time.Minute) // nobody watches any more
		synctest.Wait()
		c := s.p.main.Load()
		socket := &counted{Transport: c.socket}
		c.socket = socket
		s.broker.Block("low on memory")
		r := s.sendReported(ctx(s.Context()), m)
		synctest.Wait()
		test(s, r, socket)
	})
}

func TestAnAlarmCostsALookForEachHeartbeat(t *testing.T) {
	inAnAlarm(t, func(ctx context.Context) context.Context { return ctx }, to("open", "1"), func(s *fixture, r *reports, socket *counted) {
		time.Sleep(time.Second)
		before := socket.asked.Load()
		const hours, heartbeat = 7, 5 * time.Second
		time.Sleep(hours * time.Hour)
		if asked, most := socket.asked.Load()-before, int64(3*hours*time.Hour/heartbeat); asked > most {
			s.Errorf("the socket was asked %d times in %d h, want at most %d", asked, hours, most)
		}
		s.broker.Unblock()
		r.all.Wait()
	})
}

func TestTheWaitingInAnAlarmEndsInTime(t *testing.T) {
	errEnded := errors.New("the caller has ended it")
	const limit = 2*time.Hour + 1700*time.Millisecond // between two heartbeats
	for _, tt := range []struct {
		rule string
		ctx  func(context.Context) context.Context // nil: the test's
		m    func(m *Message)
		end  func(s *fixture)
		want error
	}{
		{rule: "its ctx ends", want: errEnded, ctx: func(ctx context.Context) context.Context {
			ctx, cancel := context.WithCancelCause(ctx)
			time.AfterFunc(limit, func() { cancel(errEnded) })
			return ctx
		}},
		{rule: "its Timeout", want: ErrLate, m: func(m *Message) { m.Timeout = limit }},
		{rule: "its AnswerUntil", want: ErrImpatient, m: func(m *Message) { m.AnswerUntil = time.Now().Add(limit) }},
		{rule: "its patience with the outage", want: ErrImpatient, m: func(m *Message) { m.AnswerPatience = limit }},
		{rule: "the end of the alarm", end: func(s *fixture) { s.broker.Unblock() }},
		{rule: "the end of the connection", end: func(s *fixture) { s.broker.Cut("") }, want: ErrUnconfirmed},
		{rule: "the end of the Publisher", end: func(s *fixture) { s.p.GiveUp(errEnded) }, want: errEnded},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			m := to("open", "1")
			ctx := func(ctx context.Context) context.Context {
				if tt.m != nil {
					tt.m(m)
				}
				if tt.ctx != nil {
					return tt.ctx(ctx)
				}
				return ctx
			}
			inAnAlarm(t, ctx, m, func(s *fixture, r *reports, _ *counted) {
				began := time.Now()
				if tt.end != nil {
					time.AfterFunc(limit, func() { tt.end(s) })
				}
				r.all.Wait()
				if took := time.Since(began); took < limit || took > limit+lookEvery {
					s.Errorf("after %v, want %v", took, limit)
				}
				if !errors.Is(m.Err, tt.want) || tt.want == nil && m.Err != nil {
					s.Errorf("%v, want %v", m.Err, tt.want)
				}
			})
		})
	}
}

// The time of an alarm, in which nobody looks, does not count as silence of a target.
func TestSilenceCountsFromTheEndOfAnAlarm(t *testing.T) {
	inAnAlarm(t, func(ctx context.Context) context.Context { return ctx }, to("open", "1"), func(s *fixture, r *reports, _ *counted) {
		time.Sleep(time.Hour)
		s.broker.Refuse("open", true)
		s.broker.Unblock()
		over := time.Now()
		time.Sleep(silence - lookEvery - time.Millisecond)
		if o := s.p.Outage(); o.Cause != nil {
			s.Errorf("%v after the alarm: %+v", time.Since(over), o)
		}
		time.Sleep(2 * lookEvery)
		if o := s.p.Outage(); o.Cause == nil || o.Since.Before(over) {
			s.Errorf("%v after the alarm: %+v, want a target that is silent since its end", time.Since(over), o)
		}
		s.broker.Refuse("open", false)
		r.all.Wait()
	})
}

// Once nothing has come for long, the collector looks only after the broker has sent
// something: an answer to a later message still ends its waiting soon.
func TestALateAnswerBehindAMessageWithoutOne(t *testing.T) {
	inBubble(t, Limits{Messages: 10}, func(s *fixture) {
		s.declare(nil, "open", "closed")
		s.broker.Refuse("open", true)
		s.broker.Refuse("closed", true)
		first := s.sendReported(s.Context(), to("closed", "1"))
		second := s.sendReported(s.Context(), to("open", "2"))
		time.Sleep(silence / 2)
		began := time.Now()
		s.broker.Refuse("open", false)
		second.all.Wait()
		if took := time.Since(began); took > lastTick {
			s.Errorf("the answer was reported after %v, want at most %v", took, lastTick)
		}
		// A limit that comes while the collector listens is kept as well.
		third := to("closed", "3")
		third.Timeout = silence / 10
		time.Sleep(5 * lastTick)
		began = time.Now()
		s.sendReported(s.Context(), third).all.Wait()
		if took := time.Since(began); took != third.Timeout || !errors.Is(third.Err, ErrLate) {
			s.Errorf("%v after %v, want %v after %v", third.Err, took, ErrLate, third.Timeout)
		}
		s.broker.Refuse("closed", false)
		first.all.Wait()
	})
}

// The messages that the broker has not answered stay in flight until Close.
func TestNobodyLooksOnceThePublisherHasGivenUpInAnAlarm(t *testing.T) {
	inAnAlarm(t, func(ctx context.Context) context.Context { return ctx }, to("open", "1"), func(s *fixture, r *reports, socket *counted) {
		time.Sleep(time.Second)
		s.p.GiveUp(ErrClosed)
		r.all.Wait()
		before := socket.asked.Load()
		for range 100_000 { // the bubble's time stands
			runtime.Gosched()
		}
		if asked := socket.asked.Load() - before; asked > 5 {
			s.Errorf("the socket was asked %d times in no time", asked)
		}
	})
}

// slow is a socket that has something happen in the middle of a publish.
type slow struct {
	transport.Transport
	ready chan func() // what happens after the next Unready
	write chan func() // what happens before the next Cork
}

func newSlow(c *channel) *slow {
	s := &slow{Transport: c.socket, ready: make(chan func(), 1), write: make(chan func(), 1)}
	c.socket = s
	return s
}

func happens(now chan func()) {
	select {
	case f := <-now:
		f()
	default:
	}
}

func (s *slow) Unready() (<-chan struct{}, time.Time) {
	over, since := s.Transport.Unready()
	happens(s.ready)
	return over, since
}

func (s *slow) Cork() bool {
	happens(s.write)
	return s.Transport.Cork()
}

// The collector listens, and learns of the cut before it has the message.
func TestAMessageThatIsCutWhileItIsWritten(t *testing.T) {
	inBubble(t, Limits{Messages: 10}, func(s *fixture) {
		s.declare(nil, "open", "closed")
		if err := s.publish(s.Context(), to("open", "before")); err != nil {
			s.Fatal(err)
		}
		s.broker.Refuse("closed", true)
		socket := newSlow(s.p.main.Load())
		first := s.sendReported(s.Context(), to("closed", "1"))
		time.Sleep(silence / 2)
		synctest.Wait()
		ctx, cancel := context.WithCancel(s.Context())
		defer cancel()
		socket.write <- func() {
			cancel()
			s.p.CutOff()
			synctest.Wait()
		}
		began := time.Now()
		m := to("closed", "2")
		s.sendReported(ctx, m).all.Wait()
		if took := time.Since(began); took > lastTick {
			s.Errorf("reported %v after its ctx had ended, want at most %v: %v", took, lastTick, m.Err)
		}
		s.broker.Refuse("closed", false)
		first.all.Wait()
	})
}

// The alarm comes between a sender's question whether the broker reads and its message.
func TestAMessageThatComesAsTheWatchBeginsToRest(t *testing.T) {
	for _, limit := range []string{"ctx", "patience"} {
		t.Run(limit, func(t *testing.T) {
			inBubble(t, Limits{Messages: 10}, func(s *fixture) {
				s.declare(nil, "open")
				if err := s.publish(s.Context(), to("open", "before")); err != nil {
					s.Fatal(err)
				}
				s.broker.Refuse("open", true)
				socket := newSlow(s.p.main.Load())
				first := s.sendReported(s.Context(), to("open", "1"))
				synctest.Wait() // else the broker may get it after the alarm, and tell of that too early
				socket.ready <- func() {
					s.broker.Block("low on memory")
					s.p.Send(s.Context(), to("open", "the broker tells who publishes"))
					time.Sleep(2 * lookEvery)
					synctest.Wait()
				}
				ctx, cancel := context.WithCancel(s.Context())
				defer cancel()
				m := to("open", "2")
				if limit == "patience" {
					m.AnswerPatience = time.Second
				}
				r := s.sendReported(ctx, m)
				began := time.Now()
				if limit == "ctx" {
					time.AfterFunc(time.Second, cancel)
				}
				r.all.Wait()
				if took := time.Since(began); took > time.Second+lookEvery {
					s.Errorf("reported after %v: %v", took, m.Err)
				}
				s.broker.Refuse("open", false)
				s.broker.Unblock()
				first.all.Wait()
			})
		})
	}
}
