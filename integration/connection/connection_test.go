package connection_test

import (
	"context"
	"errors"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/integration/broker"
)

func TestConnection(t *testing.T) {
	available, err := broker.Available(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	versions := []string{"3.10", "4.3"} // the oldest and the newest
	if len(available) < len(broker.Series) {
		versions = append(available, "")[:1] // the one there is, of whatever version
		t.Logf("NOT RUN on 3.10 and 4.3 both: there is no Docker, and one version %v", available)
	}
	for _, version := range versions {
		t.Run("RabbitMQ "+version, func(t *testing.T) {
			t.Parallel()
			b, err := broker.Start(t.Context(), broker.Options{Version: version, Name: "connection"})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { b.Close(context.Background()) })

			t.Run("server", func(t *testing.T) { connectionServer(t, b) })
			t.Run("refusals", func(t *testing.T) { connectionRefusals(t, b) })
			t.Run("no leak", func(t *testing.T) { connectionSessions(t, b) })
			t.Run("refused call", func(t *testing.T) { connectionRefusedCall(t, b) })
			t.Run("silent broker", func(t *testing.T) { connectionSilence(t, b) })
			t.Run("call to a silent broker", func(t *testing.T) { connectionDeadline(t, b) })
			t.Run("kill and restart", func(t *testing.T) { connectionKill(t, b) })
		})
	}
}

func connectTo(t *testing.T, b *broker.Broker, cfg connection.Config) *connection.Conn {
	t.Helper()
	cfg.URLs = []string{b.AMQPURL()}
	c, err := connection.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func sessionOf(t *testing.T, c *connection.Conn, use connection.Use) *connection.Session {
	t.Helper()
	s, err := c.Session(t.Context(), use)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func connectionServer(t *testing.T, b *broker.Broker) {
	want, err := connection.ParseVersion(b.Version())
	if err != nil {
		t.Fatal(err)
	}
	got := connectTo(t, b, connection.Config{}).Server()
	if got.Product != "RabbitMQ" || got.Version != want || got.Cluster == "" {
		t.Errorf("Server = %+v, want RabbitMQ %v", got, want)
	}
}

// The broker holds a refused login for three seconds, and refuses three.
func connectionRefusals(t *testing.T, b *broker.Broker) {
	u, err := url.Parse(b.AMQPURL())
	if err != nil {
		t.Fatal(err)
	}
	wrong, nowhere := *u, *u
	wrong.User = url.UserPassword(u.User.Username(), "wr0ng")
	nowhere.Path = "/nowhere"
	for want, raw := range map[string]string{
		"or its password (403 ACCESS_REFUSED)": wrong.String(),
		`vhost "nowhere" does not exist`:       nowhere.String(),
	} {
		c, err := connection.Open(t.Context(), connection.Config{URLs: []string{raw}})
		if c != nil || err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "wr0ng") {
			t.Errorf("Open = %v, %v; want %q in it", c, err, want)
		}
		if strings.Contains(err.Error(), "no broker answered") {
			t.Errorf("Open has used up its timeout: %v", err)
		}
	}
}

func connectionSessions(t *testing.T, b *broker.Broker) {
	c := connectTo(t, b, connection.Config{})
	for _, use := range []connection.Use{connection.Publish, connection.Consume} {
		if err := sessionOf(t, c, use).Close(); err != nil { // both sockets are open from here on
			t.Fatal(err)
		}
	}
	before := runtime.NumGoroutine()
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			s, err := c.Session(t.Context(), connection.Use(1+i%2))
			if err != nil {
				t.Error(err)
				return
			}
			qos := s.Do(t.Context(), func(ch *amqp.Channel) error { return ch.Qos(10, 0, false) })
			if err := errors.Join(qos, s.Close()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if after := eventually(func() bool { return runtime.NumGoroutine() <= before }); !after {
		t.Errorf("%d goroutines, %d before", runtime.NumGoroutine(), before)
	}
}

func connectionRefusedCall(t *testing.T, b *broker.Broker) {
	s := sessionOf(t, connectTo(t, b, connection.Config{}), connection.Consume)
	err := s.Do(t.Context(), func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclarePassive("no such queue", true, false, false, false, nil)
		return err
	})
	var refused *amqp.Error
	if !errors.As(err, &refused) || refused.Code != amqp.NotFound || errors.Is(err, connection.ErrSessionLost) {
		t.Errorf("Do = %v, want the broker's 404", err)
	}
	<-s.Done()
	if err := s.Err(); !errors.Is(err, connection.ErrSessionLost) || !errors.As(err, &refused) {
		t.Errorf("Err = %v, want ErrSessionLost and the 404", err)
	}
}

func connectionSilence(t *testing.T, b *broker.Broker) {
	c := connectTo(t, b, connection.Config{Heartbeat: 2 * time.Second})
	s := sessionOf(t, c, connection.Consume)
	pause(t, b)
	began := time.Now()
	<-s.Done()
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("a silent broker was noticed after %v, want 3s", took)
	}
	unpause(t, b)
	sessionOf(t, c, connection.Consume)
}

func connectionDeadline(t *testing.T, b *broker.Broker) {
	c := connectTo(t, b, connection.Config{Heartbeat: time.Minute, OperationTimeout: 2 * time.Second})
	s := sessionOf(t, c, connection.Consume)
	pause(t, b)
	began := time.Now()
	err := s.Do(t.Context(), func(ch *amqp.Channel) error { return ch.Qos(1, 0, false) })
	if took := time.Since(began); !errors.Is(err, connection.ErrSessionLost) || took > 3*time.Second {
		t.Errorf("Do = %v after %v, want ErrSessionLost after 2s", err, took)
	}
	unpause(t, b)
	sessionOf(t, c, connection.Consume)
}

func connectionKill(t *testing.T, b *broker.Broker) {
	c := connectTo(t, b, connection.Config{})
	lost := []*connection.Session{sessionOf(t, c, connection.Publish), sessionOf(t, c, connection.Consume)}
	if err := b.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, s := range lost {
		<-s.Done()
		if err := s.Err(); !errors.Is(err, connection.ErrSessionLost) {
			t.Errorf("Err = %v, want ErrSessionLost", err)
		}
	}
	var wg sync.WaitGroup
	for i := range 20 { // they wait through the restart
		wg.Go(func() {
			if _, err := c.Session(t.Context(), connection.Use(1+i%2)); err != nil {
				t.Error(err)
			}
		})
	}
	if err := b.Start(t.Context()); err != nil {
		t.Error(err)
	}
	wg.Wait()
}

func pause(t *testing.T, b *broker.Broker) {
	t.Helper()
	if err := b.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Unpause(context.Background()) }) // if the test fails before it does
}

func unpause(t *testing.T, b *broker.Broker) {
	t.Helper()
	if err := b.Unpause(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// eventually polls for what has no notice of its own.
func eventually(what func() bool) bool {
	for range 500 {
		if what() {
			return true
		}
		time.Sleep(10 * time.Millisecond) //nolint:forbidigo // polls, with a deadline
	}
	return false
}
