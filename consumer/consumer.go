package consumer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/topology"
)

// Handler does the work for one message. ctx ends when the handler should
// give up: at Config.HandlerTimeout, when the broker is about to take the message
// away, when the session is lost, or when a stop has lasted for
// Config.DrainTimeout; context.Cause says which. Up to Config.Concurrency handlers
// run at a time.
type Handler func(ctx context.Context, d *Delivery) error

// ErrStopped is the cause of a handler's ctx that ended because Run was told
// to stop and Config.DrainTimeout has passed.
var ErrStopped = connection.WithClass(errors.New("consumer: stopped"), connection.Transient)

// ErrHandlerTimeout is the cause of a handler's ctx that ended at
// Config.HandlerTimeout.
var ErrHandlerTimeout = connection.WithClass(errors.New("consumer: handler timeout"), connection.Transient)

// ErrConsumerTimeout says that a message was with a handler for longer than the
// broker's consumer timeout, which is 30 minutes by default. AMQP does not tell a
// client its value. Brokers until 4.2 name it when they take a message away: from
// then on it is the cause of a handler's ctx that ends at four fifths of it. A
// broker of 4.3 does not name it, and no handler's ctx ends before the broker takes
// the message away.
//
// A message that was taken away from a handler, by the broker's own word or
// counters, spends an attempt without a handler's run when it comes again to this
// Run and has a message id. The other messages of the session come again too, and
// spend none.
var ErrConsumerTimeout = connection.WithClass(errors.New("consumer: the broker's consumer timeout"), connection.Transient)

// Consumer reads one queue, or the queues of several lanes, and hands their messages
// to a handler.
type Consumer struct {
	conn    *connection.Conn
	handler Handler
	cfg     Config
	host    string
	strict  bool    // how lanes are consumed
	parts   []*part // what it reads: one queue, or each lane, the highest first

	running atomic.Bool
}

// New returns a Consumer of a source: a topology.WorkQueue, topology.Lanes, a
// topology.DeadLetterQueue, or a topology.Route for a queue that others
// declared. It starts nothing and sends nothing. All faults of its arguments
// are returned at once.
func New(conn *connection.Conn, source topology.Source, handler Handler, cfg Config) (*Consumer, error) {
	cfg = cfg.withDefaults()
	errs := []error{cfg.validate()}
	if conn == nil {
		errs = append(errs, errors.New("consumer: conn is nil"))
	}
	if handler == nil {
		errs = append(errs, errors.New("consumer: handler is nil"))
	}
	if source == nil {
		errs = append(errs, errors.New("consumer: source is nil"))
	} else if err := source.Route().Validate(); err != nil {
		errs = append(errs, fmt.Errorf("consumer: source: %w", err))
	} else {
		errs = append(errs, cfg.validateLanes(source.Route()))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, connection.WithClass(err, connection.Bug)
	}
	c := &Consumer{conn: conn, handler: handler, cfg: cfg, host: hostname()}
	c.parts, c.strict = partsOf(cfg, source)
	return c, nil
}

func hostname() string {
	host, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return host
}

// Health returns nil while the consumer consumes and settles, and otherwise a
// *connection.HealthError that says why not and since when. It returns at once,
// sends nothing, and is safe for concurrent use. For a readiness probe see
// connection.Ready.
//
// A consumer is degraded
//   - in the first 15 s after it has lost its session or the broker has cancelled
//     the consuming,
//   - while it holds messages because their copies are not confirmed,
//   - under topology.Carry, while it cannot bring back what is due in a wait,
//   - while a policy on the broker breaks a promise of its queues, if
//     connection.Config.ManagementURL is set. Run asks at the start of each session
//     and every two minutes.
//
// It is unhealthy
//   - while Run is not running, has not begun to consume, or is stopping,
//   - when it has had no session for 15 s,
//   - when its queue has given no sign for 15 s, as on a node that is cut off from
//     its cluster and keeps its clients,
//   - when it has held as many messages as Config.Concurrency allows for 15 s,
//     because their copies are not confirmed.
//
// It is healthy without a delivery while its queue is empty, while another consumer
// of a queue with a single active consumer is the active one (AMQP does not tell),
// and while its handlers have as many messages as they may have. A handler that
// does not return is for Config.HandlerTimeout to end.
//
// A consumer of topology.Lanes is degraded while one of its lanes is degraded or
// unhealthy, and unhealthy when all are. The error names the queues of those lanes.
//
// A sign is a delivery or an answer of the queue. When neither has come for 10 s,
// Run asks the queue to accept a second consumer of the lowest priority, on a
// channel of its own, and cancels it at once. That needs permission to read, as
// consuming does. A refusal is not a sign; the question is repeated after 10 s, and
// no handler is disturbed. When the question has had no answer for 15 s, Run closes
// the socket, with every session on it, and continues on another node if the Conn
// has its URL. That happens within 30 s of the last delivery. A classic queue on a
// node that is cut off answers, and its consumer stays there.
func (c *Consumer) Health() error {
	now := time.Now()
	checks := make([]*connection.HealthError, len(c.parts))
	for i, p := range c.parts {
		checks[i] = p.health.check(now)
	}
	if h := together(checks); h != nil {
		return h
	}
	return nil // not a nil *HealthError
}

// Run consumes until ctx ends. It then stops fetching, lets handlers finish up
// to Config.DrainTimeout, settles what they return, gives back what was not
// started, and returns nil. Before it closes the channel it waits for up to 3 s
// until the queue has its acks; after a loss of the connection in that time they
// may be missing, as ever. A lost connection does not end Run, and neither does
// a queue whose node is down: Run waits for it. It returns an error sooner only
// if the queue cannot be consumed to begin with (it does not exist, permission
// is missing, the broker's version refuses the source), if the Conn is closed, or
// if a handler did not return although its ctx had ended. A Consumer runs once at
// a time.
func (c *Consumer) Run(ctx context.Context) error {
	if ctx == nil {
		return connection.WithClass(errors.New("consumer: Run: ctx is nil"), connection.Bug)
	}
	if !c.running.CompareAndSwap(false, true) {
		return connection.WithClass(errors.New("consumer: Run is running already"), connection.Bug)
	}
	defer c.running.Store(false)
	c.warnOfPrefetch()
	return c.run(ctx)
}
