package topology

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/management"
)

// policyQuestions is how many queues are asked for at a time.
const policyQuestions = 4

// Policies returns what the policies on the broker break of the promises of a
// source: of a [WorkQueue], of its waits and of its dead-letter queue. AMQP does not
// show policies, so Policies asks the management API at
// connection.Config.ManagementURL, which bounds its answer for each queue to 5 s.
// Without that address, and for a [Route] that was written by hand, it returns
// nothing.
//
// For a Route that [Resolve] has returned it asks for the queues that are in use on
// this broker, for a WorkQueue for those that a first declaration makes. A queue of
// others ([WorkQueue.Existing]) has no promises.
func Policies(ctx context.Context, conn *connection.Conn, source Source) ([]PolicyFault, error) {
	if err := usable(ctx, conn); err != nil {
		return nil, err
	}
	if source == nil {
		return nil, connection.WithClass(errors.New("topology: source is nil"), connection.Bug)
	}
	r := source.Route()
	if err := r.Validate(); err != nil {
		return nil, err
	}
	return policies(ctx, conn, r.policed())
}

// policies asks for the queues. After a question that had no answer it asks for
// no more.
func policies(ctx context.Context, conn *connection.Conn, queues []ruled) ([]PolicyFault, error) {
	api := management.Of(conn)
	if api == nil || len(queues) == 0 {
		return nil, nil
	}
	version := conn.Server().Version
	answers := make([][]PolicyFault, len(queues))
	errs := make([]error, len(queues))
	next := make(chan int, len(queues))
	for i := range queues {
		next <- i
	}
	close(next)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	for range min(policyQuestions, len(queues)) {
		wg.Go(func() {
			for i := range next {
				q := queues[i]
				if q.broker, errs[i] = api.Queue(ctx, q.name); errs[i] != nil {
					cancel()
					return
				}
				answers[i] = q.faults(version)
			}
		})
	}
	wg.Wait()
	return flatten(answers), notAsked(errs)
}

func flatten(answers [][]PolicyFault) (faults []PolicyFault) {
	for _, f := range answers {
		faults = append(faults, f...)
	}
	return faults
}

// notAsked returns the error that is the cause of the others, nil for none.
func notAsked(errs []error) error {
	var ended error
	for _, err := range errs {
		switch {
		case err == nil:
		case errors.Is(err, context.Canceled):
			ended = err
		default:
			return connection.WithClass(fmt.Errorf("topology: policies are not known: %w", err), connection.Transient)
		}
	}
	return ended
}
