package faultproxy_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"

	"github.com/rehop/rehop/integration/faultproxy"
)

func TestNoFault(t *testing.T) {
	r := newRig(t)
	client, broker := r.connect()
	send(t, client, "question")
	wantText(t, broker, "question")
	send(t, broker, "reply")
	wantText(t, client, "reply")
	r.wait("both to be counted", func(s faultproxy.Stats) bool { return s.ToBroker.Passed == 8 && s.ToClient.Passed == 5 })

	// Half of the stream ends, the other half goes on.
	client.(*net.TCPConn).CloseWrite()
	wantEOF(t, broker, "")
	send(t, broker, "late")
	broker.Close()
	wantEOF(t, client, "late")

	r.wait("the end", func(s faultproxy.Stats) bool { return s.Live == 0 })
	wantStats(t, r, faultproxy.Stats{
		Conns:    1,
		ToBroker: faultproxy.Traffic{Received: 8, Passed: 8},
		ToClient: faultproxy.Traffic{Received: 9, Passed: 9},
	})
}

func TestNoFaultPassesReset(t *testing.T) {
	r := newRig(t)
	client, broker := r.connect()
	client.(*net.TCPConn).SetLinger(0)
	client.Close()
	wantReset(t, broker)

	client, broker = r.connect()
	broker.(*net.TCPConn).SetLinger(0)
	broker.Close()
	wantReset(t, client)
}

func TestNoFaultCarriesMuch(t *testing.T) {
	r := newRig(t)
	var wg sync.WaitGroup
	defer wg.Wait()
	for range 4 {
		carry(t, &wg, r.echo(), 1<<20)
	}
}

// carry sends n bytes, and ends its stream, while it wants the same back.
func carry(t *testing.T, wg *sync.WaitGroup, echo net.Conn, n int) {
	much := make([]byte, n)
	for i := range much {
		much[i] = byte(i>>8 ^ i)
	}
	wg.Go(func() {
		if _, err := echo.Write(much); err != nil {
			t.Error(err)
		}
		echo.(*net.TCPConn).CloseWrite()
	})
	wg.Go(func() {
		if got, err := io.ReadAll(echo); err != nil || !bytes.Equal(got, much) {
			t.Errorf("read %d bytes, %v, want the %d that were sent", len(got), err, len(much))
		}
	})
}

func TestNoBroker(t *testing.T) {
	r := newRig(t)
	r.broker.Close()
	client, err := net.DialTimeout("tcp", r.Addr(), limit)
	switch {
	case err == nil:
		defer client.Close()
		wantReset(t, client)
	case !errors.Is(err, syscall.ECONNRESET): // the reset may overtake the end of the dial
		t.Fatalf("dial: %v, want a reset at the most", err)
	}
	wantStats(t, r, faultproxy.Stats{})
}

func TestBadTarget(t *testing.T) {
	if p, err := faultproxy.Start("localhost"); err == nil {
		p.Close()
		t.Error("Start accepts a target without a port")
	}
}

// Whatever stands, Close ends it.
func TestClose(t *testing.T) {
	r := newRig(t)
	r.BlackHole(faultproxy.ToBroker, true)
	r.Latency(faultproxy.ToClient, limit)
	r.connect()
	r.HalfOpen()
	r.connect()
	r.Cut() // lingers, as nobody closes
	r.Throttle(faultproxy.Both, 1)
	client, broker := r.connect()
	send(t, client, "slow")
	send(t, broker, "slow")
	r.wait("both to be under way", func(s faultproxy.Stats) bool { return s.ToBroker.Received == 4 && s.ToClient.Received == 4 })

	r.Close()
	r.Close()
	if s := r.Stats(); s.Conns != 3 || s.Live != 0 {
		t.Errorf("%d connections, %d live after Close, want 3 and 0", s.Conns, s.Live)
	}
	if err := r.Refuse(false); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Refuse(false) after Close: %v, want net.ErrClosed", err)
	}
	if err := r.Wait(t.Context(), func(faultproxy.Stats) bool { return false }); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Wait after Close: %v, want net.ErrClosed", err)
	}
}

func TestWaitEndsWithContext(t *testing.T) {
	r := newRig(t)
	ctx, cancel := context.WithCancel(t.Context())
	err := r.Wait(ctx, func(faultproxy.Stats) bool {
		cancel()
		return false
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Wait: %v, want context.Canceled", err)
	}
}

// Everything at once, for the race detector.
func TestConcurrentUse(t *testing.T) {
	r := newRig(t)
	var wg sync.WaitGroup
	for range 4 {
		client := r.echo()
		wg.Go(func() { io.Copy(io.Discard, client) })
		wg.Go(func() {
			for {
				if _, err := client.Write(make([]byte, 1000)); err != nil {
					return
				}
			}
		})
	}
	both := faultproxy.Both
	for _, fault := range []func(){
		func() { r.Latency(both, 1) },
		func() { r.Throttle(both, 1<<20) },
		func() { r.CutAfter(both, 1<<40) },
		func() { r.Refuse(true) },
		func() { r.Lift() },
		func() { r.Stats() },
	} {
		wg.Go(func() {
			for range 50 {
				fault()
			}
		})
	}
	r.wait("some bytes", func(s faultproxy.Stats) bool { return s.ToClient.Passed > 100_000 })
	r.BlackHole(both, true)
	r.HalfOpen()
	r.Cut()
	r.Reset()
	r.Close()
	wg.Wait()
}
