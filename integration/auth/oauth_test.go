package auth_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/transport"
)

// issuer signs tokens as an OAuth 2 server does.
type issuer struct {
	subject string
	life    time.Duration
	key     []byte

	mu      sync.Mutex
	scopes  []string
	last    connection.Credentials
	repeats bool // last, instead of a new one
	failing error
	issued  int
	failed  int
}

var everything = []string{"rabbitmq.read:*/*", "rabbitmq.write:*/*", "rabbitmq.configure:*/*"}

// life is how long a token lives that must be renewed in time. The client asks for the next
// token when a fifth of it is left, which is enough on a busy machine.
const life = 15 * time.Second

// issuer returns one that the broker trusts.
func (n *node) issuer(subject string, life time.Duration) *issuer {
	return &issuer{subject: subject, life: life, key: n.key, scopes: everything}
}

func (i *issuer) credentials(context.Context) (connection.Credentials, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.failing != nil {
		i.failed++
		return connection.Credentials{}, i.failing
	}
	i.issued++
	if i.repeats {
		return i.last, nil
	}
	i.last = i.sign(time.Now().Add(i.life))
	return i.last, nil
}

// sign makes a token; the broker counts in whole seconds.
func (i *issuer) sign(expires time.Time) connection.Credentials {
	part := func(v any) string { return base64.RawURLEncoding.EncodeToString(must(json.Marshal(v))) }
	text := part(map[string]any{"alg": "HS256", "typ": "JWT", "kid": "test"}) + "." + part(map[string]any{
		"aud": []string{"rabbitmq"}, "iss": "test", "sub": i.subject, "scope": i.scopes,
		"iat": time.Now().Unix(), "exp": expires.Unix(),
	})
	mac := hmac.New(sha256.New, i.key)
	mac.Write([]byte(text))
	return connection.Credentials{
		User: i.subject, Password: text + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil)),
		Expires: time.Unix(expires.Unix(), 0),
	}
}

// change changes the issuer between two tokens.
func (i *issuer) change(f func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	f()
}

func (i *issuer) counts() (issued, failed int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.issued, i.failed
}

// queue declares a queue of this test's own by somebody who may.
func (n *node) queue(t *testing.T, name string) {
	t.Helper()
	s := session(t, open(t, connection.Config{URLs: []string{n.AMQPURL()}}), connection.Consume)
	err := s.Do(t.Context(), func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare(name, true, false, false, false, nil)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// traffic publishes a message each 100 ms, waits for its confirm, and consumes
// it, on two sessions that are never replaced.
type traffic struct {
	published, consumed atomic.Int32
	ended               chan error // why it ended
}

func (n *node) traffic(t *testing.T, c *connection.Conn, queue string) *traffic {
	t.Helper()
	tr := &traffic{ended: make(chan error, 2)}
	out, in := session(t, c, connection.Publish), session(t, c, connection.Consume)
	if err := out.Do(t.Context(), func(ch *amqp.Channel) error { return ch.Confirm(false) }); err != nil {
		t.Fatal(err)
	}
	var deliveries <-chan amqp.Delivery
	err := in.Do(t.Context(), func(ch *amqp.Channel) (err error) {
		deliveries, err = ch.Consume(queue, "", false, false, false, false, nil)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	t.Cleanup(func() { c.Close(); wg.Wait() })
	wg.Go(func() {
		for d := range deliveries {
			tr.consumed.Add(1)
			_ = d.Ack(false) // its end shows below
		}
		<-in.Done()
		tr.ended <- in.Err()
	})
	wg.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			confirm, err := out.Channel().PublishWithDeferredConfirm("", queue, false, false, amqp.Publishing{Body: []byte("x")})
			if err == nil {
				select {
				case <-confirm.Done():
				case <-out.Done():
				}
				tr.published.Add(1)
			}
			select {
			case <-out.Done():
				tr.ended <- out.Err()
				return
			case <-tick.C:
			}
		}
	})
	return tr
}

func TestRenewedTokensKeepTheConnection(t *testing.T) {
	onEachWith(t, oauth2, func(t *testing.T, n *node) {
		i := n.issuer("renewing", life)
		n.queue(t, "renewing")
		c := open(t, connection.Config{URLs: []string{n.url()}, Credentials: i.credentials})
		tr := n.traffic(t, c, "renewing")
		select {
		case err := <-tr.ended:
			t.Fatalf("lost: %v", err)
		case <-time.After(2*life + life/2):
		}
		for _, use := range []connection.Role{connection.Publish, connection.Consume} {
			s := session(t, c, use)
			if transport.Inside.Session(s).Generation() != 1 {
				t.Errorf("generation %d of %v, want 1", transport.Inside.Session(s).Generation(), use)
			}
			// Of another queue, because older brokers remember what was allowed.
			if err := declare(t, s, "renewing-"+string(use)); err != nil {
				t.Errorf("declare: %v", err)
			}
		}
		issued, _ := i.counts()
		t.Logf("%d messages published, %d consumed, %d tokens issued", tr.published.Load(), tr.consumed.Load(), issued)
		if tr.published.Load() < 60 || tr.consumed.Load() < tr.published.Load()-20 {
			t.Error("the traffic has stood still")
		}
		if issued > 2*(1+3*2) {
			t.Errorf("%d tokens issued for two sockets", issued)
		}
	})
}

// From 4.3 on the broker ends the connection of an expired token. Older ones
// let it live and refuse what they are asked for anew, but go on with what they
// have allowed: with publishing for up to a minute (measured: 54 s), with
// consuming for as long as the connection lives.
func TestAnExpiredTokenIsToldAndMendedByTheNext(t *testing.T) {
	onEachWith(t, oauth2, func(t *testing.T, n *node) {
		for name, faulty := range map[string]func(i *issuer){
			"the issuer fails":               func(i *issuer) { i.failing = errors.New("issuer is down") },
			"the issuer repeats the expired": func(i *issuer) { i.repeats = true },
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				subject := strings.ReplaceAll(name, " ", "-")
				i := n.issuer(subject, life)
				n.queue(t, subject)
				cfg := connection.Config{URLs: []string{n.url()}, Credentials: i.credentials}
				c := open(t, cfg)
				tr := n.traffic(t, c, subject)
				var last, expired connection.Credentials
				i.change(func() {
					faulty(i)
					last, expired = i.last, i.sign(time.Now().Add(-2*time.Second))
				})
				if n.atLeast(4, 3) {
					for range 2 {
						err := within(t, "the end of the connection", tr.ended)
						t.Logf("%v after its expiry: %v", time.Since(last.Expires).Round(100*time.Millisecond), err)
						says(t, err, "expired")
					}
				} else {
					var err error
					until(t, "a refusal", func() bool {
						err = declare(t, session(t, c, connection.Consume), subject+"-else")
						return err != nil
					})
					t.Logf("%v after its expiry: %v", time.Since(last.Expires).Round(100*time.Millisecond), err)
					says(t, err, "ACCESS_REFUSED", "Provided JWT token has expired")
					if class := rehop.ClassOf(err); class != rehop.ClassConfiguration {
						t.Errorf("class %v", class)
					}
				}
				cfg.Credentials = func(context.Context) (connection.Credentials, error) { return expired, nil }
				err := refused(t, cfg, rehop.ClassConfiguration)
				says(t, err, fmt.Sprintf("the broker refuses user %q or its password (403 ACCESS_REFUSED); what Credentials returned expired ", subject))

				i.change(func() { i.failing, i.repeats = nil, false })
				until(t, "operations as before", func() bool {
					return declare(t, session(t, c, connection.Consume), subject+"-else") == nil
				})
				want := uint64(1)
				if n.atLeast(4, 3) {
					want = 2
				}
				if g := transport.Inside.Session(session(t, c, connection.Consume)).Generation(); g != want {
					t.Errorf("generation %d, want %d", g, want)
				}
			})
		}
	})
}

func TestAFailingIssuerIsAskedAgainInTime(t *testing.T) {
	onEachWith(t, oauth2, func(t *testing.T, n *node) {
		i := n.issuer("failing", life)
		n.queue(t, "failing")
		c := open(t, connection.Config{URLs: []string{n.url()}, Credentials: i.credentials})
		tr := n.traffic(t, c, "failing")
		i.change(func() { i.failing = errors.New("issuer is down") })
		until(t, "two failures", func() bool { _, failed := i.counts(); return failed >= 2 })
		i.change(func() { i.failing = nil })
		select {
		case err := <-tr.ended:
			t.Fatalf("lost: %v", err)
		case <-time.After(i.life):
		}
		if err := declare(t, session(t, c, connection.Consume), "failing-else"); err != nil {
			t.Errorf("declare: %v", err)
		}
	})
}

// Publishing is refused at once from 4.3 on; older brokers remember for a
// minute that it was allowed.
func TestARenewedTokenWithFewerRights(t *testing.T) {
	onEachWith(t, oauth2, func(t *testing.T, n *node) {
		i := n.issuer("shrinking", life)
		n.queue(t, "shrinking")
		cfg := connection.Config{URLs: []string{n.url()}, Credentials: i.credentials}
		c := open(t, cfg)
		tr := n.traffic(t, c, "shrinking")
		i.change(func() { i.scopes = []string{"rabbitmq.read:*/*"} })
		var err error
		until(t, "a refusal", func() bool {
			err = declare(t, session(t, c, connection.Consume), "shrinking-else")
			return err != nil
		})
		t.Logf("declare: %v", err)
		says(t, err, "ACCESS_REFUSED", "access to queue 'shrinking-else' in vhost '/' refused for user 'shrinking'")
		if class := rehop.ClassOf(err); class != rehop.ClassConfiguration {
			t.Errorf("class %v", class)
		}
		if n.atLeast(4, 3) {
			err := within(t, "the end of publishing", tr.ended)
			t.Logf("publish: %v", err)
			says(t, err, "write access to exchange 'amq.default' in vhost '/' refused for user 'shrinking'")
		}
		if g := transport.Inside.Session(session(t, c, connection.Consume)).Generation(); g != 1 {
			t.Errorf("generation %d: fewer rights are no reason to lose the connection", g)
		}

		i.change(func() { i.scopes = nil })
		err = refused(t, cfg, rehop.ClassConfiguration)
		says(t, err, `the broker refuses user "shrinking" or its password (403 ACCESS_REFUSED); the broker's log says why`)
	})
}

// Credentials.User is what the program calls itself then, and Session.User
// repeats it. The broker goes by the token.
func TestTheUserIsThatOfTheToken(t *testing.T) {
	onEachWith(t, oauth2, func(t *testing.T, n *node) {
		i := n.issuer("subject", time.Minute)
		for _, user := range []string{"subject", "", "somebody"} {
			name := "token of " + user
			c := open(t, connection.Config{URLs: []string{n.url()}, Name: name, Credentials: func(ctx context.Context) (connection.Credentials, error) {
				credentials, err := i.credentials(ctx)
				credentials.User = user
				return credentials, err
			}})
			if s := session(t, c, connection.Consume); transport.Inside.Session(s).User() != user {
				t.Errorf("User is %q", transport.Inside.Session(s).User())
			}
			for line := range strings.Lines(n.ctl(t, "list_connections", "user", "client_properties")) {
				if strings.Contains(line, name+" consume") && !strings.HasPrefix(line, "subject\t") {
					t.Errorf("given %q, the broker says %s", user, line)
				}
			}
		}
	})
}

// declare returns the broker's answer, and closes s.
func declare(t *testing.T, s *connection.Session, queue string) error {
	t.Helper()
	defer s.Close()
	return s.Do(t.Context(), func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare(queue, false, true, false, false, nil)
		return err
	})
}

func (n *node) atLeast(major, minor int) bool {
	return must(connection.ParseVersion(n.Version())).AtLeast(major, minor)
}
