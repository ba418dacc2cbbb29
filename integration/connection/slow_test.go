package connection_test

import (
	"testing"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/integration/faultproxy"
)

// Links that are slow and well: nothing is given up on them.
var slowLinks = []fault{
	{"200 ms of latency each way", latency},
	{"32 KiB per second", throttled},
}

// latency is under every deadline that there is.
func latency(t *testing.T, n *node, r *row) {
	p := proxyTo(t, n.AMQPURL())
	p.Latency(faultproxy.Both, 200*time.Millisecond)
	cfg := config(p.url)
	cfg.DialTimeout, cfg.OperationTimeout = 9*time.Second, 3*time.Second // 2 s and 0.4 s when all goes well
	conn := open(t, cfg)
	work := startPlainWork(t, conn, r.fault, load{})
	both := socketsOf(t, conn)
	for range 3 {
		s := sessionOf(t, conn, connection.Consume)
		if err := s.Close(); err != nil {
			t.Errorf("Close = %v", err)
		}
		work.flow(t)
	}
	both.alive(t)
	work.settle(t, r)
	if err := conn.Close(); err != nil {
		t.Errorf("Close = %v", err)
	}
	if conns := p.Stats().Conns; conns != 2 {
		t.Errorf("%d connections were made, want the one to publish and the one to consume", conns)
	}
}

// A message takes as long as two heartbeats, in either direction, and hides those.
func throttled(t *testing.T, n *node, r *row) {
	const rate = 32 << 10
	p := proxyTo(t, n.AMQPURL())
	work := startPlainWork(t, open(t, config(p.url)), r.fault,
		load{body: int(rate * 2 * heartbeat / time.Second), onDemand: true})
	both := socketsOf(t, work.conn)
	p.Throttle(faultproxy.Both, rate)
	for range 2 {
		work.publishSoon("")
	}
	work.delivered(t)
	both.alive(t)
	p.Throttle(faultproxy.Both, 0)
	work.settle(t, r)
}
