package connection

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// try makes one connection to one target, within DialTimeout. ctx bounds the
// try only.
func (l *line) try(ctx context.Context, t target) (*link, error) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, l.cfg.DialTimeout)
	defer cancel()

	var s *socket
	disarm := func() bool { return true }
	properties := amqp.NewConnectionProperties()
	properties.SetClientConnectionName(l.cfg.Name + " " + l.use.String())
	// Properties and TLS are fresh for each try: the library writes into them.
	conn, err := amqp.DialConfig(t.raw, amqp.Config{
		Heartbeat:       l.cfg.Heartbeat,
		Properties:      properties,
		TLSClientConfig: tlsFor(t, l.cfg.TLS),
		Dial: func(network, addr string) (net.Conn, error) {
			tcp, err := new(net.Dialer).DialContext(ctx, network, addr)
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
		return newLink(t, conn, s, l.cfg.OperationTimeout, l.log), nil
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
	if cfg.ServerName == "" {
		cfg.ServerName = t.uri.Host
	}
	return cfg
}
