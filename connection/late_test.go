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
	"github.com/rehop/rehop/internal/pause"
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
	endedBy := func(cause error) context.Context {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		return ctx
	}
	closed := endedBy(pause.Own(ErrClosed)) // the life of this Conn
	of := func(cause error, life context.Context) error {
		a := newAttempts(1)
		a.add(0, refused)
		return a.failure(endedBy(cause), life)
	}
	for _, tt := range []struct {
		rule  string
		cause error
		life  context.Context
		want  []error
		text  string
	}{
		{"this Conn is closed", context.Cause(closed), closed, []error{ErrClosed}, ErrClosed.Error()},
		{"another Conn is closed, with the ctx of its OnConnect", ErrClosed, t.Context(), []error{context.Canceled, ErrClosed, refused}, "(1 try), then context canceled: " + ErrClosed.Error()},
		{"both Conns are closed, the other one first", ErrClosed, closed, []error{context.Canceled, ErrClosed, refused}, "(1 try), then context canceled: "},
		{"a session of another Conn, which is closed", fmt.Errorf("%w: %w", ErrSessionLost, ErrClosed), t.Context(), []error{context.Canceled, ErrSessionLost, ErrClosed, refused}, "(1 try), then context canceled: "},
		{"OpenTimeout of this Conn has passed", errOpenTimeout, t.Context(), []error{context.Canceled, refused}, "(1 try): connection refused"},
		{"OpenTimeout of another Conn has passed", of(errOpenTimeout, t.Context()), t.Context(), []error{context.Canceled, refused}, "(1 try), then "},
	} {
		err := of(tt.cause, tt.life)
		if isOurs := err == ErrClosed; isOurs != (tt.cause == context.Cause(tt.life)) || !isOurs && rehop.ClassOf(err) != rehop.ClassTransient { //nolint:errorlint // one that wraps it is of another Conn
			t.Errorf("%s: %v of class %v; want the end of this Conn, or an outage", tt.rule, err, rehop.ClassOf(err))
		}
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
