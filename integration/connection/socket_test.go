package connection_test

import (
	"testing"
	"time"
)

// Connections that end at work, each in its own way.
var lostSockets = []fault{
	{"connection closed", func(t *testing.T, n *node, r *row) { socketsLost(t, n, r, proxy.Cut) }},
	{"connection reset", func(t *testing.T, n *node, r *row) { socketsLost(t, n, r, proxy.Reset) }},
	{"connection half open", func(t *testing.T, n *node, r *row) { socketsLost(t, n, r, proxy.HalfOpen) }},
}

func socketsLost(t *testing.T, n *node, r *row, fault func(proxy)) {
	p := proxyTo(t, n.AMQPURL())
	work := startPlainWork(t, open(t, config(p.url)), r.fault, load{})
	both := socketsOf(t, work.conn)
	began := time.Now()
	fault(p)
	r.detected(both.lost(t, began), noticed)
	r.recovered(work.recovered(t, time.Now()), returned)
	work.settle(t, r)
}
