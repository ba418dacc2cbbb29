package consumer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rehop/rehop/consumer/internal/durations"
	"github.com/rehop/rehop/internal/route"
	"github.com/rehop/rehop/internal/transport"
)

// watchBroker looks again and again, until a session ends, at what no event tells of: what policies on the
// broker break, at once, too; whether the parts of the topology are there that messages pass through between the
// queue and its waits, because without one of them messages may stay where they are; and why copies are not
// confirmed.
func (r *run) watchBroker(s *session) {
	r.watches.Go(func() {
		found := s.terms.route
		r.lookAtPolicies(s.Stop, found)
		for due := time.Now().Add(durations.BrokerLook); ; {
			next := time.Until(due)
			since, begins := r.copies.Unconfirmed.Since()
			if !since.IsZero() {
				wait := durations.ResolveAfter - time.Since(since)
				if wait <= 0 && r.lookAtCopies(s) {
					return
				} else if wait <= 0 {
					wait = durations.CopiesLook
				}
				next = min(next, wait)
			}
			select {
			case <-begins:
				continue
			case <-time.After(next):
			case <-s.Stop.Done():
				return
			case <-s.Copying.Done():
				return
			}
			if time.Now().Before(due) {
				continue
			}
			due = time.Now().Add(durations.BrokerLook)
			if found.Kind == route.Work {
				_ = r.repair(s.Stop, found) // it is told
			}
			r.lookAtPolicies(s.Stop, found)
		}
	})
}

// lookAtPolicies asks for the policies that apply to the queues of a route, and tells health and log what
// they break.
func (r *run) lookAtPolicies(ctx context.Context, found route.Facts) {
	if transport.Inside.Conn(r.conn).Management() == nil {
		return
	}
	faults, err := found.Broker.Policies(ctx, r.conn, found)
	switch {
	case ctx.Err() != nil:
		return
	case err != nil: // what was known stays so
		r.faultLog.Warn("the policies of a queue are not known", err, "queue", r.queue)
		if len(faults) == 0 {
			return
		}
	}
	r.notePolicies(faults)
}

// notePolicies tells health and log which promises policies on the broker break, and which policy is missing.
func (r *run) notePolicies(faults []route.PolicyFault) {
	var texts []string
	for _, f := range faults {
		texts = append(texts, f.String())
		what := "the policies on the broker break a promise"
		if f.Policy == "" {
			what = "a queue of others loses messages"
		}
		r.faultLog.Warn(what, errors.New(f.String()), "queue", r.queue)
	}
	var err error
	if texts != nil {
		err = errors.New(strings.Join(texts, "; "))
	}
	r.health.note(&r.health.policies, err)
}

// repair looks for the parts of a work queue, has missing ones put back, and tells health and log.
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
	r.health.note(&r.health.missing, err)
	return err
}

// lookAtCopies looks for the parts of the topology when copies to one of them have not been
// confirmed for long. One may be missing, and Health says so. If one was deleted and another has
// taken its place, only the next session uses it, so lookAtCopies ends this one.
func (r *run) lookAtCopies(s *session) (ends bool) {
	asking, cancel := context.WithTimeout(s.Stop, durations.ResolveLimit)
	defer cancel()
	now, err := r.source.Broker.Resolve(asking, r.conn)
	if err == nil && rewired(now, s.terms.route) {
		s.Cancel(errRewired)
		return true
	}
	if s.Stop.Err() == nil {
		r.copies.Unconfirmed.Resolved(err)
	}
	return false
}

// rewired reports whether copies go elsewhere now.
func rewired(now, before route.Facts) bool {
	return now.DeadLetter != before.DeadLetter ||
		!slices.EqualFunc(now.Waits, before.Waits, func(a, b route.Wait) bool { return a.At == b.At })
}
