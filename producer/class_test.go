package producer

import (
	"context"
	"errors"
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
		"headers too large":     {&confirm.TooLargeError{}, connection.Bug},
		"nacked":                {ErrNacked, connection.Transient},
		"no answer in time":     {fmt.Errorf("%w: %w", ErrUnconfirmed, confirm.ErrLate), connection.Transient},
		"target silent":         {fmt.Errorf("%w: %w: %w", ErrUnconfirmed, confirm.ErrImpatient, &confirm.SilentError{}), connection.Transient},
		"not sent, no room":     {&confirm.UnsentError{Why: errors.New("the window is full"), Cause: confirm.ErrLate}, connection.Transient},
		"not sent, ctx":         {&confirm.UnsentError{Why: errors.New("the window is full"), Cause: context.Canceled}, connection.Transient},
		"not sent, own cause":   {&confirm.UnsentError{Why: errors.New("the window is full"), Cause: errors.New("the user left")}, connection.Transient},
		"not sent, blocked":     {&confirm.UnsentError{Why: &connection.BlockedError{}, Cause: confirm.ErrImpatient}, connection.Transient},
		"not sent, password":    {&confirm.UnsentError{Why: amqp.ErrCredentials, Cause: confirm.ErrLate}, connection.Configuration},
		"not sent, never will":  {confirm.ErrLate, connection.Transient},
		"given up for fallback": {confirm.ErrImpatient, connection.Transient},
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
