package consumer

import (
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/consumer/internal/consumertimeout"
	"github.com/rehop/rehop/consumer/internal/hand"
	"github.com/rehop/rehop/consumer/internal/plural"
	"github.com/rehop/rehop/internal/header"
	"github.com/rehop/rehop/internal/route"
)

// validateOrder returns what is wrong with the fields that keep messages of a key in
// their order, for a source.
func (c Config) validateOrder(source route.Source) error {
	var errs []error
	if c.KeyLimit < 0 {
		errs = append(errs, fmt.Errorf("consumer: Config.KeyLimit is %d, want 1 or more, or 0 for no limit", c.KeyLimit))
	}
	if c.Key != nil && c.KeyLimit == 0 {
		errs = append(errs, errors.New("consumer: Config.Key is set without KeyLimit, which is how many messages of a key are handled at a time: want 1 or more"))
	}
	if c.Priority != 0 {
		for _, r := range source.Routes {
			if r.Single {
				errs = append(errs, fmt.Errorf("consumer: Config.Priority is %d, want 0: queue %q has a single active consumer, and the broker may keep messages for good where the priorities of its consumers differ", c.Priority, r.Queue))
			}
		}
	}
	if c.RetryInPlace {
		for _, r := range source.Routes {
			sum := waitsInPlace(r)
			if longest := consumertimeout.HoldLimitOf(r.ConsumerTimeout); sum >= longest {
				errs = append(errs, fmt.Errorf("consumer: Config.RetryInPlace: the waits of queue %q are %v in sum, want less than %v: the broker takes a message away that is kept for too long", r.Queue, sum, longest))
			}
		}
	}
	return errors.Join(errs...)
}

// waitsInPlace returns how long a message of a route waits in all, if every attempt fails.
func waitsInPlace(r route.Facts) (sum time.Duration) {
	for _, w := range r.Waits {
		sum += w.For
	}
	return sum
}

// ordered reports whether messages must come in the order of the queue, or to one
// consumer at a time. Then the fetching never changes, and ends with the channel. A KeyLimit
// of 2 and more is a share, and promises no order.
func (p *part) ordered() bool { return p.cfg.KeyLimit == 1 || p.source.Single }

// arguments returns those of a consumer of a queue.
func arguments(priority int, found route.Facts) amqp.Table {
	// Every broker takes a priority of 0 for none, but a stream refuses any. Without it a
	// stream would be read from its end, and all that is in it would never be handled.
	args := amqp.Table{"x-priority": int32(priority)} //nolint:gosec // validate bounds it
	if found.AsksForTimeout {
		args["x-consumer-timeout"] = found.ConsumerTimeout.Milliseconds()
	}
	return args
}

// keyOf returns the key of a message that has come.
func (r *run) keyOf(from *route.Facts, raw amqp.Delivery) (key string) {
	if r.cfg.Key == nil {
		return header.Name(raw.Headers[header.OrderKey])
	}
	defer func() {
		if v := recover(); v != nil {
			r.log.Error("Config.Key panicked: the message has no key", "queue", r.queue, "message", raw.MessageId, "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
			key = ""
		}
	}()
	var d Delivery
	_ = d.read(from, raw) // a worker logs what is malformed
	return r.cfg.Key(&d)
}

// Blocked says that messages that wait for their keys keep other keys away. It is called by package
// work.
func (r *run) Blocked() {
	lane := r.lane.State(time.Now())
	if !lane.Blocked.IsZero() {
		r.faultLog.Warn("other keys are kept away: a larger Prefetch makes room for them", errors.New(blocked(lane)), "queue", r.queue, "key", lane.Key, "since", lane.Blocked)
	}
}

// errSuspects says why no message of a queue begins to be handled, or its queue is not consumed.
type errSuspects struct{ queue string }

func (e errSuspects) Error() string {
	if e.queue == "" {
		return "consumers may have died of messages of this consumer, and those are about to be handled one at a time"
	}
	return fmt.Sprintf("consumers may have died of messages of queue %q: until these are handled, one at a time, no message of another queue is", e.queue)
}

// suspectsOf says that suspects of a lane are handled alone.
func (c *Consumer) suspectsOf(lane *hand.Lane) error {
	if lane == nil {
		return errSuspects{}
	}
	return errSuspects{c.parts[lane.Number].queue}
}

// TurnBegan logs that messages are handled of which consumers may have died. It is called by package work.
func (r *run) TurnBegan() {
	r.faultLog.WarnOf("turn", "consumers may have died of messages of this queue: they are handled one at a time, and no message of another queue meanwhile", "queue", r.queue)
}

// awaitSuspects waits until the messages of the queue of which consumers may have died may be handled, or
// going has ended. It reports false if another process is to handle the queue before, and going has not ended.
func (r *run) awaitSuspects() (here bool) {
	for {
		waits, by := r.lane.AwaitsTurn()
		here, changed := r.assigned.look()
		if !waits || !here {
			return here || r.going.Err() != nil // the session says why it cannot begin
		}
		if since := r.lane.State(time.Now()).Kept; !since.IsZero() { // zero: it has just changed
			r.health.consumesNothing(chosen, r.suspectsOf(by), since)
		}
		select {
		case <-r.lane.Changed:
		case <-changed:
		case <-r.going.Done():
			return true
		}
	}
}

// blocked says which key keeps others away.
func blocked(lane hand.State) string {
	return fmt.Sprintf("all messages that may be in hand wait for their keys, %s for key %q", plural.Of(lane.Waiting, "message"), lane.Key)
}
