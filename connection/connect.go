package connection

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/internal/pause"
)

// errGivenUp is why a try has ended with the Conn. It is not ErrClosed, because
// Open reports it.
var errGivenUp = pause.Own(errors.New("given up"))

// connect makes one connection to one endpoint, within DialTimeout. known says that
// a login there has succeeded before.
func (c *connector) connect(t endpoint, known bool) (*link, error) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), c.cfg.DialTimeout)
	defer cancel()
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	defer context.AfterFunc(c.life, func() { giveUp(errGivenUp) })()

	credentials := Credentials{User: t.uri.Username, Password: t.uri.Password}
	if c.cfg.Credentials != nil {
		var err error
		if credentials, err = c.cfg.Credentials(ctx); err != nil {
			return nil, fmt.Errorf("%s: Credentials: %w", t, err)
		}
		t.uri.Username = credentials.User
	}
	secure, err := tlsFor(t, c.cfg.TLS)
	if err != nil {
		return nil, &refusal{text: fmt.Sprintf("%s: TLS: %v", t, err), cause: err, sure: true}
	}
	var s *socket
	var frames *frameReader
	var secured *tlsConn // nil without TLS
	disarm := func() bool { return true }
	properties := amqp.NewConnectionProperties()
	properties.SetClientConnectionName(c.cfg.Name + " " + string(c.role))
	sasl := credentials.sasl(t.uri.AuthMechanism, properties)
	// TLS is made here, where its end can be told from that of TCP.
	conn, err := amqp.DialConfig(t.plain(), amqp.Config{
		SASL:       sasl,
		Vhost:      t.uri.Vhost,
		Heartbeat:  c.cfg.Heartbeat,
		Properties: properties, // a new map for each try: the library writes into them
		Dial: func(network, _ string) (net.Conn, error) {
			tcp, err := c.cfg.Dial(ctx, network, t.address())
			if err != nil {
				return nil, err
			}
			s = &socket{Conn: tcp, writeTimeout: c.cfg.OperationTimeout}
			// The library bounds the handshake of its own dialer only. The
			// deadline is DialTimeout's; AfterFunc is for the end of ctx.
			_ = tcp.SetDeadline(began.Add(c.cfg.DialTimeout))
			disarm = context.AfterFunc(ctx, func() { tcp.Close() })
			if secure == nil {
				frames = newFrameReader(s)
				return framed{frames, newFrameWriter(s, &frames.closed)}, nil
			}
			secured = &tlsConn{Conn: tls.Client(s, secure)}
			frames = newFrameReader(secured)
			return framed{frames, newFrameWriter(secured, &frames.closed)}, secured.Handshake()
		},
	})
	if err == nil && disarm() {
		if isExternal(conn.Config.SASL[0].Mechanism()) {
			t.uri.Username = "" // the broker knows it, from the certificate
		}
		s.arm(conn.Config.Heartbeat * 3 / 2)
		frames.frameMax.Store(int64(conn.Config.FrameSize))
		l := &link{
			endpoint: t, server: c.cfg.Server.or(serverOf(conn.Properties)), conn: conn, socket: s, frames: frames,
			limit: c.cfg.OperationTimeout, log: c.log.With("url", t.String()), role: c.role, trace: c.cfg.trace,
			began: time.Now(), expires: credentials.Expires,
			control: make(chan struct{}, 1), done: make(chan struct{}),
		}
		l.life, l.end = context.WithCancelCause(context.Background())
		return l, nil
	}
	disarm()
	if s != nil {
		// The library leaves it open after some failures, and its reader with it.
		s.Conn.Close()
	}
	if alert := secured.received(); alert != nil {
		err = alert
	}
	var cut error
	if ctx.Err() != nil {
		cut = pause.Ended(ctx)
	}
	err = explain(t, err, s, cut, time.Since(began), credentials.Expires, known)
	if s == nil || !s.heard.Load() {
		err = &unheardError{err}
	}
	return nil, err
}
