package producer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/rehoptest"
)

// sinkFunc is a sink that is one function.
type sinkFunc func(ctx context.Context) error

func (sinkFunc) Name() string                                        { return "func" }
func (f sinkFunc) Put(ctx context.Context, _ Message, _ error) error { return f(ctx) }

// commits is a sink whose commit is under way when ctx ends.
func commits(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// cancelled is after how long a ctx without a deadline ends.
const cancelled = 500 * time.Millisecond

func TestASinkThatHasNotAnswered(t *testing.T) {
	for rule, tt := range map[string]struct {
		sinks          []Sink
		limit          time.Duration // of ctx
		place          Place
		maybeDuplicate bool
		says           string
	}{
		"ctx ends meanwhile":                      {[]Sink{sinkFunc(commits)}, 2 * time.Second, "", true, "may be there"},
		"the sink's time ends":                    {[]Sink{sinkFunc(commits)}, time.Hour, "", true, "may be there: no answer within Config.Timeout"},
		"the sink's time ends, the next takes":    {[]Sink{sinkFunc(commits), &memory{}}, time.Hour, PlaceFallback, true, ""},
		"the sink's share of a short ctx ends":    {[]Sink{sinkFunc(commits), sinkFunc(commits)}, 2 * time.Second, "", true, "may be there: no answer within its share"},
		"its share ends, the next takes":          {[]Sink{sinkFunc(commits), &memory{}}, 2 * time.Second, PlaceFallback, true, ""},
		"its share ends, another takes":           {[]Sink{sinkFunc(commits), sinkFunc(commits), sinkFunc(commits), &memory{}}, 2 * time.Second, PlaceFallback, true, ""},
		"the sink does not know":                  {[]Sink{sinkFunc(func(context.Context) error { return ErrUnconfirmed })}, time.Hour, "", true, "may be there"},
		"the sink panics":                         {[]Sink{panics{}}, time.Hour, "", true, "panic"},
		"the sink refuses":                        {[]Sink{sinkFunc(func(context.Context) error { return errors.New("full") })}, time.Hour, "", false, `fallback "func": full`},
		"ctx is cancelled before a sink is asked": {[]Sink{sinkFunc(commits)}, cancelled, "", false, "not sent"},
	} {
		t.Run(rule, func(t *testing.T) {
			inBubble(t, func(s *fixture) {
				p := s.producer(Config{Fallback: tt.sinks, Timeout: 10 * time.Second})
				defer p.Close()
				s.broker.Stop()
				ctx, cancel := context.WithTimeout(s.Context(), tt.limit)
				defer cancel()
				if tt.limit == cancelled {
					ctx, cancel = context.WithCancel(s.Context())
					time.AfterFunc(cancelled, cancel)
				}
				began := time.Now()
				r, err := p.Publish(ctx, Message{RoutingKey: "open"})
				if r.Place != tt.place || r.MaybeDuplicate != tt.maybeDuplicate || r.Cause != rehop.CauseUnreachable {
					s.Errorf("%+v", r)
				}
				if (err == nil) != (tt.place != "") || err != nil && errors.Is(err, ErrUnconfirmed) != tt.maybeDuplicate || err != nil && !strings.Contains(err.Error(), tt.says) {
					s.Errorf("%v; want %q in it", err, tt.says)
				}
				if took := time.Since(began); took > tt.limit {
					s.Errorf("took %v, ctx ended after %v", took, tt.limit)
				}
			})
		})
	}
}

// A sink may return the error of its ctx, which has limits of ours too. It says that the caller's ctx has ended only if it has.
func TestAnErrorOfASinkIsTheEndOfCtxOnlyIfThatHasEnded(t *testing.T) {
	errOfDriver := &fs.PathError{Op: "commit", Path: "letters", Err: errors.New("disk full")}
	returns := func(wrap string, errs ...any) Sink {
		return sinkFunc(func(ctx context.Context) error {
			<-ctx.Done()
			return fmt.Errorf(wrap, append([]any{ctx.Err()}, errs...)...)
		})
	}
	for rule, tt := range map[string]struct {
		sinks []Sink
		limit time.Duration // of ctx
		says  string
		wraps error // whatever has ended
	}{
		"the sink's time ends":                         {[]Sink{returns("%w")}, time.Hour, "no answer within Config.Timeout", errSinkLate},
		"the sink's time ends in a commit":             {[]Sink{returns("commit: %w")}, time.Hour, "commit: context deadline exceeded: no answer within Config.Timeout", errSinkLate},
		"the sink's time ends, and the error has more": {[]Sink{returns("%w: %w", errOfDriver)}, time.Hour, "context deadline exceeded: commit letters: disk full: no answer within Config.Timeout", errOfDriver},
		"the sink has cancelled its own ctx":           {[]Sink{sinkFunc(func(ctx context.Context) error { <-ctx.Done(); return fmt.Errorf("commit: %w", context.Canceled) })}, time.Hour, "commit: context canceled: no answer within Config.Timeout", errSinkLate},
		"the sink's time ends, and it says both":       {[]Sink{returns("%w: %w", context.Canceled)}, time.Hour, "no answer within Config.Timeout", errSinkLate},
		"ctx ends meanwhile":                           {[]Sink{returns("commit: %w")}, 7 * time.Second, "commit: context deadline exceeded", context.DeadlineExceeded},
	} {
		t.Run(rule, func(t *testing.T) {
			inBubble(t, func(s *fixture) {
				p := s.producer(Config{Fallback: tt.sinks, Timeout: 10 * time.Second})
				defer p.Close()
				s.broker.Stop()
				ctx, cancel := context.WithTimeout(s.Context(), tt.limit)
				defer cancel()
				_, err := p.Publish(ctx, Message{RoutingKey: "open"})
				isOfCtx := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
				if err == nil || isOfCtx != (ctx.Err() != nil) || !strings.Contains(err.Error(), tt.says) {
					s.Errorf("%v, and the ctx says %v; want %q in it", err, ctx.Err(), tt.says)
				}
				if !errors.Is(err, tt.wraps) || errors.As(err, new(*fs.PathError)) != errors.As(tt.wraps, new(*fs.PathError)) {
					s.Errorf("%v is not %v", err, tt.wraps)
				}
			})
		})
	}
}

// What was written and not answered may be in its queue when the fallback has it.
func TestAWrittenMessageInTheFallbackMayBeADuplicate(t *testing.T) {
	for rule, begin := range map[string]func(*rehoptest.Broker){
		"a queue that does not answer": func(b *rehoptest.Broker) { b.Refuse("quorum", true) },
		"a broker that is silent":      (*rehoptest.Broker).Stall,
		"an alarm after the write":     func(b *rehoptest.Broker) { b.Block("low on memory") },
	} {
		t.Run(rule, func(t *testing.T) {
			inBubble(t, func(s *fixture) {
				s.declare("quorum", map[string]any{"x-queue-type": "quorum"})
				p := s.producer(Config{Fallback: []Sink{&memory{}}})
				defer p.Close()
				if r, err := p.Publish(s.Context(), Message{RoutingKey: "quorum"}); err != nil || r.MaybeDuplicate {
					s.Fatalf("before: %+v, %v", r, err)
				}
				begin(s.broker)
				r, err := p.Publish(s.Context(), Message{RoutingKey: "quorum"})
				if err != nil || r.Place != PlaceFallback || r.Cause != rehop.CauseUnconfirmed || !r.MaybeDuplicate {
					s.Errorf("%+v, %v", r, err)
				}
				r, err = p.Publish(s.Context(), Message{RoutingKey: "quorum"})
				if err != nil || r.Place != PlaceFallback || r.MaybeDuplicate != errors.Is(r.Err, ErrUnconfirmed) {
					s.Errorf("the next one: %+v, %v", r, err)
				}
				s.broker.Refuse("quorum", false)
				s.broker.Resume()
				s.broker.Unblock()
			})
		})
	}
}

// only takes messages with one cause.
type only struct {
	memory
	cause rehop.Cause
}

func (o *only) Takes(cause rehop.Cause) bool { return cause == o.cause }

func TestFallbackAfterCountsOnlyForASinkThatTakesTheCause(t *testing.T) {
	const timeout = 10 * time.Second
	stop := (*rehoptest.Broker).Stop
	quietStop := func(b *rehoptest.Broker) { // nothing is written any more
		b.Stop()
		time.Sleep(time.Second)
	}
	lateStop := func(b *rehoptest.Broker) { // the message is written before, and not confirmed
		b.Refuse("open", true)
		time.AfterFunc(time.Second/2, b.Stop)
	}
	block := func(b *rehoptest.Broker) { b.Block("low on memory") }
	own := func(s *fixture) Sink {
		sink, err := NewExchangeSink(s.conn, "unsent")
		if err != nil {
			s.Fatal(err)
		}
		return sink
	}
	takes := func(cause rehop.Cause) func(*fixture) Sink {
		return func(*fixture) Sink { return &only{cause: cause} }
	}
	for rule, tt := range map[string]struct {
		sink  func(*fixture) Sink
		begin func(*rehoptest.Broker)
		took  time.Duration // at least
		taken bool
	}{
		"without a broker, to its own broker":       {own, stop, timeout, false},
		"without a broker, for what is blocked":     {takes(rehop.CauseBlocked), stop, timeout, false},
		"without a broker, for what is unreachable": {takes(rehop.CauseUnreachable), quietStop, time.Second, true},
		"written, then without a broker":            {takes(rehop.CauseUnreachable), lateStop, timeout, false},
		"no answer, for what is unreachable":        {takes(rehop.CauseUnreachable), block, timeout, false},
		"no answer, for what is unconfirmed":        {takes(rehop.CauseUnconfirmed), block, timeout, true},
		"no answer, to its own broker":              {own, block, timeout, false},
		"without a broker, a sink for other causes": {func(*fixture) Sink { return &selective{} }, stop, timeout, false},
	} {
		t.Run(rule, func(t *testing.T) {
			inBubble(t, func(s *fixture) {
				p := s.producer(Config{Fallback: []Sink{tt.sink(s)}, Timeout: timeout})
				defer p.Close()
				if _, err := p.Publish(s.Context(), Message{RoutingKey: "open"}); err != nil {
					s.Fatal(err)
				}
				tt.begin(s.broker)
				began := time.Now()
				r, err := p.Publish(s.Context(), Message{RoutingKey: "open"})
				if took := time.Since(began); took < tt.took || took > tt.took+2*time.Second {
					s.Errorf("took %v, want %v", took, tt.took)
				}
				if (err == nil) != tt.taken {
					s.Errorf("%+v, %v", r, err)
				}
				if err != nil && !strings.Contains(err.Error(), "no sink of the Fallback takes") {
					s.Errorf("%v, want that no sink takes it", err)
				}
				if strings.Contains(rule, "without a broker") && !strings.Contains(errors.Join(err, r.Err).Error(), "connection refused") {
					s.Errorf("%+v, %v, want that there is no broker", r, err)
				}
				if strings.HasPrefix(rule, "written") && r.Cause != rehop.CauseUnconfirmed {
					s.Errorf("%+v, want a message that was written", r)
				}
				s.broker.Unblock()
			})
		})
	}
}

// Nobody cancelled anything. The text names the outage and, of a message that was not
// written, how long it lasted.
func TestOwnLimitsAreNotTheCallers(t *testing.T) {
	for rule, tt := range map[string]struct {
		begin func(*rehoptest.Broker)
		says  string
	}{
		"no connection": {(*rehoptest.Broker).Stop, "no connection"},
		"blocked":       {func(b *rehoptest.Broker) { b.Block("low on memory") }, "low on memory"},
		"silent":        {(*rehoptest.Broker).Stall, "not answered"},
	} {
		t.Run(rule, func(t *testing.T) {
			inBubble(t, func(s *fixture) {
				p := s.producer(Config{Fallback: []Sink{&memory{}}, Timeout: 5 * time.Second})
				defer p.Close()
				if _, err := p.Publish(s.Context(), Message{RoutingKey: "open"}); err != nil {
					s.Fatal(err)
				}
				tt.begin(s.broker)
				for i := range 3 {
					r, err := p.Publish(s.Context(), Message{RoutingKey: "open"})
					if err != nil || errors.Is(r.Err, context.Canceled) || errors.Is(r.Err, context.DeadlineExceeded) || strings.Contains(r.Err.Error(), "context") {
						s.Errorf("%d: %v, %v", i, r.Err, err)
					}
					ended := "after the outage was noticed"
					if errors.Is(r.Err, ErrUnconfirmed) && rule != "no connection" {
						ended = "no answer in time"
					}
					if !strings.Contains(r.Err.Error(), ended) || !strings.Contains(r.Err.Error(), tt.says) {
						s.Errorf("%d: %v; want %q and %q", i, r.Err, tt.says, ended)
					}
				}
				s.broker.Unblock()
				s.broker.Resume()
			})
		})
	}
}

// panicking is a selective sink that panics when it is asked.
type panicking struct{ only }

func (*panicking) Takes(rehop.Cause) bool { panic("not today") }

// ending is a sink that ends its goroutine.
type ending struct{ memory }

func (*ending) Put(context.Context, Message, error) error {
	runtime.Goexit()
	return nil
}

func TestASinkThatEndsItsGoroutineEndsInAnError(t *testing.T) {
	inBubble(t, func(s *fixture) {
		p := s.producer(Config{Fallback: []Sink{&ending{}}, Window: 1})
		for range 3 {
			receipts, err := p.PublishAll(s.Context(), []Message{{RoutingKey: "full"}})
			if !errors.Is(err, ErrUnconfirmed) || receipts[0].Place != "" || !receipts[0].MaybeDuplicate {
				s.Errorf("PublishAll: %+v, %v", receipts, err)
			}
			done := make(chan error, 1)
			p.PublishAsync(s.Context(), Message{RoutingKey: "full"}, func(_ Receipt, err error) { done <- err })
			if err := <-done; !errors.Is(err, ErrUnconfirmed) {
				s.Errorf("PublishAsync: %v", err)
			}
		}
		if err := p.Close(); err != nil {
			s.Error(err)
		}
	})
}

func TestASinkWhoseTakesPanicsIsPassedOver(t *testing.T) {
	inBubble(t, func(s *fixture) {
		good := &only{cause: rehop.CauseUnroutable}
		p := s.producer(Config{Fallback: []Sink{&panicking{}, good}})
		receipts := make(chan Receipt, 1)
		p.PublishAsync(s.Context(), Message{RoutingKey: "nowhere"}, func(r Receipt, _ error) { receipts <- r })
		if r := <-receipts; r.Place != PlaceFallback || r.Sink != good.Name() {
			s.Errorf("receipt %+v, want that of the second sink", r)
		}
		if err := p.Close(); err != nil {
			s.Error(err)
		}
	})
}

// wild is a slog.Handler that panics.
type wild struct{ slog.Handler }

func (wild) Handle(context.Context, slog.Record) error { panic("no disk") }

func TestALoggerThatPanicsHarmsNoMessage(t *testing.T) {
	inBubble(t, func(s *fixture) {
		good := &only{cause: rehop.CauseUnroutable}
		p := s.producer(Config{Fallback: []Sink{good}, Logger: slog.New(wild{slog.NewTextHandler(io.Discard, nil)})})
		receipts := make(chan Receipt, 1)
		p.PublishAsync(s.Context(), Message{RoutingKey: "nowhere"}, func(r Receipt, _ error) { receipts <- r })
		if r := <-receipts; r.Place != PlaceFallback {
			s.Errorf("receipt %+v, want that of the sink", r)
		}
		if err := p.Close(); err != nil {
			s.Error(err)
		}
	})
}

func TestTheFallbackIsLoggedOncePerCause(t *testing.T) {
	inBubble(t, func(s *fixture) {
		var log strings.Builder
		p := s.producer(Config{Fallback: []Sink{&memory{}}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		defer p.Close()
		s.broker.Stop()
		for range 50 {
			if r, err := p.Publish(s.Context(), Message{RoutingKey: "open"}); err != nil || r.Place != PlaceFallback {
				s.Fatalf("%+v, %v", r, err)
			}
		}
		said := strings.Count(log.String(), "message went to the fallback")
		if said < 1 || said > 3 { // a broker that goes fails in one way and then in another
			s.Errorf("%d lines for 50 messages:\n%s", said, log.String())
		}
		time.Sleep(2 * time.Minute)
		if _, err := p.Publish(s.Context(), Message{RoutingKey: "open"}); err != nil {
			s.Error(err)
		}
		if !strings.Contains(log.String(), "times=") {
			s.Errorf("how many there were is not told:\n%s", log.String())
		}
	})
}
