package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/rehop/rehop/integration/broker"
	"github.com/rehop/rehop/internal/pause"
)

// outage is when the broker is stopped, or killed, and for how long.
type outage struct {
	after, length time.Duration
	kill          bool
}

// parse reads "10s,20s".
func (o *outage) parse(text string) error {
	after, length, found := strings.Cut(text, ",")
	if !found {
		return fmt.Errorf("%q, want two durations with a comma between them", text)
	}
	var errAfter, errLength error
	o.after, errAfter = time.ParseDuration(after)
	o.length, errLength = time.ParseDuration(length)
	if o.length <= 0 || o.after < 0 {
		errLength = errors.Join(errLength, fmt.Errorf("%q, want durations of 0 or more, and of more than 0", text))
	}
	return errors.Join(errAfter, errLength)
}

// begin lets the outage happen, if there is to be one. end gives it up.
func (o outage) begin(b *broker.Broker) (end func()) {
	if o.length == 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := o.run(ctx, b); err != nil && ctx.Err() == nil {
			complain(err)
		}
	})
	return func() { cancel(); running.Wait() }
}

func (o outage) run(ctx context.Context, b *broker.Broker) error {
	if !pause.For(ctx, o.after) {
		return ctx.Err()
	}
	down, how := b.Stop, "stopped"
	if o.kill {
		down, how = b.Kill, "killed"
	}
	fmt.Fprintln(os.Stderr, "withbroker: the broker is being "+how)
	if err := down(ctx); err != nil {
		return err
	}
	if !pause.For(ctx, o.length) {
		return ctx.Err()
	}
	fmt.Fprintln(os.Stderr, "withbroker: the broker is being started")
	return b.Start(ctx)
}
