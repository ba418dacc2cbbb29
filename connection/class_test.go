package connection

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"syscall"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/internal/pause"
)

type ownClass struct{ error }

func (ownClass) Class() rehop.Class { return rehop.ClassBug }

func TestClassOf(t *testing.T) {
	broker := func(code int, reason string) error {
		return &amqp.Error{Code: code, Reason: reason, Server: true, Recover: code < 500}
	}
	for name, c := range map[string]struct {
		err  error
		want rehop.Class
	}{
		"nil":                               {nil, rehop.ClassUnknown},
		"from elsewhere":                    {errors.New("disk full"), rehop.ClassUnknown},
		"its own word":                      {ownClass{errors.New("")}, rehop.ClassBug},
		"its own word before what it wraps": {ownClass{ErrSessionLost}, rehop.ClassBug},
		"marked":                            {fmt.Errorf("mine: %w", rehop.WithClass(errors.New("vault sealed"), rehop.ClassTransient)), rehop.ClassTransient},
		"the Conn is closed":                {fmt.Errorf("%w: %w", ErrSessionLost, ErrClosed), rehop.ClassBug},
		"a lost session":                    {ErrSessionLost, rehop.ClassTransient},
		"a lost socket":                     {&amqp.Error{Code: 501, Reason: "EOF"}, rehop.ClassTransient},
		"a closed channel":                  {amqp.ErrClosed, rehop.ClassTransient},
		"a refused dial":                    {&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, rehop.ClassTransient},
		"an unknown host":                   {&net.DNSError{Err: "no such host"}, rehop.ClassTransient},
		"the end of a ctx":                  {context.DeadlineExceeded, rehop.ClassTransient},
		"the end of a stream":               {io.EOF, rehop.ClassTransient},
		"an alarm":                          {&BlockedError{}, rehop.ClassTransient},
		"no channel left":                   {errChannelLimit, rehop.ClassTransient},
		"a wrong password":                  {amqp.ErrCredentials, rehop.ClassConfiguration},
		"no common mechanism":               {amqp.ErrSASL, rehop.ClassConfiguration},
		"an unknown vhost":                  {broker(530, "NOT_ALLOWED - vhost x not found"), rehop.ClassConfiguration},
		"a limit of the vhost":              {broker(530, "NOT_ALLOWED - access to vhost 'x' refused for user 'y': connection limit (1) is reached"), rehop.ClassTransient},
		"a missing permission":              {broker(403, "ACCESS_REFUSED"), rehop.ClassConfiguration},
		"a missing queue":                   {fmt.Errorf("%w: %w", ErrSessionLost, broker(404, "NOT_FOUND")), rehop.ClassConfiguration},
		"a queue whose node is down":        {broker(404, "NOT_FOUND - home node 'rabbit@b' of durable queue 'q' in vhost '/' is down or inaccessible"), rehop.ClassTransient},
		"a queue whose process is stopped":  {broker(404, "NOT_FOUND - queue 'q' in vhost '/' process is stopped by supervisor"), rehop.ClassTransient},
		"a queue whose process has crashed": {broker(404, "NOT_FOUND - queue 'q' in vhost '/' has crashed and failed to restart"), rehop.ClassTransient},
		"a queue that does not answer":      {broker(404, "NOT_FOUND - failed to perform operation on queue 'q' in vhost '/' due to timeout"), rehop.ClassTransient},
		"other arguments":                   {broker(406, "PRECONDITION_FAILED - inequivalent arg 'x-message-ttl'"), rehop.ClassConfiguration},
		"the consumer timeout":              {broker(406, "PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out"), rehop.ClassTransient},
		"a tag that is not ours":            {broker(406, "PRECONDITION_FAILED - unknown delivery tag 7"), rehop.ClassBug},
		"a message over the limit":          {broker(406, "PRECONDITION_FAILED - message size 9 is larger than configured max size 8"), rehop.ClassBug},
		"an exclusive queue of another":     {broker(405, "RESOURCE_LOCKED"), rehop.ClassTransient},
		"a shutdown":                        {broker(320, "CONNECTION_FORCED - broker forced connection closure"), rehop.ClassTransient},
		"an internal error":                 {broker(541, "INTERNAL_ERROR"), rehop.ClassTransient},
		"a malformed frame":                 {broker(501, "FRAME_ERROR"), rehop.ClassBug},
		"what is not implemented":           {broker(540, "NOT_IMPLEMENTED"), rehop.ClassBug},
		"an unknown exchange type on 3.x":   {broker(503, "COMMAND_INVALID - unknown exchange type 'x-delayed'"), rehop.ClassConfiguration},
		"another invalid command":           {broker(503, "COMMAND_INVALID - second 'channel.open' seen"), rehop.ClassBug},
		"a faulty Config":                   {func() error { _, err := Open(t.Context(), Config{}); return err }(), rehop.ClassConfiguration},
	} {
		if rehop.WithClass(nil, rehop.ClassBug) != nil {
			t.Error("WithClass makes an error of nil")
		}
		if got := rehop.ClassOf(c.err); got != c.want {
			t.Errorf("%s: rehop.ClassOf(%v) = %v, want %v", name, c.err, got, c.want)
		}
	}
}

// Every error that this package returns has a class.
func TestEveryErrorHasAClass(t *testing.T) {
	down, refusedLogin := errors.New("connection refused"), &refusal{text: "login", cause: amqp.ErrCredentials, broker: true, sure: true}
	tried := func(err error) error {
		a := newAttempts(1)
		a.add(0, err)
		return a.verdict()
	}
	left := func(err error) error {
		ctx, cancel := context.WithTimeoutCause(t.Context(), 0, errOpenTimeout)
		defer cancel()
		a := newAttempts(1)
		if err != nil {
			a.add(0, err)
		}
		return a.failure(ctx, t.Context())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	l := &link{log: slog.New(slog.DiscardHandler), limit: time.Hour}
	var alarm blocked
	alarm.set("low on memory")
	unsent := &socket{drained: make(chan struct{})}
	up := func(err error) error {
		return &refusal{text: "OnConnect", cause: err, broker: true, sure: true, class: rehop.ClassOf(err)}
	}
	parsed := func() error { _, err := ParseVersion("x"); return err }
	for name, c := range map[string]struct {
		err  error
		want rehop.Class
	}{
		"no ctx":                                {errNoContext, rehop.ClassBug},
		"the outer Conn in OnConnect":           {errOuterConn, rehop.ClassBug},
		"a panic of a hook":                     {protect(l.log, "", func() error { panic("mine") }), rehop.ClassBug},
		"a version that is none":                {parsed(), rehop.ClassBug},
		"nobody there":                          {tried(down), rehop.ClassTransient},
		"a refused login":                       {tried(refusedLogin), rehop.ClassConfiguration},
		"Open's time is over":                   {left(down), rehop.ClassTransient},
		"the same, in the first try":            {left(nil), rehop.ClassTransient},
		"the same, refused":                     {left(refusedLogin), rehop.ClassConfiguration},
		"a certificate":                         {tried(explainTLS(endpoint{}, errors.New("x509"))), rehop.ClassConfiguration},
		"OnConnect with a faulty declaration":   {tried(up(&amqp.Error{Code: 406, Server: true, Recover: true})), rehop.ClassConfiguration},
		"OnConnect with an error from anywhere": {tried(up(errors.New("mine"))), rehop.ClassConfiguration},
		"OnConnect under a loss":                {tried(up(ErrSessionLost)), rehop.ClassTransient},
		"OnConnect that takes too long":         {tried(up(errOnConnectLimit)), rehop.ClassTransient},
		"OnConnect that ends its goroutine":     {tried(up(rehop.WithClass(errors.New("it ended its goroutine"), rehop.ClassBug))), rehop.ClassBug},
		"a session closed by its owner":         {errSessionClosed, rehop.ClassTransient},
		"a session whose link is killed":        {killed(errors.New("no reply")), rehop.ClassTransient},
		"a session of a closed Conn":            {killed(ErrClosed), rehop.ClassBug},
		"a session that is gone":                {l.lost(nil), rehop.ClassTransient},
		"a session whose call was left":         {fmt.Errorf("%w: %w", ErrSessionLost, pause.Ended(ctx)), rehop.ClassTransient},
		"a session that does not close":         {fmt.Errorf("%w: %w", context.DeadlineExceeded, errCloseTimeout), rehop.ClassTransient},
		"an alarm that outlasts ctx":            {alarm.wait(ctx), rehop.ClassTransient},
		"a socket that is not read":             {unsent.wait(ctx), rehop.ClassTransient},
		"a degraded Conn":                       {&rehop.HealthError{Degraded: true, Cause: tried(down)}, rehop.ClassTransient},
		"an unhealthy Conn":                     {&rehop.HealthError{Cause: tried(refusedLogin)}, rehop.ClassConfiguration},
	} {
		if got := rehop.ClassOf(c.err); got != c.want || c.err == nil {
			t.Errorf("%s: rehop.ClassOf(%v) = %v, want %v", name, c.err, got, c.want)
		}
	}
}

// killed is the error of a session whose link we have ended.
func killed(cause error) error {
	l := new(link)
	l.cause.Store(&cause)
	return l.lost(nil)
}

func TestAnExceptionIsToldOnce(t *testing.T) {
	for in, want := range map[string]string{
		"EOF":                                    `Exception (501) Reason: "EOF"`,
		`Exception (502) Reason: "syntax error"`: `Exception (502) Reason: "syntax error"`,
		`Exception (501) Reason: "frame size \"x\" exceeds"`:     `Exception (501) Reason: "frame size \"x\" exceeds"`,
		`an Exception (501) Reason: "x" in the middle of a text`: `Exception (501) Reason: "an Exception (501) Reason: \"x\" in the middle of a text"`,
	} {
		if got := unnested(&amqp.Error{Code: 501, Reason: in}).Error(); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}
