package auth_test

import (
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/copies"
	"github.com/rehop/rehop/internal/transport"
	_ "github.com/rehop/rehop/xdeath" // sets the functions of copies
)

// certified is the configuration of a client whose certificate is its login.
func (n *node) certified(name string) connection.Config {
	return connection.Config{
		URLs: []string{n.secure() + named + "&auth_mechanism=external"},
		TLS:  n.ca.client(name), Name: "external " + name,
	}
}

func TestTheCertificateIsTheLogin(t *testing.T) {
	onEachWith(t, external, func(t *testing.T, n *node) {
		n.api(t, "users/carol", `{"password_hash":"","tags":""}`) // no password
		n.permit(t, "/", "carol")
		c := open(t, n.certified("carol"))
		if got := n.ctl(t, "list_connections", "user", "client_properties"); !strings.Contains(got, "carol\t") {
			t.Errorf("connections: %s", got)
		}
		if got := c.State(connection.Consume).URL; strings.Contains(got, "guest") {
			t.Errorf("URL is %s, which names a user that is not there", got)
		}
		s := session(t, c, connection.Publish)
		if transport.Inside.Session(s).User() != "" {
			t.Errorf("User is %q; only the broker knows it", transport.Inside.Session(s).User())
		}

		t.Run("no such user", func(t *testing.T) {
			err := refused(t, n.certified("dave"), rehop.ClassConfiguration)
			says(t, err, "the broker refuses the user that our client certificate names (403 ACCESS_REFUSED)", "ssl_cert_login_from")
		})
		t.Run("without TLS", func(t *testing.T) {
			err := refused(t, connection.Config{URLs: []string{n.url() + "?auth_mechanism=external"}}, rehop.ClassConfiguration)
			says(t, err, "the broker offers none of our authentication mechanisms (EXTERNAL)")
		})
		t.Run("a copy of another user's message", func(t *testing.T) { othersCopies(t, n, c) })
	})
}

// The broker closes the channel of who publishes in another user's name.
func othersCopies(t *testing.T, n *node, carols *connection.Conn) {
	n.queue(t, "external")
	guests := session(t, open(t, connection.Config{URLs: []string{n.AMQPURL()}}), connection.Publish)
	s := session(t, carols, connection.Publish)
	for _, session := range []*connection.Session{guests, s} {
		if err := session.Do(t.Context(), confirming); err != nil {
			t.Fatal(err)
		}
	}
	for user, from := range map[string]*connection.Session{"guest": guests, "carol": s} {
		put(t, from, amqp.Publishing{UserId: user})
		original := get(t, s)
		if original.UserId != user {
			t.Fatalf("user-id is %q, want %q", original.UserId, user)
		}
		put(t, s, copies.Retry(original, copies.RetryCopy{Queue: "external", Attempts: 1, At: time.Now(), User: transport.Inside.Session(s).User()}))
		if got := get(t, s); got.UserId != "" || got.Headers["x-rehop-user-id"] != user {
			t.Errorf("the copy of %s's message has user-id %q and headers %v", user, got.UserId, got.Headers)
		}
	}
	put(t, guests, amqp.Publishing{UserId: transport.Inside.Session(guests).User()})
	original := get(t, guests)
	put(t, guests, copies.Retry(original, copies.RetryCopy{Queue: "external", Attempts: 1, At: time.Now(), User: transport.Inside.Session(guests).User()}))
	if got := get(t, guests); got.UserId != "guest" {
		t.Errorf("a copy of our own message has user-id %q", got.UserId)
	}
}

func put(t *testing.T, s *connection.Session, m amqp.Publishing) {
	t.Helper()
	confirm, err := s.Channel().PublishWithDeferredConfirm("", "external", false, false, m)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-confirm.Done():
	case <-s.Done():
	}
	if !confirm.Acked() {
		t.Fatalf("not confirmed: %v", s.Err())
	}
}

func get(t *testing.T, s *connection.Session) (d amqp.Delivery) {
	t.Helper()
	err := s.Do(t.Context(), func(ch *amqp.Channel) (err error) {
		var ok bool
		d, ok, err = ch.Get("external", true)
		if err == nil && !ok {
			t.Error("the queue is empty")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return d
}
