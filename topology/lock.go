package topology

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	amqp "github.com/rabbitmq/amqp091-go"
)

// declaring keeps the declarations of one process apart, whose connection may
// be the same.
var declaring sync.Mutex

// lock keeps others from changing the bindings of the same work queues: two
// schedules or engines changed into each other at the same moment would leave
// a mixture. The lock is an exclusive queue, which the broker deletes when its
// connection ends. Without permission to declare it, it does without.
func (d *declarer) lock(plan Plan) (unlock func(), err error) {
	var held []string
	unlock = func() {
		// Also when ctx has ended: the connection may live on for long, and the
		// lock with it. One that cannot be deleted ends with the connection.
		for _, name := range held {
			if d.session == nil {
				return
			}
			_ = d.session.Do(context.WithoutCancel(d.ctx), func(ch *amqp.Channel) error {
				_, err := ch.QueueDelete(name, false, false, false)
				return err
			})
		}
	}
	var names []string
	for _, e := range plan.Engines {
		names = append(names, e.Queue+".declare")
	}
	slices.Sort(names) // in one order everywhere, or two could wait for each other
	pause := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(20*time.Millisecond),
		backoff.WithMaxInterval(time.Second),
		backoff.WithMaxElapsedTime(0))
	for len(held) < len(names) {
		name := names[len(held)]
		refused, err := d.do(func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclare(name, false, true, true, false, amqp.Table{"x-queue-type": string(Classic)})
			return err
		})
		switch {
		case err != nil:
			unlock()
			return nil, fmt.Errorf("topology: lock %q: %w", name, err)
		case refused == nil:
			held = append(held, name)
		case refused.Code == amqp.ResourceLocked:
			timer := time.NewTimer(pause.NextBackOff())
			select {
			case <-timer.C:
			case <-d.ctx.Done():
				timer.Stop()
				unlock()
				return nil, fmt.Errorf("topology: another process is declaring (queue %q is its lock): %w", name, d.ctx.Err())
			}
		default:
			return unlock, nil
		}
	}
	return unlock, nil
}
