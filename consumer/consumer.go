package consumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer/internal/schedule"
	"github.com/rehop/rehop/internal/hostname"
	"github.com/rehop/rehop/internal/route"
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

// Consumer reads one queue, or the queues of several lanes, and hands their messages
// to a handler.
type Consumer struct {
	conn    *connection.Conn
	name    string // of its queue, or of its lanes
	handler Handler
	batch   BatchHandler // nil: there is a handler
	cfg     Config
	trace   Trace
	host    string
	strict  bool    // how lanes are consumed
	parts   []*part // what it reads: one queue, or each lane, the highest first

	running atomic.Bool

	pausing sync.Mutex // of what follows
	paused  bool
	runs    []*run // that are running
}

// New returns a Consumer of a source: a topology.WorkQueue, topology.Lanes, a
// topology.DeadLetterQueue, or a topology.Route for a queue that others
// declared. It starts nothing and sends nothing. All faults of its arguments
// are returned at once.
func New(conn *connection.Conn, source topology.Source, handler Handler, cfg Config) (*Consumer, error) {
	c := &Consumer{conn: conn, handler: handler}
	var errs []error
	if handler == nil {
		errs = append(errs, errors.New("consumer: handler is nil"))
	}
	if cfg.Batch != (Batch{}) {
		errs = append(errs, errors.New("consumer: Config.Batch is set, want NewBatch with a BatchHandler"))
	}
	return c.configure(source, cfg, errs...)
}

// configure makes a Consumer with a handler one of a source, unless something is wrong.
func (c *Consumer) configure(source topology.Source, cfg Config, errs ...error) (*Consumer, error) {
	cfg = cfg.withDefaults()
	errs = append(errs, cfg.validate())
	if c.conn == nil {
		errs = append(errs, errors.New("consumer: conn is nil"))
	}
	from, err := route.Of(source)
	if err != nil {
		errs = append(errs, fmt.Errorf("consumer: source: %w", err))
	} else {
		errs = append(errs, cfg.validateLanes(from), cfg.validateOrder(from))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, connection.WithClass(err, connection.Bug)
	}
	c.cfg, c.trace, c.host = cfg, merged(cfg.Traces, cfg.Logger), hostname.Get()
	c.name, c.parts, c.strict = cmp.Or(from.Lanes, from.Routes[0].Queue), partsOf(cfg, from), from.Strict
	return c, nil
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
//   - while it consumes nothing because no copies are confirmed, and its messages have
//     used up half of their delivery limit,
//   - while handlers have not returned 5 s after Config.HandlerTimeout has ended their
//     ctx,
//   - while it is paused, and in an outage, see Config.Outage,
//   - under topology.EngineCarry, while it cannot bring back messages that are due in a
//     wait,
//   - while a policy on the broker breaks a promise of its queues, if
//     connection.Config.ManagementURL is set, or while another program consumes from
//     a wait under topology.EngineCarry. Run checks both at the start of each
//     session and every two minutes.
//
// It is unhealthy
//   - while Run is not running, has not begun to consume, or is stopping,
//   - when it has had no session for 15 s,
//   - when its queue has given no sign for 15 s, as on a node that is cut off from
//     its cluster and keeps its clients,
//   - when it has held as many messages as Config.Concurrency allows for 15 s,
//     because their copies are not confirmed,
//   - while no handler is left because all of them ignore Config.HandlerTimeout.
//
// It is healthy without a delivery while its queue is empty, while another consumer of
// a queue with a single active consumer is the active one (AMQP does not tell), and
// while its handlers have as many messages as they may have. Only
// Config.HandlerTimeout detects handlers that do not return.
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

// Run consumes until ctx ends. It then stops fetching, lets handlers finish up to
// Config.DrainTimeout, settles their messages, gives back messages that were not
// started, and returns nil. Before it closes the channel it waits for up to 3 s until
// the queue has its acks; if the connection is lost in that time, acks may be missing,
// and their messages are delivered again. A lost connection does not end Run, and
// neither does a queue whose node is down: Run waits for it. It returns an error sooner
// only if the queue cannot be consumed to begin with (it does not exist, permission is
// missing, the broker's version refuses the source, channel_max leaves too few channels
// for the consumers of the Conn), if the Conn is closed, or if a handler did not return
// although its ctx had ended. A Consumer runs once at a time.
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

// run consumes every part until ctx ends or one of them cannot be consumed.
func (c *Consumer) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stopped, end := endsAfter(ctx, c.cfg.DrainTimeout+stopGrace)
	defer end()
	workers := schedule.New(c.cfg.Concurrency, c.strict)
	runs := make([]*run, len(c.parts))
	for i, p := range c.parts {
		runs[i] = newRun(c, p, workers, ctx, stopped)
		p.health.starts(runs[i])
		defer p.health.fail(errNotRunning)
	}
	c.setRuns(runs)
	defer c.setRuns(nil)
	for _, r := range runs {
		r.lane.Opening() // none goes ahead of a higher one at the start
	}
	drained, errs := make([]bool, len(runs)), make([]error, len(runs))
	var all sync.WaitGroup
	for i, r := range runs {
		all.Go(func() {
			err := r.consume()
			cancel() // it ends before ctx only if it cannot go on
			drained[i], errs[i] = r.end(err)
		})
	}
	all.Wait()
	workers.Close()
	if !slices.Contains(drained, false) {
		workers.Wait()
	}
	return errors.Join(errs...)
}

// endsAfter returns a ctx that ends so long after another, with the values of that.
func endsAfter(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	later, cancel := context.WithCancel(context.WithoutCancel(ctx))
	timer := time.AfterFunc(d, cancel)
	timer.Stop()
	unwatch := context.AfterFunc(ctx, func() { timer.Reset(d) })
	return later, func() {
		unwatch()
		timer.Stop()
		cancel()
	}
}
