package main

import (
	"context"
	"errors"
	"net"
	"net/url"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/integration/faultproxy"
	"github.com/rehop/rehop/topology"
)

// setUp declares the queues and returns the address of the proxy before the
// broker.
func (k *soak) setUp(ctx context.Context) (through string, err error) {
	u, err := url.Parse(k.broker.AMQPURL())
	if err != nil {
		return "", err
	}
	target := u.Host
	if u.Port() == "" {
		target = net.JoinHostPort(u.Hostname(), "5672")
	}
	if k.proxy, err = faultproxy.Start(target); err != nil {
		return "", err
	}
	u.Host = k.proxy.Addr()
	k.observer, err = connection.Open(ctx, connection.Config{URLs: []string{k.broker.AMQPURL()}, Name: "rehop soak, observer"})
	if err == nil {
		k.plan, err = topology.DeclarePlan(ctx, k.observer, k.work)
	}
	if err != nil {
		return "", errors.Join(err, k.tearDown())
	}
	return u.String(), nil
}

func (k *soak) tearDown() (err error) {
	if k.observer != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		err = errors.Join(remove(ctx, k.observer, k.plan), k.observer.Close())
	}
	k.proxy.Close()
	return err
}

// remove deletes what was declared, for a broker that is not ours.
func remove(ctx context.Context, conn *connection.Conn, plan topology.Plan) error {
	return withChannel(ctx, conn, func(ch *amqp.Channel) error {
		for _, q := range plan.Queues {
			if _, err := ch.QueueDelete(q.Name, false, false, false); err != nil {
				return err
			}
		}
		for _, e := range plan.Exchanges {
			if err := ch.ExchangeDelete(e.Name, false, false); err != nil {
				return err
			}
		}
		return nil
	})
}

func withChannel(ctx context.Context, conn *connection.Conn, do func(*amqp.Channel) error) error {
	session, err := conn.Session(ctx, connection.Consume)
	if err != nil {
		return err
	}
	return errors.Join(session.Do(ctx, do), session.Close())
}
