package connection_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/integration/faultproxy"
)

// One of several addresses is dead: among the URLs, which we try in turn, or
// among those of a host name, which is left to net.Dialer.
var deadAddresses = []fault{
	{"address dead, one of two URLs, silent after TCP", oneURLSilent},
	{"address dead, first one of a name, refuses TCP", firstAddress(refusing)},
	{"address dead, first one of a name, drops TCP", firstAddress(dropping)},
	{"address dead, first one of a name, silent after TCP", firstAddressSilent},
}

// Each try at the silent one ends with DialTimeout.
func oneURLSilent(t *testing.T, n *node, r *row) {
	p := proxyTo(t, n.AMQPURL())
	p.BlackHole(faultproxy.Both, true)
	var longest time.Duration
	for p.Stats().Conns < 3 { // the order is random
		began := time.Now()
		open(t, config(p.url, n.AMQPURL()))
		longest = max(longest, time.Since(began))
	}
	r.recovered(longest, 2*handshake) // the silent one, then the other
}

// firstAddress connects to a name with two addresses, of which the second one
// leads to the broker.
func firstAddress(dead func(*testing.T, netip.AddrPort)) func(*testing.T, *node, *row) {
	return func(t *testing.T, n *node, r *row) {
		p := proxyTo(t, n.AMQPURL())
		cfg := named(t, n, p, dead)
		// Two addresses share what there is; net.Dialer gives none less than 2 s.
		cfg.DialTimeout = 9 * time.Second
		began := time.Now()
		conn := open(t, cfg)
		r.recovered(time.Since(began), cfg.DialTimeout)
		sessionOf(t, conn, connection.Consume)
		if conns := p.Stats().Conns; conns != 1 {
			t.Errorf("the second address was dialled %d times, want once", conns)
		}
	}
}

// named is the config of a client that knows the broker by a name with two
// addresses: one that is made dead, and that of the proxy.
func named(t *testing.T, n *node, p proxy, dead func(*testing.T, netip.AddrPort)) connection.Config {
	t.Helper()
	const host = "broker.rehop.test"
	at := netip.MustParseAddrPort(p.Addr())
	first := netip.MustParseAddr("127.0.0.2")
	dead(t, netip.AddrPortFrom(first, at.Port()))
	cfg := config(n.as("", "", net.JoinHostPort(host, strconv.Itoa(int(at.Port())))))
	cfg.Dial = dialer(t, host, first, at.Addr()).DialContext
	return cfg
}

// refusing needs nothing: nobody listens there.
func refusing(*testing.T, netip.AddrPort) {}

// dropping makes an address drop what tries to connect to it, as a host does
// that is gone: its queue of connections is full, and nobody takes them.
func dropping(t *testing.T, at netip.AddrPort) {
	t.Helper()
	s, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err == nil {
		t.Cleanup(func() { _ = syscall.Close(s) })
		err = errors.Join(
			syscall.Bind(s, &syscall.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}),
			syscall.Listen(s, 0))
	}
	if err != nil {
		t.Fatal(err)
	}
	for {
		c, err := net.DialTimeout("tcp4", at.String(), 200*time.Millisecond)
		var network net.Error
		if errors.As(err, &network) && network.Timeout() {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
	}
}

// An address that takes connections and says nothing is, to net.Dialer, a good
// one, every time. What holds are the deadlines.
func firstAddressSilent(t *testing.T, n *node, r *row) {
	p := proxyTo(t, n.AMQPURL())
	cfg := named(t, n, p, listening)
	cfg.OpenTimeout = 2 * handshake
	began := time.Now()
	_, err := connection.Open(t.Context(), cfg)
	r.detected(time.Since(began), cfg.OpenTimeout)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "has not finished the handshake") {
		t.Errorf("Open = %v, want that the handshake takes too long", err)
	}
	if conns := p.Stats().Conns; conns != 0 {
		t.Errorf("the second address was dialled %d times: then say so in the documentation", conns)
	}
}

func listening(t *testing.T, at netip.AddrPort) {
	t.Helper()
	l, err := net.Listen("tcp4", at.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
}
