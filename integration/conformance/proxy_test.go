package conformance

import (
	"io"
	"net"
	"net/url"
	"sync"
)

// proxy stands between the SDK and a broker and can cut the connections
// through it, as a network does.
type proxy struct {
	url string

	target   string
	listener net.Listener
	wg       sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]bool
}

// startProxy starts a proxy before the broker of the test.
func (e *env) startProxy() *proxy {
	e.Helper()
	u, err := url.Parse(e.node.AMQPURL())
	if err != nil {
		e.Fatal(err)
	}
	p := &proxy{target: u.Host, conns: map[net.Conn]bool{}}
	if u.Port() == "" {
		p.target = net.JoinHostPort(u.Hostname(), "5672")
	}
	if p.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		e.Fatal(err)
	}
	u.Host = p.listener.Addr().String()
	p.url = u.String()
	p.wg.Go(p.accept)
	e.Cleanup(func() {
		_ = p.listener.Close()
		p.cut()
		p.wg.Wait()
	})
	return p
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.wg.Go(func() { p.join(client) })
	}
}

func (p *proxy) join(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer server.Close()
	p.mu.Lock()
	p.conns[client], p.conns[server] = true, true
	p.mu.Unlock()
	var both sync.WaitGroup
	forward := func(to, from net.Conn) {
		_, _ = io.Copy(to, from) // ends when either side does
		_ = to.Close()
	}
	both.Go(func() { forward(server, client) })
	forward(client, server)
	both.Wait()
	p.mu.Lock()
	delete(p.conns, client)
	delete(p.conns, server)
	p.mu.Unlock()
}

// cut ends every connection that is open now, without a goodbye.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn := range p.conns {
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // reset, not fin
		}
		_ = conn.Close()
	}
}
