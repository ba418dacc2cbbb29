package auth_test

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/transport"
)

const named = "?server_name_indication=node-one"

func TestAClientCertificateOpensTheDoor(t *testing.T) {
	onEach(t, func(t *testing.T, n *node) {
		c := open(t, connection.Config{URLs: []string{n.AMQPSURL() + named}, TLS: n.ca.client("anybody")})
		for _, use := range []connection.Role{connection.Consume, connection.Publish} {
			if s := session(t, c, use); transport.Inside.Session(s).User() != "guest" {
				t.Errorf("User is %q", transport.Inside.Session(s).User())
			}
		}
	})
}

func TestCertificatesOfTheFilesInTheURL(t *testing.T) {
	onEach(t, func(t *testing.T, n *node) {
		certificate, key := n.ca.issue("anybody")
		folder := t.TempDir()
		file := func(name, text string) string {
			path := filepath.Join(folder, name)
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			return path
		}
		ca, pair := file("ca.pem", n.ca.pem), file("pair.pem", certificate+key)
		url := n.AMQPSURL() + named + "&cacertfile="
		open(t, connection.Config{URLs: []string{url + ca + "&certfile=" + pair + "&keyfile=" + pair}})

		err := refused(t, connection.Config{URLs: []string{url + ca}}, rehop.ClassConfiguration)
		says(t, err, "client certificate", "certfile and keyfile")
		err = refused(t, connection.Config{URLs: []string{url + file("empty.pem", "nothing")}}, rehop.ClassConfiguration)
		says(t, err, "cacertfile: ", "empty.pem holds no certificate in PEM")
		err = refused(t, connection.Config{URLs: []string{url + ca + "&certfile=/missing.pem&keyfile=/missing.pem"}}, rehop.ClassConfiguration)
		says(t, err, "certfile and keyfile: open /missing.pem: no such file")
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
			"no client certificate":                     {n.ca.client(""), named, []string{"TLS: remote error: ", "client certificate", "certfile and keyfile"}},
			"no client certificate, TLS 1.2":            {missing12, named, []string{"TLS: remote error: ", "client certificate"}},
			"client certificate of another CA":          {stranger, named, []string{"TLS: remote error: ", "client certificate"}},
			"client certificate of another CA, TLS 1.2": {strangers12, named, []string{"TLS: remote error: ", "client certificate"}},
			"the broker's CA is not ours":               {other.client("anybody"), named, []string{"signed by unknown authority", "TLS.RootCAs", "cacertfile"}},
			"the broker has another name":               {n.ca.client("anybody"), "?server_name_indication=node-two", []string{"valid for node-one, not node-two", "server_name_indication"}},
			"no name":                                   {n.ca.client("anybody"), "", []string{"127.0.0.1", "server_name_indication"}},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				for range 5 { // the alert races with the end of the connection
					err := refused(t, connection.Config{URLs: []string{n.AMQPSURL() + c.sni}, TLS: c.tls}, rehop.ClassConfiguration)
					says(t, err, c.want...)
				}
			})
		}
		t.Run("amqps at the port of amqp", func(t *testing.T) {
			t.Parallel()
			err := refused(t, connection.Config{URLs: []string{strings.Replace(n.AMQPURL(), "amqp:", "amqps:", 1)}, TLS: n.ca.client("anybody")}, rehop.ClassConfiguration)
			says(t, err, "is this the broker's port for amqps://")
		})
		t.Run("amqp at the port of amqps", func(t *testing.T) {
			t.Parallel()
			err := refused(t, connection.Config{URLs: []string{strings.Replace(n.AMQPSURL(), "amqps:", "amqp:", 1)}, OpenTimeout: 5 * time.Second}, rehop.ClassTransient)
			says(t, err, "is this the broker's port for amqp://")
		})
	})
}
