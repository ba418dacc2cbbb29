package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/rehop/rehop/desk"
)

// order are the flags of an order.
type order struct {
	place  place
	filter filter
	desk.Order
	to     string
	dryRun bool
}

func (o *order) flags(a *app, c *cobra.Command) {
	o.place.flags(c)
	o.filter.flags(c)
	o.filter.allFlag(c)
	c.Flags().IntVar(&o.Rate, "rate", 0, "letters per second; 0: no bound")
	c.Flags().IntVarP(&o.Limit, "limit", "n", 0, "letters to try; 0: no bound")
	c.Flags().StringVar(&o.ID, "order", "", "id of the order; a new one if not given")
	c.Flags().StringVar(&a.why, "why", "", "reason, for the audit")
	c.Flags().BoolVar(&o.dryRun, "dry-run", false, "only say which letters are meant")
}

// carryOut asks, and carries out an order.
func (a *app) carryOut(c *cobra.Command, o *order, rest []string, action desk.Action, verb string, ask bool) error {
	source, _, err := a.open(c.Context(), o.place, rest, action != desk.Drop)
	if err != nil {
		return err
	}
	o.Action, o.Filter, o.All, o.By, o.To = action, o.filter.read(), o.filter.all, a.by(), address(o.to)
	if o.Filter.IsZero() && !o.All {
		return usage(errors.New("which letters? Give a filter, such as --error or --id, or --all"))
	}
	const shown = 100 // of a dry run
	expected := 0
	if o.dryRun || ask && !a.yes && a.inTTY || a.errTTY {
		list, err := source.List(c.Context(), o.Filter, desk.Page{Limit: shown, CountAll: true})
		if err != nil {
			return err
		}
		expected = list.Matched
		if o.dryRun {
			return a.printLetters(list, func() string { return listLine(c, source, list.Next) })
		}
	}
	if ask {
		letters := "letters"
		if expected > 0 { // else they were not counted
			letters = letterCount(expected)
		}
		if err := a.confirmed("%s %s of %s (%s)", verb, letters, source.About().Name, o.Filter); err != nil {
			return err
		}
	}
	tell, end := a.watch(expected)
	p, err := source.Execute(c.Context(), o.Order, tell)
	end()
	return a.result(p, err)
}

func (a *app) sendCommand() *cobra.Command {
	var o order
	c := &cobra.Command{
		Use:   "send [QUEUE]",
		Short: "Send letters back to the queue that failed on them",
		Long: `Send publishes each message as it was published first, straight to the queue that
failed on it, where it starts at attempt 1. A letter leaves its place when the broker
has confirmed the message. Each order sends a letter once, also one that fails again
meanwhile.

The order is written into the journal before it begins: rehop dlq stop stops it from
anywhere, and rehop dlq resume goes on with it after a stop, an error or a crash.`,
		Example: `  rehop dlq send orders.dlq --error "no stock" --rate 100
  rehop dlq send orders.dlq --group 6c1d7e0b41a2f9d3 --canary 2m
  rehop dlq send orders.dlq --all --dry-run
  rehop dlq send orders.dlq --id 8d71590e81c72837a5
  rehop dlq send legacy_error --all --to orders`,
		Args: args(cobra.MaximumNArgs(1)), ValidArgsFunction: a.queueNames,
		RunE: func(c *cobra.Command, rest []string) error {
			return a.carryOut(c, &o, rest, desk.Send, "send", o.filter.all)
		},
	}
	o.flags(a, c)
	c.Flags().StringVar(&o.to, "to", "", "send there instead: a queue, exchange/key, or /queue if its name has a slash")
	c.Flags().DurationVar(&o.Canary, "canary", 0, "send one letter first, and no more if it is back within this time")
	return c
}

func (a *app) moveCommand() *cobra.Command {
	var o order
	c := &cobra.Command{
		Use:     "move [QUEUE] --to QUEUE",
		Short:   "Move letters as they are, with all headers, to another queue",
		Example: `  rehop dlq move orders.dlq --older 720h --to orders.parked`,
		Args:    args(cobra.MaximumNArgs(1)), ValidArgsFunction: a.queueNames,
		RunE: func(c *cobra.Command, rest []string) error {
			return a.carryOut(c, &o, rest, desk.Move, "move to "+o.to, true)
		},
	}
	o.flags(a, c)
	c.Flags().StringVar(&o.to, "to", "", "a queue, exchange/key, or /queue if its name has a slash")
	_ = c.MarkFlagRequired("to") // fails for unknown flags only
	return c
}

func (a *app) dropCommand() *cobra.Command {
	var o order
	c := &cobra.Command{
		Use:   "drop [QUEUE] --copy FILE",
		Short: "Delete letters, after writing them to a file",
		Long: `Drop appends each letter to the file, and deletes it when the file is on the disk.
rehop dlq import brings the letters back.`,
		Example: `  rehop dlq drop orders.dlq --error "no such customer" --copy dropped.jsonl`,
		Args:    args(cobra.MaximumNArgs(1)), ValidArgsFunction: a.queueNames,
		RunE: func(c *cobra.Command, rest []string) error {
			return a.carryOut(c, &o, rest, desk.Drop, "drop", true)
		},
	}
	o.flags(a, c)
	c.Flags().StringVar(&o.CopyTo, "copy", "", "file that the letters are appended to first")
	_ = c.MarkFlagRequired("copy") // fails for unknown flags only
	return c
}
