package faultproxy_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rehop/rehop/integration/faultproxy"
)

// limit is for what happens at once, on a machine that is busy.
const limit = 30 * time.Second

// rig is a proxy, and the listener that plays the broker behind it.
type rig struct {
	*faultproxy.Proxy
	t      *testing.T
	broker *net.TCPListener
}

func newRig(t *testing.T) rig {
	t.Helper()
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	p, err := faultproxy.Start(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return rig{Proxy: p, t: t, broker: l.(*net.TCPListener)}
}

// connect returns the two ends of a new connection through the proxy, once the
// proxy counts it.
func (r rig) connect() (client, broker net.Conn) {
	r.t.Helper()
	before := r.Stats().Conns
	client, err := net.DialTimeout("tcp", r.Addr(), limit)
	if err != nil {
		r.t.Fatal(err)
	}
	r.broker.SetDeadline(time.Now().Add(limit))
	if broker, err = r.broker.Accept(); err != nil {
		r.t.Fatal(err)
	}
	for _, end := range []net.Conn{client, broker} {
		r.t.Cleanup(func() { end.Close() })
		end.SetDeadline(time.Now().Add(limit))
	}
	r.wait("a connection", func(s faultproxy.Stats) bool { return s.Conns > before })
	return client, broker
}

// echo returns the client's end of a new connection to a broker that sends back
// what it reads.
func (r rig) echo() net.Conn {
	r.t.Helper()
	client, broker := r.connect()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(broker, broker)
		broker.Close()
	}()
	r.t.Cleanup(func() {
		broker.Close()
		<-ended
	})
	return client
}

func (r rig) wait(what string, ok func(faultproxy.Stats) bool) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), limit)
	defer cancel()
	if err := r.Wait(ctx, ok); err != nil {
		r.t.Fatalf("wait for %s: %v", what, err)
	}
}

func send(t *testing.T, to net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(to, text); err != nil {
		t.Fatalf("send %.60q: %v", text, err)
	}
}

func wantText(t *testing.T, from net.Conn, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if n, err := io.ReadFull(from, got); err != nil || string(got) != want {
		t.Fatalf("read %q, %v, want %q", got[:n], err, want)
	}
}

// wantEOF wants the end of the stream after exactly the text.
func wantEOF(t *testing.T, from net.Conn, text string) {
	t.Helper()
	if got, err := io.ReadAll(from); err != nil || string(got) != text {
		t.Fatalf("read %q, %v, want %q and the end of the stream", got, err, text)
	}
}

func wantReset(t *testing.T, from net.Conn) {
	t.Helper()
	if n, err := from.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("read %d bytes, %v, want a reset", n, err)
	}
}

// wantSilence wants neither bytes nor an end, for as long as it can afford.
func wantSilence(t *testing.T, from net.Conn) {
	t.Helper()
	from.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	defer from.SetReadDeadline(time.Now().Add(limit))
	if n, err := from.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("read %d bytes, %v, want silence", n, err)
	}
}

func wantStats(t *testing.T, r rig, want faultproxy.Stats) {
	t.Helper()
	if got := r.Stats(); got != want {
		t.Errorf("Stats() = %+v, want %+v", got, want)
	}
}

// wantRoundTrip wants an echo to work.
func wantRoundTrip(t *testing.T, echo net.Conn) {
	t.Helper()
	text := strings.Repeat("there and back ", 10)
	send(t, echo, text)
	wantText(t, echo, text)
}

// wantTook allows threefold slack and five seconds above what a duration must at
// least be.
func wantTook(t *testing.T, start time.Time, least time.Duration) {
	t.Helper()
	if took := time.Since(start); took < least || took > 3*least+5*time.Second {
		t.Errorf("took %v, want %v to %v", took, least, 3*least+5*time.Second)
	}
}
