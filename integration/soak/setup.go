package main

import (
	"context"
	"errors"
	"net"
	"net/url"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/integration/faultproxy"
	"github.com/rehop/rehop/integration/queues"
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
		err = errors.Join(queues.Delete(ctx, k.observer, k.plan), k.observer.Close())
	}
	k.proxy.Close()
	return err
}
