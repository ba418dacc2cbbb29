package connection

import (
	"context"
	"errors"
	"fmt"
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/internal/pause"
)

// ErrSessionLost is wrapped by every error that comes from the end of a session. The
// caller then calls [Conn.Session] for a new one.
var ErrSessionLost error = temporary("connection: session lost")

var errSessionClosed = fmt.Errorf("%w: closed by its owner", ErrSessionLost)

// Session is the life of one channel. When it ends, everything that belongs to
// it is void: unsettled deliveries come back from the broker, and unanswered
// publishes may or may not have arrived.
type Session struct {
	channel *amqp.Channel
	link    *link
	turn    chan struct{} // held by the one call that waits for a reply
	gone    chan struct{} // closed when the channel is

	once sync.Once
	done chan struct{}
	err  error // set before done is closed
}

func newSession(channel *amqp.Channel, l *link) *Session {
	s := &Session{
		channel: channel, link: l,
		turn: make(chan struct{}, 1), gone: make(chan struct{}), done: make(chan struct{}),
	}
	l.trace.sessionOpened(l.role)
	lost := channel.NotifyClose(make(chan *amqp.Error, 1))
	go func() { // ends with the channel, which ends at the latest with its socket
		cause := <-lost
		if cause == nil && l.alive() {
			s.end(errSessionClosed)
		} else {
			s.end(l.lost(cause))
		}
		close(s.gone)
	}()
	return s
}

// end ends the session for its user; the first cause counts.
func (s *Session) end(cause error) {
	s.once.Do(func() {
		s.err = cause
		close(s.done)
		s.link.trace.sessionEnded(s.link.role)
	})
}

// Channel returns the channel, for the calls that do not wait for a reply: publish,
// ack, nack, reject, and the Notify methods. These may be called concurrently with each
// other. Publish must not be called concurrently with [Session.Do]: amqp091-go would
// interleave their frames, and the broker would close the connection. So a session that
// publishes makes its calls of Do before its first publish. On a closed channel these
// calls return amqp.ErrClosed and send nothing.
//
// Go channels given to the Notify methods must be buffered, and drained until they are
// closed. A full Go channel stops the whole socket.
func (s *Session) Channel() *amqp.Channel { return s.channel }

// Do runs call, which may use the calls that wait for a reply: declare, bind,
// qos, consume, cancel, confirm. Concurrent calls of Do take turns.
//
// If ctx ends before call has begun, Do returns an error that wraps the error and cause
// of ctx, and the session lives on. If ctx ends later, Do returns at once as well,
// while call goes on in the background, and the session ends: Done is closed, Err and
// later calls of Do return an error that wraps [ErrSessionLost] and the error of ctx,
// Close returns nil, and the channel is closed as soon as call has returned. It is then
// unknown which effects of call have reached the broker, and the caller must not read
// variables that call writes to. No other session is affected.
//
// A call that takes longer than Config.OperationTimeout closes the socket, with
// every session on it: nothing else makes it return.
//
// If the broker answers with an error (404, 406 and so on), Do returns its *amqp.Error
// unchanged. Such an answer ends this session and no other. If the session is or was
// lost, the error wraps [ErrSessionLost] and the cause. While the channel is open, Do
// returns any other error of call unchanged. So call must return the broker's error as
// it is; translate it after Do.
//
// While the broker blocks publishers on this socket (see [Blocked]), call does not
// start. If ctx or Config.OperationTimeout ends before call could start, Do returns an
// error that wraps the cause, and the session lives on.
func (s *Session) Do(ctx context.Context, call func(*amqp.Channel) error) error {
	if ctx == nil {
		return errNoContext
	}
	if err := late(ctx); err != nil && s.Err() == nil {
		return fmt.Errorf("connection: not done: %w", err)
	}
	if err := s.link.blocked.waitFor(ctx, s.link.limit); err != nil {
		return err
	}
	return s.do(ctx, func() error { return call(s.channel) })
}

// do runs the one call at a time that waits for a reply.
func (s *Session) do(ctx context.Context, call func() error) error {
	select {
	case s.turn <- struct{}{}:
	case <-s.done:
		return s.err
	case <-ctx.Done():
		return fmt.Errorf("connection: not done: %w", pause.Ended(ctx))
	}
	// Select picks one of the ready cases at random.
	err := s.Err()
	if err == nil && ctx.Err() != nil {
		err = fmt.Errorf("connection: not done: %w", pause.Ended(ctx))
	}
	if err != nil {
		<-s.turn
		return err
	}
	// The turn is given back by the call, because it may outlive Do.
	err, left := s.link.call(func() error {
		defer func() { <-s.turn }()
		return call()
	}).wait(ctx, s.close)
	if left {
		s.end(fmt.Errorf("%w: a call was left before it was answered: %w", ErrSessionLost, pause.Ended(ctx)))
		return s.Err()
	}
	return s.classify(err)
}

// close closes the channel after the call in progress, if there is one.
func (s *Session) close() {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	_ = s.link.timed(s.channel.Close) // nobody waits for it
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
	if s.link.cause.Load() != nil { // we ended it: the library knows no reason
		return s.link.lost(nil)
	}
	if errors.Is(err, amqp.ErrClosed) && s.Err() != nil { // by now the reason is known
		return s.Err()
	}
	// A failed read or write is returned before the library has noticed the loss.
	if s.channel.IsClosed() || errors.Is(err, amqp.ErrClosed) || s.link.socket.firstFault() != nil {
		return fmt.Errorf("%w: %w", ErrSessionLost, unnested(err))
	}
	return err
}

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

// Close ends the session and returns when its channel is closed. Deliveries not
// settled go back to their queue. Closing an ended session returns nil.
//
// If the broker does not answer within 5 s, or another call is in progress for
// so long, Close returns an error; the session has ended all the same, and the
// channel is closed later. While the broker blocks publishers on this socket,
// it would not read the request: Close returns nil at once, and the channel is
// closed when the alarm is over.
func (s *Session) Close() error {
	if s.Err() != nil {
		return nil
	}
	if _, _, active := s.link.blocked.state(); active {
		s.end(errSessionClosed)
		go s.close() // ends at the latest with the socket
		return nil
	}
	// Not the caller's ctx: a stop still wants the channel closed. But not for
	// long: a stop has a deadline of its own.
	ctx, cancel := context.WithTimeoutCause(context.Background(), closeTimeout, errCloseTimeout)
	defer cancel()
	err := s.do(ctx, func() error {
		err := s.channel.Close()
		<-s.gone
		return err
	})
	switch {
	case errors.Is(err, errCloseTimeout):
		if s.Err() == nil { // it had to wait for its turn
			s.end(errSessionClosed)
			go s.close()
		}
		return fmt.Errorf("connection: close session: %w", err)
	case err != nil && !errors.Is(err, ErrSessionLost):
		return fmt.Errorf("connection: close session: %w", err)
	}
	return nil
}

var errCloseTimeout = fmt.Errorf("not closed within %v", closeTimeout)
