package connection

import (
	"context"
	"errors"
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"
)

// ErrSessionLost is wrapped by errors that come from the end of a session, for
// whatever reason: the answer is to ask [Conn.Session] for the next one.
var ErrSessionLost = errors.New("connection: session lost")

var errSessionClosed = fmt.Errorf("%w: closed by its owner", ErrSessionLost)

// Session is the life of one channel. When it ends, everything that belongs to
// it is void: unsettled deliveries come back from the broker, and unanswered
// publishes may or may not have arrived.
type Session struct {
	channel *amqp.Channel
	link    *link
	turn    chan struct{} // held by the one call that waits for a reply
	done    chan struct{}
	err     error // set before done is closed
}

func newSession(channel *amqp.Channel, l *link) *Session {
	s := &Session{channel: channel, link: l, turn: make(chan struct{}, 1), done: make(chan struct{})}
	lost := channel.NotifyClose(make(chan *amqp.Error, 1))
	go func() { // ends with the channel, which ends at the latest with its socket
		cause := <-lost
		switch {
		case cause == nil && l.alive():
			s.err = errSessionClosed
		default:
			s.err = l.lost(cause)
		}
		close(s.done)
	}()
	return s
}

// Channel returns the channel, for the calls that do not wait for a reply:
// publish, ack, nack, reject, and the Notify methods. Those may be called
// concurrently with each other, but publish not concurrently with [Session.Do]:
// the library would interleave their frames and the broker close the
// connection. So what needs Do on a publishing session comes first. Once the
// session has ended they return amqp.ErrClosed and send nothing.
//
// Registered Notify channels are buffered and drained until they are closed;
// one that is full stops the whole socket.
func (s *Session) Channel() *amqp.Channel { return s.channel }

// Do runs call, which may use the calls that wait for a reply: declare, bind,
// qos, consume, cancel, confirm. Concurrent calls of Do take turns.
//
// If the reply takes longer than Config.OperationTimeout, or than a second
// after ctx has ended, the socket is closed: nothing else makes the call
// return. That costs every session on the socket, hence the second.
//
// An error that the broker answers with (404, 406 and so on) is returned as
// the *amqp.Error it is; it has ended this session and no other. An error
// because the session is or was lost wraps [ErrSessionLost] and the cause.
// Whatever else call returns is returned as it is while the channel is open;
// so let call return the broker's error unchanged, and translate it after Do.
//
// While the broker blocks publishers on this socket (see [Conn.Blocked]) call
// does not start. If ctx or Config.OperationTimeout ends before it could, Do
// returns an error that wraps the cause, and the session lives on.
func (s *Session) Do(ctx context.Context, call func(*amqp.Channel) error) error {
	if err := s.link.gate.waitFor(ctx, s.link.limit); err != nil {
		return err
	}
	return s.exclusively(ctx, func() error { return call(s.channel) })
}

// exclusively runs the one call at a time that waits for a reply.
func (s *Session) exclusively(ctx context.Context, call func() error) error {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-s.done:
		return s.err
	case <-ctx.Done():
		return fmt.Errorf("connection: not done: %w", ended(ctx))
	}
	// Select picks at random among what is ready.
	if err := s.Err(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return fmt.Errorf("connection: not done: %w", ended(ctx))
	}
	return s.classify(s.link.await(ctx, call))
}

// classify tells a lost session from a refused call.
func (s *Session) classify(err error) error {
	if err == nil || errors.Is(err, ErrSessionLost) {
		return err
	}
	var refused *amqp.Error
	if errors.As(err, &refused) && refused.Server && refused.Recover {
		return err
	}
	// A failed read or write is returned before the library has noticed the loss.
	if s.channel.IsClosed() || errors.Is(err, amqp.ErrClosed) || s.link.socket.firstFault() != nil {
		return fmt.Errorf("%w: %w", ErrSessionLost, err)
	}
	return err
}

// Ready waits while the broker blocks publishers on this session's socket,
// because it is short of memory or disk, and while it does not read what was
// written: what is published meanwhile stays in memory. It returns an error
// that says which when ctx ends first.
func (s *Session) Ready(ctx context.Context) error {
	if err := s.link.gate.wait(ctx); err != nil {
		return err
	}
	return s.link.socket.wait(ctx)
}

// Cork lets what is written after it wait until Uncork, so that it leaves in
// few packets, and holds back the other users of the socket as well. It returns
// false if the socket is corked already; only who gets true calls Uncork.
//
// Corked or not, a write waits for no broker that does not read. So a publish
// may return nil and fail later: then the connection is lost, and its confirm
// never comes.
func (s *Session) Cork() bool { return s.link.socket.cork() }

// Uncork sends what was held back.
func (s *Session) Uncork() { s.link.socket.uncork() }

// Done is closed when the session has ended: channel or connection lost, or
// closed by either side.
func (s *Session) Done() <-chan struct{} { return s.done }

// Err returns nil while the session lives. Then it returns an error that wraps
// [ErrSessionLost] and, if the broker or the library gave a reason, that
// *amqp.Error; after [Conn.Close] it wraps [ErrClosed] too.
func (s *Session) Err() error {
	select {
	case <-s.done:
		return s.err
	default:
		return nil
	}
}

// Server describes the node that this session lives on.
func (s *Session) Server() Server { return s.link.server }

// Generation counts the successful handshakes of this session's socket, from
// 1: sessions of one use and generation live on the same socket.
func (s *Session) Generation() uint64 { return s.link.generation }

// FrameSize returns the frame_max agreed with the broker in bytes, 0 for no
// limit. All properties and headers of a message must fit in one frame.
func (s *Session) FrameSize() int { return s.link.conn.Config.FrameSize }

// User returns the user name that this session's socket has logged in with; ""
// with auth_mechanism external, where only the broker knows it.
func (s *Session) User() string { return s.link.target.uri.Username }

// Close ends the session and returns once it has ended, within 6 s. Deliveries
// not settled go back to their queue. Closing an ended session returns nil.
//
// While the broker blocks publishers on this socket it would not hear of it:
// Close returns at once then, and the channel ends with its socket.
func (s *Session) Close() error {
	if _, _, shut := s.link.gate.state(); shut {
		return nil
	}
	// Not after the caller's ctx: whoever is stopping still wants the channel
	// closed. But not for long: a stop has a deadline of its own.
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	err := s.exclusively(ctx, func() error {
		err := s.channel.Close()
		<-s.done
		return err
	})
	if err != nil && !errors.Is(err, ErrSessionLost) {
		return fmt.Errorf("connection: close session: %w", err)
	}
	return nil
}
