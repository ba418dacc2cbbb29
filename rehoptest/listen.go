package rehoptest

import (
	"errors"
	"fmt"
	"net"
)

// Listen opens a port of its own on 127.0.0.1, for clients in other processes,
// and returns its address as host:port. It is of no use in a bubble of
// testing/synctest.
func (b *Broker) Listen() (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return "", errors.New("rehoptest: the broker is closed")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("rehoptest: %w", err)
	}
	b.listeners[l] = struct{}{}
	b.wg.Go(func() { b.accept(l) })
	return l.Addr().String(), nil
}

func (b *Broker) accept(l net.Listener) {
	for {
		n, err := l.Accept()
		if err != nil {
			return
		}
		b.mu.Lock()
		if b.closed || b.stopped {
			_ = n.Close()
		} else {
			b.serve(n)
		}
		b.mu.Unlock()
	}
}
