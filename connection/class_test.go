package connection

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

type ownClass struct{ error }

func (ownClass) Class() Class { return Bug }

func TestClassOf(t *testing.T) {
	broker := func(code int, reason string) error {
		return &amqp.Error{Code: code, Reason: reason, Server: true, Recover: code < 500}
	}
	for name, c := range map[string]struct {
		err  error
		want Class
	}{
		"nil":                               {nil, Unknown},
		"from elsewhere":                    {errors.New("disk full"), Unknown},
		"its own word":                      {ownClass{errors.New("")}, Bug},
		"its own word before what it wraps": {ownClass{ErrSessionLost}, Bug},
		"marked":                            {fmt.Errorf("mine: %w", WithClass(errors.New("vault sealed"), Transient)), Transient},
		"the Conn is closed":                {fmt.Errorf("%w: %w", ErrSessionLost, ErrClosed), Bug},
		"a lost session":                    {ErrSessionLost, Transient},
		"a lost socket":                     {&amqp.Error{Code: 501, Reason: "EOF"}, Transient},
		"a closed channel":                  {amqp.ErrClosed, Transient},
		"a refused dial":                    {&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, Transient},
		"an unknown host":                   {&net.DNSError{Err: "no such host"}, Transient},
		"the end of a ctx":                  {context.DeadlineExceeded, Transient},
		"the end of a stream":               {io.EOF, Transient},
		"an alarm":                          {&BlockedError{}, Transient},
		"no channel left":                   {errChannelLimit, Transient},
		"a wrong password":                  {amqp.ErrCredentials, Configuration},
		"no common mechanism":               {amqp.ErrSASL, Configuration},
		"an unknown vhost":                  {broker(530, "NOT_ALLOWED - vhost x not found"), Configuration},
		"a limit of the vhost":              {broker(530, "NOT_ALLOWED - access to vhost 'x' refused for user 'y': connection limit (1) is reached"), Transient},
		"a missing permission":              {broker(403, "ACCESS_REFUSED"), Configuration},
		"a missing queue":                   {fmt.Errorf("%w: %w", ErrSessionLost, broker(404, "NOT_FOUND")), Configuration},
		"other arguments":                   {broker(406, "PRECONDITION_FAILED - inequivalent arg 'x-message-ttl'"), Configuration},
		"the consumer timeout":              {broker(406, "PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out"), Transient},
		"a tag that is not ours":            {broker(406, "PRECONDITION_FAILED - unknown delivery tag 7"), Bug},
		"a message over the limit":          {broker(406, "PRECONDITION_FAILED - message size 9 is larger than configured max size 8"), Bug},
		"an exclusive queue of another":     {broker(405, "RESOURCE_LOCKED"), Transient},
		"a shutdown":                        {broker(320, "CONNECTION_FORCED - broker forced connection closure"), Transient},
		"an internal error":                 {broker(541, "INTERNAL_ERROR"), Transient},
		"a malformed frame":                 {broker(501, "FRAME_ERROR"), Bug},
		"what is not implemented":           {broker(540, "NOT_IMPLEMENTED"), Bug},
		"a faulty Config":                   {func() error { _, err := Open(t.Context(), Config{}); return err }(), Configuration},
	} {
		if WithClass(nil, Bug) != nil {
			t.Error("WithClass makes an error of nil")
		}
		if got := ClassOf(c.err); got != c.want {
			t.Errorf("%s: ClassOf(%v) = %v, want %v", name, c.err, got, c.want)
		}
	}
}
