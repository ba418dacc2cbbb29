package connection

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime/debug"
	"sync/atomic"
	"syscall"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/internal/pause"
)

// errChannelLimit is wrapped when the broker has no channel left to give.
var errChannelLimit error = temporary("no channel left")

// link is one AMQP connection, from its handshake to its end. It owns the calls
// that wait for a reply of the broker: they end with their reply, with
// Config.OperationTimeout, or with the link, whoever has asked for them.
type link struct {
	endpoint   endpoint
	generation uint64
	server     Server
	conn       *amqp.Connection
	socket     *socket
	frames     *frameReader
	limit      time.Duration // Config.OperationTimeout
	began      time.Time
	expires    time.Time // of the credentials; zero: never
	log        *slog.Logger
	role       Role
	trace      Trace // Config.Traces

	blocked blocked
	control chan struct{}         // one element: held by the call on the connection itself
	cause   atomic.Pointer[error] // why we ended it ourselves
	life    context.Context       // ends with the link
	end     context.CancelCauseFunc
	done    chan struct{} // closed when the end has been reported

	// declared is set once sessions for Publish may be opened: OnConnect has run.
	declared atomic.Bool
}

// watch reports alarms, "" being their end, and the end of the connection, from
// one goroutine that ends with it.
func (l *link) watch(blocked func(reason string), lost func(cause error)) {
	ends := l.conn.NotifyClose(make(chan *amqp.Error, 1))
	// One pair per alarm; the loop drains it, the buffer is for a slow log.
	alarms := l.conn.NotifyBlocked(make(chan amqp.Blocking, 16))
	go func() {
		defer close(l.done)
		defer l.blocked.clear()
		for alarm := range alarms { // closed with the connection
			l.socket.setBlocked(alarm.Active)
			if alarm.Active {
				l.blocked.set(alarm.Reason)
			} else {
				l.blocked.clear()
			}
			blocked(alarm.Reason)
		}
		cause := l.lost(<-ends)
		l.end(cause)
		lost(cause)
	}()
}

// alive reports whether a session may be opened.
func (l *link) alive() bool { return l.cause.Load() == nil && !l.conn.IsClosed() }

// open opens a channel. If ctx ends first, the channel is closed as soon as it
// is there. On the publish socket open waits while the broker blocks it:
// channel.open would not be read, and its timeout close a healthy socket.
func (l *link) open(ctx context.Context) (*Session, error) {
	if err := l.blocked.wait(ctx); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, pause.Ended(ctx)
	}
	var channel *amqp.Channel // read after the call has returned
	c := l.call(func() (err error) {
		channel, err = l.conn.Channel()
		if err != nil {
			return l.openError(err)
		}
		return nil
	})
	err, left := c.wait(ctx, func() {
		if channel != nil {
			_ = l.timed(channel.Close) // nobody has it
		}
	})
	if left {
		return nil, fmt.Errorf("connection: no channel of %s yet: %w", l.endpoint, pause.Ended(ctx))
	}
	if err != nil {
		return nil, err
	}
	return newSession(channel, l), nil
}

// openError explains why there is no channel. Except for want of channels, the
// link is of no use any more.
func (l *link) openError(err error) error {
	var refused *amqp.Error
	switch {
	case errors.Is(err, amqp.ErrChannelMax):
		return fmt.Errorf("connection: %w: all %d of the socket to %s are open; close sessions that are not needed, or raise channel_max",
			errChannelLimit, l.conn.Config.ChannelMax, l.endpoint)
	case errors.As(err, &refused) && refused.Server && refused.Code == amqp.NotAllowed:
		return fmt.Errorf("connection: %w: %s refuses another (%w); close sessions that are not needed, or raise channel_max or the user's limit",
			errChannelLimit, l.endpoint, err)
	}
	err = unnested(err)
	l.kill(err)
	return fmt.Errorf("connection: open channel at %s: %w", l.endpoint, err)
}

// call is one call that waits for the broker's reply, on a goroutine of its own.
type call struct {
	log *slog.Logger
	// claimed is set by whoever comes first: the call that returns, or the
	// caller that leaves.
	claimed atomic.Bool
	results chan result
	left    chan func() // the end of the call when its caller has left
}

type result struct {
	err      error
	panicked any
}

// call starts f. A panic of f is passed on to the caller, or logged if it has
// left.
func (l *link) call(f func() error) *call {
	c := &call{log: l.log, results: make(chan result, 1), left: make(chan func(), 1)}
	go func() {
		r := result{err: rehop.WithClass(errors.New("connection: the call ended its goroutine"), rehop.ClassBug)}
		defer func() {
			if r.panicked = recover(); r.panicked != nil {
				r.err = fmt.Errorf("panic: %v\n%s", r.panicked, debug.Stack())
			}
			if c.claimed.CompareAndSwap(false, true) {
				c.results <- r
				return
			}
			if r.panicked != nil {
				c.log.Error("connection: a call panicked after its caller had left", "panic", r.err)
			}
			(<-c.left)()
		}()
		r.err = l.timed(f)
	}()
	return c
}

// wait returns the call's error. If ctx ends first, it returns left, and after
// runs when the call has returned.
func (c *call) wait(ctx context.Context, after func()) (err error, left bool) {
	select {
	case r := <-c.results:
		return r.unwrap(), false
	case <-ctx.Done():
	}
	if !c.claimed.CompareAndSwap(false, true) {
		r := <-c.results
		return r.unwrap(), false
	}
	c.left <- after
	return nil, true
}

func (r result) unwrap() error {
	if r.panicked != nil {
		panic(r.panicked)
	}
	return r.err
}

// timed runs f, and closes the socket under it when f takes longer than the
// limit: nothing else makes it return. A request that the broker has not read because
// of an alarm is not lost: its limit begins anew when the alarm is over. The error wraps
// ErrSessionLost if the socket was closed.
func (l *link) timed(f func() error) error {
	// Either f returns first, or the timer fires first. The second does nothing,
	// but for f's error: it comes from the socket that the timer has closed.
	var settled atomic.Bool
	waiting, over := context.WithCancel(context.Background())
	var expire func()
	expire = func() {
		if _, _, active := l.blocked.state(); active {
			if l.blocked.wait(waiting) == nil {
				time.AfterFunc(l.limit, expire)
			}
			return
		}
		if settled.CompareAndSwap(false, true) {
			l.kill(fmt.Errorf("no reply from the broker within %v", l.limit))
		}
	}
	timer := time.AfterFunc(l.limit, expire)
	defer func() {
		settled.Store(true) // f may have panicked
		timer.Stop()
		over()
	}()
	err := f()
	if !settled.CompareAndSwap(false, true) && err != nil {
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
	l.control <- struct{}{} // a call on the connection ends at the latest with the socket
	defer func() { <-l.control }()
	err := l.conn.CloseDeadline(deadline)
	l.socket.Conn.Close()
	<-l.done
	if err == nil || gone(err) {
		return nil
	}
	// The library may report the end of the socket before the answer that came
	// with it, as an Exception without the network's own error.
	if fault := l.socket.firstFault(); fault != nil && gone(fault) && time.Now().Before(deadline) {
		return nil
	}
	return fmt.Errorf("connection: close %s: %w", l.endpoint, err)
}

// gone reports whether the error of a close says that nobody is left to say
// goodbye to.
func gone(err error) bool {
	for _, end := range []error{amqp.ErrClosed, net.ErrClosed, syscall.ECONNRESET, syscall.EPIPE, io.ErrClosedPipe, io.EOF} {
		if errors.Is(err, end) {
			return true
		}
	}
	return false
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
	return fmt.Errorf("%w: %w", ErrSessionLost, plain(reported))
}
