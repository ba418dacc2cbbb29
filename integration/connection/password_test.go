package connection_test

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rehop/rehop/connection"
)

var passwords = []fault{
	{"wrong user, password or vhost at Open", refusedOpen},
	{"password wrong while trying, then put right", passwordChanged},
}

const (
	// heldBack is longer than a broker holds a refusal back. Whoever does not
	// wait for it sees a broker that does not answer.
	heldBack = 5 * time.Second

	// refusal is how long it takes to be sure of one: the third one counts.
	refusal = 10 * time.Second
)

func refusedOpen(t *testing.T, n *node, r *row) {
	u, err := url.Parse(n.AMQPURL())
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/nowhere"
	began := time.Now()
	var all sync.WaitGroup
	for raw, want := range map[string]string{
		n.as("guest", "wr0ng", ""):  `user "guest" or its password (403 ACCESS_REFUSED)`,
		n.as("nobody", "wr0ng", ""): `user "nobody" or its password (403 ACCESS_REFUSED)`,
		u.String():                  `vhost "nowhere" does not exist`,
	} {
		all.Go(func() {
			cfg := connection.Config{URLs: []string{raw}, OpenTimeout: 2 * slack * refusal}
			c, err := connection.Open(t.Context(), cfg)
			if c != nil || err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "wr0ng") {
				t.Errorf("Open = %v, %v; want %q in it", c, err, want)
			} else if errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Open has used up its timeout: %v", err)
			}
		})
	}
	all.Wait()
	r.detected(time.Since(began), refusal)
}

// A program that runs tries on, and one that starts is told.
func passwordChanged(t *testing.T, n *node, r *row) {
	const user = "alice"
	n.ctl(t, "add_user", user, "right")
	n.ctl(t, "set_permissions", user, ".*", ".*", ".*")
	p := proxyTo(t, n.AMQPURL())
	log := new(journal)
	cfg := config(n.as(user, "right", p.Addr()))
	cfg.DialTimeout = heldBack
	cfg.Logger = log.logger()
	conn := open(t, cfg)
	lost := sessionOf(t, conn, connection.Consume)

	n.ctl(t, "change_password", user, "other")
	began := time.Now()
	p.Reset()
	ended(t, lost)
	found := make(chan error, 1)
	go func() {
		_, err := conn.Session(t.Context(), connection.Consume)
		found <- err
	}()
	r.detected(log.said(t, began, "connection: refused, trying on until it is put right"), refusal)
	select {
	case err := <-found:
		t.Fatalf("Session = %v while the password is wrong", err)
	default:
	}

	n.ctl(t, "change_password", user, "right")
	right := time.Now()
	if err := <-found; err != nil {
		t.Fatal(err)
	}
	r.recovered(time.Since(right), returned+heldBack)
}
