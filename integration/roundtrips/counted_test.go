package roundtrips

import (
	"context"
	"errors"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
)

// A tool that counts wrongly is worse than none.
func TestCount(t *testing.T) {
	b := start(t)
	tests := map[string]struct {
		sessions, calls int // calls in a row on each of the sessions
		want            float64
	}{
		"nothing":                    {1, 0, 0},
		"one call":                   {1, 1, 1},
		"five in a row":              {1, 5, 5},
		"five in a row, six abreast": {6, 5, 5},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			n, err := b.count(tt.want-0.5, tt.want+0.5, func(b *bench) (measured, error) { return b.calls(tt.sessions, tt.calls) })
			if err != nil {
				t.Fatal(err)
			}
			if n < tt.want-0.5 || n > tt.want+0.5 {
				t.Errorf("counted %.1f round trips, want %.0f", n, tt.want)
			}
		})
	}
}

// calls are of basic.qos, which is one round trip.
func (b *bench) calls(sessions, each int) (measured, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := b.dial(ctx)
	if err != nil {
		return measured{}, err
	}
	var all []*connection.Session
	for range sessions {
		s, err := conn.Session(ctx, connection.Consume)
		if err != nil {
			return measured{}, errors.Join(err, conn.Close())
		}
		all = append(all, s)
	}
	return measured{
		do: func(ctx context.Context) error {
			errs := make(chan error, len(all))
			for _, s := range all {
				go func() {
					var err error
					for range each {
						err = errors.Join(err, s.Do(ctx, func(ch *amqp.Channel) error { return ch.Qos(1, 0, false) }))
					}
					errs <- err
				}()
			}
			var err error
			for range all {
				err = errors.Join(err, <-errs)
			}
			return err
		},
		after: conn.Close,
	}, nil
}
