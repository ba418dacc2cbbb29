package connection

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// nobody returns the URL of a port that refuses connections, another one for each of the
// hosts 1 to 4. No system gives these ports to a listener that asks for any port.
func nobody(host int) string {
	return fmt.Sprintf("amqp://bob:s3cret@127.0.0.1:%d", host)
}

func open(t *testing.T, cfg Config) *Conn {
	t.Helper()
	c, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// consuming opens a Conn that has a socket for Consume and none for Publish.
func consuming(t *testing.T, cfg Config) *Conn {
	t.Helper()
	cfg.Lazy = true
	c := open(t, cfg)
	if err := session(t, c, Consume).Close(); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestOpenSaysWhatTheBrokerIs(t *testing.T) {
	t.Parallel()
	p := new(peer).start(t)
	c := open(t, Config{URLs: []string{p.url()}})
	if want := (Server{"RabbitMQ", Version{4, 3, 6}, "test"}); c.Server() != want {
		t.Errorf("Server = %+v, want %+v", c.Server(), want)
	}
	await(t, c, func(s State) bool { return s.Role == Publish && s.Status == Up })
	if n := len(p.accepted()); n != 2 {
		t.Errorf("Open has made %d connections, want one for each use", n)
	}
}

func TestConfigDialAndServerAreUsed(t *testing.T) {
	t.Parallel()
	p := new(peer).start(t)
	var dialled []string
	c := consuming(t, Config{
		URLs:   []string{"amqp://bob:s3cret@broker.example:5672"},
		Server: Server{Version: Version{3, 10, 8}},
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			dialled = append(dialled, network+" "+address)
			return new(net.Dialer).DialContext(ctx, network, p.listener.Addr().String())
		},
	})
	if want := (Server{"RabbitMQ", Version{3, 10, 8}, "test"}); c.Server() != want || session(t, c, Consume).Server() != want {
		t.Errorf("Server = %+v, want %+v", c.Server(), want)
	}
	if len(dialled) != 1 || dialled[0] != "tcp broker.example:5672" {
		t.Errorf("dialled %v", dialled)
	}
}

func TestOpenContextBoundsOnlyTheOpening(t *testing.T) {
	t.Parallel()
	p := new(peer).start(t)
	ctx, cancel := context.WithCancel(t.Context())
	c, err := Open(ctx, Config{URLs: []string{p.url()}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	await(t, c, func(s State) bool { return s.Role == Publish && s.Status == Up })
	cancel()
	s, err := c.Session(t.Context(), Consume)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Do(t.Context(), qos); err != nil {
		t.Errorf("Do after the ctx of Open has ended: %v", err)
	}
	if n := len(p.accepted()); n != 2 {
		t.Errorf("%d connections, want the first ones to live on", n)
	}
}

func TestOpenNamesEachHostThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		one, two := nobody(1), nobody(2)
		_, err := Open(t.Context(), Config{URLs: []string{one, two}, OpenTimeout: 3 * time.Second})
		if err == nil {
			t.Fatal("Open succeeds without a broker")
		}
		for _, want := range []string{
			"connection: no connection within ",
			strings.Replace(one, ":s3cret", "", 1) + "/: dial tcp ",
			strings.Replace(two, ":s3cret", "", 1) + "/: dial tcp ",
			"connection refused",
		} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("no %q in %q", want, err)
			}
		}
		if strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), "\n") {
			t.Errorf("a password or a second line in %q", err)
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%v does not wrap ECONNREFUSED", err)
		}
	})
}

func TestOpenReturnsTheCauseOfItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cause := errors.New("user pressed Ctrl-C")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(cause) }) // when it has tried
		_, err := Open(ctx, Config{URLs: []string{nobody(1)}})
		if !errors.Is(err, cause) || !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), ", then context canceled: user pressed Ctrl-C: ") {
			t.Errorf("Open = %v, want it to wrap %q and context.Canceled", err, cause)
		}
	})
}

func TestOpenPrefersTheHostThatAnswers(t *testing.T) {
	t.Parallel()
	p := new(peer).start(t)
	open(t, Config{URLs: []string{nobody(1), p.url(), nobody(2)}})
}

func TestOpenAgainstPeersThatFailTheHandshake(t *testing.T) {
	t.Parallel()
	at := func(when method, f func(*peerConn)) func(*peerConn, method, uint16) bool {
		return func(c *peerConn, m method, _ uint16) bool {
			if m == when {
				f(c)
			}
			return m == when
		}
	}
	hang := func(*peerConn) {}
	hangUp := func(c *peerConn) { c.Close() }
	refuse := func(code uint16, text string) func(*peerConn) {
		return func(c *peerConn) { c.refuse(0, code, text) }
	}
	for name, c := range map[string]struct {
		script func(*peerConn, method, uint16) bool
		want   string
		early  bool // returns before OpenTimeout
	}{
		"silent from the start":    {at(connectionStart, hang), "takes the connection but has not finished the handshake within ", false},
		"silent at login":          {at(connectionStartOk, hang), "takes the connection but has not finished the handshake within ", false},
		"silent at the vhost":      {at(connectionOpen, hang), "takes the connection but has not finished the handshake within ", false},
		"hangs up at the start":    {at(connectionStart, hangUp), "no AMQP 0-9-1 handshake; is this the broker's port for amqp://", false},
		"hangs up at the vhost":    {at(connectionOpen, hangUp), `connection lost while opening vhost "/": `, false},
		"hangs up at login":        {at(connectionStartOk, hangUp), `the broker closed the connection at login, perhaps because it refuses user "bob" or its password`, true},
		"says 403":                 {at(connectionStartOk, refuse(403, "ACCESS_REFUSED")), `the broker refuses user "bob" or its password (403 ACCESS_REFUSED)`, true},
		"has no such vhost":        {at(connectionOpen, refuse(530, "NOT_ALLOWED - vhost / not found")), `vhost "/" does not exist (530 NOT_ALLOWED - vhost / not found)`, true},
		"lets the user in nowhere": {at(connectionOpen, refuse(530, "NOT_ALLOWED - access to vhost '/' refused for user 'bob'")), `user "bob" has no permissions in vhost "/" (530 `, true},
		"is at a limit":            {at(connectionOpen, refuse(530, "NOT_ALLOWED - connection limit (1) is reached")), "the broker has reached a connection limit: ", false},
		"has a vhost that is down": {at(connectionOpen, refuse(541, "INTERNAL_ERROR - vhost is down")), "vhost is down", false},
		"offers no mechanism": {at(connectionStart, func(c *peerConn) {
			c.send(connectionStart, 0, []byte{0, 9}, table(), long("SCRAM"), long("en_US"))
		}), "the broker offers none of our authentication mechanisms", true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &peer{script: c.script}
				began := time.Now()
				const timeout = 30 * time.Second
				_, err := Open(t.Context(), Config{URLs: []string{"amqp://bob:s3cret@peer/?heartbeat=0"}, Dial: p.dial, DialTimeout: timeout / 2, OpenTimeout: timeout})
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("Open = %v\nwant %q in it", err, c.want)
				} else if strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), "\n") {
					t.Errorf("a password or a second line in %q", err)
				}
				took := time.Since(began)
				if early := took < timeout; early != c.early || took > timeout {
					t.Errorf("returned after %v; sooner than OpenTimeout: %v, want %v", took, early, c.early)
				}
				p.hangUp()
				p.wg.Wait()
			})
		})
	}
}

// pipes is a listener for those who dial it.
type pipes chan net.Conn

func (p pipes) dial(context.Context, string, string) (net.Conn, error) {
	near, far := net.Pipe()
	p <- far
	return near, nil
}

func (p pipes) Accept() (net.Conn, error) {
	if conn, open := <-p; open {
		return conn, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) Close() error   { close(p); return nil }
func (p pipes) Addr() net.Addr { return new(net.TCPAddr) }

func TestOpenAgainstAWebServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		listener := make(pipes)
		web := &http.Server{Handler: http.NotFoundHandler(), ReadHeaderTimeout: time.Minute}
		go func() { _ = web.Serve(listener) }()
		defer web.Close()
		_, err := Open(t.Context(), Config{URLs: []string{"amqp://web"}, Dial: listener.dial, OpenTimeout: 3 * time.Second})
		if err == nil || !strings.Contains(err.Error(), "is this the broker's port for amqp://") {
			t.Errorf("Open = %v", err)
		}
		if errors.Is(err, ErrClosed) || errors.Is(err, context.Canceled) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Open = %v, want the end of its time and no other", err)
		}
	})
}

func TestOpenWithACertificateNobodyVouchesFor(t *testing.T) {
	t.Parallel()
	web := httptest.NewUnstartedServer(http.NotFoundHandler())
	web.Config.ErrorLog = log.New(io.Discard, "", 0) // it reports our refusal
	web.StartTLS()
	defer web.Close()
	var tries atomic.Int32
	_, err := Open(t.Context(), Config{
		URLs: []string{"amqps://" + web.Listener.Addr().String()}, OpenTimeout: patience, TLS: &tls.Config{RootCAs: x509.NewCertPool()},
		Traces: []Trace{{DialAttempt: func(try DialAttempt) {
			if try.Role == Consume {
				tries.Add(1)
			}
		}}},
	})
	var unknown x509.UnknownAuthorityError
	if !errors.As(err, &unknown) || tries.Load() != 1 {
		t.Errorf("Open = %v after %d tries, want a certificate error at once", err, tries.Load())
	}
}

func TestOpenWithAMissingCertificateFile(t *testing.T) {
	t.Parallel()
	p := new(peer).start(t)
	url := strings.Replace(p.url(), "amqp:", "amqps:", 1) + "?cacertfile=/does/not/exist.pem"
	if _, err := Open(t.Context(), Config{URLs: []string{url}}); err == nil || !strings.Contains(err.Error(), "/does/not/exist.pem") {
		t.Errorf("Open = %v", err)
	}
}

func TestFinalRefusals(t *testing.T) {
	down := errors.New("connection refused")
	login := &refusal{text: "login", cause: amqp.ErrCredentials, broker: true}
	vhost := &refusal{text: "vhost", cause: amqp.ErrVhost, broker: true, sure: true}
	cert := &refusal{text: "certificate", cause: errors.New("x509"), sure: true}
	for name, c := range map[string]struct {
		rounds [][]error
		want   bool
	}{
		"nobody there": {[][]error{{down, down}}, false},
		"the broker's word counts for its cluster": {[][]error{{down, vhost}}, true},
		"a certificate only for its host":          {[][]error{{down, cert}}, false},
		"all certificates":                         {[][]error{{cert, cert}}, true},
		"closed at login once":                     {[][]error{{login, login}}, false},
		"closed at login three times":              {[][]error{{login, down}, {login, down}, {login, down}}, true},
		"closed at login, but not in a row":        {[][]error{{login, down}, {login, down}, {down, down}, {login, down}}, false},
	} {
		a := newAttempts(2)
		for _, round := range c.rounds {
			for i, err := range round {
				a.add(i, fmt.Errorf("wrapped: %w", err))
			}
		}
		if got := a.final(); got != c.want {
			t.Errorf("%s: final = %v", name, got)
		}
	}
}

// Behind a proxy a broker that restarts looks like a wrong port, unless a login
// has succeeded there before.
func TestARestartIsNoWrongPort(t *testing.T) {
	t.Parallel()
	var restarting atomic.Bool
	p := (&peer{script: func(c *peerConn, m method, _ uint16) bool {
		if m == connectionStart && restarting.Load() {
			c.Close()
			return true
		}
		return false
	}}).start(t)
	c := consuming(t, Config{URLs: []string{p.url()}})
	restarting.Store(true)
	p.hangUp()
	failed := func(s State) bool { return s.Role == Consume && s.Status == Down && !errors.Is(s.Err, ErrSessionLost) }
	go c.Session(t.Context(), Consume)
	if err := await(t, c, failed).Err; strings.Contains(err.Error(), "port") || !strings.Contains(err.Error(), "the broker may be restarting: EOF") {
		t.Errorf("the state says %v", err)
	}
}
