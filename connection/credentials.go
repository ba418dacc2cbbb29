package connection

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/internal/pause"
)

// Credentials are for one login.
type Credentials struct {
	// User is the name of the user. The broker reads the user of an OAuth 2 token from
	// the token and ignores User: if messages carry a user-id, set User to the same
	// name.
	User     string
	Password string // or an OAuth 2 token

	// Expires is when the broker stops accepting them; zero means never. After
	// four fifths of the time until then Config.Credentials is called again, and
	// the broker is told the new Password on the living connection
	// (connection.update-secret). The User stays until the next login.
	//
	// If a token expires all the same, broker 4.3 closes the connection. Older
	// brokers refuse new operations and go on with the operations that they have allowed.
	Expires time.Time
}

// sasl returns the credentials in the form of amqp091-go, for the mechanisms that the
// URL names; PLAIN if none. The properties belong to the same login.
func (c Credentials) sasl(mechanisms []string, properties amqp.Table) []amqp.Authentication {
	if len(mechanisms) == 0 {
		mechanisms = []string{"PLAIN"}
	}
	var all []amqp.Authentication
	for _, m := range mechanisms {
		var a amqp.Authentication = &amqp.PlainAuth{Username: c.User, Password: c.Password}
		switch strings.ToUpper(m) {
		case "AMQPLAIN":
			a = &amqp.AMQPlainAuth{Username: c.User, Password: c.Password}
		case "EXTERNAL":
			a = &amqp.ExternalAuth{}
		}
		all = append(all, closeOnRefusal{a, properties})
	}
	return all
}

// closeOnRefusal asks the broker to answer a wrong password with 403 at once.
// Otherwise it closes the socket after some seconds, as a broker does that dies.
type closeOnRefusal struct {
	amqp.Authentication
	properties amqp.Table
}

// Response is called after the library has written its own capabilities, which
// leave this one out, and before they are sent.
func (a closeOnRefusal) Response() string {
	if capabilities, ok := a.properties["capabilities"].(amqp.Table); ok {
		capabilities["authentication_failure_close"] = true
	}
	return a.Authentication.Response()
}

func isExternal(mechanism string) bool { return strings.EqualFold(mechanism, "EXTERNAL") }

// renewal is when credentials are renewed that were got now.
func renewal(now, expires time.Time) time.Duration { return max(0, expires.Sub(now)*4/5) }

// guarded returns ask as this package calls it: each call has the time of a
// try, and one that does not return, or panics, does no harm. One call per socket
// may be under way.
func guarded(ask func(context.Context) (Credentials, error), limit time.Duration, log *slog.Logger) func(context.Context) (Credentials, error) {
	type answer struct {
		credentials Credentials
		err         error
	}
	calls := make(chan struct{}, 2)
	return func(ctx context.Context) (Credentials, error) {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		select {
		case calls <- struct{}{}:
		case <-ctx.Done():
			return Credentials{}, fmt.Errorf("earlier calls have not returned: %w", pause.Ended(ctx))
		}
		answers := make(chan answer, 1)
		go func() {
			a := answer{err: errors.New("it ended its goroutine")}
			defer func() {
				if p := recover(); p != nil {
					log.Error("connection: Credentials panicked", "panic", p, "stack", string(debug.Stack()))
					a.err = fmt.Errorf("panic: %v", p)
				}
				<-calls
				answers <- a
			}()
			a.credentials, a.err = ask(ctx)
		}()
		select {
		case a := <-answers:
			if a.err == nil && a.credentials.User == "" && a.credentials.Password == "" {
				a.err = errors.New("it returned neither user nor password")
			}
			return a.credentials, a.err
		case <-ctx.Done():
			return Credentials{}, fmt.Errorf("it has not returned: %w", pause.Ended(ctx))
		}
	}
}

// renew keeps the broker supplied with credentials until the link ends. A
// connection whose credentials it cannot renew in time is ended by the broker.
func (l *link) renew(ask func(context.Context) (Credentials, error)) {
	ctx, expires, pause := l.life, l.expires, defaultPauses()
	for wait := renewal(time.Now(), expires); sleep(ctx, wait) == nil; {
		// A broker that does not read cannot answer, and is not dead. So wait
		// first, and then ask for new credentials.
		if l.blocked.wait(ctx) != nil {
			return
		}
		renewed, err := ask(ctx)
		if err == nil {
			err = l.updateSecret(ctx, renewed.Password)
		}
		switch {
		case ctx.Err() != nil, !l.alive():
			return
		case err != nil:
			l.log.Warn("connection: credentials not renewed, trying on", "expires", expires, "error", err)
			wait, _ = pause.next(false)
			continue
		case renewed.Expires.IsZero():
			return
		}
		l.log.Debug("connection: credentials renewed", "expires", renewed.Expires)
		expires, wait = renewed.Expires, renewal(time.Now(), renewed.Expires)
		if wait > time.Second {
			pause = defaultPauses()
			continue
		}
		// They expire as soon as the old ones: do not ask in a hot loop.
		wait, _ = pause.next(false)
	}
}

// updateSecret tells the broker, and returns its answer.
func (l *link) updateSecret(ctx context.Context, secret string) error {
	// The library tells replies of the connection apart by their order alone.
	select {
	case l.control <- struct{}{}:
		defer func() { <-l.control }()
	case <-ctx.Done():
		return l.lost(nil)
	}
	if !l.alive() {
		return l.lost(nil)
	}
	err := l.timed(func() error { return l.conn.UpdateSecret(secret, "renewed") })
	if err != nil {
		return fmt.Errorf("connection: update secret at %s: %w", l.endpoint, err)
	}
	return nil
}
