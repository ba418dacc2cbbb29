package connection

import (
	"context"
	"log/slog"
	"time"

	"github.com/rehop/rehop/internal/management"
	"github.com/rehop/rehop/internal/transport"
)

func init() { transport.Inside = inside{} }

// inside shows a Conn and a session to the other packages of this module.
type inside struct{}

func (inside) Conn(conn any) transport.Conn            { return (*connInside)(conn.(*Conn)) }
func (inside) Session(session any) transport.Transport { return (*sessionInside)(session.(*Session)) }

// connInside is a Conn as the other packages of this module see it.
type connInside Conn

func (c *connInside) Whole() any {
	if c.whole != nil {
		return c.whole
	}
	return (*Conn)(c)
}

func (c *connInside) Life() context.Context { return c.life }

func (c *connInside) Keep(key any, make func() any) any {
	if kept, found := c.kept.Load(key); found {
		return kept
	}
	kept, _ := c.kept.LoadOrStore(key, make())
	return kept
}

func (c *connInside) Generation() uint64 { return (*Conn)(c).State(Publish).generation }
func (c *connInside) Outage() time.Time  { return (*Conn)(c).connector(Publish).outage() }
func (c *connInside) NotConnected(ctx context.Context) error {
	return (*Conn)(c).connector(Publish).tried().failure(ctx, c.life)
}
func (c *connInside) Apart(name string) any       { return (*Conn)(c).apart(name) }
func (c *connInside) Logger() *slog.Logger        { return c.cfg.Logger }
func (c *connInside) Telemetry() any              { return c.cfg.Telemetry }
func (c *connInside) Management() *management.API { return c.management }
func (c *connInside) Vhost() string {
	return c.Whole().(*Conn).connector(Publish).endpoints[0].uri.Vhost
}

// sessionInside is a session as the other packages of this module see it.
type sessionInside Session

func (t *sessionInside) Ready(ctx context.Context) error {
	if err := t.link.blocked.wait(ctx); err != nil {
		return err
	}
	return t.link.socket.wait(ctx)
}

func (t *sessionInside) Unready() (over <-chan struct{}, since time.Time) {
	over, since = t.link.blocked.active()
	drained, unread := t.link.socket.unreadSince()
	if over == nil || drained != nil && unread.Before(since) {
		return drained, unread
	}
	return over, since
}

func (t *sessionInside) Heard() <-chan struct{} { return t.link.frames.heard() }
func (t *sessionInside) Cork() bool             { return t.link.socket.cork() }
func (t *sessionInside) Uncork()                { t.link.socket.uncork() }
func (t *sessionInside) FrameSize() int         { return t.link.conn.Config.FrameSize }
func (t *sessionInside) ChannelMax() int        { return int(t.link.conn.Config.ChannelMax) }
func (t *sessionInside) User() string           { return t.link.endpoint.uri.Username }
func (t *sessionInside) Generation() uint64     { return t.link.generation }
func (t *sessionInside) GiveUp(cause error)     { t.link.kill(cause) }
