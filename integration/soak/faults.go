package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rehop/rehop/integration/broker"
	"github.com/rehop/rehop/integration/faultproxy"
	"github.com/rehop/rehop/internal/pause"
)

// victim is what is broken.
type victim struct {
	proxy  *faultproxy.Proxy
	broker *broker.Broker
}

// verbPatience bounds what takes a broker seconds, on a machine that has others
// to serve.
const verbPatience = 2 * time.Minute

// breakNow makes a fault begin.
func (v victim) breakNow(f fault) error {
	ctx, cancel := context.WithTimeout(context.Background(), verbPatience)
	defer cancel()
	switch f.kind {
	case cut:
		v.proxy.Cut()
	case reset:
		v.proxy.Reset()
	case halfOpen:
		v.proxy.HalfOpen()
	case blackHole:
		v.proxy.BlackHole(faultproxy.Both, true)
	case latency:
		v.proxy.Latency(faultproxy.Both, time.Duration(f.amount)*time.Millisecond)
	case throttle:
		v.proxy.Throttle(faultproxy.Both, int(f.amount))
	case cutAfter:
		v.proxy.CutAfter(faultproxy.Both, f.amount)
	case refuse:
		err := v.proxy.Refuse(true)
		v.proxy.Reset()
		return err
	case closeAll:
		return v.rabbitmqctl(ctx, "close_all_connections", "soak")
	case alarm:
		return v.rabbitmqctl(ctx, "set_vm_memory_high_watermark", "0")
	case freeze:
		return again(ctx, func() error { return v.broker.Pause(ctx) })
	case kill:
		return v.broker.Kill(ctx)
	case restart:
		return v.broker.Stop(ctx)
	default:
		return fmt.Errorf("no fault is called %q", f.kind)
	}
	return nil
}

// lift makes a fault end.
func (v victim) lift(f fault) error {
	ctx, cancel := context.WithTimeout(context.Background(), verbPatience)
	defer cancel()
	switch f.kind {
	case alarm:
		return v.rabbitmqctl(ctx, "set_vm_memory_high_watermark", "0.6")
	case freeze:
		return again(ctx, func() error { return v.broker.Unpause(ctx) })
	case kill, restart:
		return v.broker.Start(ctx)
	}
	return v.proxy.Lift()
}

func (v victim) rabbitmqctl(ctx context.Context, args ...string) error {
	_, err := v.broker.Exec(ctx, append([]string{"rabbitmqctl"}, args...)...)
	return err
}

// again tries for some seconds: the container runtime of a loaded machine fails
// to freeze what does not come to rest at once.
func again(ctx context.Context, do func() error) (err error) {
	for range 10 {
		if err = do(); err == nil || !pause.For(ctx, 300*time.Millisecond) {
			return err
		}
	}
	return err
}

// breakAll works through a schedule until ctx ends. It leaves no fault behind.
func (v victim) breakAll(ctx context.Context, faults []fault, every time.Duration, o *outages, nextMessage func() int) error {
	for _, f := range faults {
		if !pause.For(ctx, every) {
			return nil
		}
		o.begin(f, time.Now())
		err := v.breakNow(f)
		pause.For(ctx, f.lasts)
		if err = errors.Join(err, v.lift(f)); err != nil {
			return fmt.Errorf("%v: %w", f, err)
		}
		o.lift(nextMessage(), time.Now())
	}
	return nil
}
