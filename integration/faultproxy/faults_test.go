package faultproxy_test

import (
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rehop/rehop/integration/faultproxy"
)

func TestCut(t *testing.T) {
	r := newRig(t)
	client, broker := r.connect()
	send(t, client, "question")
	send(t, broker, "reply")
	r.wait("both to pass", func(s faultproxy.Stats) bool { return s.ToBroker.Passed == 8 && s.ToClient.Passed == 5 })
	r.Cut()
	if live := r.Stats().Live; live != 0 {
		t.Errorf("%d connections live after Cut, want 0", live)
	}
	// What was passed on arrives although more is sent.
	send(t, client, strings.Repeat("into the void ", 100_000))
	send(t, broker, strings.Repeat("into the void ", 100_000))
	wantEOF(t, client, "reply")
	wantEOF(t, broker, "question")
	wantRoundTrip(t, r.echo())
}

// A side that does not read its end, but writes on, is told as well.
func TestCutEndsLinger(t *testing.T) {
	r := newRig(t)
	client, _ := r.connect()
	r.Cut()
	for range time.Tick(10 * time.Millisecond) {
		if _, err := client.Write(make([]byte, 1000)); err != nil {
			if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
				t.Errorf("write: %v, want a reset", err)
			}
			return
		}
	}
}

// A side that reads nothing does not keep the other from being cut, and finds
// all that was passed on when it reads at last.
func TestCutWhileWriteBlocks(t *testing.T) {
	r := newRig(t)
	client, broker := r.connect()
	flooded := make(chan struct{})
	go func() {
		defer close(flooded)
		for {
			if _, err := client.Write(make([]byte, 1<<20)); err != nil {
				return
			}
		}
	}()
	r.wait("the broker's side to be full", func(s faultproxy.Stats) bool { return s.ToBroker.Received-s.ToBroker.Passed > 64<<10 })
	r.Cut()
	wantEOF(t, client, "")
	client.Close()
	<-flooded
	got, err := io.Copy(io.Discard, broker)
	if want := r.Stats().ToBroker.Passed; err != nil || got != want {
		t.Errorf("the broker read %d bytes, %v, want the %d that were passed on", got, err, want)
	}
}

func TestReset(t *testing.T) {
	r := newRig(t)
	client, broker := r.connect()
	r.Reset()
	wantReset(t, client)
	wantReset(t, broker)
	wantStats(t, r, faultproxy.Stats{Conns: 1})
	wantRoundTrip(t, r.echo())
}

func TestHalfOpen(t *testing.T) {
	r := newRig(t)
	client, broker := r.connect()
	r.HalfOpen()
	wantEOF(t, broker, "")
	send(t, client, "anybody?")
	r.wait("the drop", func(s faultproxy.Stats) bool { return s.ToBroker.Dropped == 8 })
	wantSilence(t, client)
	wantRoundTrip(t, r.echo())

	client.Close()
	r.wait("the client's close", func(s faultproxy.Stats) bool { return s.Live == 1 })
}

func TestHalfOpenThenReset(t *testing.T) {
	r := newRig(t)
	client, broker := r.connect()
	r.HalfOpen()
	wantEOF(t, broker, "")
	wantSilence(t, client)
	r.Reset()
	wantReset(t, client)
}

func TestBlackHoleToBroker(t *testing.T) {
	r := newRig(t)
	client, broker := r.connect()
	r.BlackHole(faultproxy.ToBroker, true)
	send(t, client, "question")
	r.wait("the drop", func(s faultproxy.Stats) bool { return s.ToBroker.Dropped == 8 })
	send(t, broker, "reply")
	wantText(t, client, "reply")
	wantSilence(t, broker)

	// Nor does the broker hear that the client has gone, whatever it sends there.
	client.Close()
	wantSilence(t, broker)
	for r.Stats().ToClient.Dropped == 0 {
		sent := r.Stats().ToClient.Received
		send(t, broker, "still there?")
		r.wait("the text", func(s faultproxy.Stats) bool {
			return s.ToClient.Received == sent+12 && s.ToClient.Passed+s.ToClient.Dropped == s.ToClient.Received
		})
	}
	wantSilence(t, broker)
	broker.Close()
	r.wait("the end", func(s faultproxy.Stats) bool { return s.Live == 0 })
}

func TestBlackHoleToClient(t *testing.T) {
	r := newRig(t)
	client, broker := r.connect()
	r.BlackHole(faultproxy.ToClient, true)
	send(t, broker, "reply")
	r.wait("the drop", func(s faultproxy.Stats) bool { return s.ToClient.Dropped == 5 })
	send(t, client, "question")
	wantText(t, broker, "question")
	wantSilence(t, client)

	broker.Close()
	wantSilence(t, client)
	client.Close()
	r.wait("the end", func(s faultproxy.Stats) bool { return s.Live == 0 })
}

func TestBlackHoleBoth(t *testing.T) {
	r := newRig(t)
	r.BlackHole(faultproxy.Both, true)
	client, broker := r.connect() // a future connection
	send(t, client, "question")
	send(t, broker, "reply")
	r.wait("the drops", func(s faultproxy.Stats) bool { return s.ToBroker.Dropped == 8 && s.ToClient.Dropped == 5 })
	wantSilence(t, client)
	wantSilence(t, broker)
	wantStats(t, r, faultproxy.Stats{
		Conns:    1,
		Live:     1,
		ToBroker: faultproxy.Traffic{Received: 8, Dropped: 8},
		ToClient: faultproxy.Traffic{Received: 5, Dropped: 5},
	})
}

func TestBlackHoleLifted(t *testing.T) {
	r := newRig(t)
	client, broker := r.connect()
	whole := r.echo()
	r.BlackHole(faultproxy.Both, true)
	send(t, client, "lost")
	r.wait("the drop", func(s faultproxy.Stats) bool { return s.ToBroker.Dropped == 4 })
	r.BlackHole(faultproxy.Both, false)

	// No gap: after what was lost nothing follows. The other direction lost nothing.
	send(t, client, "lost too")
	r.wait("the drop", func(s faultproxy.Stats) bool { return s.ToBroker.Dropped == 12 })
	wantSilence(t, broker)
	send(t, broker, "reply")
	wantText(t, client, "reply")

	wantRoundTrip(t, whole)
	wantRoundTrip(t, r.echo())
}

func TestCutAfter(t *testing.T) {
	r := newRig(t)
	live, liveBroker := r.connect()
	send(t, live, "before")
	wantText(t, liveBroker, "before")
	r.CutAfter(faultproxy.ToBroker, 10)
	future, futureBroker := r.connect()
	for _, end := range []struct{ client, broker net.Conn }{{live, liveBroker}, {future, futureBroker}} {
		send(t, end.broker, strings.Repeat("the other direction ", 10))
		wantText(t, end.client, strings.Repeat("the other direction ", 10))
		send(t, end.client, "012345")
		wantText(t, end.broker, "012345")
		send(t, end.client, "6789abcdef")
		wantEOF(t, end.broker, "6789")
		wantEOF(t, end.client, "")
	}
}

func TestCutAfterToClient(t *testing.T) {
	r := newRig(t)
	r.CutAfter(faultproxy.ToClient, 3)
	client, broker := r.connect()
	send(t, client, "question")
	wantText(t, broker, "question")
	send(t, broker, "reply")
	wantEOF(t, client, "rep")
	wantEOF(t, broker, "")
}

func TestCutAfterLifted(t *testing.T) {
	r := newRig(t)
	r.CutAfter(faultproxy.Both, 10)
	live := r.echo()
	send(t, live, "012345678")
	wantText(t, live, "012345678")
	r.CutAfter(faultproxy.Both, 0)
	wantRoundTrip(t, live)
	wantRoundTrip(t, r.echo())
}

func TestRefuse(t *testing.T) {
	r := newRig(t)
	live := r.echo()
	for range 2 { // a second time changes nothing
		if err := r.Refuse(true); err != nil {
			t.Fatal(err)
		}
		if _, err := net.DialTimeout("tcp", r.Addr(), limit); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatalf("dial: %v, want a refusal", err)
		}
	}
	wantRoundTrip(t, live)
	for range 2 {
		if err := r.Refuse(false); err != nil {
			t.Fatal(err)
		}
		wantRoundTrip(t, r.echo())
	}
}

func TestLift(t *testing.T) {
	r := newRig(t)
	live := r.echo()
	r.BlackHole(faultproxy.Both, true)
	r.Latency(faultproxy.Both, limit)
	r.Throttle(faultproxy.Both, 1)
	r.CutAfter(faultproxy.Both, 1)
	r.Refuse(true)
	if err := r.Lift(); err != nil {
		t.Fatal(err)
	}
	wantRoundTrip(t, live)
	wantRoundTrip(t, r.echo())
}
