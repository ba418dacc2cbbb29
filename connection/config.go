package connection

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Config says where the brokers are and how long to wait for them. Only URLs
// is required.
type Config struct {
	// URLs of the nodes of one cluster, amqp:// or amqps://, tried in random
	// order. Reserved characters in user and password are percent-encoded, as
	// (*url.URL).String does. The query may hold auth_mechanism, channel_max,
	// heartbeat (seconds; wins over Heartbeat, 0 switches the detection of
	// silent brokers off), and without TLS also cacertfile, certfile, keyfile
	// and server_name_indication.
	URLs []string

	// Name is shown in the management UI, followed by " publish" or
	// " consume"; program@host:pid if empty.
	Name string

	// TLS is used for amqps:// URLs, cloned for each dial; an empty ServerName
	// becomes the URL's host. If nil, system certificates or the files named
	// in the URL's query are used.
	TLS *tls.Config

	// DialTimeout bounds one try at one URL: TCP, TLS and AMQP handshake;
	// 10 s if 0.
	DialTimeout time.Duration

	// OpenTimeout bounds Open; 30 s if 0.
	OpenTimeout time.Duration

	// OperationTimeout bounds every wait for a reply of the broker (opening a
	// channel, declaring, consuming and so on) and every write that makes no
	// progress; 30 s if 0. When it passes, the socket is given up with all its
	// sessions, so it is well above what a slow broker needs: declaring a
	// quorum queue on a loaded cluster takes seconds.
	OperationTimeout time.Duration

	// Heartbeat is the interval asked of the broker, in whole seconds; the
	// broker may lower it. A broker that is silent for one and a half
	// intervals is given up; 10 s if 0.
	Heartbeat time.Duration

	// Logger hears of connections made, lost and blocked, once for each change
	// and not for each try. Silent if nil.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	c.URLs = slices.Clone(c.URLs)
	c.DialTimeout = cmp.Or(c.DialTimeout, 10*time.Second)
	c.OpenTimeout = cmp.Or(c.OpenTimeout, 30*time.Second)
	c.OperationTimeout = cmp.Or(c.OperationTimeout, 30*time.Second)
	c.Heartbeat = cmp.Or(c.Heartbeat, 10*time.Second)
	if c.Name == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "unknown"
		}
		c.Name = fmt.Sprintf("%s@%s:%d", filepath.Base(os.Args[0]), host, os.Getpid())
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// validate returns the parsed URLs, or all faults at once.
func (c Config) validate() ([]target, error) {
	var errs []error
	fault := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("connection: "+format, args...))
	}

	if len(c.URLs) == 0 {
		fault("URLs is empty, want at least one such as amqp://user:password@host:5672/vhost")
	}
	var targets []target
	for i, raw := range c.URLs {
		t, err := parseTarget(raw)
		switch {
		case err != nil:
			fault("URLs[%d] %w", i, err)
		case c.TLS != nil && t.uri.Scheme != "amqps":
			fault("URLs[%d] is %s, want amqps:// because TLS is set", i, t)
		default:
			targets = append(targets, t)
		}
	}
	for _, d := range []struct {
		field string
		value time.Duration
	}{
		{"DialTimeout", c.DialTimeout},
		{"OpenTimeout", c.OpenTimeout},
		{"OperationTimeout", c.OperationTimeout},
	} {
		if d.value < 0 {
			fault("%s is %v, want more than 0 (or 0 for the default)", d.field, d.value)
		}
	}
	// The wire carries whole seconds in 16 bits; the library would cut 1.5 s
	// to 1 s, and take anything shorter for "whatever the broker likes".
	if h := c.Heartbeat; h < time.Second || h%time.Second != 0 || h > math.MaxUint16*time.Second {
		fault("Heartbeat is %v, want whole seconds from 1s to %v", h, math.MaxUint16*time.Second)
	}
	return targets, errors.Join(errs...)
}
