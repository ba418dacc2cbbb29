package connection_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/integration/faultproxy"
	"github.com/rehop/rehop/topology"
)

// A connection that ends in the midst of a frame.
var cutFrames = slices.Concat(
	inHandshake(faultproxy.ToClient, 3, 100, -1),
	inHandshake(faultproxy.ToBroker, 3, 100, -1),
	atStart("at the opening of its channel", 3),
	atStart("at the switch to confirms", channelOpenOk+3),
	inMessage(connection.Publish, 3, 40, 80, 5000),
	inMessage(connection.Consume, 3, 40, 120, 5000),
)

// inHandshake cuts the handshake off after n bytes, or -n before its end.
func inHandshake(d faultproxy.Direction, after ...int64) (faults []fault) {
	for _, n := range after {
		name := fmt.Sprintf("frame cut in half, handshake %s, after %d bytes", to(d), n)
		if n < 0 {
			name = fmt.Sprintf("frame cut in half, handshake %s, %d byte before its end", to(d), -n)
		}
		faults = append(faults, fault{name, func(t *testing.T, node *node, r *row) { cutInHandshake(t, node, r, d, n) }})
	}
	return faults
}

func to(d faultproxy.Direction) string {
	if d == faultproxy.ToBroker {
		return "to the broker"
	}
	return "to the client"
}

func cutInHandshake(t *testing.T, node *node, r *row, d faultproxy.Direction, n int64) {
	all := handshakeBytes(t, node)
	if n < 0 && d == faultproxy.ToBroker {
		n += all.ToBroker.Received
	} else if n < 0 {
		n += all.ToClient.Received
	}
	p := proxyTo(t, node.AMQPURL())
	p.CutAfter(d, n)
	opened := opening(t, config(p.url))
	p.clients(t, 1)
	began := time.Now()
	p.clients(t, 2)
	// Whoever cuts a connection at the login looks like a broker that refuses
	// the password, for which Open gives up after the third time.
	lifted := p.lift(t)
	r.detected(lifted.Sub(began), handshake)
	opened()
	r.recovered(time.Since(lifted), returned)
}

// inMessage cuts a connection after n bytes of a message that is published or
// delivered: in the head of its first frame, in its method, its properties and
// its body.
func inMessage(use connection.Role, after ...int64) (faults []fault) {
	for _, n := range after {
		name := fmt.Sprintf("frame cut in half, %s, after %d bytes", use, n)
		faults = append(faults, fault{name, func(t *testing.T, node *node, r *row) { cutInMessage(t, node, r, use, n) }})
	}
	return faults
}

func cutInMessage(t *testing.T, node *node, r *row, use connection.Role, n int64) {
	p := proxyTo(t, node.AMQPURL())
	conn := open(t, config(p.url))
	work := startPlainWork(t, conn, r.fault, load{body: 8 << 10, onDemand: true})
	socket := sessionOf(t, conn, use)
	d := faultproxy.ToBroker
	if use == connection.Consume {
		d = faultproxy.ToClient
	}
	p.CutAfter(d, n)
	began := time.Now()
	work.publishSoon("")
	ended(t, socket)
	r.detected(time.Since(began), noticed)
	lifted := p.lift(t)
	work.delivered(t)
	r.recovered(time.Since(lifted), returned)
	work.settle(t, r)
}

// channelOpenOk is how many bytes the broker's answer to channel.open has.
const channelOpenOk = 16

// atStart cuts a new publishing socket off, n bytes after its handshake: before
// anything was published.
func atStart(where string, n int64) []fault {
	name := "frame cut in half, start of publishing, " + where
	return []fault{{name, func(t *testing.T, node *node, r *row) { cutAtStart(t, node, r, n) }}}
}

func cutAtStart(t *testing.T, node *node, r *row, n int64) {
	all := handshakeBytes(t, node)
	p := proxyTo(t, node.AMQPURL())
	cfg := config(p.url)
	cfg.Heartbeat = time.Minute // none of them counts as part of the answer
	conn := open(t, cfg)
	work := newWork(t, conn, r.fault, load{})
	work.declare(t)
	p.CutAfter(faultproxy.ToClient, all.ToClient.Received+n)
	work.publishSoon("")
	// The socket to consume stays. Of those to publish each one is cut, so that
	// a moment without any comes again if it is missed.
	p.reaches(t, func(s faultproxy.Stats) bool { return s.Conns >= 2 && s.Live == 1 })
	lifted := p.lift(t)
	work.consume(t, topology.Route{Queue: r.fault})
	work.delivered(t)
	r.recovered(time.Since(lifted), returned)
	work.settle(t, r)
}
