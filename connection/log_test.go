package connection

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// An outage of many tries is two lines, and its end a third.
func TestLogHearsOfChangesOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		logins := 0
		p := new(peer)
		p.script = func(c *peerConn, m method, _ uint16) bool {
			mu.Lock()
			defer mu.Unlock()
			if m != connectionStartOk {
				return false
			}
			logins++
			switch logins {
			case 2, 3, 4: // down
				c.refuse(0, 541, "INTERNAL_ERROR")
			case 5, 6: // up, but the password is wrong
				c.refuse(0, 403, "ACCESS_REFUSED")
			default:
				return false
			}
			return true
		}
		var out lines
		c := bubble(t, p, Config{Logger: slog.New(slog.NewTextHandler(&out, nil))})
		s := session(t, c, Consume)
		p.hangUp()
		within(t, "Done", s.Done())
		session(t, c, Consume)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		for what, want := range map[string]int{
			`level=INFO msg="connection: connected" role=consume url=amqp://bob@`:    2,
			`level=WARN msg="connection: lost"`:                                      1,
			`level=WARN msg="connection: no connection, trying on"`:                  1,
			`level=ERROR msg="connection: refused, trying on until it is put right"`: 1,
			`level=INFO msg="connection: closed"`:                                    1,
			"level=":                                                                 6,
			"s3cret":                                                                 0,
		} {
			if got := strings.Count(out.String(), what); got != want {
				t.Errorf("%d times %s, want %d", got, what, want)
			}
		}
		if t.Failed() {
			t.Log(out.String())
		}
	})
}

// The line that ends an outage counts the tries of all who waited in it.
func TestConnectedCountsTheTriesOfTheOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		down.Store(true)
		p := &peer{script: func(c *peerConn, m method, _ uint16) bool {
			if m == connectionOpen && down.Load() {
				c.refuse(0, 541, "INTERNAL_ERROR")
				return true
			}
			return false
		}}
		var out lines
		c := bubble(t, p, Config{
			Logger:  slog.New(slog.NewTextHandler(&out, nil)),
			Backoff: func(int) time.Duration { return 100 * time.Millisecond },
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second) // for one try at least
		defer cancel()
		if _, err := c.Session(ctx, Publish); err == nil {
			t.Fatal("a session without a broker")
		}
		await(t, c, func(s State) bool { return s.Role == Publish && s.Status == Down && s.NextTry.IsZero() })
		down.Store(false)
		session(t, c, Publish)
		if log := out.String(); strings.Contains(log, "failed_tries=0") || !strings.Contains(log, "failed_tries=") {
			t.Error(log)
		}
	})
}
