package connection

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// No part of a URL or of a variable is shown that may be one of a password, whichever characters
// the password has: by errors, the log, hooks, State and Health.
func FuzzNoSecretOfAConnectionIsShown(f *testing.F) {
	const secret = "topsecret"
	nowhere := filepath.Join(f.TempDir(), "none.pem")
	forms := []map[string]string{ // %s is the password
		{"URL": "amqp://bob:%s@host/shop"}, {"URL": "amqps://bob:%s@host:5673?heartbeat=5"}, {"URL": "amqp://bob:%s@host?auth_mechanism=amqplain"},
		{"URL": "amqp://:%s@host"}, {"URL": "amqp://bob:%s@"}, {"URL": "AMQP://bob:%s@host"}, {"URL": "bob:%s@host"}, {"URL": "amqp://bob:%s@[::1]/"},
		{"URL": "amqp://host?password=%s"}, {"URL": "amqp://host/shop?%s=x"}, {"URL": "amqp://bob:%s@host/shop", "VHOST": "mail"}, {"URL": "amqp://bob:%s@one,amqp://bob:%s@two"},
		{"URL": "amqp://bob:%s@host", "CA_FILE": nowhere}, {"URL": "amqps://bob:%s@host", "CA_FILE": nowhere}, {"URL": "amqps://bob:%s@host?cacertfile=x", "CA_FILE": nowhere},
		{"URL": "amqp://bob:%s@host", "USER": "bob", "PASSWORD": "%s"}, {"URL": "amqp://host", "USER": "bob", "PASSWORD": "%s"}, {"URL": "amqp://host", "PASSWORD": "%s"},
		{"URL": "amqp://bob@host", "MANAGEMENT_URL": "http://bob:%s@host:15672"}, {"URL": "amqp://bob@host", "MANAGEMENT_URL": "https://bob:%s@host/api"},
		{"URL": "amqp://bob@host", "MANAGEMENT_URL": "http://host:15672/?password=%s"}, {"URL": "amqp://bob@host", "MANAGEMENT_URL": "amqp://bob:%s@host"}, {"URL": "amqp://bob@host", "MANAGEMENT_URL": "bob:%s@host"},
	}
	for _, before := range []string{
		"", "12/", "12?", "12#", "12@", "12:", "12,", "%zz", "%2F", "12;", "12\\", "[", " ", "12&x=", "12\x7f", "12/x@", "12@x#", "12@x/", "12@x?",
		"12?heartbeat=", "12?channel_max=", "12?connection_timeout=", "12?auth_mechanism=", "12?cacertfile=", "12?certfile=x&keyfile=", "12?server_name_indication=", "12/x?heartbeat=1#",
	} {
		f.Add(before, "")
	}
	for _, after := range []string{"#1", "/1", "?1", ":1", "@1", "?1@x"} {
		f.Add("12", after)
		f.Add("12@", after)
	}
	f.Add("/", ",0") // a comma ends the URL
	f.Fuzz(func(t *testing.T, before, after string) {
		if strings.ContainsRune(before+after, 0) || strings.Contains(before+after, "://") { // no variable has a zero; the password would be a second URL
			return
		}
		for _, form := range forms {
			set := map[string]string{}
			for name, value := range form {
				set[name] = strings.ReplaceAll(value, "%s", before+secret+after)
			}
			setenv(t, set)
			var shown lines
			show := func(values ...any) { fmt.Fprintln(&shown, values...) }
			cfg, err := FromEnv("SHOP")
			show(err)
			if err != nil {
				cfg = Config{URLs: []string{set["URL"]}, ManagementURL: set["MANAGEMENT_URL"]}
			}
			cfg.Logger = slog.New(slog.NewTextHandler(&shown, &slog.HandlerOptions{Level: slog.LevelDebug}))
			cfg.Traces = []Trace{{State: func(s State) { show(s) }, DialAttempt: func(a DialAttempt) { show(a, a.Err) }}}
			cfg.Backoff = func(int) time.Duration { return -1 }
			cfg.Dial = func(_ context.Context, network, address string) (net.Conn, error) {
				return nil, &net.OpError{Op: "dial", Net: network, Err: errors.New("lookup " + address)}
			}
			_, err = Open(t.Context(), cfg)
			show(err)
			cfg.Lazy = true
			if c, err := Open(t.Context(), cfg); err == nil {
				_, err := c.Session(t.Context(), Publish)
				show(err, c.Health(), c.State(Publish), c.State(Consume), c.management)
				if err := c.Close(); err != nil {
					t.Error(err)
				}
			}
			if i := strings.Index(shown.String(), secret); i >= 0 {
				t.Errorf("%v shows the secret: %s", set, shown.String()[max(0, i-200):i+len(secret)])
			}
		}
	})
}

// The names of faults are those that the user knows.
func TestOpenNamesTheVariablesOfFromEnv(t *testing.T) {
	for rule, c := range map[string]struct {
		set    map[string]string
		change func(*Config)
		want   string
	}{
		"a URL that is none":   {map[string]string{"URL": "host"}, nil, "connection: SHOP_URL does not start with amqp:// or amqps://"},
		"one of several":       {map[string]string{"URL": "amqp://host,amqp://host:0"}, nil, "connection: URL 2 of SHOP_URL has a port outside 1 to 65535"},
		"two vhosts":           {map[string]string{"URL": "amqp://host/shop", "VHOST": "mail"}, nil, `connection: SHOP_URL is amqp://guest@host:5672/shop, want no virtual host, or SHOP_VHOST's "mail"`},
		"two users":            {map[string]string{"URL": "amqp://bob@host", "USER": "bob", "PASSWORD": "s3cret"}, nil, "connection: SHOP_URL is amqp://bob@host:5672/, want no user and password because SHOP_USER is set"},
		"a file with the user": {map[string]string{"URL": "amqp://bob@host", "USER_FILE": "user", "PASSWORD": "s3cret"}, nil, "connection: SHOP_URL is amqp://bob@host:5672/, want no user and password because SHOP_USER_FILE is set"},
		"no API":               {map[string]string{"URL": "amqp://host", "MANAGEMENT_URL": "host"}, nil, "connection: SHOP_MANAGEMENT_URL does not start with http:// or https://"},
		"nobody asks the API":  {map[string]string{"URL": "amqp://host", "MANAGEMENT_URL": "http://host"}, nil, "connection: SHOP_MANAGEMENT_URL names no user, want one, or SHOP_USER and SHOP_PASSWORD"},
		"a vhost past 8 bits":  {map[string]string{"URL": "amqp://host", "VHOST": strings.Repeat("v", 256)}, nil, "connection: SHOP_VHOST is 256 bytes long, want at most 255"},
		"a field that is set since": {map[string]string{"URL": "amqp://host"}, func(c *Config) { c.URLs, c.ManagementURL = []string{"host"}, "host" },
			"connection: URLs[0] does not start with amqp:// or amqps://\nconnection: ManagementURL does not start with http:// or https://"},
	} {
		setenv(t, c.set)
		cfg, err := FromEnv("SHOP")
		if err != nil {
			t.Fatal(rule, err)
		}
		if c.change != nil {
			c.change(&cfg)
		}
		if _, err := Open(t.Context(), cfg); err == nil || err.Error() != c.want {
			t.Errorf("%s: Open = %v\nwant %s", rule, err, c.want)
		}
	}
}

func TestFilesOfTLSAreNamedByTheirVariables(t *testing.T) {
	for want, set := range map[string]map[string]string{
		"SHOP_CA_FILE: open ":                     {"URL": "amqps://host", "CA_FILE": "/none.pem"},
		"SHOP_CERT_FILE and SHOP_KEY_FILE: open ": {"URL": "amqps://host", "CERT_FILE": "/none.pem", "KEY_FILE": "/none.pem"},
		"cacertfile: open ":                       {"URL": "amqps://host?cacertfile=/none.pem"},
	} {
		setenv(t, set)
		cfg, err := FromEnv("SHOP")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Open(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Open = %v, want %s", err, want)
		}
	}
}
