package work

import (
	"context"
	"crypto/rand"
	"errors"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer/internal/durations"
	"github.com/rehop/rehop/internal/confirm"
	"github.com/rehop/rehop/internal/pause"
)

// NoConfirmsError is the cause with which a session ends whose messages would use up their
// delivery limit, because the broker confirms no copies.
type NoConfirmsError struct{ Cause error }

func (e *NoConfirmsError) Error() string {
	return "messages that have come back often are left in their queue until the broker confirms copies: " + e.Cause.Error()
}

func (e *NoConfirmsError) Unwrap() error { return e.Cause }

// answered reports whether the broker has answered a publish, if not by a confirm.
func answered(err error) bool {
	return err == nil || errors.Is(err, confirm.ErrReturned) || errors.Is(err, confirm.ErrNacked) || errors.Is(err, confirm.ErrRefused)
}

// AwaitAnswer waits until the broker answers publishes, the Conn is closed, or ctx ends.
//
// It publishes messages to the default exchange that no queue takes. Nothing less shows
// that an alarm is over: a broker tells a client of an alarm when the client publishes, and
// a client that has connected since knows of none. The messages have a body. From such a
// client the broker takes one header, and so a whole message without a body, before it
// stops reading.
func (c *Copies) AwaitAnswer(ctx context.Context) {
	nowhere := "rehop.nowhere." + rand.Text()
	for pauses := pause.Grow(durations.FirstAlarmPause, durations.LongestAlarmPause); ; {
		m := &confirm.Message{RoutingKey: nowhere, Publishing: amqp.Publishing{Body: []byte("is this read?")}, Timeout: c.Timeout}
		c.Publisher.Send(ctx, m)
		if err := m.Wait(ctx); answered(err) || errors.Is(err, connection.ErrClosed) {
			return
		}
		if !pause.For(ctx, pauses.Next()) {
			return
		}
	}
}
