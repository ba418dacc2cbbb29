package connection

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
)

// A call whose ctx had ended before it says so, and looks like no outage.
func TestACallWithACtxThatHadEndedSaysSo(t *testing.T) {
	t.Parallel()
	cause := errors.New("the request is over")
	for _, tt := range []struct {
		rule string
		call func(ctx context.Context, t *testing.T, p *peer) error
	}{
		{"Open", func(ctx context.Context, _ *testing.T, p *peer) error {
			_, err := Open(ctx, Config{URLs: []string{"amqp://bob:s3cret@broker"}, Dial: p.dial})
			return err
		}},
		{"Session before a broker is needed", func(ctx context.Context, t *testing.T, p *peer) error {
			_, err := bubble(t, p, Config{Lazy: true}).Session(ctx, Publish)
			return err
		}},
		{"Session of a live connection", func(ctx context.Context, t *testing.T, p *peer) error {
			c := bubble(t, p, Config{})
			session(t, c, Consume)
			_, err := c.Session(ctx, Consume)
			return err
		}},
		{"Do", func(ctx context.Context, t *testing.T, p *peer) error {
			return session(t, bubble(t, p, Config{}), Consume).Do(ctx, func(*amqp.Channel) error { t.Error("called"); return nil })
		}},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				cancel(cause)
				err := tt.call(ctx, t, new(peer))
				if err == nil || !strings.Contains(err.Error(), "the ctx of the call had already ended: context canceled: the request is over") || strings.Contains(err.Error(), "no connection yet") {
					t.Fatalf("the error is %v", err)
				}
				if !errors.Is(err, context.Canceled) || !errors.Is(err, cause) || rehop.ClassOf(err) != rehop.ClassTransient {
					t.Errorf("%v: class %v; want it to wrap the error and cause of ctx", err, rehop.ClassOf(err))
				}
			})
		})
	}
}

// A caller may end its ctx with an error of another Conn, which says nothing of this one.
func TestTheEndOfAnotherConnIsACauseLikeAnyOther(t *testing.T) {
	t.Parallel()
	refused := errors.New("connection refused")
	of := func(cause error) error { // of the other Conn, whose ctx has ended with cause
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		a := newAttempts(1)
		a.add(0, refused)
		return a.failure(ctx)
	}
	for _, tt := range []struct {
		rule  string
		cause error
		want  []error
		text  string
	}{
		{"this Conn is closed", errClosed, []error{ErrClosed}, ErrClosed.Error()},
		{"a session of another Conn, which is closed", fmt.Errorf("%w: %w", ErrSessionLost, errClosed), []error{context.Canceled, ErrSessionLost, refused}, "(1 try), then context canceled: "},
		{"OpenTimeout of this Conn has passed", errOpenTimeout, []error{context.Canceled, refused}, "(1 try): connection refused"},
		{"OpenTimeout of another Conn has passed", of(errOpenTimeout), []error{context.Canceled, refused}, "(1 try), then "},
	} {
		err := of(tt.cause)
		for _, want := range tt.want {
			if !errors.Is(err, want) {
				t.Errorf("%s: %v is not %v", tt.rule, err, want)
			}
		}
		if !strings.Contains(err.Error(), tt.text) {
			t.Errorf("%s: %v, want %q", tt.rule, err, tt.text)
		}
	}
}
