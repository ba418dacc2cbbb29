package topology

import (
	"context"
	"errors"
	"fmt"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/route"
	"github.com/rehop/rehop/internal/transport"
)

// policyQuestions is how many queues are asked for at a time.
const policyQuestions = 4

// Policies implements route.Broker: a queue of others has no promises.
func (foreign) Policies(context.Context, *connection.Conn, route.Facts) ([]route.PolicyFault, error) {
	return nil, nil
}

// Policies implements route.Broker.
func (l letters) Policies(ctx context.Context, conn *connection.Conn, _ route.Facts) ([]route.PolicyFault, error) {
	return policies(ctx, conn, []ruled{{name: l.q.Name, role: letterRole}})
}

// Policies implements route.Broker.
func (w work) Policies(ctx context.Context, conn *connection.Conn, r route.Facts) ([]route.PolicyFault, error) {
	return policies(ctx, conn, policed(r))
}

// policies asks for the queues, and notes the answers in them. After a question that had no answer it asks
// for no more.
func policies(ctx context.Context, conn *connection.Conn, queues []ruled) ([]route.PolicyFault, error) {
	api := transport.Inside.Conn(conn).Management()
	if api == nil || len(queues) == 0 {
		return nil, nil
	}
	version := conn.Server().Version
	answers := make([][]route.PolicyFault, len(queues))
	errs := atATime(ctx, policyQuestions, len(queues), func(ctx context.Context, i int) (err error) {
		q := &queues[i]
		if q.broker, err = api.Queue(ctx, q.name); err == nil {
			q.shown, answers[i] = true, q.faults(version)
		}
		return err
	})
	err := notAsked(errs)
	if err != nil && !errors.Is(err, context.Canceled) {
		err = rehop.WithClass(fmt.Errorf("topology: policies are not known: %w", err), rehop.ClassTransient)
	}
	return flatten(answers), err
}

func flatten(answers [][]route.PolicyFault) (faults []route.PolicyFault) {
	for _, f := range answers {
		faults = append(faults, f...)
	}
	return faults
}

// notAsked returns the error that is the cause of all other errors, nil for none.
func notAsked(errs []error) error {
	var ended error
	for _, err := range errs {
		switch {
		case err == nil:
		case errors.Is(err, context.Canceled):
			ended = err
		default:
			return err
		}
	}
	return ended
}
