package connection_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
)

// names is a name server, for host names whose addresses a test has chosen.
type names struct {
	conn net.PacketConn
	done chan struct{}

	mu    sync.Mutex
	hosts map[string][]netip.Addr
}

// hosts is what this process asks for every name that is not in /etc/hosts.
var hosts *names

func startNames() (*names, error) {
	conn, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("name server: %w", err)
	}
	hosts = &names{conn: conn, done: make(chan struct{}), hosts: map[string][]netip.Addr{}}
	go hosts.serve()
	return hosts, nil
}

func (n *names) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp4", n.conn.LocalAddr().String())
	}}
}

// set gives a host its addresses, in the order in which they are answered.
func (n *names) set(host string, addresses ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hosts[host+"."] = nil
	for _, a := range addresses {
		n.hosts[host+"."] = append(n.hosts[host+"."], netip.MustParseAddr(a))
	}
}

func (n *names) close() {
	n.conn.Close()
	<-n.done
}

func (n *names) serve() {
	defer close(n.done)
	buf := make([]byte, 512)
	for {
		size, from, err := n.conn.ReadFrom(buf)
		if err != nil {
			return
		}
		if answer := n.answer(buf[:size]); answer != nil {
			_, _ = n.conn.WriteTo(answer, from) // whoever asked asks again
		}
	}
}

// answer follows RFC 1035, section 4.1, for a question about one name: its
// addresses, none if they are asked for in another form than IPv4, and
// "no such name" for others.
func (n *names) answer(query []byte) []byte {
	const head, typeA = 12, 1
	if len(query) < head {
		return nil
	}
	var labels []string
	at := head
	for at < len(query) && query[at] != 0 {
		end := at + 1 + int(query[at])
		if end > len(query) {
			return nil
		}
		labels = append(labels, string(query[at+1:end]))
		at = end
	}
	if at+5 > len(query) {
		return nil
	}
	question := query[head : at+5]
	n.mu.Lock()
	addresses, known := n.hosts[strings.Join(labels, ".")+"."]
	n.mu.Unlock()

	flags := uint16(0x8400) // an answer, with authority
	if !known {
		flags |= 3
	}
	if binary.BigEndian.Uint16(query[at+1:]) != typeA {
		addresses = nil
	}
	out := append([]byte{}, query[:2]...) // the id
	for _, v := range []uint16{flags, 1, uint16(len(addresses)), 0, 0} {
		out = binary.BigEndian.AppendUint16(out, v)
	}
	out = append(out, question...)
	for _, a := range addresses {
		out = append(out, 0xC0, head, 0, typeA, 0, 1, 0, 0, 0, 0, 0, 4) // the name as in the question, A, IN, no TTL, 4 bytes
		out = append(out, a.AsSlice()...)
	}
	return out
}
