package connection_test

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
)

// names is a name server for one host, whose addresses are answered in their order.
type names struct {
	conn      net.PacketConn
	host      string
	addresses []netip.Addr
}

// dialer returns what package connection uses by default, asking this server.
func dialer(t *testing.T, host string, addresses ...netip.Addr) *net.Dialer {
	t.Helper()
	conn, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &names{conn, host, addresses}
	var ended sync.WaitGroup
	ended.Go(n.serve)
	t.Cleanup(func() {
		conn.Close()
		ended.Wait()
	})
	return &net.Dialer{Resolver: &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp4", conn.LocalAddr().String())
	}}}
}

func (n *names) serve() {
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
	flags, addresses := uint16(0x8400), n.addresses // an answer, with authority
	if strings.Join(labels, ".") != n.host {
		flags, addresses = flags|3, nil
	} else if binary.BigEndian.Uint16(query[at+1:]) != typeA {
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
