package auth_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/transport"
)

// vault hands out the current password, as a secret store does.
type vault struct {
	user     string
	password atomic.Pointer[string]
	asked    atomic.Int32
}

func newVault(user, password string) *vault {
	v := &vault{user: user}
	v.password.Store(&password)
	return v
}

func (v *vault) credentials(context.Context) (connection.Credentials, error) {
	v.asked.Add(1)
	return connection.Credentials{User: v.user, Password: *v.password.Load()}, nil
}

// cut ends all connections of a user, as an operator does after a change.
func (n *node) cut(t *testing.T, user string) {
	t.Helper()
	n.ctl(t, "close_all_user_connections", user, "password changed")
}

func TestAChangedPasswordIsUsedAtTheNextLogin(t *testing.T) {
	onEach(t, func(t *testing.T, n *node) {
		n.user(t, "rotating", "first")
		v := newVault("rotating", "first")
		c := open(t, connection.Config{URLs: []string{n.url()}, Credentials: v.credentials})
		uses := []connection.Role{connection.Consume, connection.Publish}
		var old []*connection.Session
		for _, use := range uses {
			s := session(t, c, use)
			if transport.Inside.Session(s).User() != "rotating" {
				t.Errorf("User is %q", transport.Inside.Session(s).User())
			}
			old = append(old, s)
		}
		if got := v.asked.Load(); got != 2 {
			t.Errorf("asked %d times for two sockets", got)
		}

		second := "second"
		n.password(t, "rotating", second)
		v.password.Store(&second)
		for _, s := range old {
			if s.Err() != nil {
				t.Errorf("a change of password has ended a connection: %v", s.Err())
			}
		}
		n.cut(t, "rotating")
		for i, use := range uses {
			within(t, "the end of the session", old[i].Done())
			t.Logf("lost: %v (%v)", old[i].Err(), rehop.ClassOf(old[i].Err()))
			if s := session(t, c, use); transport.Inside.Session(s).Generation() != 2 {
				t.Errorf("generation %d, want the first try to work", transport.Inside.Session(s).Generation())
			}
		}
	})
}

func TestAnOldPasswordIsWaitedOutBySessionAndToldByOpen(t *testing.T) {
	onEach(t, func(t *testing.T, n *node) {
		n.user(t, "late", "first")
		v := newVault("late", "first")
		cfg := connection.Config{URLs: []string{n.url()}, Credentials: v.credentials}
		c := open(t, cfg)
		s := session(t, c, connection.Consume)
		n.password(t, "late", "second")
		n.cut(t, "late")
		within(t, "the end of the session", s.Done())

		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second) // for one refusal, which the broker holds back
		defer cancel()
		_, err := c.Session(ctx, connection.Consume)
		t.Logf("Session: %v", err)
		says(t, err, `the broker refuses user "late" or its password (403 ACCESS_REFUSED)`, "no connection within")
		if rehop.ClassOf(err) != rehop.ClassConfiguration || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("class %v of %v", rehop.ClassOf(err), err)
		}
		until(t, "the state that says so, between two tries", func() bool {
			state := c.State(connection.Consume)
			return state.Status == connection.Down && rehop.ClassOf(state.Err) == rehop.ClassConfiguration
		})

		err = refused(t, cfg, rehop.ClassConfiguration)
		says(t, err, `the broker refuses user "late" or its password (403 ACCESS_REFUSED)`)

		waiting := make(chan error, 1)
		go func() {
			_, err := c.Session(t.Context(), connection.Consume)
			waiting <- err
		}()
		asked := v.asked.Load()
		until(t, "two more tries", func() bool { return v.asked.Load() > asked+1 })
		second := "second"
		v.password.Store(&second)
		if err := within(t, "the session", waiting); err != nil {
			t.Error(err)
		}
	})
}

func TestAWrongPasswordInTheURL(t *testing.T) {
	onEach(t, func(t *testing.T, n *node) {
		for _, query := range []string{"", "?auth_mechanism=amqplain"} {
			err := refused(t, connection.Config{URLs: []string{n.as("guest", "s3cret") + query}}, rehop.ClassConfiguration)
			says(t, err, `user "guest" or its password`)
		}
	})
}

// update-secret means nothing to the broker's own users: it takes any.
func TestPasswordsWithAnExpiryAreRenewedOnTheLivingConnection(t *testing.T) {
	onEach(t, func(t *testing.T, n *node) {
		n.user(t, "leased", "first")
		var asked atomic.Int32
		lease := func(context.Context) (connection.Credentials, error) {
			c := connection.Credentials{User: "leased", Password: "first", Expires: time.Now().Add(2 * time.Second)}
			if asked.Add(1) > 2 {
				c.Password = "not that of the broker"
			}
			return c, nil
		}
		c := open(t, connection.Config{URLs: []string{n.url()}, Credentials: lease})
		s := session(t, c, connection.Consume)
		until(t, "five renewals", func() bool { return asked.Load() > 5 })
		if s.Err() != nil {
			t.Errorf("lost: %v", s.Err())
		}
	})
}
