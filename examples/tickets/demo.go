package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/delay"
)

// demo is one run of the ticket office, from the declaration to the table.
type demo struct {
	conn   *connection.Conn
	orders []Order
	scale  int
	keep   bool // the dead letters: nobody writes to the passengers
	out    io.Writer
}

var errTooLong = errors.New("the run took too long")

// run returns nil if every order ended exactly once, and as it should.
func (d demo) run(ctx context.Context) error {
	setup := newSetup(d.conn.Server().Version, d.scale)
	if err := setup.open(ctx, d.conn, d.out); err != nil {
		return err
	}
	if err := setup.alone(ctx, d.conn); err != nil {
		return err
	}

	waits := setup.waits
	limit := bound(waits)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errTooLong)
	defer cancel()
	untilAllEnded, allEnded := context.WithCancel(ctx)
	defer allEnded()
	ledger := newLedger(d.orders, waits, allEnded)
	ledger.keep = d.keep

	stopProgress := startProgress(d.out, ledger)
	// Published before the office opens, so that VIPs have somebody to pass. A
	// service does both at once.
	err := setup.publish(ctx, d.conn, d.orders, ledger)
	if err == nil {
		network := operator{minute: time.Minute / time.Duration(d.scale)}
		err = setup.serve(untilAllEnded, d.conn, network, ledger)
	}
	err = errors.Join(err, stopProgress())

	result := ledger.summary()
	switch {
	case errors.Is(context.Cause(ctx), errTooLong):
		// The check below names the missing orders.
	case ctx.Err() != nil && result.ended() < len(d.orders):
		return fmt.Errorf("interrupted: %d of %d orders have ended; what is left in the queues is thrown away by the next run",
			result.ended(), len(d.orders))
	case err != nil:
		return err
	}
	attempts := len(waits) + 1
	if err := result.report(d.out, attempts); err != nil {
		return err
	}
	if err := result.check(attempts); err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("stopped after %v: %w", limit, err)
		}
		return err
	}
	n, err := setup.leftovers(ctx, d.conn, d.keep)
	if err != nil {
		return err
	}
	if n > 0 {
		return fmt.Errorf("every order has ended, but %d messages are left in the queues", n)
	}
	if d.keep {
		if _, err := fmt.Fprintf(d.out, "\nthe dead letters are left in %s\n", setup.letters.Name); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(d.out, "\nall %d orders ended exactly once, VIPs came first, and no wait was cut short\n", len(d.orders))
	return err
}

// bound returns how long a run may take: twice all waits in a row, and half a
// minute for the work.
func bound(waits delay.Schedule) time.Duration {
	limit := 30 * time.Second
	for _, wait := range waits {
		limit += 2 * wait
	}
	return limit
}
