package connection

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
)

func TestHealthOfAReport(t *testing.T) {
	now := time.Now()
	before := func(d time.Duration) time.Time { return now.Add(-d) }
	cause := errors.New("connection refused")
	const nil_, degraded, unhealthy = "nil", "degraded", "unhealthy"
	for name, c := range map[string]struct {
		r    report
		want string
	}{
		"never needed":                  {report{State: State{Role: Consume, Status: Idle}}, nil_},
		"up":                            {report{State: State{Role: Consume, Status: Up}}, nil_},
		"blocked for hours":             {report{State: State{Role: Publish, Status: Blocked, Since: before(5 * time.Hour), Reason: "low on memory"}}, degraded},
		"lost just now":                 {report{State: State{Role: Consume, Status: Down}, away: now, err: cause}, degraded},
		"lost long ago, and not needed": {report{State: State{Role: Consume, Status: Down}, away: before(time.Hour), err: cause}, degraded},
		"dialled for less than the limit": {report{State: State{Role: Consume, Status: Connecting}, away: before(time.Hour),
			tried: before(unhealthyAfter - 1), err: cause}, degraded},
		"dialled for the limit": {report{State: State{Role: Consume, Status: Connecting}, away: before(time.Hour),
			tried: before(unhealthyAfter), err: cause}, unhealthy},
		"dialled for a moment long ago": {report{State: State{Role: Publish, Status: Down, Since: before(time.Hour)}, away: before(time.Hour + 1),
			tried: before(time.Hour + 1), err: cause}, degraded},
		"dialled for the limit long ago": {report{State: State{Role: Publish, Status: Down, Since: before(time.Hour)}, away: before(2 * time.Hour),
			tried: before(time.Hour + unhealthyAfter), err: cause}, unhealthy},
		"to be dialled again after the limit": {report{State: State{Role: Consume, Status: Down, Since: now, NextTry: now.Add(time.Second)}, away: before(time.Hour),
			tried: before(unhealthyAfter), err: cause}, unhealthy},
		"connecting for the first time": {report{State: State{Role: Consume, Status: Connecting}, away: now}, degraded},
		"closed":                        {report{State: State{Role: Consume, Status: Closed, Since: now}}, unhealthy},
	} {
		h := c.r.health(now)
		got := nil_
		if h != nil {
			got, _, _ = strings.Cut(h.Error(), " ")
		}
		if got != c.want {
			t.Errorf("%s: %v, want %s", name, h, c.want)
		}
		if h != nil && (h.Since.IsZero() || h.Cause == nil || rehop.Ready(h) != h.Degraded) {
			t.Errorf("%s: %+v; ready: %v", name, h, rehop.Ready(h))
		}
		if c.r.err != nil && !errors.Is(h, cause) {
			t.Errorf("%s: %v does not wrap its cause", name, h)
		}
	}
	if !rehop.Ready() || !rehop.Ready(nil, nil) || rehop.Ready(nil, errors.New("from elsewhere")) {
		t.Error("Ready does not take nil for healthy, or what is unknown for unhealthy")
	}
}

// A probe alone finds that the broker is back, and from when on it was away.
func TestHealthSeesTheBrokerComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := new(peer)
		var away atomic.Bool
		c := bubble(t, p, Config{Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			if away.Load() {
				return nil, errors.New("no route to host")
			}
			return p.dial(ctx, network, address)
		}})
		if err := c.Health(); err != nil {
			t.Errorf("Health = %v before anything was needed", err)
		}
		session(t, c, Consume)
		session(t, c, Publish)
		if err := c.Health(); err != nil {
			t.Errorf("Health = %v with both sockets up", err)
		}
		time.Sleep(time.Minute)
		away.Store(true)
		p.hangUp()
		lost := time.Now()
		synctest.Wait()
		var h *rehop.HealthError
		for _, want := range []bool{true, true, true, true, false} { // each probe tells of the dial of the one before
			err := c.Health()
			if !errors.As(err, &h) || h.Degraded != want || !h.Since.Equal(lost) {
				t.Errorf("Health = %v after %v, want degraded: %v since the loss", err, time.Since(lost), want)
			}
			time.Sleep(5 * time.Second)
		}
		if err := c.Health(); !strings.Contains(err.Error(), "no route to host; connection: the socket for ") {
			t.Errorf("Health = %v, want what is wrong with each socket", err)
		}
		away.Store(false)
		time.Sleep(5 * time.Second)
		c.Health()
		synctest.Wait()
		if err := c.Health(); err != nil {
			t.Errorf("Health = %v after the broker has come back", err)
		}
		p.accepted()[2].send(connectionBlocked, 0, short("low on memory"))
		p.accepted()[3].send(connectionBlocked, 0, short("low on memory"))
		synctest.Wait()
		var blocked *BlockedError
		if err := c.Health(); !rehop.Ready(err) || !errors.As(err, &blocked) {
			t.Errorf("Health = %v in an alarm", err)
		}
		c.Close()
		if err := c.Health(); rehop.Ready(err) || !errors.Is(err, ErrClosed) {
			t.Errorf("Health = %v after Close", err)
		}
	})
}

func TestReportsKnowSinceWhenASocketIsDialled(t *testing.T) {
	s := newStates(nil)
	report := func() report { return s.reports()[Consume.index()] }
	s.set(State{Role: Consume, Status: Up})
	s.set(State{Role: Consume, Status: Down, Err: errors.New("lost")})
	if r := report(); r.away.IsZero() || !r.tried.IsZero() {
		t.Errorf("lost: %+v", r)
	}
	s.set(State{Role: Consume, Status: Connecting})
	first := report().tried
	s.set(State{Role: Consume, Status: Down, Err: errors.New("refused")})
	s.set(State{Role: Consume, Status: Connecting})
	if r := report(); first.IsZero() || !r.tried.Equal(first) {
		t.Errorf("dialled since %v: %+v", first, r)
	}
	s.set(State{Role: Consume, Status: Up})
	if r := report(); !r.away.IsZero() || !r.tried.IsZero() {
		t.Errorf("up: %+v", r)
	}
}

// The broker may be back since the last dial of a socket that nobody waits for.
func TestHealthOfASocketThatNobodyDialsIsNoOlderThanItsLastDial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := new(peer)
		var away atomic.Bool
		away.Store(true)
		c := bubble(t, p, Config{Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			if away.Load() {
				return nil, errors.New("connection refused")
			}
			return p.dial(ctx, network, address)
		}})
		defer c.Close()
		c.connector(Publish).start()
		time.Sleep(2 * time.Second)
		away.Store(false)
		session(t, c, Consume)
		time.Sleep(20 * time.Second)
		if err := c.Health(); err == nil || !rehop.Ready(err) {
			t.Errorf("Health = %v 20 s after the only dial, want degraded", err)
		}
		time.Sleep(time.Second)
		if err := c.Health(); err != nil {
			t.Errorf("Health = %v after it has dialled", err)
		}
	})
}

// The broker may be back when a socket is dialled after a while in which nobody wanted it.
func TestHealthDuringADialAfterAnIdleTimeDoesNotCountThat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := make(chan error)
		c := bubble(t, new(peer), Config{Lazy: true, Backoff: func(int) time.Duration { return time.Second }, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			select {
			case err := <-tries:
				return nil, err
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}})
		defer c.Close()
		fails := func() {
			tries <- errors.New("connection refused")
			synctest.Wait()
		}
		c.connector(Publish).start()
		fails()
		time.Sleep(10 * time.Minute)
		c.connector(Publish).start()
		for _, tt := range []struct {
			after    time.Duration
			degraded bool
			rule     string
		}{
			{0, true, "the dial begins"},
			{5 * time.Second, true, "it is under way"},
			{0, false, "it has failed too, so the outage has lasted since the first one"},
		} {
			if !tt.degraded {
				fails()
			}
			time.Sleep(tt.after)
			var h *rehop.HealthError
			if err := c.Health(); !errors.As(err, &h) || h.Degraded != tt.degraded {
				t.Errorf("%s: Health = %v, want degraded: %t", tt.rule, err, tt.degraded)
			}
		}
	})
}

// A connection that the broker ends soon after each login is dialled again after a
// pause. Health says meanwhile why the broker has ended it.
func TestHealthInThePauseAfterAShortLifeSaysWhyItEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := new(peer)
		c := bubble(t, p, Config{Backoff: func(int) time.Duration { return time.Minute }})
		session(t, c, Consume)
		p.accepted()[0].refuse(0, amqp.NotAllowed, "NOT_ALLOWED - too many channels")
		synctest.Wait()
		go func() { _, _ = c.Session(t.Context(), Consume) }() // ends with the Conn
		time.Sleep(10 * time.Second)
		if err := c.Health(); err == nil || !strings.Contains(err.Error(), "too many channels") {
			t.Errorf("Health = %v, want the reason that the broker gave", err)
		}
		c.Close()
	})
}

// The library says of a call on a channel that is closed only that it is closed.
func TestACallOnALostSessionSaysWhyItWasLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := new(peer)
		c := bubble(t, p, Config{})
		defer c.Close()
		s := session(t, c, Consume)
		err := s.Do(t.Context(), func(ch *amqp.Channel) error {
			p.accepted()[0].refuse(0, amqp.NotAllowed, "NOT_ALLOWED - too many channels")
			synctest.Wait()
			return ch.Qos(1, 0, false)
		})
		if !errors.Is(err, ErrSessionLost) || !strings.Contains(err.Error(), "too many channels") {
			t.Errorf("Do = %v, want the reason that the broker gave", err)
		}
	})
}
