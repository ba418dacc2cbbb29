package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer/internal/durations"
	"github.com/rehop/rehop/consumer/internal/group"
	"github.com/rehop/rehop/internal/pause"
	"github.com/rehop/rehop/internal/transport"
)

// errElsewhere ends a session of a shard that another process is to handle.
var errElsewhere = errors.New("consumer: another process is to handle the shard")

// errHandedOver is the cause of a handler's ctx that ended because its shard goes to another process. It is an
// ErrSessionLost, because the broker delivers the message again.
var errHandedOver = fmt.Errorf("%w: %w", connection.ErrSessionLost, errElsewhere)

// assigned says whether a queue is to be consumed here: a shard with a single active consumer may be
// for other processes to handle. A nil *assigned is a queue that always is.
type assigned struct {
	mu      sync.Mutex
	here    bool
	known   bool        // else neither is decided yet
	role    *group.Role // of this process for the shard; nil: not known
	leave   context.CancelCauseFunc
	changed chan struct{} // closed with the next change
}

func newAssigned() *assigned { return &assigned{changed: make(chan struct{})} }

// set sets whether the queue is to be consumed here. If not, it ends the session in progress.
func (a *assigned) set(here bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.leave != nil && !here {
		a.leave(errElsewhere)
	}
	if a.known && a.here == here {
		return
	}
	a.here, a.known = here, true
	close(a.changed)
	a.changed = make(chan struct{})
}

// stepBack ends the session in progress. The next one is behind the other consumers of the queue.
func (a *assigned) stepBack() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.leave != nil {
		a.leave(errElsewhere)
	}
}

// plays notes the role of this process for the shard, nil if it is not known.
func (a *assigned) plays(role *group.Role) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.role = role
}

// share says what this process is to the shard, for operators. It is empty for a queue that is no shard which processes
// share, and before that is decided.
func (a *assigned) share() string {
	if a == nil {
		return ""
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case !a.known:
		return ""
	case a.role == nil:
		return shareUnknown
	case *a.role == group.Owner:
		return shareOwner
	case *a.role == group.Second:
		return shareSecond
	case a.here:
		return shareLeaving
	}
	return shareNone
}

// consumed reports whether the queue is to be consumed here, as far as that is decided.
func (a *assigned) consumed() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.known && a.here
}

// look returns whether the queue is to be consumed here, and a channel that is closed when that changes.
func (a *assigned) look() (here bool, changed <-chan struct{}) {
	if a == nil {
		return true, nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.here, a.changed
}

// begins notes how to end the session that begins, until ends is called.
func (a *assigned) begins(leave context.CancelCauseFunc) (ends func()) {
	if a == nil {
		return func() {}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.leave = leave; !a.here {
		leave(errElsewhere)
	}
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.leave = nil
	}
}

// awaitShard waits until the queue is to be consumed here, or going has ended. It reports whether another
// process was to handle it before.
func (r *run) awaitShard() (elsewhere bool) {
	for a := r.assigned; a != nil; {
		a.mu.Lock()
		here, known, changed := a.here, a.known, a.changed
		a.mu.Unlock()
		if here {
			return elsewhere
		}
		if known {
			if !elsewhere {
				r.pool.Event(r.lane.ForgetsSuspects)
			}
			elsewhere = true
			r.health.consumesNothing(other, errElsewhere, time.Now())
		}
		select {
		case <-changed:
		case <-r.going.Done():
			return elsewhere
		}
	}
	return elsewhere
}

// spread is how the shards of a Consumer are spread over the processes.
type spread struct {
	group *group.Group
	conn  *connection.Conn
	runs  []*run
	log   *slog.Logger
	name  string

	shards    []group.Shard
	calm      group.Calm
	failed    int     // looks in a row
	handled   []int64 // messages of each shard by the last look
	roles     []group.Role
	processes int
	alone     bool // what the others do is not known: all shards are consumed here
}

// share decides which shards are consumed here until ctx ends.
func (c *Consumer) share(ctx context.Context, runs []*run) {
	conn := transport.Inside.Conn(c.conn).Apart(c.name + " members").(*connection.Conn)
	s := &spread{group: group.New(conn, c.name, len(runs)), conn: c.conn, runs: runs, log: c.cfg.Logger, name: c.name, shards: make([]group.Shard, len(runs)), handled: make([]int64, len(runs))}
	defer s.group.Leave()
	for ctx.Err() == nil {
		wait := durations.GroupLook
		asking, cancel := context.WithTimeout(ctx, durations.ResolveLimit)
		roles, processes, err := s.group.Look(asking)
		switch {
		case ctx.Err() != nil:
		case err == nil:
			s.apply(asking, roles, processes)
		case s.roles != nil && s.hopes():
			wait = durations.FirstPause // its socket was lost, and the next look has it dialled
		default:
			s.goAlone(err)
			if rehop.ClassOf(err) != rehop.ClassTransient {
				wait = durations.GroupRefused
			}
		}
		cancel()
		s.await(ctx, wait)
	}
}

// await waits until the next look.
func (s *spread) await(ctx context.Context, wait time.Duration) {
	next := time.NewTimer(wait)
	defer next.Stop()
	select {
	case <-ctx.Done():
		return
	case <-next.C:
		return
	case <-s.lost():
	}
	pause.For(ctx, durations.FirstPause) // somebody may delete the queue again and again
}

// hopes reports whether the next look may do better. The process goes by what it knows of the others until then.
func (s *spread) hopes() bool {
	s.failed++
	return s.failed == 1 || s.conn.Health() != nil
}

// lost returns a channel that is closed when the broker does not count this process any more. It is
// nil while that is known.
func (s *spread) lost() <-chan amqp.Delivery {
	if s.alone {
		return nil
	}
	return s.group.Lost()
}

// apply carries out what follows from the roles of this process.
func (s *spread) apply(ctx context.Context, roles []group.Role, processes int) {
	s.tell(roles, processes)
	s.roles, s.processes, s.alone, s.failed = roles, processes, false, 0
	calm := s.calm.Look(processes)
	for i, r := range s.runs {
		r.assigned.plays(&roles[i])
		seen := group.Seen{Role: roles[i], Here: r.assigned.consumed(), Fed: s.fed(i), Calm: calm}
		if !seen.Here && seen.Role == group.None {
			seen.Orphan = s.group.Orphan(ctx, r.queue)
		}
		switch s.shards[i].Next(seen) {
		case group.Join:
			r.assigned.set(true)
		case group.Leave:
			r.assigned.set(false)
		case group.StepBack:
			r.assigned.stepBack()
		case group.Stay:
			r.assigned.set(seen.Here)
		}
	}
}

// fed reports whether messages of a shard have come here since the last look.
func (s *spread) fed(i int) bool {
	r := s.runs[i]
	now := r.handled.Load()
	fed := now != s.handled[i] || r.lane.Unsettled() > 0
	s.handled[i] = now
	return fed
}

// goAlone consumes all shards, as a process does that knows of no other.
func (s *spread) goAlone(err error) {
	if !s.alone {
		s.log.Warn("how many processes consume the shards is not known, so this one consumes all of them: work may be spread unevenly", "shards", s.name, "error", err)
	}
	s.alone, s.roles = true, nil
	for _, r := range s.runs {
		r.assigned.plays(nil)
		r.assigned.set(true)
	}
}

// tell logs the roles of this process if they have changed.
func (s *spread) tell(roles []group.Role, processes int) {
	if processes == s.processes && slices.Equal(roles, s.roles) {
		return
	}
	var owns, second []string
	for i, role := range roles {
		switch role {
		case group.Owner:
			owns = append(owns, s.runs[i].queue)
		case group.Second:
			second = append(second, s.runs[i].queue)
		}
	}
	s.log.Info("the processes share the shards", "shards", s.name, "processes", processes, "seat", s.group.Seat(), "handled_here", owns, "ready_for", second)
}
