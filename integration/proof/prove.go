package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/integration/broker"
	"github.com/rehop/rehop/topology"
)

// The faults.
const (
	stop = "stop"
	kill = "kill"
)

const columns = "%-7v  %-7v  %-9v  %-5v  %-5v  %-8v  %-7v  %-5v  %v\n"

// prove runs all of it, prints a line for each work queue and fault, and returns
// what is wrong.
func prove(ctx context.Context, s settings, out io.Writer) error {
	fmt.Fprintf(out, columns, "version", "type", "engine", "fault", "due", "messages", "doubled", "wrong", "lost in each run")
	var errs []error
	for _, version := range s.versions {
		err := proveOn(ctx, version, s, func(l *lot, fault string, lost []int, doubled int, wrong error) {
			fmt.Fprintf(out, columns, version, l.queue.Type, l.engine, fault, fmt.Sprint(l.due, " %"),
				fmt.Sprint(len(lost), " x ", s.messages), doubled, wrong != nil, strings.Trim(fmt.Sprint(lost), "[]"))
		})
		errs = append(errs, err)
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}

// proveOn does so on one version.
func proveOn(ctx context.Context, version string, s settings, row func(l *lot, fault string, lost []int, doubled int, wrong error)) (err error) {
	b, err := broker.Start(ctx, broker.Options{Version: version, Name: "rehop-proof"})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close(context.WithoutCancel(ctx))) }()
	var faults []error
	for _, fault := range s.faults {
		lots, err := declare(ctx, b, fault, s)
		if err != nil {
			return err
		}
		lost := map[*lot][]int{}
		for range s.runs {
			if err := run(ctx, b, fault, lots, s); err != nil {
				return err
			}
			for _, l := range lots {
				n := len(l.account.Lost())
				lost[l] = append(lost[l], n-l.lost)
				l.lost = n
			}
		}
		for _, l := range lots {
			row(l, fault, lost[l], l.account.Doubled().Ends, l.account.Check())
			if err := l.account.Verdict(); err != nil {
				faults = append(faults, fmt.Errorf("%s, %s %s, %s, %d %% due: %w", version, l.queue.Type, l.engine, fault, l.due, err))
			}
		}
	}
	return errors.Join(faults...)
}

// declare declares the work queues of one fault.
func declare(ctx context.Context, b *broker.Broker, fault string, s settings) ([]*lot, error) {
	conn, err := connection.Open(ctx, connection.Config{URLs: []string{b.AMQPURL()}})
	if err != nil {
		return nil, err
	}
	var lots []*lot
	for _, queueType := range s.types {
		for _, due := range s.due {
			l := newLot(fmt.Sprintf("proof.%s.%s.%d", fault, queueType, due), queueType, due, s)
			plan, err := topology.DeclarePlan(ctx, conn, l.queue)
			if err != nil {
				return nil, errors.Join(err, conn.Close())
			}
			l.engine = plan.Engines[0].Engine
			l.declared = time.Now()
			lots = append(lots, l)
		}
	}
	return lots, conn.Close()
}
