package connection

import (
	"bufio"
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

// patience is for what must happen; a test that needs it all has failed.
const patience = 10 * time.Second

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
			c := &peerConn{Conn: conn, peer: p}
			p.mu.Lock()
			p.conns = append(p.conns, c)
			p.mu.Unlock()
			p.wg.Go(c.serve)
		}
	})
	t.Cleanup(func() {
		listener.Close()
		p.hangUp()
		p.wg.Wait()
	})
	return p
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
		m, channel, err := readMethod(r)
		if err != nil {
			return
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
	}
}

func (c *peerConn) send(m method, channel uint16, args ...[]byte) {
	payload := slices.Concat(append([][]byte{u16(m.class), u16(m.id)}, args...)...)
	frame := slices.Concat([]byte{1}, u16(channel), u32(uint32(len(payload))), payload, []byte{0xCE})
	_, _ = c.Write(frame) // a lost client is the test's business
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
func readMethod(r io.Reader) (method, uint16, error) {
	for {
		head := make([]byte, 7)
		if _, err := io.ReadFull(r, head); err != nil {
			return method{}, 0, err
		}
		body := make([]byte, binary.BigEndian.Uint32(head[3:])+1)
		if _, err := io.ReadFull(r, body); err != nil {
			return method{}, 0, err
		}
		if body[len(body)-1] != 0xCE {
			return method{}, 0, errors.New("frame without end")
		}
		if head[0] == 1 {
			return method{binary.BigEndian.Uint16(body), binary.BigEndian.Uint16(body[2:])},
				binary.BigEndian.Uint16(head[1:]), nil
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
