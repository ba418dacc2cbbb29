package connection

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// onUpLimit is how long OnUp may take: many times what the largest topology
// needs, because an OnUp that is cut short starts anew on another connection.
const onUpLimit = 5 * time.Minute

var errOnUpLimit = WithClass(fmt.Errorf("OnUp has taken %v", onUpLimit), Transient)

// bringUp makes a new link report its state, and runs OnUp on it. It closes the
// link if that fails.
func (c *connector) bringUp(i int, l *link) error {
	c.generation++
	l.generation = c.generation
	isUp := make(chan bool, 1)
	c.watch(i, l, isUp)
	err := c.runUp(l)
	if c.life.Err() != nil {
		err = ErrClosed
	}
	if err != nil {
		isUp <- false
		_ = l.close(time.Now().Add(closeGrace)) // another error says more
		return &refusal{text: fmt.Sprintf("%s: OnUp: %v", l.target, err), cause: err, broker: true, sure: true, class: ClassOf(err)}
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
	s := State{Use: c.use, Status: Up, Generation: l.generation, URL: l.target.String(), Server: l.server}
	if reason, _, shut := l.gate.state(); shut {
		s.Status, s.Reason = Blocked, reason
	}
	return s
}

// watch reports what becomes of a link: its alarms, and its end once it was up.
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
			c.states.set(State{Use: c.use, Status: Down, Generation: l.generation, Err: cause})
		}
	})
	if !l.expires.IsZero() {
		go l.renew(c.cfg.Credentials)
	}
}

// runUp runs OnUp, with a ctx that ends with Close, with the link, and after
// onUpLimit, and waits until it returns.
func (c *connector) runUp(l *link) error {
	if c.up == nil {
		return nil
	}
	ctx, cancel := context.WithCancelCause(l.life)
	defer cancel(nil)
	limit := time.AfterFunc(onUpLimit, func() { cancel(errOnUpLimit) })
	defer limit.Stop()
	stop := context.AfterFunc(c.life, func() {
		cancel(ErrClosed)
		l.kill(ErrClosed) // its calls return
	})
	defer stop()
	returned := make(chan error, 1)
	go func() { // of its own, because OnUp may end it
		err := WithClass(errors.New("it ended its goroutine"), Bug)
		defer func() { returned <- err }()
		err = protect(c.log, "OnUp", func() error { return c.up(ctx, l) })
	}()
	return <-returned
}
