package connection

import (
	"context"
	"fmt"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Credentials are what one login uses.
type Credentials struct {
	User     string
	Password string // or an OAuth 2 token

	// Expires is when the broker stops to accept them; zero: never. Four
	// fifths of the time until then Config.Credentials is called again, and the
	// broker is told the new Password on the living connection
	// (connection.update-secret). The User stays until the next login.
	Expires time.Time
}

// sasl returns what amqp091-go logs in with, for the mechanisms that the URL
// names; PLAIN if none.
func (c Credentials) sasl(mechanisms []string) []amqp.Authentication {
	plain := &amqp.PlainAuth{Username: c.User, Password: c.Password}
	var all []amqp.Authentication
	for _, m := range mechanisms {
		switch strings.ToUpper(m) {
		case "PLAIN":
			all = append(all, plain)
		case "AMQPLAIN":
			all = append(all, &amqp.AMQPlainAuth{Username: c.User, Password: c.Password})
		}
	}
	if all == nil {
		all = append(all, plain)
	}
	return all
}

func isExternal(mechanism string) bool { return strings.EqualFold(mechanism, "EXTERNAL") }

// renewal is when credentials are renewed that were got now.
func renewal(now, expires time.Time) time.Duration { return max(0, expires.Sub(now)*4/5) }

// renew keeps the broker supplied with credentials until ctx ends, which is
// with the link. What it cannot renew in time the broker ends.
func (l *link) renew(ctx context.Context, ask func(context.Context) (Credentials, error)) {
	expires, pause := l.expires, newPauses(nil)
	for wait := renewal(time.Now(), expires); sleep(ctx, wait) == nil; {
		fresh, err := ask(ctx)
		if err == nil {
			// A broker that does not read cannot answer, and is not dead.
			err = l.gate.wait(ctx)
		}
		if err == nil {
			err = l.updateSecret(ctx, fresh.Password)
		}
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			l.log.Warn("connection: credentials not renewed, trying on", "expires", expires, "error", err)
			wait, _ = pause.next()
			continue
		case fresh.Expires.IsZero():
			return
		}
		l.log.Debug("connection: credentials renewed", "expires", fresh.Expires)
		pause = newPauses(nil)
		expires = fresh.Expires
		wait = max(renewal(time.Now(), expires), time.Second) // not in a hot loop with what has expired
	}
}

func (l *link) updateSecret(ctx context.Context, secret string) error {
	// The library tells replies of the connection apart by their order alone.
	l.control.Lock()
	defer l.control.Unlock()
	if !l.alive() {
		return l.lost(nil)
	}
	err := l.await(ctx, func() error { return l.conn.UpdateSecret(secret, "renewed") })
	if err != nil {
		return fmt.Errorf("connection: update secret at %s: %w", l.target, err)
	}
	return nil
}
