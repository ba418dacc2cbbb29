package faultproxy_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rehop/rehop/integration/faultproxy"
)

func TestLatency(t *testing.T) {
	const delay = 100 * time.Millisecond
	for _, row := range []struct {
		name               string
		of                 faultproxy.Direction
		toBroker, toClient time.Duration
	}{
		{"to the broker", faultproxy.ToBroker, delay, 0},
		{"to the client", faultproxy.ToClient, 0, delay},
		{"both", faultproxy.Both, delay, delay},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := newRig(t)
			client, broker := r.connect()
			r.Latency(row.of, delay)
			start := time.Now()
			send(t, client, "question")
			wantText(t, broker, "question")
			wantTook(t, start, row.toBroker)
			start = time.Now()
			send(t, broker, "reply")
			wantText(t, client, "reply")
			wantTook(t, start, row.toClient)
			start = time.Now()
			client.Close()
			wantEOF(t, broker, "")
			wantTook(t, start, row.toBroker)
		})
	}
}

// A proxy that slept for each of its reads would take half a minute.
func TestLatencyLeavesThroughput(t *testing.T) {
	r := newRig(t)
	r.Latency(faultproxy.Both, 100*time.Millisecond)
	start := time.Now()
	var wg sync.WaitGroup
	carry(t, &wg, r.echo(), 8<<20)
	wg.Wait()
	wantTook(t, start, 200*time.Millisecond)
}

// What is under way stays late, and what follows does not overtake it.
func TestLatencyLifted(t *testing.T) {
	r := newRig(t)
	client, broker := r.connect()
	r.Latency(faultproxy.ToBroker, 100*time.Millisecond)
	start := time.Now()
	send(t, client, "first ")
	r.wait("the first", func(s faultproxy.Stats) bool { return s.ToBroker.Received == 6 })
	r.Latency(faultproxy.ToBroker, 0)
	send(t, client, "second")
	wantText(t, broker, "first second")
	wantTook(t, start, 100*time.Millisecond)
	start = time.Now()
	send(t, client, "third")
	wantText(t, broker, "third")
	wantTook(t, start, 0)
}

func TestThrottle(t *testing.T) {
	r := newRig(t)
	live, liveBroker := r.connect()
	r.Throttle(faultproxy.ToBroker, 100_000)
	future, futureBroker := r.connect()
	text := strings.Repeat("0123456789", 4_000)

	// Each connection has the rate for itself.
	start := time.Now()
	send(t, live, text)
	send(t, future, text)
	wantText(t, liveBroker, text)
	wantText(t, futureBroker, text)
	wantTook(t, start, 400*time.Millisecond)

	start = time.Now()
	send(t, liveBroker, text)
	wantText(t, live, text)
	wantTook(t, start, 0)
}

func TestThrottleLifted(t *testing.T) {
	r := newRig(t)
	client, broker := r.connect()
	r.Throttle(faultproxy.ToBroker, 1)
	send(t, client, "seconds and seconds of text")
	r.wait("the text", func(s faultproxy.Stats) bool { return s.ToBroker.Received > 0 })
	r.Throttle(faultproxy.ToBroker, 0)
	start := time.Now()
	wantText(t, broker, "seconds and seconds of text")
	wantTook(t, start, 0)
}

// The sender feels a throttle: the proxy does not take what it cannot pass on.
func TestThrottlePushesBack(t *testing.T) {
	r := newRig(t)
	client, _ := r.connect()
	r.Throttle(faultproxy.ToBroker, 10)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer client.Close()
	wg.Go(func() { client.Write(make([]byte, 1<<20)) })
	r.wait("the first byte", func(s faultproxy.Stats) bool { return s.ToBroker.Passed > 0 })
	if got := r.Stats().ToBroker.Received; got > 32<<10 {
		t.Errorf("received %d bytes, want at most 32 KiB", got)
	}
}
