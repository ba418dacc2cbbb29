// Package transport is the door by which package connection shows its inside to the
// other packages of this module, and not to users.
package transport

import (
	"context"
	"log/slog"
	"time"

	"github.com/rehop/rehop/internal/management"
)

// Inside shows what is inside a *connection.Conn and a *connection.Session. Package
// connection sets it.
var Inside interface {
	Conn(conn any) Conn
	Session(session any) Transport
}

// Conn is the inside of a *connection.Conn.
type Conn interface {
	// Whole returns the *connection.Conn that outlives this one: for the Conn that
	// connection.Config.OnConnect gets, and for one of Apart, the Conn that it belongs to;
	// else the Conn itself.
	Whole() any

	// Life ends with Close, with connection.ErrClosed as its cause.
	Life() context.Context

	// Keep returns the value that another package keeps in the Conn under key, a
	// type of its own. If there is none, it is made.
	Keep(key any, make func() any) any

	// Generation counts the successful handshakes of the socket for publishing,
	// from 1.
	Generation() uint64

	// Outage returns since when the socket for publishing has been dialled in vain;
	// zero if it is connected, and if nobody is dialling.
	Outage() time.Time

	// NotConnected says why there is no session for publishing yet: the tries so far, and
	// the end of ctx.
	NotConnected(ctx context.Context) error

	// Apart returns a *connection.Conn that has a socket of its own for consuming, dialled
	// for its first session, and belongs to the caller. Its Close closes this socket alone.
	// Close of the Conn closes it as well, and waits for a Close that is in progress. The
	// name, such as that of a queue, is in the name of its connection.
	//
	// State and Health of the Conn do not tell of it, and OnConnect does not run on it.
	Apart(name string) any

	// Logger returns connection.Config.Logger, or one that is silent.
	Logger() *slog.Logger

	// Telemetry returns connection.Config.Telemetry.
	Telemetry() any

	// Vhost returns the name of the virtual host.
	Vhost() string

	// Management returns the API that connection.Config.ManagementURL names, or nil.
	Management() *management.API
}

// Transport is the socket under a session.
type Transport interface {
	// Ready waits while the broker blocks publishers on the socket, being short
	// of memory or disk, and while it does not read what was written: what is
	// published meanwhile stays in memory. When ctx ends first, it returns an
	// error that says which.
	Ready(ctx context.Context) error

	// Unready returns a channel that is closed when a reason for which Ready would wait
	// is over, and since when it would wait; nil and zero if it would not.
	Unready() (over <-chan struct{}, since time.Time)

	// Heard returns a channel that is closed once the client library has read something
	// more from the broker and acted on it: a confirm that came with it has been released
	// by then. Any call of the socket's users may get the same channel.
	Heard() <-chan struct{}

	// Cork holds back what is written after it until Uncork, so that it leaves
	// in few packets; that of the socket's other users as well. It returns false
	// if the socket is corked already. Only a caller that gets true calls
	// Uncork.
	//
	// Corked or not, a write waits for no broker that does not read. So a publish
	// may return nil and fail later: then the connection is lost, and its confirm
	// never comes.
	Cork() bool
	// Uncork sends what was held back.
	Uncork()

	// FrameSize returns the frame_max agreed with the broker in bytes, 0 for no
	// limit. A header frame takes 8 bytes of it for itself.
	FrameSize() int

	// ChannelMax returns how many channels the socket may have, as agreed with the
	// broker.
	ChannelMax() int

	// User returns the user name that the socket has logged in with; "" with
	// auth_mechanism external, where only the broker knows it.
	User() string

	// Generation counts the successful handshakes of this socket and those before
	// it, from 1: sessions of one role and generation live on the same socket.
	Generation() uint64

	// GiveUp closes the socket, with every session on it, for example because
	// the node behind it does not answer. The sessions end with the cause.
	GiveUp(cause error)
}

// HeaderUnreadable is the header that stands in place of all headers of a
// message whose own ones the client library cannot read. Its value, a string,
// says why.
const HeaderUnreadable = "x-rehop-unreadable"

// Inherited returns the Logger and the Telemetry of a *connection.Conn for a component of
// the Conn: see connection.Config. Without a Conn they are nil.
func Inherited[C comparable](conn C) (log *slog.Logger, telemetry any) {
	var none C
	if conn == none {
		return nil, nil
	}
	c := Inside.Conn(conn)
	return c.Logger(), c.Telemetry()
}
