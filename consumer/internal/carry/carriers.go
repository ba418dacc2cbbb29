package carry

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer/internal/consumertimeout"
	"github.com/rehop/rehop/consumer/internal/durations"
	"github.com/rehop/rehop/consumer/internal/fault"
	"github.com/rehop/rehop/internal/ask"
	"github.com/rehop/rehop/internal/confirm"
	"github.com/rehop/rehop/internal/pause"
	"github.com/rehop/rehop/internal/repeats"
	"github.com/rehop/rehop/internal/route"
)

// The consumer tag of a carrier has the name of its host between these.
const (
	tagPrefix = "rehop-"
	tagSuffix = "-carry"
)

// Message is a message that is brought back to its queue.
type Message struct {
	Queue      string        // the wait queue
	WaitNumber int           // of the wait, from 1
	ID         string        // message-id
	Late       time.Duration // since it was due, by this machine's clock; 0 if nothing says when
}

// Hooks of each message: before each try, and when the broker has confirmed it.
type Hooks struct{ Due, Carried func(Message) }

// Config of Carriers.
type Config struct {
	Conn        *connection.Conn
	Source      route.Facts // of the work queue
	Host        string
	CopyTimeout time.Duration
	Hooks       Hooks
	Log         *repeats.Log
}

// Carriers carry the waits of one work queue. They are safe for concurrent use.
type Carriers struct {
	Config
	tasks sync.WaitGroup

	mu      sync.Mutex
	faults  map[string]fault.Fault // by the wait queue: why the messages that are due there are not brought back
	carried map[string]bool        // the wait queues with a carrier
	foreign fault.Fault            // another program consumes from them
}

// New returns Carriers that carry nothing yet.
func New(cfg Config) *Carriers {
	return &Carriers{Config: cfg, faults: map[string]fault.Fault{}, carried: map[string]bool{}}
}

// Start starts a carrier for each wait that the consumers of a route carry, on a broker
// of this version, until ctx ends. They end in their own time: a confirm that one of
// them awaits holds up no session. No Start may be in progress during Wait.
func (c *Carriers) Start(ctx context.Context, found route.Facts, version connection.Version) {
	start := func(wait route.CarriedWait) { c.tasks.Go(func() { c.carry(ctx, found, wait, version) }) }
	for _, wait := range found.Carried {
		start(wait)
	}
	switch ours := found.Kind == route.Work; {
	case ours && len(found.Carried) > 0:
		c.tasks.Go(func() { c.carryAdded(ctx, found.Carried, start) })
	case ours && len(found.Waits) == 0:
		c.tasks.Go(func() { c.carryFirst(ctx, start) })
	}
}

// carry carries one wait until ctx ends. A queue with messages exists as a whole; an
// empty one may be one that another process is declaring, and nothing is due in it.
func (c *Carriers) carry(ctx context.Context, found route.Facts, wait route.CarriedWait, version connection.Version) {
	if !version.AtLeast(4, 0) && c.ready(ctx, wait.Queue) == 0 {
		if !pause.For(ctx, durations.Declaring) {
			return
		}
		wait.For = 0
		if now, err := c.Source.Broker.Resolve(ctx, c.Conn); err == nil { // it may be another one by now
			for _, w := range now.Carried {
				if w.Queue == wait.Queue {
					wait.For = w.For
				}
			}
		}
	}
	c.mu.Lock()
	c.carried[wait.Queue] = true
	c.mu.Unlock()
	c.newCarrier(found, wait).run(ctx)
}

// Wait returns when all carriers have ended.
func (c *Carriers) Wait() { c.tasks.Wait() }

// carryFirst serves a schedule without waits. It looks for the first wait queue of any
// other schedule. When one exists, it goes on as carryAdded. It looks ever more rarely,
// because usually there is none, and the broker logs each look.
func (c *Carriers) carryFirst(ctx context.Context, start func(route.CarriedWait)) {
	for next := durations.WaitsLook; pause.For(ctx, next); next = min(2*next, durations.LongestWaitsLook) {
		if _, exists, err := c.Source.Broker.CarriedWait(ctx, c.Conn, 1, 1); err != nil || !exists {
			continue
		}
		resolved, err := c.Source.Broker.Resolve(ctx, c.Conn)
		if err != nil {
			c.Log.Warn("cannot find out whether waits of other schedules are to be carried", err, "queue", c.Source.Queue)
			continue
		}
		if waits := resolved.Carried; len(waits) > 0 {
			for _, wait := range waits {
				start(wait)
			}
			c.carryAdded(ctx, waits, start)
			return
		}
	}
}

// carryAdded starts carriers for the waits of other schedules that are not known,
// at once and when they are added, until ctx ends. It asks for those queues alone:
// a question after a part that does not answer costs the socket.
func (c *Carriers) carryAdded(ctx context.Context, known []route.CarriedWait, start func(route.CarriedWait)) {
	c.tasks.Go(func() { c.watchStrangers(ctx) })
	started := map[string]bool{}
	for _, wait := range known {
		started[wait.Queue] = true
	}
	for more := true; more; more = pause.For(ctx, durations.WaitsLook) {
		for number := 1; number <= route.MaxWaits; number++ {
			nth := 1
			for ; ctx.Err() == nil; nth++ {
				if started[route.CarriedQueue(c.Source.Queue, number, nth)] {
					continue
				}
				wait, exists, err := c.Source.Broker.CarriedWait(ctx, c.Conn, number, nth)
				if err != nil || !exists {
					break
				}
				started[wait.Queue] = true
				start(wait)
			}
			if nth == 1 {
				break // a schedule's waits are declared in order
			}
		}
	}
}

// ready returns how many messages of a queue are not sent to anybody, -1 if the broker does not
// say that there is such a queue.
func (c *Carriers) ready(ctx context.Context, queue string) int {
	aside := ask.Aside{Conn: c.Conn}
	defer aside.Close()
	depth, err := aside.DepthOf(ctx, queue)
	if err != nil {
		return -1
	}
	return depth.Ready
}

func (c *Carriers) newCarrier(found route.Facts, wait route.CarriedWait) *carrier {
	limits := &consumertimeout.ConsumerTimeout{} // that of this queue, which may have its own
	out := &outlet{
		to: found.Back(wait.Number), wait: wait, within: c.CopyTimeout, Hooks: c.Hooks,
		open: func() *confirm.Publisher {
			return confirm.New(c.Conn, confirm.Limits{Messages: maxPrefetch})
		},
	}
	tag := tagPrefix + c.Host + tagSuffix
	c.note(wait.Queue, nil)
	return &carrier{
		queue: wait.Queue,
		wait:  wait.For,
		open: func(ctx context.Context, prefetch int) (session, error) {
			return consumeWait(ctx, c.Conn, wait.Queue, tag, prefetch, limits)
		},
		publish: out.publish,
		close:   out.close,
		hold:    limits.HoldLimit,
		log: func(err error) {
			c.Log.Warn("messages that are due are not brought back to their queue", err, "queue", c.Source.Queue, "wait", wait.Queue)
		},
		state: func(err error) { c.note(wait.Queue, err) },
	}
}

// note notes why a wait is not carried; nil: it is.
func (c *Carriers) note(queue string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.faults[queue]
	f.Becomes(err, time.Now())
	if c.faults[queue] = f; err == nil {
		delete(c.faults, queue)
	}
}

// Check returns which waits are not carried, nil if all are.
func (c *Carriers) Check() *rehop.HealthError {
	c.mu.Lock()
	defer c.mu.Unlock()
	var longest time.Time
	var causes []string
	for _, queue := range slices.Sorted(maps.Keys(c.faults)) {
		f := c.faults[queue]
		if longest.IsZero() || f.Since.Before(longest) {
			longest = f.Since
		}
		causes = append(causes, fmt.Sprintf("%q, since %s: %v", queue, f.Since.Format(time.RFC3339), f.Err))
	}
	if causes == nil {
		return c.foreign.Degrades("consumer: queue %q: %w", c.Source.Queue)
	}
	return &rehop.HealthError{Degraded: true, Since: longest,
		Cause: fmt.Errorf("consumer: queue %q: messages that are due in its waits are not brought back: %s", c.Source.Queue, strings.Join(causes, "; "))}
}
