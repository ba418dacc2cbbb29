package sim

import (
	"context"
	"errors"
	"net"
	"sync"
)

// network is the way of one life of a process to the broker.
type network struct {
	dial func(ctx context.Context, network, address string) (net.Conn, error)

	mu    sync.Mutex
	ended bool
	conns []net.Conn
}

func (n *network) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := n.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ended {
		_ = conn.Close()
		return nil, errors.New("the process is killed")
	}
	n.conns = append(n.conns, conn)
	return conn, nil
}

// end ends all connections, and lets no other one be made.
func (n *network) end() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ended = true
	for _, conn := range n.conns {
		_ = conn.Close()
	}
}
