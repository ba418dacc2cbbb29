package consumer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rehop/rehop/consumer/internal/durations"
	"github.com/rehop/rehop/internal/pause"
	"github.com/rehop/rehop/internal/route"
	"github.com/rehop/rehop/internal/transport"
)

// watchPolicies asks for the policies that apply to the queues of a route, at once
// and again and again until ctx ends, and tells health and log what they break.
func (r *run) watchPolicies(ctx context.Context, found route.Facts) {
	if transport.Inside.Conn(r.conn).Management() == nil {
		return
	}
	r.watches.Go(func() {
		for more := true; more; more = pause.For(ctx, durations.PoliciesLook) {
			faults, err := found.Broker.Policies(ctx, r.conn, found)
			switch {
			case ctx.Err() != nil:
				return
			case err != nil: // what was known stays so
				r.faultLog.Warn("the policies of a queue are not known", err, "queue", r.queue)
				if len(faults) == 0 {
					continue
				}
			}
			r.health.notePolicies(faults, time.Now())
			for _, f := range faults {
				r.faultLog.Warn("a policy on the broker breaks a promise", errors.New(f.String()), "queue", r.queue)
			}
		}
	})
}

// watchTopology looks again and again, until ctx ends, whether the parts of the topology
// are there that messages pass through between the queue and its waits, and has those
// put back that are not. Without one of them messages may stay where they are, and
// nothing else would tell.
func (r *run) watchTopology(ctx context.Context, found route.Facts) {
	if found.Kind != route.Work {
		return
	}
	r.watches.Go(func() {
		for pause.For(ctx, durations.TopologyLook) {
			_ = r.repair(ctx, found) // it is told
		}
	})
}

// repair looks for those parts, has missing ones put back, and tells health and log.
func (r *run) repair(ctx context.Context, found route.Facts) error {
	asking, cancel := context.WithTimeout(ctx, durations.ResolveLimit)
	defer cancel()
	missing, err := found.Broker.Repair(asking, r.conn)
	switch {
	case ctx.Err() != nil:
		return err
	case err != nil && len(missing) == 0: // the broker was not asked, or is away
		r.faultLog.Warn("whether the parts of a work queue are there is not known", err, "queue", r.queue)
		return err
	case err != nil:
		err = fmt.Errorf("%s: %w", strings.Join(missing, ", "), err)
		r.faultLog.Warn("parts of a work queue are missing, and cannot be put back", err, "queue", r.queue)
	case len(missing) > 0:
		r.faultLog.Warn("parts of a work queue were missing, and were put back", errors.New(strings.Join(missing, ", ")), "queue", r.queue)
	}
	r.health.noteMissing(err, time.Now())
	return err
}

// watchCopies looks for the parts of the topology once copies to one of them have not
// been confirmed for long, until the session ends. One may be missing, and Health says so. If one
// was deleted and another has taken its place, only the next session uses it, so
// watchCopies ends this one.
func (r *run) watchCopies(s *session) {
	r.watches.Go(func() {
		for s.Stop.Err() == nil && s.Copying.Err() == nil {
			since, begins := r.copies.Unconfirmed.Since()
			if since.IsZero() {
				select {
				case <-begins:
				case <-s.Stop.Done():
				case <-s.Copying.Done():
				}
				continue
			}
			if wait := durations.ResolveAfter - time.Since(since); wait > 0 {
				pause.While(s.Stop, s.Copying, wait)
				continue
			}
			asking, cancel := context.WithTimeout(s.Stop, durations.ResolveLimit)
			now, err := r.source.Broker.Resolve(asking, r.conn)
			cancel()
			if err == nil && rewired(now, s.terms.route) {
				s.Cancel(errRewired)
				return
			}
			if s.Stop.Err() == nil {
				r.copies.Unconfirmed.Resolved(err)
			}
			pause.While(s.Stop, s.Copying, durations.CopiesLook)
		}
	})
}

// rewired reports whether copies go elsewhere now.
func rewired(now, before route.Facts) bool {
	return now.DeadLetter != before.DeadLetter ||
		!slices.EqualFunc(now.Waits, before.Waits, func(a, b route.Wait) bool { return a.At == b.At })
}
