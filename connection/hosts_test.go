package connection

import (
	"context"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestHostsThatFailedLatelyComeLast(t *testing.T) {
	now := time.Now()
	h := newHosts(4)
	h.note(2, false, now.Add(-badFor/2))
	h.note(0, false, now)
	first := map[int]bool{}
	for range 100 {
		got := h.order(now)
		if !slices.Equal(got[2:], []int{2, 0}) {
			t.Fatalf("order = %v, want 2 and then 0 at the end", got)
		}
		first[got[0]] = true
	}
	if !first[1] || !first[3] {
		t.Errorf("of 100 orders none began with each good host: %v", first)
	}
	h.note(0, true, now)
	if got := h.order(now); got[3] != 2 {
		t.Errorf("order = %v, want host 0 forgiven after a good try", got)
	}
	if got := h.badness(2, now.Add(badFor/2)); got != 0 {
		t.Errorf("badness = %v, want a fault forgotten after %v", got, badFor)
	}
}

func TestAHostThatFailedOrWasLostIsTriedAfterTheOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		good := new(peer)
		bad := &peer{script: func(c *peerConn, m method, _ uint16) bool {
			if m == connectionOpen {
				c.refuse(0, 541, "INTERNAL_ERROR - vhost is down")
			}
			return m == connectionOpen
		}}
		var tries []string
		c := bubble(t, good, Config{
			URLs: []string{"amqp://good/?heartbeat=0", "amqp://bad/?heartbeat=0"},
			Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
				if strings.HasPrefix(address, "bad") {
					return bad.dial(ctx, network, address)
				}
				return good.dial(ctx, network, address)
			},
			Traces: []Trace{{DialAttempt: func(t DialAttempt) {
				tries = append(tries, map[bool]string{true: "good", false: "bad"}[t.Err == nil])
			}}},
		})
		session(t, c, Consume)
		dialled := func(role Role) []string {
			tries = nil
			session(t, c, role)
			return tries
		}
		session(t, c, Publish)
		for range 4 {
			time.Sleep(time.Second) // so that the loss is the later fault
			good.hangUp()
			for _, role := range []Role{Publish, Consume} {
				await(t, c, func(s State) bool { return s.Role == role && s.Status != Up })
			}
			if got := dialled(Consume); !slices.Equal(got, []string{"bad", "good"}) {
				t.Errorf("after the loss of a host: %v, want the other one first", got)
			}
			if got := dialled(Publish); !slices.Equal(got, []string{"good"}) {
				t.Errorf("after a failed try: %v, want the other host first", got)
			}
		}
	})
}
