package connection

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/internal/hooks"
	"github.com/rehop/rehop/internal/management"
)

// Config says where the brokers are and how long to wait for them. Only URLs
// is required.
type Config struct {
	// URLs are the nodes of one cluster, as amqp:// or amqps://. They are tried in
	// random order, and a URL that has failed within the last minute is tried last.
	// Reserved characters in user and password are percent-encoded, as
	// (*url.URL).String does. The query may hold auth_mechanism, channel_max, heartbeat
	// (seconds; wins over Heartbeat; 0 leaves the interval to the broker, whose default is
	// 60 s), server_name_indication, and without TLS also cacertfile, certfile and keyfile.
	URLs []string

	// Vhost is the virtual host for URLs that name none; "/" if empty.
	Vhost string

	// Credentials returns the user and password for a login: for passwords that
	// rotate and for OAuth 2 tokens. It is called before each try at a URL, and
	// again before the credentials expire. The URLs must then hold no user and
	// password. All sockets, and the calls of the management API if ManagementURL names no
	// user, call it concurrently. Its ctx ends at DialTimeout, and it should return then. An
	// error or a panic is a failed try.
	Credentials func(ctx context.Context) (Credentials, error)

	// ManagementURL is the address of the cluster's management API, such as
	// http://user:password@host:15672. A client cannot read policies over AMQP. With
	// this address topology.Declare logs, and the Health of a consumer reports, each
	// policy that breaks a promise of the queues. Health also reports another program
	// that consumes from a wait under EngineCarry. Nothing depends on the API: if it
	// has not answered after 5 s, a record is logged. Its user needs the tag management
	// and any permission in the virtual host. If the URL names no user, Credentials is
	// asked. TLS is used for https://. The certificate files of a URL's query are not, so
	// without TLS the system must trust the certificate of the API. If empty, policies are
	// not checked.
	ManagementURL string

	// Name is shown in the management UI, followed by " publish" or " consume", and
	// before that by the name of the queue if a queue has a socket of its own for a while;
	// program@host:pid if empty.
	Name string

	// TLS is for amqps:// URLs, and holds client certificates. It is cloned for each
	// dial. The server's name is the URL's server_name_indication, else ServerName,
	// else the URL's host. If nil, system certificates or the files named in the URL's
	// query are used.
	TLS *tls.Config

	// Dial makes the TCP connection: for a proxy, or a resolver of your own. It
	// must return when ctx ends. If nil, it is net.Dialer's DialContext, which
	// tries the addresses of a name in turn, for at least 2 s each, until one
	// accepts the TCP connection. It tries no further address if no broker answers
	// at that one, so give each node a URL of its own.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// DialTimeout bounds one try at one URL: TCP, TLS and AMQP handshake;
	// 10 s if 0.
	DialTimeout time.Duration

	// OpenTimeout bounds Open; 30 s if 0.
	OpenTimeout time.Duration

	// Lazy makes Open return at once, without a broker. The first Session connects.
	// That Session keeps trying even after errors at which Open would return.
	Lazy bool

	// OperationTimeout bounds every wait for a reply of the broker (opening a channel,
	// declaring, consuming and so on) and every write that makes no progress; 30 s if
	// 0. When it passes, the socket is closed with all its sessions. So keep it well
	// above the time that a slow broker needs: declaring a quorum queue on a loaded
	// cluster takes seconds.
	OperationTimeout time.Duration

	// Heartbeat is the interval that the broker is asked for, in whole seconds; the
	// broker may lower it. The Conn gives up a broker that is silent for one and a half
	// intervals. 10 s if 0.
	Heartbeat time.Duration

	// Backoff returns how long to wait after a round in which no URL worked, given the
	// number of such rounds in a row, from 1. If the wait is negative, the Conn gives
	// up: all callers that wait for a session get the error, and the next call of
	// Session begins anew. A connection that is lost within a second counts as such a
	// round. Backoff is called for all sockets concurrently. If nil, the Conn never
	// gives up. The waits then begin with 100 ms and double, up to 10 s; in the first
	// minute of an outage, up to a third of a second after rounds in which no host
	// answered. Each wait is up to half shorter or longer, at random.
	Backoff func(failures int) time.Duration

	// OnConnect is the place to declare topology that may be gone. It runs after each
	// connect and reconnect of the socket for [Consume], before the Conn hands out
	// sessions of that connection or of a new socket for [Publish]. It does not run
	// when a queue is deleted while the connection lives, nor for the socket that a queue
	// has of its own for a while.
	//
	// conn hands out sessions of the new connection. It is valid only during the call.
	// OnConnect must not use the Conn that it belongs to, because sessions of that Conn
	// wait until OnConnect returns. ctx belongs to the attempt to connect and not to a
	// caller of Session. It ends with Close, with the loss of the connection, and after 5
	// minutes.
	//
	// An error or a panic is a failed try: the Conn closes the socket and tries again
	// after a pause. So OnConnect may run twice for one reconnect. If the error is not
	// [rehop.ClassTransient] (see [rehop.WithClass]), Open returns it when it has tried each URL once.
	OnConnect func(ctx context.Context, conn *Conn) error

	// Server replaces the broker's description of itself, for brokers whose
	// operator hides or changes it. A zero field keeps the broker's value.
	Server Server

	// Traces are sets of hooks of the Conn, called in their order.
	Traces []Trace

	// Telemetry gives the Conn hooks beside its Traces. Each producer, consumer and store
	// of the Conn whose own Traces are nil asks Telemetry too, once, when it is made. It
	// gets the hooks of one of these methods, if Telemetry has it:
	//
	//	Producer() producer.Trace
	//	Consumer() consumer.Trace
	//	Store() store.Trace
	//	Forward() store.ForwardTrace
	//
	// Traces that are empty and not nil ask for no hooks. A store belongs to the Conn that
	// store.Config.Conn names.
	Telemetry Telemetry

	// Logger gets a record for connections made, lost and blocked, once for each
	// change and not for each try, and for each renewal of credentials that
	// failed. Each producer, consumer, settler and store of the Conn whose own Logger is nil
	// logs here too. Silent if nil. A record whose handler panics is dropped.
	Logger *slog.Logger

	trace     Trace      // the Traces as one
	variables *variables // of FromEnv, else nil
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
	if c.Dial == nil {
		c.Dial = new(net.Dialer).DialContext
	}
	c.Logger = hooks.Logger(c.Logger)
	traces := c.Traces
	if c.Telemetry != nil && !c.noTelemetry() {
		traces = append(slices.Clip(traces), c.Telemetry.Connection(c.Name))
	}
	c.trace = merged(traces, c.Logger)
	if c.Credentials != nil {
		c.Credentials = guarded(c.Credentials, c.DialTimeout, c.Logger)
	}
	return c
}

// noTelemetry reports whether Telemetry is a nil pointer of a type that implements it, such as
// a variable that nothing was assigned to.
func (c Config) noTelemetry() bool {
	v := reflect.ValueOf(c.Telemetry)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

// validate returns the parsed URLs, or all faults at once.
func (c Config) validate() ([]endpoint, error) {
	var errs []error
	refuse := func(format string, args ...any) {
		errs = append(errs, rehop.WithClass(fmt.Errorf("connection: "+format, args...), rehop.ClassConfiguration))
	}

	if len(c.URLs) == 0 {
		refuse("URLs is empty, want at least one such as amqp://user:password@host:5672/vhost")
	}
	var endpoints []endpoint
	for i, raw := range c.URLs {
		t, err := parseEndpoint(raw)
		name := c.nameOfURL(i)
		switch {
		case err != nil:
			refuse("%s %w", name, err)
		case c.TLS != nil && t.uri.Scheme != "amqps":
			refuse("%s is %s, want amqps:// because TLS is set", name, t)
		case c.TLS != nil && t.files():
			refuse("%s is %s with files for TLS, want none because TLS is set", name, t)
		case c.Credentials != nil && t.login:
			refuse("%s is %s, want no user and password because %s is set", name, t, c.nameOfCredentials())
		case c.Credentials != nil && slices.ContainsFunc(t.uri.AuthMechanism, isExternal):
			refuse("%s is %s with auth_mechanism external, which has no use for %s", name, t, c.nameOfCredentials())
		case c.Vhost != "" && t.vhost && t.uri.Vhost != c.Vhost:
			refuse("%s is %s, want no virtual host, or %s's %q", name, t, c.nameOfVhost(), c.Vhost)
		default:
			t.variables = c.variablesOfURLs()
			if c.Vhost != "" {
				t.uri.Vhost = c.Vhost
			}
			if c.Credentials != nil {
				t.uri.Username = "" // known at each login
			}
			endpoints = append(endpoints, t)
		}
	}
	if c.ManagementURL != "" {
		name, credentials := c.nameOfManagementURL()
		_, login, err := management.Parse(c.ManagementURL)
		switch {
		case err != nil:
			refuse("%s %w", name, err)
		case login == nil && c.Credentials == nil:
			refuse("%s names no user, want one, or %s", name, credentials)
		}
	}
	if c.Telemetry != nil && c.noTelemetry() {
		refuse("Telemetry is a nil %T, want one that was made, or nil itself for none", c.Telemetry)
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
			refuse("%s is %v, want more than 0 (or 0 for the default)", d.field, d.value)
		}
	}
	// The wire carries whole seconds in 16 bits; the library would cut 1.5 s
	// to 1 s, and leave anything shorter to the broker.
	if h := c.Heartbeat; h < time.Second || h%time.Second != 0 || h > math.MaxUint16*time.Second {
		refuse("Heartbeat is %v, want whole seconds from 1s to %v", h, math.MaxUint16*time.Second)
	}
	if len(c.Vhost) > math.MaxUint8 {
		refuse("%s is %d bytes long, want at most %d", c.nameOfVhost(), len(c.Vhost), math.MaxUint8)
	}
	return endpoints, errors.Join(errs...)
}
