package connection

import (
	"context"
	"crypto/tls"
	"math"
	"strings"
	"testing"
	"time"
)

func TestConfigFaults(t *testing.T) {
	good := []string{"amqp://bob:s3cret@host/"}
	for name, c := range map[string]struct {
		cfg  Config
		want string
	}{
		"no URL":                     {Config{}, "connection: URLs is empty, want at least one such as amqp://user:password@host:5672/vhost"},
		"negative DialTimeout":       {Config{URLs: good, DialTimeout: -1}, "connection: DialTimeout is -1ns, want more than 0 (or 0 for the default)"},
		"negative OpenTimeout":       {Config{URLs: good, OpenTimeout: -1}, "connection: OpenTimeout is -1ns, want more than 0 (or 0 for the default)"},
		"negative OperationTimeout":  {Config{URLs: good, OperationTimeout: -1}, "connection: OperationTimeout is -1ns, want more than 0 (or 0 for the default)"},
		"heartbeat below a second":   {Config{URLs: good, Heartbeat: time.Millisecond}, "connection: Heartbeat is 1ms, want whole seconds from 1s to 18h12m15s"},
		"heartbeat with a fraction":  {Config{URLs: good, Heartbeat: 1500 * time.Millisecond}, "connection: Heartbeat is 1.5s, want whole seconds from 1s to 18h12m15s"},
		"heartbeat past 16 bits":     {Config{URLs: good, Heartbeat: (math.MaxUint16 + 1) * time.Second}, "connection: Heartbeat is 18h12m16s, want whole seconds from 1s to 18h12m15s"},
		"TLS that would not be used": {Config{URLs: good, TLS: &tls.Config{}}, "connection: URLs[0] is amqp://bob@host:5672/, want amqps:// because TLS is set"},
		"two users": {
			Config{URLs: []string{"amqp://host", good[0]}, Credentials: func(context.Context) (Credentials, error) { return Credentials{}, nil }},
			"connection: URLs[1] is amqp://bob@host:5672/, want no user and password because Credentials is set",
		},
		"credentials without use": {
			Config{URLs: []string{"amqps://host?auth_mechanism=external"}, Credentials: func(context.Context) (Credentials, error) { return Credentials{}, nil }},
			"connection: URLs[0] is amqps://host:5671/ with auth_mechanism external, which has no use for Credentials",
		},
		"files and TLS": {
			Config{URLs: []string{"amqps://bob@host?cacertfile=ca.pem"}, TLS: &tls.Config{}},
			"connection: URLs[0] is amqps://bob@host:5671/ with files for TLS, want none because TLS is set",
		},
		"two vhosts": {
			Config{URLs: []string{"amqp://host", "amqp://host/", "amqp://host/shop", "amqp://host/mail"}, Vhost: "shop"},
			`connection: URLs[3] is amqp://guest@host:5672/mail, want no virtual host, or Vhost's "shop"`,
		},
		"a management URL that is none":            {Config{URLs: good, ManagementURL: "amqp://bob:s3cret@host"}, "connection: ManagementURL does not start with http:// or https://"},
		"a management URL without user":            {Config{URLs: good, ManagementURL: "http://host:15672"}, "connection: ManagementURL names no user, want one, or Credentials"},
		"a vhost past 8 bits":                      {Config{URLs: good, Vhost: strings.Repeat("v", 256)}, "connection: Vhost is 256 bytes long, want at most 255"},
		"a Telemetry that nothing was assigned to": {Config{URLs: good, Telemetry: (*telemetry)(nil)}, "connection: Telemetry is a nil *connection.telemetry, want one that was made, or nil itself for none"},
		"all at once": {
			Config{URLs: []string{good[0], "host:5672"}, DialTimeout: -1, Heartbeat: -1},
			"connection: URLs[1] does not start with amqp:// or amqps://\n" +
				"connection: DialTimeout is -1ns, want more than 0 (or 0 for the default)\n" +
				"connection: Heartbeat is -1ns, want whole seconds from 1s to 18h12m15s",
		},
	} {
		conn, err := Open(t.Context(), c.cfg)
		if conn != nil || err == nil || err.Error() != c.want {
			t.Errorf("%s: Open = %v, %v\nwant %s", name, conn, err, c.want)
		}
	}
}

type telemetry struct{ trace Trace }

func (t *telemetry) Connection(string) Trace { return t.trace }

func TestConfigDefaults(t *testing.T) {
	cfg := Config{URLs: []string{"amqp://host"}}.withDefaults()
	if cfg.DialTimeout != 10*time.Second || cfg.OpenTimeout != 30*time.Second ||
		cfg.OperationTimeout != 30*time.Second || cfg.Heartbeat != 10*time.Second {
		t.Errorf("timeouts are %+v", cfg)
	}
	if cfg.Logger == nil || !strings.Contains(cfg.Name, "@") || !strings.Contains(cfg.Name, ":") {
		t.Errorf("Logger is %v, Name %q", cfg.Logger, cfg.Name)
	}
	if _, err := cfg.validate(); err != nil {
		t.Errorf("the defaults are refused: %v", err)
	}
}

func TestURLsThatAreRefused(t *testing.T) {
	for _, raw := range []string{
		"", "host:5672", "http://bob:s3cret@host", "amqp:host", "AMQP//x",
		"amqp://bob:s3cret#s3cret@host", // unescaped "#": would parse as a port
		"amqp://bob:1#s3cret@host",      // and here as host bob, port 1
		"amqp://bob:1?s3cret@host",      // host bob, and a query
		"amqp://bob:1/s3cret@host",      // host bob, and a vhost
		"amqp://bob:s3 cret@host",
		"amqp://bob:s3cret%zz@host",
		"amqp://bob:s3cret@host:0", "amqp://bob:s3cret@host:65536", "amqp://bob:s3cret@host:port",
		"amqp://bob:s3cret@host?heartbeat=soon", "amqp://bob:s3cret@host?channel_max=-1",
		"amqp://bob:s3cret@host?auth_mechanism=magic",
		"amqp://bob:s3cret@host?unknown=1",
		"amqp://bob:s3cret@host?%zz",
		"amqp://bob:s3cret@host?cacertfile=/ca.pem", "amqp://bob:s3cret@host?server_name_indication=node-one", // would be sent in plain
		"amqps://bob:s3cret@host?certfile=/cert.pem", "amqps://bob:s3cret@host?keyfile=/key.pem", // would go without a certificate
	} {
		_, err := parseEndpoint(raw)
		if err == nil {
			t.Errorf("parseEndpoint(%q) accepts it", raw)
		} else if strings.Contains(err.Error(), "cret") {
			t.Errorf("parseEndpoint(%q) shows the password: %v", raw, err)
		}
	}
}

func TestURLsAsShown(t *testing.T) {
	for raw, want := range map[string]string{
		"amqp://":                                 "amqp://guest@localhost:5672/",
		"amqps://bob:s3cret@host":                 "amqps://bob@host:5671/",
		"amqp://bob:s3cret@host/shop":             "amqp://bob@host:5672/shop",
		"amqp://bob:s3cret@host/%2Fshop":          "amqp://bob@host:5672/%2Fshop",
		"amqp://b%40b:s3%40cret@host?heartbeat=5": "amqp://b%40b@host:5672/",
		"amqp://bob:s3cret@[::1]:5673/":           "amqp://bob@[::1]:5673/",
		"amqps://host?auth_mechanism=external":    "amqps://host:5671/",
	} {
		endpoint, err := parseEndpoint(raw)
		if err != nil || endpoint.String() != want {
			t.Errorf("parseEndpoint(%q) = %v, %v; want %s", raw, endpoint, err, want)
		}
	}
}

func TestTLSIsClonedAndNamedPerHost(t *testing.T) {
	own := &tls.Config{MinVersion: tls.VersionTLS13}
	for _, host := range []string{"one", "two"} {
		endpoint, err := parseEndpoint("amqps://" + host)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := tlsFor(endpoint, own); err != nil || got == own || got.ServerName != host || got.MinVersion != tls.VersionTLS13 {
			t.Errorf("tlsFor(%s) has ServerName %q, MinVersion %x", host, got.ServerName, got.MinVersion)
		}
	}
	if own.ServerName != "" {
		t.Errorf("the caller's ServerName has become %q", own.ServerName)
	}
	endpoint, err := parseEndpoint("amqps://one?server_name_indication=node-one")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := tlsFor(endpoint, &tls.Config{ServerName: "shared"}); err != nil || got.ServerName != "node-one" {
		t.Errorf("the URL's server name has become %q", got.ServerName)
	}
	if endpoint, err = parseEndpoint("amqps://one"); err != nil {
		t.Fatal(err)
	}
	if got, err := tlsFor(endpoint, &tls.Config{ServerName: "shared"}); err != nil || got.ServerName != "shared" {
		t.Errorf("the caller's ServerName has become %q", got.ServerName)
	}
}
