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
)

// Credentials are what one login uses.
type Credentials struct {
	// User is what [Session.User] returns. Of an OAuth 2 token the broker reads
	// the user from the token, whatever this says: make it the same name if
	// messages carry a user-id.
	User     string
	Password string // or an OAuth 2 token

	// Expires is when the broker stops to accept them; zero: never. After four
	// fifths of the time until then Config.Credentials is called again, and the
	// broker is told the new Password on the living connection
	// (connection.update-secret). The User stays until the next login.
	//
	// When a token has expired all the same, a broker from 4.3 on closes the
	// connection; older ones refuse what is new to them, and go on with what
	// they have allowed.
	Expires time.Time
}

// sasl returns what amqp091-go logs in with, for the mechanisms that the URL
// names; PLAIN if none. The properties are those of the same login.
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
		all = append(all, outspoken{a, properties})
	}
	return all
}

// outspoken asks the broker to answer a wrong password with 403 at once.
// Otherwise it closes the socket after some seconds, which is what a broker
// that dies does as well.
type outspoken struct {
	amqp.Authentication
	properties amqp.Table
}

// Response is called after the library has written its own capabilities, which
// leave this one out, and before they are sent.
func (o outspoken) Response() string {
	if capabilities, ok := o.properties["capabilities"].(amqp.Table); ok {
		capabilities["authentication_failure_close"] = true
	}
	return o.Authentication.Response()
}

func isExternal(mechanism string) bool { return strings.EqualFold(mechanism, "EXTERNAL") }

// renewal is when credentials are renewed that were got now.
func renewal(now, expires time.Time) time.Duration { return max(0, expires.Sub(now)*4/5) }

// guarded returns ask as this package calls it: each call has the time of a
// try, and whoever waits for it need not trust it to return or not to panic.
// One call per socket may be under way.
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
			return Credentials{}, fmt.Errorf("earlier calls have not returned: %w", ended(ctx))
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
			return Credentials{}, fmt.Errorf("it has not returned: %w", ended(ctx))
		}
	}
}

// renew keeps the broker supplied with credentials until ctx ends, which is
// with the link. What it cannot renew in time the broker ends.
func (l *link) renew(ctx context.Context, ask func(context.Context) (Credentials, error)) {
	expires, pause := l.expires, newPauses(nil)
	for wait := renewal(time.Now(), expires); sleep(ctx, wait) == nil; {
		// A broker that does not read cannot answer, and is not dead. Asked
		// for before that, credentials would grow old in our hands.
		if l.gate.wait(ctx) != nil {
			return
		}
		fresh, err := ask(ctx)
		if err == nil {
			err = l.updateSecret(ctx, fresh.Password)
		}
		switch {
		case ctx.Err() != nil, !l.alive():
			return
		case err != nil:
			l.log.Warn("connection: credentials not renewed, trying on", "expires", expires, "error", err)
			wait, _ = pause.next()
			continue
		case fresh.Expires.IsZero():
			return
		}
		l.log.Debug("connection: credentials renewed", "expires", fresh.Expires)
		expires, wait = fresh.Expires, renewal(time.Now(), fresh.Expires)
		if wait > time.Second {
			pause = newPauses(nil)
			continue
		}
		// They are hardly better than the old ones: not in a hot loop.
		wait, _ = pause.next()
	}
}

// updateSecret tells the broker, and returns its answer.
func (l *link) updateSecret(ctx context.Context, secret string) error {
	// The library tells replies of the connection apart by their order alone.
	l.control.Lock()
	defer l.control.Unlock()
	if !l.alive() {
		return l.lost(nil)
	}
	answer := make(chan error, 1)
	go func() { answer <- l.conn.UpdateSecret(secret, "renewed") }() // ends with the socket
	timer := time.NewTimer(l.limit)
	defer timer.Stop()
	for {
		select {
		case err := <-answer:
			if err != nil {
				return fmt.Errorf("connection: update secret at %s: %w", l.target, err)
			}
			return nil
		case <-timer.C:
			// An alarm may have begun in between: then it was not read, and is not lost.
			if _, _, shut := l.gate.state(); !shut {
				l.kill(fmt.Errorf("no answer to the new secret within %v", l.limit))
			}
			if l.gate.wait(ctx) == nil {
				timer.Reset(l.limit)
			}
		}
	}
}
