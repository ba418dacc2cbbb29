package sim

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rehop/rehop/rehoptest"
)

// frames is the beginning of a connection, which the broker answers.
var frames = []byte("AMQP\x00\x00\x09\x01")

func TestNetworkFaults(t *testing.T) {
	tests := map[string]struct {
		breaks func(n *network, b *rehoptest.Broker) (lift func())
		during error // of a read with a deadline
		after  error // likewise when the fault has ended
	}{
		"none":       {func(*network, *rehoptest.Broker) func() { return func() {} }, nil, os.ErrDeadlineExceeded},
		"black hole": {func(n *network, _ *rehoptest.Broker) func() { return n.blackHole() }, os.ErrDeadlineExceeded, nil},
		"half-open": {func(n *network, _ *rehoptest.Broker) func() { n.halfOpen(); return func() {} },
			os.ErrDeadlineExceeded, os.ErrDeadlineExceeded},
		"reset": {func(n *network, _ *rehoptest.Broker) func() { n.reset(); return func() {} }, errReset, errReset},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, err := rehoptest.NewBroker(rehoptest.Config{})
				if err != nil {
					t.Fatal(err)
				}
				defer b.Close()
				n := newNetwork(b.Dial)
				c, err := n.Dial(t.Context(), "tcp", "broker")
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				lift := tt.breaks(n, b)
				if _, err := c.Write(frames); err != nil && !errors.Is(tt.during, errReset) {
					t.Errorf("Write = %v", err)
				}
				read := func(when string, want error) {
					t.Helper()
					_ = c.SetReadDeadline(time.Now().Add(time.Second))
					if _, err := c.Read(make([]byte, 4096)); !errors.Is(err, want) || want == nil && err != nil {
						t.Errorf("Read %s = %v, want %v", when, err, want)
					}
				}
				read("during the fault", tt.during)
				lift()
				synctest.Wait()
				read("after it", tt.after)
			})
		})
	}
}

func TestADialInABlackHoleWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(func(context.Context, string, string) (net.Conn, error) { return nil, errReset })
		lift := n.blackHole()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := n.Dial(ctx, "tcp", "broker"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Dial = %v, want the end of its ctx", err)
		}
		lift()
		if _, err := n.Dial(t.Context(), "tcp", "broker"); !errors.Is(err, errReset) {
			t.Errorf("Dial = %v after the black hole", err)
		}
	})
}
