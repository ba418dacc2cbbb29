package connection_test

import (
	"context"
	"log/slog"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/integration/faultproxy"
	"github.com/rehop/rehop/integration/poll"
)

// config is that of a client whose deadlines are short.
func config(urls ...string) connection.Config {
	return connection.Config{URLs: urls, Name: "rehop", Heartbeat: heartbeat, DialTimeout: handshake}
}

func open(t *testing.T, cfg connection.Config) *connection.Conn {
	t.Helper()
	return opening(t, cfg)()
}

// opening opens a connection, which may take its time: the socket for Consume
// alone, so that the faults in its beginning meet one socket and not two.
func opening(t *testing.T, cfg connection.Config) (opened func() *connection.Conn) {
	t.Helper()
	type result struct {
		conn *connection.Conn
		err  error
	}
	ch := make(chan result, 1)
	go func() {
		cfg.Lazy = true
		c, err := connection.Open(t.Context(), cfg)
		if err == nil {
			err = firstSession(t.Context(), c)
		}
		ch <- result{c, err}
	}()
	return func() *connection.Conn {
		t.Helper()
		r := <-ch
		if r.err != nil {
			t.Fatal(r.err)
		}
		t.Cleanup(func() { r.conn.Close() })
		return r.conn
	}
}

func firstSession(ctx context.Context, c *connection.Conn) error {
	s, err := c.Session(ctx, connection.Consume)
	if err != nil {
		c.Close()
		return err
	}
	return s.Close()
}

// handshakeOnly opens a connection and leaves before there is any session.
func handshakeOnly(t *testing.T, cfg connection.Config) {
	t.Helper()
	cfg.Lazy = true
	c, err := connection.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	wanted, leave := context.WithCancel(t.Context())
	defer leave()
	go c.Session(wanted, connection.Consume)
	for s := range c.States(t.Context()) {
		switch {
		case s.Role == connection.Consume && s.Status == connection.Connecting:
			leave() // the attempt goes on
		case s.Role == connection.Consume && s.Status == connection.Up:
			return
		}
	}
}

func sessionOf(t *testing.T, c *connection.Conn, use connection.Role) *connection.Session {
	t.Helper()
	s, err := c.Session(t.Context(), use)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// sockets are a session on each socket of a connection: it ends when they do.
type sockets [2]*connection.Session

func socketsOf(t *testing.T, c *connection.Conn) sockets {
	t.Helper()
	return sockets{sessionOf(t, c, connection.Publish), sessionOf(t, c, connection.Consume)}
}

// lost returns how long after t0 the last of them was.
func (s sockets) lost(t *testing.T, t0 time.Time) time.Duration {
	t.Helper()
	for _, session := range s {
		ended(t, session)
	}
	return time.Since(t0)
}

// alive fails the test if one of them has been lost.
func (s sockets) alive(t *testing.T) {
	t.Helper()
	for _, session := range s {
		if err := session.Err(); err != nil {
			t.Errorf("a healthy connection was given up: %v", err)
		}
	}
}

// ended waits for the end of a session.
func ended(t *testing.T, s *connection.Session) {
	t.Helper()
	select {
	case <-s.Done():
	case <-time.After(time.Minute):
		t.Fatal("the session lives on after a minute")
	}
}

// proxy stands between a client and the broker.
type proxy struct {
	*faultproxy.Proxy
	url string // of the broker, through the proxy
}

func proxyTo(t *testing.T, rawURL string) proxy {
	t.Helper()
	u, err := url.Parse(rawURL)
	if err != nil {
		t.Fatal(err)
	}
	p, err := faultproxy.Start(u.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	u.Host = p.Addr()
	return proxy{p, u.String()}
}

// reaches waits for a count that never falls.
func (p proxy) reaches(t *testing.T, ok func(faultproxy.Stats) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := p.Wait(ctx, ok); err != nil {
		t.Fatal(err)
	}
}

// clients waits for so many connections, of which earlier ones may have ended.
func (p proxy) clients(t *testing.T, n int) {
	t.Helper()
	p.reaches(t, func(s faultproxy.Stats) bool { return s.Conns >= n })
}

// lift lifts all faults and returns when.
func (p proxy) lift(t *testing.T) time.Time {
	t.Helper()
	if err := p.Lift(); err != nil {
		t.Fatal(err)
	}
	return time.Now()
}

// journal is a log handler that remembers what was said, and when.
type journal struct {
	mu      sync.Mutex
	records []slog.Record
}

func (j *journal) Enabled(context.Context, slog.Level) bool { return true }
func (j *journal) WithAttrs([]slog.Attr) slog.Handler       { return j }
func (j *journal) WithGroup(string) slog.Handler            { return j }

func (j *journal) Handle(_ context.Context, r slog.Record) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.records = append(j.records, r)
	return nil
}

// said waits until something is said, and returns how long after t0 it was.
func (j *journal) said(t *testing.T, t0 time.Time, what string) (after time.Duration) {
	t.Helper()
	poll.Until(t, time.Minute, "the log says "+what, func() bool {
		j.mu.Lock()
		defer j.mu.Unlock()
		for _, r := range j.records {
			if r.Message == what && r.Time.After(t0) {
				after = r.Time.Sub(t0)
				return true
			}
		}
		return false
	})
	return after
}

func (j *journal) logger() *slog.Logger { return slog.New(j) }
