package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/internal/header"
)

// A handler that returns the error of its ctx says nothing of the limit that has ended the ctx.
// The consumer does, in each place that shows the error.
func TestAnErrorOfTheCtxNamesTheLimitThatHasEndedIt(t *testing.T) {
	const limit = "handler timeout: Config.HandlerTimeout, which is 1m0s, has ended the handler's ctx"
	for _, tt := range []struct {
		rule  string
		of    func(ctx context.Context) error
		want  string
		kind  string
		names bool
	}{
		{"the error of the ctx", context.Context.Err, "context deadline exceeded: consumer: " + limit, "context.deadlineExceededError", true},
		{"one that wraps it", func(ctx context.Context) error { return fmt.Errorf("asking the bank: %w", ctx.Err()) }, "asking the bank: context deadline exceeded: consumer: " + limit, "context.deadlineExceededError", true},
		{"one that repeats its text", func(ctx context.Context) error { return errors.New("rpc error: " + ctx.Err().Error()) }, "rpc error: context deadline exceeded: consumer: " + limit, "*errors.errorString", true},
		{"one with an outcome", func(ctx context.Context) error { return consumer.DeadLetter(ctx.Err()) }, "context deadline exceeded: consumer: " + limit, "context.deadlineExceededError", true},
		{"the cause of the ctx", context.Cause, "consumer: " + limit, "*errors.errorString", true},
		{"an error of another kind", func(context.Context) error { return errBroken }, "broken", "*errors.errorString", false},
		{"a shorter ctx of the handler's own", func(ctx context.Context) error {
			_, cancel := context.WithCancel(ctx)
			cancel()
			return context.Canceled
		}, "context canceled", "*errors.errorString", false},
	} {
		for _, batches := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, batches %t", tt.rule, batches), func(t *testing.T) {
				onNewest(t, func(w *fixture) {
					var log lines
					var handled []error
					cfg := consumer.Config{HandlerTimeout: time.Minute, Logger: log.logger(), Traces: []consumer.Trace{
						{Handled: func(_ context.Context, h consumer.Handled) { handled = append(handled, h.Err) }}}}
					var stop func() error
					if batches {
						_, stop = w.startBatch(w.orders, func(ctx context.Context, _ []*consumer.Delivery) error { <-ctx.Done(); return tt.of(ctx) }, consumer.Batch{}, cfg)
					} else {
						_, stop = w.start(func(ctx context.Context, _ *consumer.Delivery) error { <-ctx.Done(); return tt.of(ctx) }, cfg)
					}
					w.publish(1)
					time.Sleep(15 * time.Minute)
					w.stopped(stop)
					if l := w.letter(); l.Headers[header.Error] != tt.want || l.Headers[header.ErrorType] != tt.kind {
						w.Errorf("the letter says %q, %q; want %q, %q", l.Headers[header.Error], l.Headers[header.ErrorType], tt.want, tt.kind)
					}
					if len(log.with("dead-lettered", tt.want)) != 1 {
						w.Errorf("the log does not say %q:\n%s", tt.want, strings.Join(log.with("message="), "\n"))
					}
					for _, err := range handled {
						if err.Error() != tt.want || errors.Is(err, consumer.ErrHandlerTimeout) != tt.names {
							w.Errorf("the hook gets %q, want %q", err, tt.want)
						}
						if strings.HasPrefix(tt.kind, "context") && !errors.Is(err, context.DeadlineExceeded) {
							w.Errorf("%q is no context.DeadlineExceeded", err)
						}
					}
				})
			})
		}
	}
}

// Who looks for the handler that is stuck has the message that it is stuck on.
func TestAHandlerThatDoesNotReturnIsNamedByItsMessage(t *testing.T) {
	for _, batches := range []bool{false, true} {
		t.Run(fmt.Sprintf("batches %t", batches), func(t *testing.T) {
			onNewest(t, func(w *fixture) {
				var log lines
				release := make(chan struct{})
				cfg := consumer.Config{Concurrency: 7, HandlerTimeout: time.Minute, DrainTimeout: time.Second, Logger: log.logger()}
				names := `"m0", "m1", "m2", "m3", "m4" and 2 others`
				var c *consumer.Consumer
				var stop func() error
				if batches {
					cfg.Concurrency = 1
					c, stop = w.startBatch(w.orders, func(context.Context, []*consumer.Delivery) error { <-release; return nil }, consumer.Batch{Size: 7, Linger: time.Second}, cfg)
				} else {
					c, stop = w.start(func(context.Context, *consumer.Delivery) error { <-release; return nil }, cfg)
				}
				time.Sleep(time.Second)
				w.publish(7)
				time.Sleep(2 * time.Minute)
				if _, err := health(c); err == nil || !strings.Contains(err.Error(), "unsettled: "+names) {
					w.Errorf("Health: %v", err)
				}
				if batches && len(log.with("past its timeout", "message=m0", "m3", "and 2 others")) != 1 {
					w.Errorf("the log: %v", log.with("past its timeout"))
				}
				if err := stop(); err == nil || !strings.Contains(err.Error(), names) {
					w.Errorf("Run: %v", err)
				}
				close(release)
			})
		})
	}
}
