package connection

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is for what must happen; a test that needs it all has failed. It is long,
// because a busy machine may stand still for a while.
const patience = 5 * time.Minute

type method struct{ class, id uint16 }

// Methods of AMQP 0-9-1 that the peer reads or sends.
var (
	connectionStart     = method{10, 10}
	connectionStartOk   = method{10, 11}
	connectionTune      = method{10, 30}
	connectionOpen      = method{10, 40}
	connectionOpenOk    = method{10, 41}
	connectionClose     = method{10, 50}
	connectionCloseOk   = method{10, 51}
	connectionBlocked   = method{10, 60}
	connectionUnblocked = method{10, 61}
	channelOpen         = method{20, 10}
	channelOpenOk       = method{20, 11}
	channelClose        = method{20, 40}
	channelCloseOk      = method{20, 41}
	basicQos            = method{60, 10}
	basicQosOk          = method{60, 11}
	basicConsume        = method{60, 20}
	basicConsumeOk      = method{60, 21}
	basicDeliver        = method{60, 60}
)

// peer is as much of a broker as this package talks to. A test scripts what
// differs; what only a real broker can show is in package integration.
type peer struct {
	// script answers a method in place of the peer, or returns false.
	script     func(c *peerConn, m method, channel uint16) bool
	channelMax uint16
	heartbeat  uint16

	listener net.Listener
	wg       sync.WaitGroup
	mu       sync.Mutex
	conns    []*peerConn
}

func (p *peer) start(t *testing.T) *peer {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p.listener = listener
	p.wg.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			p.accept(conn)
		}
	})
	t.Cleanup(func() {
		listener.Close()
		p.hangUp()
		p.wg.Wait()
	})
	return p
}

// dial connects to the peer through a pipe, so that both can be in a bubble of
// testing/synctest.
func (p *peer) dial(context.Context, string, string) (net.Conn, error) {
	near, far := net.Pipe()
	p.accept(far)
	return near, nil
}

func (p *peer) accept(conn net.Conn) {
	c := &peerConn{Conn: conn, peer: p}
	p.mu.Lock()
	p.conns = append(p.conns, c)
	p.mu.Unlock()
	p.wg.Go(c.serve)
}

func (p *peer) url() string { return "amqp://bob:s3cret@" + p.listener.Addr().String() + "/" }

// hangUp cuts every connection that there is or has been.
func (p *peer) hangUp() {
	for _, c := range p.accepted() {
		c.Close()
	}
}

func (p *peer) accepted() []*peerConn {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.conns)
}

type peerConn struct {
	net.Conn
	peer *peer
	role Role // known from connection.start-ok on
}

func (c *peerConn) serve() {
	defer c.Close()
	r := bufio.NewReader(c.Conn)
	if _, err := io.ReadFull(r, make([]byte, 8)); err != nil { // "AMQP" 0 0 9 1
		return
	}
	if !c.scripted(connectionStart, 0) {
		properties := table("product", "RabbitMQ", "version", "4.3.6", "cluster_name", "test")
		c.send(connectionStart, 0, []byte{0, 9}, properties, long("PLAIN"), long("en_US"))
	}
	for {
		m, channel, args, err := readMethod(r)
		if err != nil {
			return
		}
		if m == connectionStartOk {
			c.role = Consume
			if bytes.Contains(args, []byte(" publish")) { // the end of its name
				c.role = Publish
			}
		}
		if !c.scripted(m, channel) {
			c.answer(m, channel)
		}
	}
}

func (c *peerConn) scripted(m method, channel uint16) bool {
	return c.peer.script != nil && c.peer.script(c, m, channel)
}

func (c *peerConn) answer(m method, channel uint16) {
	switch m {
	case connectionStartOk:
		c.send(connectionTune, 0, u16(c.peer.channelMax), u32(131072), u16(c.peer.heartbeat))
	case connectionOpen:
		c.send(connectionOpenOk, 0, short(""))
	case connectionClose:
		c.send(connectionCloseOk, 0)
	case channelOpen:
		c.send(channelOpenOk, channel, long(""))
	case channelClose:
		c.send(channelCloseOk, channel)
	case basicQos:
		c.send(basicQosOk, channel)
	case basicConsume:
		c.send(basicConsumeOk, channel, short("tag"))
	}
}

func (c *peerConn) send(m method, channel uint16, args ...[]byte) {
	payload := slices.Concat(append([][]byte{u16(m.class), u16(m.id)}, args...)...)
	_, _ = c.Write(frameOf(1, channel, payload)) // a lost client is the test's business
}

// deliver sends a message without a body, whose content header is given.
func (c *peerConn) deliver(channel uint16, header []byte) {
	c.send(basicDeliver, channel, short("tag"), make([]byte, 8), []byte{0}, short(""), short("q"))
	_, _ = c.Write(frameOf(2, channel, header))
}

func frameOf(kind byte, channel uint16, payload []byte) []byte {
	return slices.Concat([]byte{kind}, u16(channel), u32(uint32(len(payload))), payload, []byte{0xCE})
}

// refuse sends connection.close, or channel.close on another channel than 0.
func (c *peerConn) refuse(channel uint16, code uint16, text string) {
	m := connectionClose
	if channel != 0 {
		m = channelClose
	}
	c.send(m, channel, u16(code), short(text), u16(0), u16(0))
}

// readMethod returns the next method and skips every other frame.
func readMethod(r io.Reader) (m method, channel uint16, args []byte, err error) {
	for {
		head := make([]byte, 7)
		if _, err := io.ReadFull(r, head); err != nil {
			return m, 0, nil, err
		}
		body := make([]byte, binary.BigEndian.Uint32(head[3:])+1)
		if _, err := io.ReadFull(r, body); err != nil {
			return m, 0, nil, err
		}
		if body[len(body)-1] != 0xCE {
			return m, 0, nil, errors.New("frame without end")
		}
		if head[0] == 1 {
			m = method{binary.BigEndian.Uint16(body), binary.BigEndian.Uint16(body[2:])}
			return m, binary.BigEndian.Uint16(head[1:]), body[4 : len(body)-1], nil
		}
	}
}

func u16(n uint16) []byte   { return binary.BigEndian.AppendUint16(nil, n) }
func u32(n uint32) []byte   { return binary.BigEndian.AppendUint32(nil, n) }
func short(s string) []byte { return append([]byte{byte(len(s))}, s...) }
func long(s string) []byte  { return append(u32(uint32(len(s))), s...) }

func table(pairs ...string) []byte {
	var body []byte
	for i := 0; i < len(pairs); i += 2 {
		body = slices.Concat(body, short(pairs[i]), []byte{'S'}, long(pairs[i+1]))
	}
	return append(u32(uint32(len(body))), body...)
}

// within fails the test if f takes longer than the patience of the tests.
func within(t *testing.T, what string, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatalf("%s: not within %v", what, patience)
	}
}
