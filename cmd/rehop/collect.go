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
	var file string
	c := &cobra.Command{
		Use:   "collect QUEUE... --store FILE",
		Short: "Take dead letters out of queues into a file, until it is stopped",
		Long: `Collect consumes the queues and stores each letter in an SQLite file, which all other
commands take with --store. A letter leaves its queue when it is on the disk. Collected
letters can be searched and grouped without touching the broker, as many as there are.`,
		Example: `  rehop dlq collect orders.dlq invoices.dlq --store letters.db`,
		Args:    args(cobra.MinimumNArgs(1)), ValidArgsFunction: a.queueNames,
		RunE: func(c *cobra.Command, queues []string) error {
			letters, err := a.letters(c.Context(), file)
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
			fmt.Fprintf(a.err, "collecting into %s; Ctrl-C stops\n", file)
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
	c.Flags().StringVar(&file, "store", "", "SQLite file; made if there is none")
	_ = c.MarkFlagRequired("store") // fails for unknown flags only
	return c
}
