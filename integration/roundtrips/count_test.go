package roundtrips

import (
	"context"
	"crypto/rand"
	"errors"
	"math"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/integration/broker"
	"github.com/rehop/rehop/integration/faultproxy"
	"github.com/rehop/rehop/topology"
)

// measured is what is timed, and what cleans up after it.
type measured struct {
	do    func(context.Context) error
	after func() error
}

// bench is a broker behind a proxy.
type bench struct {
	version string
	url     string // through the proxy
	proxy   *faultproxy.Proxy
	work    topology.WorkQueue
	shop    topology.Exchange
}

func start(t *testing.T) *bench {
	t.Helper()
	server, err := broker.Start(t.Context(), broker.Options{Name: "rehop-roundtrips"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	u, err := url.Parse(server.AMQPURL())
	if err != nil {
		t.Fatal(err)
	}
	target := u.Host
	if u.Port() == "" {
		target = net.JoinHostPort(u.Hostname(), "5672")
	}
	p, err := faultproxy.Start(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	u.Host = p.Addr()
	return &bench{version: server.Version(), url: u.String(), proxy: p, shop: topology.Exchange{Name: "rehop-roundtrips"}}
}

// The two distances of the broker, as round trips. What a call takes without
// the network falls out of the difference.
const (
	near = 20 * time.Millisecond
	far  = 170 * time.Millisecond
)

// Each distance is timed so often: twice, and more often while the difference says
// too much. The shortest time counts: noise only adds to it.
const (
	fewest = 2
	most   = 8
)

// count returns how many round trips a call takes, where fewer than least and more than
// enough are to be made sure of: noise at the small distance takes some away.
func (b *bench) count(least, enough float64, prepare func(*bench) (measured, error)) (trips float64, err error) {
	close, away := time.Duration(math.MaxInt64), time.Duration(math.MaxInt64)
	for i := range most {
		if i >= fewest && trips >= least && trips <= enough {
			break
		}
		for distance, shortest := range map[time.Duration]*time.Duration{near: &close, far: &away} {
			took, err := b.time(distance, prepare)
			if err != nil {
				return 0, err
			}
			*shortest = min(*shortest, took)
		}
		trips = float64(away-close) / float64(far-near)
	}
	return trips, nil
}

// time runs a call once, with the broker at a distance, and its preparation and
// cleaning up without one.
func (b *bench) time(distance time.Duration, prepare func(*bench) (measured, error)) (took time.Duration, err error) {
	b.work = topology.WorkQueue{
		Name: "rehop-roundtrips-" + rand.Text(), Type: topology.Quorum, Waits: delay.Default(),
		Bindings: []topology.Binding{{Exchange: b.shop.Name, RoutingKey: "order.#"}},
	}
	m, err := prepare(b)
	if err != nil {
		return 0, err
	}
	b.proxy.Latency(faultproxy.Both, distance/2)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	began := time.Now()
	err = m.do(ctx)
	took = time.Since(began)
	b.proxy.Latency(faultproxy.Both, 0)
	return took, errors.Join(err, m.after())
}

func (b *bench) dial(ctx context.Context) (*connection.Conn, error) {
	return connection.Open(ctx, connection.Config{URLs: []string{b.url}})
}

// prepared returns a fresh Conn, after the work queue was declared on another
// one, and what closes it and takes the work queue away.
func (b *bench) prepared() (*connection.Conn, func() error, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	first, err := b.dial(ctx)
	if err != nil {
		return nil, nil, err
	}
	plan, err := topology.DeclarePlan(ctx, first, b.shop, b.work)
	if err != nil {
		return nil, nil, err
	}
	conn, err := b.dial(ctx)
	if err != nil {
		return nil, nil, err
	}
	return conn, func() error {
		return errors.Join(conn.Close(), remove(first, plan), first.Close())
	}, nil
}
