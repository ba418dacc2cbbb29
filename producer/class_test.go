package producer

import (
	"context"
	"fmt"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/confirm"
)

func TestClassOfWhatBecameOfAMessage(t *testing.T) {
	refused := func(code int, reason string) error {
		return &confirm.RefusedError{Cause: &amqp.Error{Code: code, Reason: reason, Server: true, Recover: true}}
	}
	for name, c := range map[string]struct {
		err  error
		want connection.Class
	}{
		"returned":              {&confirm.ReturnedError{}, connection.Configuration},
		"exchange missing":      {refused(404, "NOT_FOUND"), connection.Configuration},
		"no permission":         {refused(403, "ACCESS_REFUSED"), connection.Configuration},
		"too large":             {refused(406, "PRECONDITION_FAILED - message size 9 is larger than configured max size 8"), connection.Bug},
		"nacked":                {ErrNacked, connection.Transient},
		"unconfirmed":           {fmt.Errorf("%w: %w", ErrUnconfirmed, context.DeadlineExceeded), connection.Transient},
		"blocked":               {&connection.BlockedError{}, connection.Transient},
		"after Close":           {connection.ErrClosed, connection.Bug},
		"returned, maybe twice": {fmt.Errorf("%w: %w", ErrUnconfirmed, &confirm.ReturnedError{}), connection.Transient},
	} {
		if got := connection.ClassOf(fmt.Errorf("producer: %w", c.err)); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
