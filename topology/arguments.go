package topology

import (
	"fmt"
	"maps"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/header"
	"github.com/rehop/rehop/internal/route"
)

// arguments returns the arguments of the work queue itself on a broker of version v.
func (w WorkQueue) arguments(v connection.Version) amqp.Table {
	args := amqp.Table{
		"x-queue-type":           string(w.Type.orDefault()),
		"x-dead-letter-exchange": w.dlxExchange(),
	}
	if w.SingleActiveConsumer {
		args["x-single-active-consumer"] = true
	}
	if timeout, byConsumers := w.consumerTimeoutOn(v); timeout > 0 && !byConsumers {
		args[consumerTimeoutArgument] = timeout.Milliseconds()
	}
	switch {
	case w.Type.orDefault() == Quorum:
		args["x-delivery-limit"] = int64(route.DeliveryLimit)
		if atLeastOnce(v) {
			addStrategy(args)
		}
		if w.shards != "" {
			args["x-queue-leader-locator"] = "balanced" // or all leaders are on the node that the first process is connected to
		}
	case w.NativePriority:
		args["x-max-priority"] = int64(header.MaxPriority)
	}
	return args
}

// addStrategy makes the dead-lettering at-least-once, which takes effect only
// together with reject-publish.
func addStrategy(args amqp.Table) {
	args["x-dead-letter-strategy"] = "at-least-once"
	args["x-overflow"] = "reject-publish"
}

// consumerTimeoutArgument is an argument of queues, and on 4.3 of consumers too.
const consumerTimeoutArgument = "x-consumer-timeout"

const (
	minConsumerTimeout = time.Second
	maxConsumerTimeout = 720 * time.Hour // a timer of the broker has 32 bits of milliseconds
)

// validateConsumerTimeout checks the field of a WorkQueue, of Lanes or of Shards.
func validateConsumerTimeout(owner string, t time.Duration) error {
	switch {
	case t == 0:
		return nil
	case t < minConsumerTimeout || t > maxConsumerTimeout:
		return fmt.Errorf("topology: %sConsumerTimeout is %v, want 1s to 720h, or 0 for the broker's own", owner, t)
	case t%time.Millisecond != 0:
		return fmt.Errorf("topology: %sConsumerTimeout is %v, want whole milliseconds", owner, t)
	}
	return nil
}

// planConsumerTimeout returns why the ConsumerTimeout of w is refused on a broker of
// version v.
func planConsumerTimeout(w WorkQueue, v connection.Version) error {
	if w.ConsumerTimeout == 0 || v.AtLeast(3, 12) {
		return nil
	}
	return fmt.Errorf("topology: %sConsumerTimeout is %v, which is refused on broker %s: it has one consumer timeout for all queues; "+
		"set consumer_timeout in its configuration and no ConsumerTimeout, or use broker 3.12", w.owner(), w.ConsumerTimeout, v)
}

// consumerTimeoutOn returns the consumer timeout of the queue on a broker of version
// v, 0 for none that is known, and whether its consumers ask for it. Where they do, the
// queue has no such argument: the broker would refuse another value of it for as long
// as the queue lives.
func (w WorkQueue) consumerTimeoutOn(v connection.Version) (timeout time.Duration, byConsumers bool) {
	switch {
	case !v.AtLeast(3, 12), v.AtLeast(4, 3) && w.Type.orDefault() == Classic:
		return 0, false
	}
	return w.ConsumerTimeout, w.ConsumerTimeout > 0 && v.AtLeast(4, 3)
}

// withConsumerTimeoutOf returns args with the consumer timeout that a queue exists
// with. It is accepted, whatever it is: consumers ask for another one.
func withConsumerTimeoutOf(have, args amqp.Table) amqp.Table {
	timeout, ok := have[consumerTimeoutArgument]
	if !ok {
		return args
	}
	args = maps.Clone(args)
	args[consumerTimeoutArgument] = timeout
	return args
}
