package connection

import (
	"cmp"
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

	var login []amqp.Authentication // nil: as the URL says
	var credentials Credentials
	if l.cfg.Credentials != nil {
		var err error
		if credentials, err = l.cfg.Credentials(ctx); err != nil {
			return nil, fmt.Errorf("%s: Credentials: %w", t, err)
		}
		t.uri.Username = credentials.User
		login = credentials.sasl(t.uri.AuthMechanism)
	}
	var s *socket
	disarm := func() bool { return true }
	properties := amqp.NewConnectionProperties()
	properties.SetClientConnectionName(l.cfg.Name + " " + l.use.String())
	// Properties and TLS are fresh for each try: the library writes into them.
	conn, err := amqp.DialConfig(t.raw, amqp.Config{
		SASL:            login,
		Vhost:           t.uri.Vhost,
		Heartbeat:       l.cfg.Heartbeat,
		Properties:      properties,
		TLSClientConfig: tlsFor(t, l.cfg.TLS),
		Dial: func(network, addr string) (net.Conn, error) {
			tcp, err := l.cfg.Dial(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			s = &socket{Conn: tcp, patience: l.cfg.OperationTimeout}
			// The library bounds the handshake of its own dialer only. The
			// deadline is DialTimeout's; AfterFunc is for the end of ctx.
			_ = tcp.SetDeadline(began.Add(l.cfg.DialTimeout))
			disarm = context.AfterFunc(ctx, func() { tcp.Close() })
			return s, nil
		},
	})
	if err == nil && disarm() {
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
	return nil, explain(t, err, s, ctx.Err(), time.Since(began))
}

func tlsFor(t target, cfg *tls.Config) *tls.Config {
	if cfg == nil || t.uri.Scheme != "amqps" {
		return nil
	}
	cfg = cfg.Clone()
	cfg.ServerName = cmp.Or(t.uri.ServerName, cfg.ServerName, t.uri.Host)
	return cfg
}
