package producer

import (
	"context"
	"errors"
	"fmt"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/confirm"
)

func TestClassOfWhatBecameOfAMessage(t *testing.T) {
	refused := func(code int, reason string) error {
		return &confirm.RefusedError{Cause: &amqp.Error{Code: code, Reason: reason, Server: true, Recover: true}}
	}
	for name, c := range map[string]struct {
		err  error
		want rehop.Class
	}{
		"returned":              {&confirm.ReturnedError{}, rehop.ClassConfiguration},
		"exchange missing":      {refused(404, "NOT_FOUND"), rehop.ClassConfiguration},
		"no permission":         {refused(403, "ACCESS_REFUSED"), rehop.ClassConfiguration},
		"too large":             {refused(406, "PRECONDITION_FAILED - message size 9 is larger than configured max size 8"), rehop.ClassBug},
		"headers too large":     {&confirm.TooLargeError{}, rehop.ClassBug},
		"nacked":                {ErrNacked, rehop.ClassTransient},
		"no answer in time":     {fmt.Errorf("%w: %w", ErrUnconfirmed, confirm.ErrLate), rehop.ClassTransient},
		"target silent":         {fmt.Errorf("%w: %w: %w", ErrUnconfirmed, confirm.ErrImpatient, &confirm.SilentError{}), rehop.ClassTransient},
		"not sent, no room":     {&confirm.UnsentError{Why: errors.New("the window is full"), Cause: confirm.ErrLate}, rehop.ClassTransient},
		"not sent, ctx":         {&confirm.UnsentError{Why: errors.New("the window is full"), Cause: context.Canceled}, rehop.ClassTransient},
		"not sent, own cause":   {&confirm.UnsentError{Why: errors.New("the window is full"), Cause: errors.New("the user left")}, rehop.ClassTransient},
		"not sent, blocked":     {&confirm.UnsentError{Why: &connection.BlockedError{}, Cause: confirm.ErrImpatient}, rehop.ClassTransient},
		"not sent, password":    {&confirm.UnsentError{Why: amqp.ErrCredentials, Cause: confirm.ErrLate}, rehop.ClassConfiguration},
		"not sent, never will":  {confirm.ErrLate, rehop.ClassTransient},
		"given up for fallback": {confirm.ErrImpatient, rehop.ClassTransient},
		"unconfirmed":           {fmt.Errorf("%w: %w", ErrUnconfirmed, context.DeadlineExceeded), rehop.ClassTransient},
		"blocked":               {&connection.BlockedError{}, rehop.ClassTransient},
		"after Close":           {connection.ErrClosed, rehop.ClassBug},
		"returned, maybe twice": {fmt.Errorf("%w: %w", ErrUnconfirmed, &confirm.ReturnedError{}), rehop.ClassTransient},
	} {
		if got := rehop.ClassOf(fmt.Errorf("producer: %w", c.err)); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
