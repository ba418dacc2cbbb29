package otel

import (
	"context"
	"sync"

	"go.opentelemetry.io/otel/metric"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/otel/internal/catalog"
)

// connections are the metrics of all Conns of a program.
type connections struct {
	dials distribution

	mu                         sync.Mutex
	status, connects, sessions family
}

func (c *connections) init(i *instruments) {
	c.dials.init(i, catalog.DialDuration)
	c.status, c.connects, c.sessions = familyOf(catalog.ConnectionStatus), familyOf(catalog.Connects), familyOf(catalog.Sessions)
	i.observe(func(o metric.Observer) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.status.read(o)
		c.connects.read(o)
		c.sessions.read(o)
	}, &c.status, &c.connects, &c.sessions)
}

var statuses = []connection.Status{connection.Idle, connection.Connecting, connection.Up, connection.Blocked, connection.Down, connection.Closed}

// Connection returns the hooks of one Conn, for connection.Config.Traces. The name tells
// the Conns of a program apart.
func (t *Telemetry) Connection(name string) connection.Trace {
	c := &t.connections
	var mu sync.Mutex
	was := map[connection.Role]connection.Status{}
	sessions := func(change int64) func(connection.SessionEvent) {
		return func(e connection.SessionEvent) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.sessions.at(name, string(e.Role)).n += change
		}
	}
	return connection.Trace{
		SessionOpened: sessions(1),
		SessionEnded:  sessions(-1),
		DialAttempt: func(a connection.DialAttempt) {
			failed := ""
			if a.Err != nil {
				failed = rehop.ClassOf(a.Err).String()
			}
			c.dials.record(context.Background(), a.Took.Seconds(), name, string(a.Role), failed)
		},
		State: func(s connection.State) {
			mu.Lock()
			defer mu.Unlock()
			c.mu.Lock()
			defer c.mu.Unlock()
			for _, status := range statuses {
				n := int64(0)
				if status == s.Status {
					n = 1
				}
				c.status.at(name, string(s.Role), string(status)).n = n
			}
			if s.Status == connection.Up && was[s.Role] != connection.Blocked { // else an alarm is over
				c.connects.at(name, string(s.Role)).n++
			}
			was[s.Role] = s.Status
		},
	}
}
