package connection

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// cancelGrace is how long a call that is waiting for the broker's reply may go
// on after its ctx has ended. The only way to end it is to close the socket,
// with every session on it, and the reply is nearly always milliseconds away.
const cancelGrace = time.Second

// errChannelLimit is wrapped when the broker has no channel left to give.
var errChannelLimit = errors.New("no channel left")

// link is one AMQP connection, from its handshake to its end.
type link struct {
	target     target
	generation uint64
	server     Server
	conn       *amqp.Connection
	socket     *socket
	limit      time.Duration // Config.OperationTimeout
	expires    time.Time     // of the credentials; zero: never
	log        *slog.Logger

	gate    gate
	control sync.Mutex            // held by the one call on the connection itself that waits for a reply
	cause   atomic.Pointer[error] // why we ended it ourselves
	done    chan struct{}         // closed when watch has ended
}

// watch tells of alarms, "" being their end, and of the end of the connection,
// from one goroutine that ends with it.
func (l *link) watch(blocked func(reason string), lost func(cause error)) {
	ends := l.conn.NotifyClose(make(chan *amqp.Error, 1))
	// One pair per alarm; the loop drains it, the buffer is for a slow log.
	alarms := l.conn.NotifyBlocked(make(chan amqp.Blocking, 16))
	go func() {
		defer close(l.done)
		defer l.gate.open()
		for alarm := range alarms { // closed with the connection
			l.socket.blocked(alarm.Active)
			if alarm.Active {
				l.gate.shut(alarm.Reason)
			} else {
				l.gate.open()
			}
			blocked(alarm.Reason)
		}
		lost(l.lost(<-ends))
	}()
}

// alive reports whether a session may be opened.
func (l *link) alive() bool { return l.cause.Load() == nil && !l.conn.IsClosed() }

// open opens a channel; its caller gives up the link when that fails, except
// for want of channels. On the publish socket it waits while the broker blocks
// it: channel.open would not be read, and its timeout close a healthy socket.
func (l *link) open(ctx context.Context) (*Session, error) {
	if err := l.gate.wait(ctx); err != nil {
		return nil, err
	}
	var channel *amqp.Channel
	err := l.await(ctx, func() (err error) {
		channel, err = l.conn.Channel()
		return err
	})
	var refused *amqp.Error
	switch {
	case err == nil:
		return newSession(channel, l), nil
	case errors.Is(err, amqp.ErrChannelMax):
		return nil, fmt.Errorf("connection: %w: all %d of the socket to %s are open; close sessions that are not needed, or raise channel_max",
			errChannelLimit, l.conn.Config.ChannelMax, l.target)
	case errors.As(err, &refused) && refused.Server && refused.Code == amqp.NotAllowed:
		return nil, fmt.Errorf("connection: %w: %s refuses another (%w); close sessions that are not needed, or raise channel_max or the user's limit",
			errChannelLimit, l.target, err)
	}
	l.kill(err)
	return nil, fmt.Errorf("connection: open channel at %s: %w", l.target, err)
}

// await runs call, which waits for the broker's reply, and closes the socket
// under it when that takes longer than the limit, or than cancelGrace after
// ctx has ended. What an alarm has overtaken was not read and is not lost: it has
// its limit anew when that is over. It returns what call returns; its error
// wraps ErrSessionLost if the socket was closed.
func (l *link) await(ctx context.Context, call func() error) error {
	// Either call returns first, or the timer fires first; whoever comes
	// second must do nothing. Stop alone cannot say so: ctx may end while call
	// is returning, and then Reset starts a stopped timer again.
	var settled atomic.Bool
	waiting, over := context.WithCancel(ctx)
	var expire func()
	expire = func() {
		if _, _, shut := l.gate.state(); shut && ctx.Err() == nil {
			if l.gate.wait(waiting) == nil {
				time.AfterFunc(l.limit, expire)
			}
			return
		}
		if !settled.CompareAndSwap(false, true) {
			return
		}
		if ctx.Err() != nil {
			l.kill(fmt.Errorf("no reply from the broker when the caller gave up: %w", ended(ctx)))
		} else {
			l.kill(fmt.Errorf("no reply from the broker within %v", l.limit))
		}
	}
	timer := time.AfterFunc(l.limit, expire)
	stop := context.AfterFunc(ctx, func() { timer.Reset(min(cancelGrace, l.limit)) })
	defer func() {
		settled.Store(true)
		stop()
		timer.Stop()
		over()
	}()

	err := call()
	if err != nil && !settled.CompareAndSwap(false, true) {
		return l.lost(nil)
	}
	return err
}

// kill closes the socket at once; the first cause given is the one reported.
func (l *link) kill(cause error) {
	l.cause.CompareAndSwap(nil, &cause)
	l.socket.Conn.Close()
}

// close says goodbye to the broker, and closes the socket at the deadline
// whether or not it has answered.
func (l *link) close(deadline time.Time) error {
	cause := ErrClosed
	l.cause.CompareAndSwap(nil, &cause)
	last := time.AfterFunc(time.Until(deadline), func() { l.socket.Conn.Close() })
	defer last.Stop()
	l.control.Lock()
	defer l.control.Unlock()
	err := l.conn.CloseDeadline(deadline)
	l.socket.Conn.Close()
	<-l.done
	lost := errors.Is(err, amqp.ErrClosed) || errors.Is(err, net.ErrClosed) // nobody is left to say goodbye to
	if err != nil && !lost {
		return fmt.Errorf("connection: close %s: %w", l.target, err)
	}
	return nil
}

// lost returns the error of a lost session: our own cause, if we ended the
// link, rather than the consequence that the library reports.
func (l *link) lost(reported *amqp.Error) error {
	if cause := l.cause.Load(); cause != nil {
		return fmt.Errorf("%w: %w", ErrSessionLost, *cause)
	}
	if reported == nil { // a typed nil must not become an error
		return ErrSessionLost
	}
	return fmt.Errorf("%w: %w", ErrSessionLost, reported)
}
