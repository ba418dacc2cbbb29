package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/topology"
)

func (a *app) collectCommand() *cobra.Command {
	var into string
	c := &cobra.Command{
		Use:   "collect QUEUE... --store STORE",
		Short: "Take dead letters out of queues into a store, until it is stopped",
		Long: `Collect consumes the queues and stores each letter in a database, which all other
commands take with --store. A letter leaves its queue when the database has it. Collected
letters can be searched and grouped without touching the broker, as many as there are.

` + storeHelp,
		Example: `  rehop dlq collect orders.dlq invoices.dlq --store letters.db`,
		Args:    args(cobra.MinimumNArgs(1)), ValidArgsFunction: a.queueNames,
		RunE: func(c *cobra.Command, queues []string) error {
			letters, name, err := a.letters(c.Context(), into)
			if err != nil {
				return err
			}
			conn, err := a.connect(c.Context())
			if err != nil {
				return err
			}
			var collected atomic.Int64
			ctx, stop := context.WithCancel(c.Context())
			defer stop()
			ended := make(chan error)
			for _, queue := range queues {
				one, err := consumer.New(conn, topology.DeadLetterQueue{Name: queue}, func(ctx context.Context, d *consumer.Delivery) error {
					err := letters.Collect(ctx, d)
					if err == nil {
						collected.Add(1)
					}
					return err
				}, consumer.Config{Concurrency: 16})
				if err != nil {
					return err
				}
				go func() { ended <- one.Run(ctx) }()
			}
			fmt.Fprintf(a.err, "collecting into %s; Ctrl-C stops\n", name)
			var errs []error
			told := time.NewTicker(10 * time.Second)
			defer told.Stop()
			for last, left := int64(0), len(queues); left > 0; {
				select {
				case err := <-ended:
					errs = append(errs, err)
					left--
					stop()
				case <-told.C:
					if n := collected.Load(); n != last {
						fmt.Fprintf(a.err, "%d letters collected\n", n)
						last = n
					}
				}
			}
			fmt.Fprintf(a.err, "%d letters collected\n", collected.Load())
			return errors.Join(errs...)
		},
	}
	c.Flags().StringVar(&into, "store", "", "SQLite file, made if there is none, or postgres:// or mysql:// URL")
	_ = c.MarkFlagRequired("store") // fails for unknown flags only
	return c
}
