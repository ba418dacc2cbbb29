package connection

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rehop/rehop"
)

// onConnectLimit bounds OnConnect: many times the time for the largest topology,
// because an OnConnect that is cut short starts anew on another connection.
const onConnectLimit = 5 * time.Minute

var errOnConnectLimit = rehop.WithClass(fmt.Errorf("OnConnect has taken %v; if it uses the Conn that opens this connection, and not the one that it was given, it waits for itself", onConnectLimit), rehop.ClassTransient)

// onConnectSlow is after how long the log tells of an OnConnect that callers wait for.
const onConnectSlow = 10 * time.Second

// bringUp makes a new link report its state, and runs OnConnect on it. It closes the
// link if that fails.
func (c *connector) bringUp(i int, l *link) error {
	c.generation++
	l.generation = c.generation
	isUp := make(chan bool, 1)
	c.watch(i, l, isUp)
	err := c.runOnConnect(l)
	if c.life.Err() != nil {
		err = ErrClosed
	}
	if err != nil {
		isUp <- false
		_ = l.close(time.Now().Add(closeGrace)) // another error says more
		return &refusal{text: fmt.Sprintf("%s: OnConnect: %v", l.endpoint, err), cause: err, broker: true, sure: true, class: rehop.ClassOf(err)}
	}
	c.server.Store(&l.server)
	c.states.set(c.stateOf(l))
	isUp <- true
	select {
	case c.other().wake <- struct{}{}:
	default:
	}
	return nil
}

func (c *connector) stateOf(l *link) State {
	s := State{Role: c.role, Status: Up, generation: l.generation, URL: l.endpoint.String(), Server: l.server}
	if reason, _, active := l.blocked.state(); active {
		s.Status, s.Reason = Blocked, reason
	}
	return s
}

// watch reports the alarms of a link, and its end once it was up.
func (c *connector) watch(i int, l *link, isUp <-chan bool) {
	l.watch(func(reason string) {
		if reason == "" {
			l.log.Info("connection: the broker accepts publishers again")
		} else {
			l.log.Warn("connection: the broker blocks publishers", "reason", reason)
		}
		c.states.set(c.stateOf(l))
	}, func(cause error) {
		switch {
		case !<-isUp: // the try reports it
		case errors.Is(cause, ErrClosed):
			l.log.Info("connection: closed")
		default:
			l.log.Warn("connection: lost", "error", cause)
			c.hosts.note(i, false, time.Now())
			c.states.set(State{Role: c.role, Status: Down, generation: l.generation, Err: cause})
		}
	})
	if !l.expires.IsZero() {
		go l.renew(c.cfg.Credentials)
	}
}

// runOnConnect runs OnConnect, with a ctx that ends with Close, with the link, and after
// onConnectLimit, and waits until it returns.
func (c *connector) runOnConnect(l *link) error {
	if c.onConnect == nil {
		return nil
	}
	ctx, cancel := context.WithCancelCause(l.life)
	defer cancel(nil)
	limit := time.AfterFunc(onConnectLimit, func() { cancel(errOnConnectLimit) })
	defer limit.Stop()
	stop := context.AfterFunc(c.life, func() {
		cancel(ErrClosed) // of this Conn, for calls on another one too
		l.kill(ErrClosed) // its calls return
	})
	defer stop()
	slow := time.AfterFunc(onConnectSlow, func() {
		c.log.Warn("connection: OnConnect has not returned yet, and all sessions wait for it; if it uses the Conn that opens this connection, and not the one that it was given, it waits for itself", "after", onConnectSlow)
	})
	defer slow.Stop()
	returned := make(chan error, 1)
	go func() { // of its own, because OnConnect may end it
		err := rehop.WithClass(errors.New("it ended its goroutine"), rehop.ClassBug)
		defer func() { returned <- err }()
		err = protect(c.log, "OnConnect", func() error { return c.onConnect(ctx, l) })
	}()
	return <-returned
}
