package connection

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// connect makes one connection to one target, within DialTimeout. ctx bounds
// the making only.
func (l *line) connect(ctx context.Context, t target) (*link, error) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, l.cfg.DialTimeout)
	defer cancel()

	credentials := Credentials{User: t.uri.Username, Password: t.uri.Password}
	if l.cfg.Credentials != nil {
		var err error
		if credentials, err = l.cfg.Credentials(ctx); err != nil {
			return nil, fmt.Errorf("%s: Credentials: %w", t, err)
		}
		t.uri.Username = credentials.User
	}
	secure, err := tlsFor(t, l.cfg.TLS)
	if err != nil {
		return nil, &refusal{text: fmt.Sprintf("%s: TLS: %v", t, err), cause: err, sure: true}
	}
	var s *socket
	var channel *secured // nil without TLS
	disarm := func() bool { return true }
	properties := amqp.NewConnectionProperties()
	properties.SetClientConnectionName(l.cfg.Name + " " + l.use.String())
	sasl := credentials.sasl(t.uri.AuthMechanism, properties)
	// TLS is made here, where its end can be told from that of TCP.
	conn, err := amqp.DialConfig(t.plain(), amqp.Config{
		SASL:       sasl,
		Vhost:      t.uri.Vhost,
		Heartbeat:  l.cfg.Heartbeat,
		Properties: properties, // fresh for each try: the library writes into them
		Dial: func(network, _ string) (net.Conn, error) {
			tcp, err := l.cfg.Dial(ctx, network, t.address())
			if err != nil {
				return nil, err
			}
			s = &socket{Conn: tcp, patience: l.cfg.OperationTimeout}
			// The library bounds the handshake of its own dialer only. The
			// deadline is DialTimeout's; AfterFunc is for the end of ctx.
			_ = tcp.SetDeadline(began.Add(l.cfg.DialTimeout))
			disarm = context.AfterFunc(ctx, func() { tcp.Close() })
			if secure == nil {
				return s, nil
			}
			channel = &secured{Conn: tls.Client(s, secure)}
			return channel, channel.Handshake()
		},
	})
	if err == nil && disarm() {
		if isExternal(conn.Config.SASL[0].Mechanism()) {
			t.uri.Username = "" // the broker knows it, from the certificate
		}
		s.arm(conn.Config.Heartbeat * 3 / 2)
		return &link{
			target: t, server: l.cfg.Server.or(serverOf(conn.Properties)), conn: conn, socket: s,
			limit: l.cfg.OperationTimeout, log: l.log.With("url", t.String()),
			expires: credentials.Expires, done: make(chan struct{}),
		}, nil
	}
	disarm()
	if s != nil {
		// The library leaves it open after some failures, and its reader with it.
		s.Conn.Close()
	}
	if alert := channel.received(); alert != nil {
		err = alert
	}
	return nil, explain(t, err, s, ctx.Err(), time.Since(began), credentials.Expires)
}
