// Package transport gives the other packages of this module what package
// connection knows of the socket under a session and does not offer to users.
package transport

import "context"

// Transport is the socket under a session.
type Transport interface {
	// Ready waits while the broker blocks publishers on the socket, being short
	// of memory or disk, and while it does not read what was written: what is
	// published meanwhile stays in memory. When ctx ends first, it returns an
	// error that says which.
	Ready(ctx context.Context) error

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

	// GiveUp closes the socket, with every session on it, for example because
	// the node behind it does not answer. The sessions end with the cause.
	GiveUp(cause error)
}

// Of returns the transport of a *connection.Session. Package connection sets it.
var Of func(session any) Transport

// Whole returns the *connection.Conn that outlives conn: for the one that
// connection.Config.OnUp gets, the one it is part of; else conn itself. Package
// connection sets it.
var Whole func(conn any) any

// HeaderUnreadable is the header that stands in place of all headers of a
// message whose own ones the client library cannot read. Its value, a string,
// says why.
const HeaderUnreadable = "x-rehop-unreadable"
