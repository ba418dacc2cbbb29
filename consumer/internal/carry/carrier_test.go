package carry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/internal/header"
)

// ledgerWait is a wait queue, and what happened to its messages, each with the
// time since the beginning.
type ledgerWait struct {
	began time.Time

	mu      sync.Mutex
	ready   []amqp.Delivery
	session *ledgerSession
	refuse  error // a session
	state   error
	entries []string
}

func (l *ledgerWait) note(format string, args ...any) {
	l.entries = append(l.entries, fmt.Sprintf("%v ", time.Since(l.began))+fmt.Sprintf(format, args...))
}

func (l *ledgerWait) put(id string, due time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ready = append(l.ready, amqp.Delivery{MessageId: id, Headers: amqp.Table{header.Due: l.began.Add(due).UnixMilli()}})
	l.deliver()
}

// deliver needs l.mu held.
func (l *ledgerWait) deliver() {
	for s := l.session; s != nil && len(l.ready) > 0 && len(s.unacked) < s.prefetch; l.ready = l.ready[1:] {
		s.tag++
		raw := l.ready[0]
		raw.DeliveryTag = s.tag
		s.unacked = append(s.unacked, raw)
		s.messages <- raw
	}
}

func (l *ledgerWait) open(_ context.Context, prefetch int) (session, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refuse != nil {
		l.note("refused")
		return nil, l.refuse
	}
	l.session = &ledgerSession{queue: l, prefetch: prefetch, messages: make(chan amqp.Delivery, maxPrefetch), lost: make(chan struct{})}
	l.deliver()
	return l.session, nil
}

// lose ends the session as the loss of the socket does.
func (l *ledgerWait) lose() {
	l.mu.Lock()
	s := l.session
	l.mu.Unlock()
	close(s.lost)
}

type ledgerSession struct {
	queue    *ledgerWait
	messages chan amqp.Delivery
	lost     chan struct{}
	prefetch int
	tag      uint64
	unacked  []amqp.Delivery
}

var errLost = errors.New("session lost")

func (s *ledgerSession) deliveries() <-chan amqp.Delivery { return s.messages }
func (s *ledgerSession) reason(time.Duration) error       { return errLost }
func (s *ledgerSession) done() <-chan struct{}            { return s.lost }
func (s *ledgerSession) user() string                     { return "guest" }

func (s *ledgerSession) ack(tag uint64, multiple bool) error {
	s.queue.mu.Lock()
	defer s.queue.mu.Unlock()
	s.unacked = slices.DeleteFunc(s.unacked, func(raw amqp.Delivery) bool {
		acked := raw.DeliveryTag == tag || multiple && raw.DeliveryTag < tag
		if acked {
			s.queue.note("acked %s", raw.MessageId)
		}
		return acked
	})
	s.queue.deliver()
	return nil
}

func (s *ledgerSession) close() {
	s.queue.mu.Lock()
	defer s.queue.mu.Unlock()
	for _, raw := range s.unacked {
		s.queue.note("given back %s", raw.MessageId)
	}
	s.queue.ready = append(s.unacked, s.queue.ready...)
	s.queue.session = nil
}

// carrying runs a carrier of l until the test's end. publish answers for one
// message; nil confirms it at once.
func carrying(t *testing.T, l *ledgerWait, hold time.Duration, publish func(ctx context.Context, id string) error) (stop func()) {
	t.Helper()
	c := &carrier{
		queue: "q.wait.1",
		open:  l.open,
		hold:  func() time.Duration { return hold },
		close: func() {},
		log:   func(error) {},
		state: func(err error) {
			l.mu.Lock()
			defer l.mu.Unlock()
			if l.state != err { //nolint:errorlint // the same value is told again and again
				l.note("state %v", err)
			}
			l.state = err
		},
		publish: func(ctx context.Context, messages []*waiting, _ string, answered func([]answer)) {
			var batch []answer
			for i, w := range messages {
				var err error
				if publish != nil {
					err = publish(ctx, w.raw.MessageId)
				}
				l.mu.Lock()
				l.note("%s %s", map[bool]string{true: "confirmed", false: "unconfirmed"}[err == nil], w.raw.MessageId)
				if time.Now().Before(w.due) {
					t.Errorf("%s was brought back %v early", w.raw.MessageId, time.Until(w.due))
				}
				l.mu.Unlock()
				batch = append(batch, answer{index: i, err: err})
			}
			answered(batch)
		},
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		c.run(ctx)
		close(done)
	}()
	return func() {
		cancel()
		<-done
	}
}

func (l *ledgerWait) want(t *testing.T, want ...string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !slices.Equal(l.entries, want) {
		t.Errorf("got\n%q, want\n%q", l.entries, want)
	}
}

func TestACarrierBringsBackWhatIsDueAndThenAcks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &ledgerWait{began: time.Now()}
		defer carrying(t, l, 15*time.Minute, nil)()
		l.put("a", 10*time.Second)
		l.put("b", 12*time.Second)
		time.Sleep(11 * time.Second)
		l.put("late", 5*time.Second)
		time.Sleep(time.Minute)
		l.want(t, "10s confirmed a", "10s acked a", "11s confirmed late", "11s acked late", "12s confirmed b", "12s acked b")
	})
}

func TestACarrierHoldsNothingForLongerThanItMay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &ledgerWait{began: time.Now()}
		defer carrying(t, l, 15*time.Minute, nil)()
		l.put("a", 40*time.Minute)
		l.put("b", 41*time.Minute)
		time.Sleep(time.Hour)
		l.want(t, "15m0s given back a", "15m0s given back b", "30m0s given back a", "30m0s given back b",
			"40m0s confirmed a", "40m0s acked a", "41m0s confirmed b", "41m0s acked b")
	})
}

func TestWhatIsNotConfirmedIsNotAckedAndTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &ledgerWait{began: time.Now()}
		nacked := errors.New("nacked")
		tries := 0
		defer carrying(t, l, 15*time.Minute, func(_ context.Context, id string) error {
			if tries++; id == "a" && tries < 4 {
				return nacked
			}
			return nil
		})()
		l.put("a", time.Second)
		l.put("b", time.Second)
		time.Sleep(10 * time.Second)
		l.want(t, "1s unconfirmed a", "1s confirmed b", "1s acked b", "1.1s unconfirmed a", "1.1s state nacked",
			"1.3s confirmed a", "1.3s acked a", "1.3s state <nil>")
	})
}

// Another process may be able to do what this one cannot.
func TestACarrierWithoutSuccessLeavesItsWaitToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &ledgerWait{began: time.Now()}
		defer carrying(t, l, 15*time.Minute, func(context.Context, string) error { return errors.New("nacked") })()
		l.put("a", 0)
		time.Sleep(63 * time.Second)
		l.mu.Lock()
		defer l.mu.Unlock()
		if !slices.Contains(l.entries, "1m2.7s given back a") {
			t.Errorf("after a minute without success the wait is still held: %q", l.entries)
		}
	})
}

func TestACarrierThatLosesItsSessionAcksNothingAndTakesAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &ledgerWait{began: time.Now()}
		silent := true
		defer carrying(t, l, 15*time.Minute, func(ctx context.Context, _ string) error {
			if !silent {
				return nil
			}
			silent = false
			<-ctx.Done() // no answer
			return ctx.Err()
		})()
		l.put("a", time.Second)
		time.Sleep(2 * time.Second)
		l.lose()
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		l.mu.Lock()
		defer l.mu.Unlock()
		if i := slices.Index(l.entries, "2s unconfirmed a"); i < 0 || slices.Contains(l.entries[:i+1], "acked a") {
			t.Errorf("entries %q", l.entries)
		}
		if !slices.ContainsFunc(l.entries, func(e string) bool { return strings.HasSuffix(e, " acked a") }) {
			t.Errorf("the next session did not bring it back: %q", l.entries)
		}
	})
}

func TestAStopWaitsForConfirmsAndGivesBackTheRest(t *testing.T) {
	for _, tt := range []struct {
		rule   string
		answer time.Duration // after the publish
		want   []string
	}{
		{"an answer in time is an ack", 4 * time.Second, []string{"5s confirmed a", "5s acked a", "5s given back b"}},
		{"no answer in time is none", 40 * time.Second, []string{"7s unconfirmed a", "7s state context canceled", "7s given back a", "7s given back b"}},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &ledgerWait{began: time.Now()}
				stop := carrying(t, l, 15*time.Minute, func(ctx context.Context, _ string) error {
					select {
					case <-time.After(tt.answer):
						return nil
					case <-ctx.Done():
						return ctx.Err()
					}
				})
				l.put("a", time.Second)
				l.put("b", time.Hour)
				time.Sleep(2 * time.Second)
				stop()
				l.want(t, tt.want...)
			})
		})
	}
}

func TestABrokenWaitIsAskedForMoreAndMoreRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &ledgerWait{began: time.Now(), refuse: errors.New("no queue")}
		stop := carrying(t, l, 15*time.Minute, nil)
		time.Sleep(10 * time.Minute)
		l.mu.Lock()
		tries := len(l.entries)
		l.mu.Unlock()
		if tries < 10 || tries > 40 {
			t.Errorf("%d tries in 10 minutes, want at most one a minute in the end", tries)
		}
		l.mu.Lock()
		l.refuse = nil
		l.mu.Unlock()
		l.put("a", 0)
		time.Sleep(2 * time.Minute)
		stop()
		if !slices.ContainsFunc(l.entries, func(e string) bool { return strings.HasSuffix(e, " acked a") }) {
			t.Errorf("not brought back when the queue was there again: %q", l.entries)
		}
	})
}

// What is due together is published together, and acked in one frame.
func TestManyAreDueAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &ledgerWait{began: time.Now()}
		const n = 3 * maxPrefetch
		for i := range n {
			l.put(fmt.Sprint(i), time.Second)
		}
		batches := 0
		stop := carrying(t, l, 15*time.Minute, func(_ context.Context, id string) error {
			if id == "0" || id == fmt.Sprint(maxPrefetch) || id == fmt.Sprint(2*maxPrefetch) {
				batches++
				time.Sleep(10 * time.Millisecond)
			}
			return nil
		})
		time.Sleep(2 * time.Second)
		stop()
		if len(l.entries) != 2*n || len(l.ready) != 0 || batches != 3 {
			t.Errorf("%d entries, %d left, %d batches", len(l.entries), len(l.ready), batches)
		}
	})
}

// The number that is in hand follows the sizes of the bodies, down and up again.
func TestACarrierHoldsFewLargeMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &ledgerWait{began: time.Now()}
		defer carrying(t, l, 15*time.Minute, nil)()
		body := make([]byte, 1<<20)
		l.mu.Lock()
		for i := range 300 {
			l.ready = append(l.ready, amqp.Delivery{MessageId: fmt.Sprint(i), Body: body, Headers: amqp.Table{header.Due: l.began.Add(time.Minute).UnixMilli()}})
		}
		l.deliver()
		l.mu.Unlock()
		inHand := func() (n int) {
			synctest.Wait()
			l.mu.Lock()
			defer l.mu.Unlock()
			return len(l.session.unacked)
		}
		time.Sleep(30 * time.Second)
		if n := inHand(); n != 16 {
			t.Errorf("%d messages of 1 MiB in hand, want 16", n)
		}
		time.Sleep(time.Minute)
		if n := inHand(); n != 0 || len(l.ready) > 0 {
			t.Errorf("%d in hand and %d in the queue when all are due, want none", n, len(l.ready))
		}
		for i := range 300 {
			l.put(fmt.Sprint("small ", i), time.Hour)
		}
		if n := inHand(); n != maxPrefetch {
			t.Errorf("%d small messages in hand, want %d", n, maxPrefetch)
		}
	})
}
