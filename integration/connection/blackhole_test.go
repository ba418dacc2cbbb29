package connection_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/integration/faultproxy"
)

// A peer that falls silent, without closing anything, at every moment of a
// connection's life.
var blackHoles = slices.Concat(
	eachWay("black hole before the handshake", holeBeforeHandshake),
	eachWay("black hole in the handshake, at the protocol header", holeInHandshake(func(int64) int64 { return 8 })),
	eachWay("black hole in the handshake, at the login", holeInHandshake(func(int64) int64 { return 9 })),
	eachWay("black hole in the handshake, at the opening of the vhost", holeInHandshake(func(all int64) int64 { return all })),
	eachWay("black hole right after the handshake", holeAfterHandshake(0)),
	eachWay("black hole after two heartbeats", holeAfterHandshake(2)),
	eachWay("black hole while a reply is awaited", holeBeforeReply),
	eachWay("black hole at work", holeAtWork),
)

type way struct {
	name string
	faultproxy.Direction
}

var ways = []way{
	{"both ways", faultproxy.Both},
	{"to the broker", faultproxy.ToBroker},
	{"to the client", faultproxy.ToClient},
}

// noticed is when such a hole is noticed on a connection that is up. A client
// that hears from the broker leaves it to the broker to miss it.
func (w way) noticed() time.Duration {
	if w.Direction == faultproxy.ToBroker {
		return noticedByBroker
	}
	return noticed
}

func eachWay(name string, run func(*testing.T, *node, *row, way)) (faults []fault) {
	for _, w := range ways {
		faults = append(faults, fault{name + ", " + w.name, func(t *testing.T, n *node, r *row) { run(t, n, r, w) }})
	}
	return faults
}

// The try is given up, which the next one shows, and the next but one succeeds.
func holeBeforeHandshake(t *testing.T, n *node, r *row, w way) {
	p := proxyTo(t, n.AMQPURL())
	p.BlackHole(w.Direction, true)
	opened := opening(t, config(p.url))
	p.clients(t, 1)
	began := time.Now()
	p.clients(t, 2)
	r.detected(time.Since(began), handshake)
	lifted := p.lift(t)
	opened()
	r.recovered(time.Since(lifted), returned)
}

// slowly is how long each message of a handshake is under way, so that a test
// can step in between.
const slowly = 200 * time.Millisecond

// holeInHandshake opens the hole when the client has sent so many of all the
// bytes of a handshake.
func holeInHandshake(sent func(all int64) int64) func(*testing.T, *node, *row, way) {
	return func(t *testing.T, n *node, r *row, w way) {
		all := handshakeBytes(t, n)
		p := proxyTo(t, n.AMQPURL())
		p.Latency(faultproxy.Both, slowly)
		cfg := config(p.url)
		cfg.DialTimeout = slack * 6 * slowly // it takes six when all goes well
		began := time.Now()
		opened := opening(t, cfg)
		p.reaches(t, func(s faultproxy.Stats) bool { return s.ToBroker.Received >= sent(all.ToBroker.Received) })
		p.BlackHole(w.Direction, true)
		p.clients(t, 2)
		r.detected(time.Since(began), cfg.DialTimeout)
		lifted := p.lift(t)
		opened()
		r.recovered(time.Since(lifted), returned)
	}
}

// handshakeBytes returns what one handshake costs in each direction, by Received,
// as what was passed on is counted a moment after the client has it. Neither a
// second try nor a heartbeat must be among it.
func handshakeBytes(t *testing.T, n *node) faultproxy.Stats {
	t.Helper()
	p := proxyTo(t, n.AMQPURL())
	cfg := config(p.url)
	cfg.DialTimeout, cfg.Heartbeat = time.Minute, time.Minute
	handshakeOnly(t, cfg)
	return p.Stats()
}

// Nothing but a heartbeat is under way, or not yet even that.
func holeAfterHandshake(heartbeats int64) func(*testing.T, *node, *row, way) {
	return func(t *testing.T, n *node, r *row, w way) {
		const frame = 8 // bytes of a heartbeat
		p := proxyTo(t, n.AMQPURL())
		log := new(journal)
		cfg := config(p.url)
		cfg.Logger = log.logger()
		conn := open(t, cfg)
		up := p.Stats().ToClient.Received
		p.reaches(t, func(s faultproxy.Stats) bool { return s.ToClient.Received >= up+heartbeats*frame })
		p.BlackHole(w.Direction, true)
		r.detected(log.said(t, time.Now(), "connection: lost"), w.noticed())
		lifted := p.lift(t)
		sessionOf(t, conn, connection.Consume)
		r.recovered(time.Since(lifted), returned)
	}
}

func holeBeforeReply(t *testing.T, n *node, r *row, w way) {
	p := proxyTo(t, n.AMQPURL())
	conn := open(t, config(p.url))
	s := sessionOf(t, conn, connection.Consume)
	p.Latency(faultproxy.Both, slowly)
	sent := p.Stats().ToBroker.Received
	called := make(chan error, 1)
	go func() {
		called <- s.Do(t.Context(), func(ch *amqp.Channel) error { return ch.Qos(1, 0, false) })
	}()
	p.reaches(t, func(s faultproxy.Stats) bool { return s.ToBroker.Received > sent })
	p.BlackHole(w.Direction, true)
	began := time.Now()
	err := <-called
	r.detected(time.Since(began), w.noticed())
	if !errors.Is(err, connection.ErrSessionLost) {
		t.Errorf("Do = %v, want ErrSessionLost", err)
	}
	lifted := p.lift(t)
	sessionOf(t, conn, connection.Consume)
	r.recovered(time.Since(lifted), returned)
}

func holeAtWork(t *testing.T, n *node, r *row, w way) {
	p := proxyTo(t, n.AMQPURL())
	work := startPlainWork(t, open(t, config(p.url)), r.fault, load{})
	both := socketsOf(t, work.conn)
	p.BlackHole(w.Direction, true)
	r.detected(both.lost(t, time.Now()), w.noticed())
	r.recovered(work.recovered(t, p.lift(t)), returned)
	work.settle(t, r)
}
