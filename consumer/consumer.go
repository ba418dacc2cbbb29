package consumer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/hostname"
	"github.com/rehop/rehop/internal/route"
	"github.com/rehop/rehop/topology"
)

// Handler does the work for one message. ctx ends when the handler should
// give up: at Config.HandlerTimeout, when the broker is about to take the message
// away, when the session is lost, or when a stop has lasted for
// Config.DrainTimeout; context.Cause says which. A session also ends by itself, such as where
// another process is to handle the shard: handlers then have the same time as in a stop, and the
// cause is connection.ErrSessionLost, because the broker delivers the message again. Up to Config.Concurrency handlers
// run at a time.
//
// If the handler returns the error of ctx, or an error that wraps or quotes it, the consumer
// adds the cause: letters, logs and hooks then say "context deadline exceeded: consumer: handler
// timeout: Config.HandlerTimeout, which is 30s, has ended the handler's ctx". errors.Is finds both.
type Handler func(ctx context.Context, d *Delivery) error

// ErrStopped is the cause of a handler's ctx that ended because Run was told
// to stop and Config.DrainTimeout has passed.
var ErrStopped = rehop.WithClass(errors.New("consumer: stopped"), rehop.ClassTransient)

// Consumer reads one queue, or the queues of several lanes or shards, and hands their
// messages to a handler.
type Consumer struct {
	conn    *connection.Conn
	from    route.Source
	name    string // of its queue, its lanes or its shards
	handler Handler
	batch   BatchHandler // nil: there is a handler
	cfg     settings
	trace   Trace
	host    string
	parts   []*part // what it reads: one queue, each shard, or each lane, the highest first

	running atomic.Bool

	pausing sync.Mutex // of what follows
	paused  bool
	runs    []*run // that are running
}

// New returns a Consumer of a source: a topology.WorkQueue, topology.Lanes,
// topology.Shards, a topology.DeadLetterQueue, or a topology.Route for a queue that others
// declared. It starts nothing and sends nothing. All faults of its arguments
// are returned at once.
func New(conn *connection.Conn, source topology.Source, handler Handler, cfg Config) (*Consumer, error) {
	c := &Consumer{conn: conn, handler: handler}
	var errs []error
	if handler == nil {
		errs = append(errs, errors.New("consumer: handler is nil"))
	}
	return c.configure(source, settings{Config: cfg}, errs...)
}

// configure completes a Consumer that has only its conn and handler. It returns all faults
// of source and cfg.
func (c *Consumer) configure(source topology.Source, cfg settings, errs ...error) (*Consumer, error) {
	cfg.Config = cfg.withDefaults(c.conn)
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
		return nil, rehop.WithClass(err, rehop.ClassBug)
	}
	c.cfg, c.trace, c.host = cfg, merged(cfg.Traces, cfg.Logger), hostname.Get()
	c.from, c.name = from, nameOf(from)
	for _, r := range from.Routes {
		c.parts = append(c.parts, newPart(c, from, r))
	}
	return c, nil
}

// isShared reports whether processes share what the Consumer reads: shards, each with a single active
// consumer.
func (c *Consumer) isShared() bool {
	return c.from.Shards != "" && len(c.parts) > 1 && c.parts[0].source.Single
}
