package connection

import (
	"context"
	"errors"
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
