package faultproxy

import (
	"context"
	"fmt"
	"net"
)

// Stats counts since the start of the proxy, over all its connections.
type Stats struct {
	Conns    int // connections so far, from client to broker
	Live     int // those of them that have not ended; a half-open one has not
	ToBroker Traffic
	ToClient Traffic
}

// Traffic counts the bytes of one direction. What was received and neither
// passed nor dropped is under way, or was when its connection ended.
type Traffic struct {
	Received int64 // taken from the sender
	Passed   int64 // handed to the receiver's socket
	Dropped  int64 // lost in a black hole or a half-open connection
}

// Stats returns the counts of this moment.
func (p *Proxy) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stats()
}

// Wait returns nil as soon as ok says true of the counts, and otherwise an error
// when ctx ends, which it wraps, or the proxy is closed (net.ErrClosed). ok sees
// the counts now and after changes, though not after each: only of a count that
// never falls can it be sure to see that it was reached. ok may call the proxy.
func (p *Proxy) Wait(ctx context.Context, ok func(Stats) bool) error {
	for {
		p.mu.Lock()
		s, changed, stopped := p.stats(), p.changed, p.stopped
		p.mu.Unlock()
		if ok(s) {
			return nil
		}
		if stopped {
			return fmt.Errorf("faultproxy: waited in vain, counts %+v: %w", s, net.ErrClosed)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("faultproxy: waited in vain, counts %+v: %w", s, context.Cause(ctx))
		}
	}
}

func (p *Proxy) stats() Stats {
	return Stats{Conns: p.opened, Live: p.live, ToBroker: p.toBroker.traffic, ToClient: p.toClient.traffic}
}

// notify wakes everybody in Wait. The caller holds mu.
func (p *Proxy) notify() {
	close(p.changed)
	p.changed = make(chan struct{})
}
