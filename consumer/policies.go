package consumer

import (
	"context"
	"errors"
	"time"

	"github.com/rehop/rehop/internal/management"
	"github.com/rehop/rehop/topology"
)

// lookForPolicies is how often a consumer asks for the policies that apply to its
// queues.
const lookForPolicies = 2 * time.Minute

// watchPolicies asks for the policies that apply to the queues of a route, at once
// and again and again, and tells health and log what they break. It returns what
// ends that.
func (r *run) watchPolicies(route topology.Route) (end func()) {
	if management.Of(r.conn) == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(r.stop)
	r.beside.Go(func() {
		for more := true; more; more = sleep(ctx, lookForPolicies) {
			faults, err := topology.Policies(ctx, r.conn, route)
			switch {
			case ctx.Err() != nil:
				return
			case err != nil: // what was known stays so
				r.report.again.Warn("the policies of a queue are not known", err, "queue", r.queue)
				if len(faults) == 0 {
					continue
				}
			}
			r.health.ruled(faults, time.Now())
			for _, f := range faults {
				r.report.again.Warn("a policy on the broker breaks a promise", errors.New(f.String()), "queue", r.queue)
			}
		}
	})
	return cancel
}
