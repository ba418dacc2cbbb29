package connection

import (
	"context"

	"github.com/rehop/rehop/internal/transport"
)

func init() {
	transport.Of = func(session any) transport.Transport { return (*transportOf)(session.(*Session)) }
	transport.Whole = func(conn any) any {
		if whole := conn.(*Conn).whole; whole != nil {
			return whole
		}
		return conn
	}
}

// transportOf is a session as the other packages of this module see it.
type transportOf Session

func (t *transportOf) Ready(ctx context.Context) error {
	if err := t.link.gate.wait(ctx); err != nil {
		return err
	}
	return t.link.socket.wait(ctx)
}

func (t *transportOf) Cork() bool         { return t.link.socket.cork() }
func (t *transportOf) Uncork()            { t.link.socket.uncork() }
func (t *transportOf) FrameSize() int     { return t.link.conn.Config.FrameSize }
func (t *transportOf) GiveUp(cause error) { t.link.kill(cause) }
