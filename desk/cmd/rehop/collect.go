package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/rehop/rehop/desk"
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
			if err := isURL(queues); err != nil {
				return err
			}
			source, _, err := a.open(c.Context(), place{store: into, use: makes}, nil, true)
			if err != nil {
				return err
			}
			fmt.Fprintf(a.err, "collecting into %s; Ctrl-C stops\n", source.About().Name)
			told := func(n int) { fmt.Fprintf(a.err, "%s collected\n", letterCount(n)) }
			n, err := source.(desk.Keeper).Collect(c.Context(), queues, a.by(), told) // a store keeps
			told(n)
			return err
		},
	}
	c.Flags().StringVar(&a.why, "why", "", "reason, for the audit")
	c.Flags().StringVar(&into, "store", "", "SQLite file, made if there is none, or postgres:// or mysql:// URL")
	_ = c.MarkFlagRequired("store") // fails for unknown flags only
	return c
}
