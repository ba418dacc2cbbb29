package auth_test

import (
	"crypto/tls"
	"strings"
	"testing"
	"time"

	"github.com/rehop/rehop/connection"
)

const named = "?server_name_indication=node-one"

func TestAClientCertificateOpensTheDoor(t *testing.T) {
	onEach(t, func(t *testing.T, n *node) {
		c := open(t, connection.Config{URLs: []string{n.AMQPSURL() + named}, TLS: n.ca.client("anybody")})
		for _, use := range []connection.Use{connection.Consume, connection.Publish} {
			if s := session(t, c, use); s.User() != "guest" {
				t.Errorf("User is %q", s.User())
			}
		}
	})
}

func TestAMissingOrWrongCertificateIsToldAtOnce(t *testing.T) {
	onEach(t, func(t *testing.T, n *node) {
		other := newAuthority("other root")
		stranger := other.client("anybody") // of a CA that the broker does not know
		stranger.RootCAs = n.ca.client("").RootCAs
		strangers12 := stranger.Clone()
		strangers12.MaxVersion = tls.VersionTLS12
		missing12 := n.ca.client("")
		missing12.MaxVersion = tls.VersionTLS12
		for name, c := range map[string]struct {
			tls  *tls.Config
			sni  string
			want []string
		}{
			"no client certificate":                     {n.ca.client(""), named, nil},
			"no client certificate, TLS 1.2":            {missing12, named, nil},
			"client certificate of another CA":          {stranger, named, nil},
			"client certificate of another CA, TLS 1.2": {strangers12, named, nil},
			"the broker's CA is not ours":               {other.client("anybody"), named, nil},
			"the broker has another name":               {n.ca.client("anybody"), "?server_name_indication=node-two", nil},
			"no name":                                   {n.ca.client("anybody"), "", nil},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				for range 10 { // the alert races with the end of the connection
					err, took := refused(t, connection.Config{URLs: []string{n.AMQPSURL() + c.sni}, TLS: c.tls, OpenTimeout: 10 * time.Second}, connection.Configuration)
					says(t, err, c.want...)
					if took > 5*time.Second {
						t.Errorf("it takes %v to say so", took)
					}
				}
			})
		}
		t.Run("amqps at the port of amqp", func(t *testing.T) {
			t.Parallel()
			refused(t, connection.Config{URLs: []string{strings.Replace(n.AMQPURL(), "amqp:", "amqps:", 1)}, TLS: n.ca.client("anybody")}, connection.Configuration)
		})
		t.Run("amqp at the port of amqps", func(t *testing.T) {
			t.Parallel()
			refused(t, connection.Config{URLs: []string{strings.Replace(n.AMQPSURL(), "amqps:", "amqp:", 1)}, OpenTimeout: 5 * time.Second}, connection.Transient)
		})
	})
}
