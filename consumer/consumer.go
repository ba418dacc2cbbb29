package consumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/confirm"
	"github.com/rehop/rehop/topology"
)

// Handler does the work for one message. ctx ends when the handler should
// give up: at Config.HandlerTimeout, when the session is lost, or when a stop
// has lasted for Config.DrainTimeout; context.Cause says which. Up to
// Config.Concurrency handlers run at a time.
type Handler func(ctx context.Context, d *Delivery) error

// Config of a Consumer. Its zero value is usable.
type Config struct {
	// Concurrency is how many messages are handled at a time, and how many
	// the broker sends ahead. 1 to 10,000; defaults to 1. A queue that
	// honours priorities wants few.
	Concurrency int

	// HandlerTimeout ends the handler's ctx. Nothing is settled before the
	// handler has returned. Defaults to none. The broker has a timeout of its
	// own, 30 minutes by default.
	HandlerTimeout time.Duration

	// DrainTimeout is how long handlers may go on after Run was told to stop,
	// before their ctx ends; 5 s later Run waits for them no more. Closing, where
	// the broker does not answer, comes on top. Defaults to 20 s; Kubernetes
	// kills after 30 s.
	DrainTimeout time.Duration

	// CopyTimeout is how long the consumer tries to get a copy confirmed,
	// where the broker does not answer. After it the delivery is nacked if
	// that keeps the message, and the tries go on if not; a memory or disk
	// alarm of the broker is waited out. Defaults to 1 min.
	CopyTimeout time.Duration

	// Logger hears of failed attempts and interruptions at level Warn, the
	// latter once for each cause, of dead letters at Error, and of messages
	// discarded, left to their queue or not due yet at Info. Nil: silent, also
	// where the Conn has a logger.
	Logger *slog.Logger

	// Trace hooks.
	Trace Trace
}

func (c Config) withDefaults() Config {
	c.Concurrency = cmp.Or(c.Concurrency, 1)
	c.DrainTimeout = cmp.Or(c.DrainTimeout, 20*time.Second)
	c.CopyTimeout = cmp.Or(c.CopyTimeout, time.Minute)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c Config) validate() error {
	var errs []error
	if c.Concurrency < 1 || c.Concurrency > 10_000 {
		errs = append(errs, fmt.Errorf("consumer: Config.Concurrency is %d, want 1 to 10000", c.Concurrency))
	}
	for _, t := range []struct {
		field string
		value time.Duration
	}{{"HandlerTimeout", c.HandlerTimeout}, {"DrainTimeout", c.DrainTimeout}, {"CopyTimeout", c.CopyTimeout}} {
		if t.value < 0 {
			errs = append(errs, fmt.Errorf("consumer: Config.%s is %v, want 0 (the default) or more", t.field, t.value))
		}
	}
	return errors.Join(errs...)
}

// ErrStopped is the cause of a handler's ctx that ended because Run was told
// to stop and Config.DrainTimeout has passed.
var ErrStopped = errors.New("consumer: stopped")

// ErrHandlerTimeout is the cause of a handler's ctx that ended at
// Config.HandlerTimeout.
var ErrHandlerTimeout = errors.New("consumer: handler timeout")

// Consumer reads one queue and hands its messages to a handler.
type Consumer struct {
	conn    *connection.Conn
	source  topology.Source
	queue   string
	handler Handler
	cfg     Config
	host    string

	running atomic.Bool
	health  health
}

// New returns a Consumer of a source: a topology.WorkQueue, a
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
	}
	if err := errors.Join(errs...); err != nil {
		return nil, connection.WithClass(err, connection.Bug)
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	c := &Consumer{conn: conn, source: source, queue: source.Route().Queue, handler: handler, cfg: cfg, host: host}
	c.health.fail(errNotRunning)
	return c, nil
}

// Health returns nil while the consumer consumes, and otherwise why not: Run is
// not running, is starting or stopping, the session was lost, the broker has
// cancelled the consuming, or the queue has given no sign for 15 s, as on a node
// that is cut off from its cluster and keeps its clients. It returns at once,
// asks nobody, and is safe for concurrent use: fit for a readiness probe.
//
// A sign is a delivery. Where none has come for 10 s, Run asks the queue to
// accept a second consumer of the lowest priority, which it cancels at once; that
// wants no other permission. When there is no answer within 15 s, Run gives up
// the socket, with every session on it, and goes on at another node if the
// connection has its URL: within 30 s of the last delivery.
//
// Healthy are also a consumer that has nothing to do, one whose queue has a
// single active consumer and which waits for its turn (AMQP does not tell), and
// one with as many messages in its handlers as it may have, for however long: a
// handler that is stuck is the matter of Config.HandlerTimeout. A classic queue
// on the node that is cut off lives, and so does its consumer.
func (c *Consumer) Health() error { return c.health.err(c.queue, time.Now()) }

// Run consumes until ctx ends. It then stops fetching, lets handlers finish up
// to Config.DrainTimeout, settles what they return, gives back what was not
// started, and returns nil. A lost connection is waited for and does not end
// Run. It returns an error sooner only if the queue cannot be consumed to begin
// with (it does not exist, permission is missing, the broker's version refuses
// the source), if the Conn is closed, or if a handler did not return although
// its ctx had ended. A Consumer runs once at a time.
func (c *Consumer) Run(ctx context.Context) error {
	if !c.running.CompareAndSwap(false, true) {
		return errors.New("consumer: Run is running already")
	}
	defer c.running.Store(false)
	defer c.health.fail(errNotRunning)
	c.health.fail(errStarting)

	r := &run{
		Consumer:  c,
		publisher: confirm.New(c.conn, c.cfg.Concurrency),
		places:    make(chan struct{}, c.cfg.Concurrency),
		crew:      newCrew(c.cfg.Concurrency, func(j job) { j.session.handle(j) }),
		stop:      ctx,
	}
	pause := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(100*time.Millisecond),
		backoff.WithMaxInterval(10*time.Second),
		backoff.WithMaxElapsedTime(0))
	var err error
	for first := true; ctx.Err() == nil; {
		var consumed bool
		consumed, err = r.session()
		if err == nil || ctx.Err() != nil || errors.Is(err, connection.ErrClosed) || first && !consumed && !errors.Is(err, connection.ErrSessionLost) {
			break
		}
		c.interrupted(err)
		if consumed {
			first = false
			pause.Reset()
		}
		select {
		case <-time.After(pause.NextBackOff()):
		case <-ctx.Done():
		}
	}
	if ctx.Err() != nil {
		err = nil
	}
	drained := r.drained
	if !r.stopped {
		drained = r.wait(stuckGrace)
	}
	r.crew.dismiss()
	unsettled := len(r.places)
	closing := r.publisher.Close()
	if !drained {
		return errors.Join(err, closing, fmt.Errorf("consumer: queue %q: %d messages were not settled in time, and the broker delivers them again: their handlers did not return although their ctx had ended, or a hook of Config.Trace or the Logger is slow",
			c.queue, unsettled))
	}
	r.crew.workers.Wait()
	r.insisting.Wait()
	return errors.Join(err, closing)
}

// interrupted says so to whoever asks for the health, and to the log.
func (c *Consumer) interrupted(err error) {
	since, again := c.health.interrupted(c.queue, err, time.Now())
	level := slog.LevelWarn
	if again { // once for each cause and not for each try
		level = slog.LevelDebug
	}
	c.cfg.Logger.Log(context.Background(), level, "consuming was interrupted", "queue", c.queue, "since", since, "error", err)
}

// stuckGrace is how long handlers have to return once their ctx has ended.
const stuckGrace = 5 * time.Second

// run is one call of Run.
type run struct {
	*Consumer
	publisher *confirm.Publisher
	places    chan struct{}  // one element for each delivery that is not settled
	unsettled sync.WaitGroup // as many
	crew      *crew
	insisting sync.WaitGroup  // goroutines of copies that take long
	stop      context.Context // ends when Run is to stop
	mute      bool            // the broker does not allow the question of health
	stopped   bool            // a session has waited for what is unsettled,
	drained   bool            // and nothing is left
}

// leave gives back the place of a delivery that is settled.
func (r *run) leave() {
	<-r.places
	r.unsettled.Done()
}

// wait waits for the deliveries in hand, and reports whether all were settled in
// time.
func (r *run) wait(limit time.Duration) bool {
	done := make(chan struct{})
	go func() { // stays behind only with a handler that stays behind
		r.unsettled.Wait()
		close(done)
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}
