package auth_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
)

func TestTheVhostOfTheConfig(t *testing.T) {
	onEach(t, func(t *testing.T, n *node) {
		n.api(t, "vhosts/shop%2Feu", "{}")
		n.password(t, "shopper", "p")
		address := strings.TrimSuffix(n.as("shopper", "p"), "/")
		cfg := connection.Config{URLs: []string{address}, Vhost: "shop/eu", Name: "vhost test"}
		err := refused(t, cfg, rehop.ClassConfiguration)
		says(t, err, `user "shopper" has no permissions in vhost "shop/eu"`)
		n.permit(t, "shop/eu", "shopper")
		open(t, cfg)
		if got := n.ctl(t, "list_connections", "user", "vhost"); !strings.Contains(got, "shopper\tshop/eu") {
			t.Errorf("connections: %s", got)
		}
		err = refused(t, connection.Config{URLs: []string{address}, Vhost: "nowhere"}, rehop.ClassConfiguration)
		says(t, err, `vhost "nowhere" does not exist`)
	})
}

func TestTheNameOfEachSocketIsShown(t *testing.T) {
	onEach(t, func(t *testing.T, n *node) {
		c := open(t, connection.Config{URLs: []string{n.AMQPURL()}, Name: "shop-7"})
		session(t, c, connection.Publish)
		got := n.ctl(t, "list_connections", "client_properties")
		for _, want := range []string{`{"connection_name","shop-7 publish"}`, `{"connection_name","shop-7 consume"}`} {
			if !strings.Contains(got, want) {
				t.Errorf("no %s in %s", want, got)
			}
		}
	})
}

func TestWhatTheBrokerSaysOfItselfCanBeOverridden(t *testing.T) {
	onEach(t, func(t *testing.T, n *node) {
		own := open(t, connection.Config{URLs: []string{n.AMQPURL()}}).Server()
		c := open(t, connection.Config{URLs: []string{n.AMQPURL()}, Server: connection.Server{Version: connection.Version{Major: 4, Minor: 1}}})
		for _, got := range []connection.Server{c.Server(), session(t, c, connection.Publish).Server(), c.State(connection.Consume).Server} {
			if got.Version.String() != "4.1.0" || got.Product != own.Product || got.Cluster != own.Cluster {
				t.Errorf("%+v, want all but the version as in %+v", got, own)
			}
		}
	})
}

func TestThePausesOfTheUser(t *testing.T) {
	onEach(t, func(t *testing.T, n *node) {
		var tries atomic.Int32
		c := open(t, connection.Config{
			URLs: []string{n.as("nobody", "x")}, Lazy: true,
			Backoff: func(failures int) time.Duration {
				if failures == 3 {
					return -1
				}
				return 10 * time.Millisecond
			},
			Traces: []connection.Trace{{DialAttempt: func(connection.DialAttempt) { tries.Add(1) }}},
		})
		for round := int32(1); round <= 2; round++ {
			_, err := c.Session(t.Context(), connection.Consume)
			t.Logf("Session: %v", err)
			says(t, err, `user "nobody"`)
			if rehop.ClassOf(err) != rehop.ClassConfiguration || tries.Load() != 3*round {
				t.Errorf("class %v, %d tries", rehop.ClassOf(err), tries.Load())
			}
		}
	})
}
