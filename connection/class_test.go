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
		"a queue whose node is down":        {broker(404, "NOT_FOUND - home node 'rabbit@b' of durable queue 'q' in vhost '/' is down or inaccessible"), Transient},
		"a queue whose process is stopped":  {broker(404, "NOT_FOUND - queue 'q' in vhost '/' process is stopped by supervisor"), Transient},
		"a queue whose process has crashed": {broker(404, "NOT_FOUND - queue 'q' in vhost '/' has crashed and failed to restart"), Transient},
		"a queue that does not answer":      {broker(404, "NOT_FOUND - failed to perform operation on queue 'q' in vhost '/' due to timeout"), Transient},
		"other arguments":                   {broker(406, "PRECONDITION_FAILED - inequivalent arg 'x-message-ttl'"), Configuration},
		"the consumer timeout":              {broker(406, "PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out"), Transient},
		"a tag that is not ours":            {broker(406, "PRECONDITION_FAILED - unknown delivery tag 7"), Bug},
		"a message over the limit":          {broker(406, "PRECONDITION_FAILED - message size 9 is larger than configured max size 8"), Bug},
		"an exclusive queue of another":     {broker(405, "RESOURCE_LOCKED"), Transient},
		"a shutdown":                        {broker(320, "CONNECTION_FORCED - broker forced connection closure"), Transient},
		"an internal error":                 {broker(541, "INTERNAL_ERROR"), Transient},
		"a malformed frame":                 {broker(501, "FRAME_ERROR"), Bug},
		"what is not implemented":           {broker(540, "NOT_IMPLEMENTED"), Bug},
		"an unknown exchange type on 3.x":   {broker(503, "COMMAND_INVALID - unknown exchange type 'x-delayed'"), Configuration},
		"another invalid command":           {broker(503, "COMMAND_INVALID - second 'channel.open' seen"), Bug},
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
		return a.failure(ctx)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	l := &link{log: slog.New(slog.DiscardHandler), limit: time.Hour}
	var alarm blocked
	alarm.set("low on memory")
	unsent := &socket{drained: make(chan struct{})}
	up := func(err error) error {
		return &refusal{text: "OnConnect", cause: err, broker: true, sure: true, class: ClassOf(err)}
	}
	parsed := func() error { _, err := ParseVersion("x"); return err }
	for name, c := range map[string]struct {
		err  error
		want Class
	}{
		"no ctx":                                {errNoContext, Bug},
		"the outer Conn in OnConnect":           {errOuterConn, Bug},
		"a panic of a hook":                     {protect(l.log, "", func() error { panic("mine") }), Bug},
		"a version that is none":                {parsed(), Bug},
		"nobody there":                          {tried(down), Transient},
		"a refused login":                       {tried(refusedLogin), Configuration},
		"Open's time is over":                   {left(down), Transient},
		"the same, in the first try":            {left(nil), Transient},
		"the same, refused":                     {left(refusedLogin), Configuration},
		"a certificate":                         {tried(explainTLS(endpoint{}, errors.New("x509"))), Configuration},
		"OnConnect with a faulty declaration":   {tried(up(&amqp.Error{Code: 406, Server: true, Recover: true})), Configuration},
		"OnConnect with an error from anywhere": {tried(up(errors.New("mine"))), Configuration},
		"OnConnect under a loss":                {tried(up(ErrSessionLost)), Transient},
		"OnConnect that takes too long":         {tried(up(errOnConnectLimit)), Transient},
		"OnConnect that ends its goroutine":     {tried(up(WithClass(errors.New("it ended its goroutine"), Bug))), Bug},
		"a session closed by its owner":         {errSessionClosed, Transient},
		"a session whose link is killed":        {killed(errors.New("no reply")), Transient},
		"a session of a closed Conn":            {killed(ErrClosed), Bug},
		"a session that is gone":                {l.lost(nil), Transient},
		"a session whose call was left":         {fmt.Errorf("%w: %w", ErrSessionLost, ended(ctx)), Transient},
		"a session that does not close":         {fmt.Errorf("%w: %w", context.DeadlineExceeded, errCloseTimeout), Transient},
		"an alarm that outlasts ctx":            {alarm.wait(ctx), Transient},
		"a socket that is not read":             {unsent.wait(ctx), Transient},
		"a degraded Conn":                       {&HealthError{Degraded: true, Cause: tried(down)}, Transient},
		"an unhealthy Conn":                     {&HealthError{Cause: tried(refusedLogin)}, Configuration},
	} {
		if got := ClassOf(c.err); got != c.want || c.err == nil {
			t.Errorf("%s: ClassOf(%v) = %v, want %v", name, c.err, got, c.want)
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
