package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/rehop/rehop/desk"
	"github.com/rehop/rehop/desk/internal/whereto"
)

// redrive are the flags of a redrive.
type redrive struct {
	place  place
	filter filter
	desk.Redrive
	to     string
	dryRun bool
}

func (r *redrive) flags(a *app, c *cobra.Command) {
	r.place.flags(c)
	r.filter.flags(c)
	r.filter.allFlag(c)
	c.Flags().Float64Var(&r.Rate, "rate", 0, "letters per second, such as 100 or 0.5; 0: no bound")
	c.Flags().IntVarP(&r.Limit, "limit", "n", 0, "letters to try; 0: no bound")
	c.Flags().StringVar(&r.ID, "redrive", "", "id of the redrive; a new one if not given")
	c.Flags().StringVar(&a.why, "why", "", "reason, for the audit")
	c.Flags().BoolVar(&r.dryRun, "dry-run", false, "only say which letters are meant")
}

// carryOut asks, and carries out a redrive.
func (a *app) carryOut(c *cobra.Command, r *redrive, rest []string, action desk.Action, verb string, ask bool) error {
	if !r.dryRun {
		r.place.use = changes
	}
	source, err := a.openFor(c.Context(), r.place, &r.filter, rest, action != desk.Drop)
	if err != nil {
		return err
	}
	r.Action, r.Filter, r.All, r.By = action, r.filter.read(), r.filter.all, a.by()
	if r.To, err = whereto.Read(r.to); err != nil {
		return usage(fmt.Errorf("--to %w", err))
	}
	if !r.Filter.IsZero() && r.All {
		return usage(fmt.Errorf("there are --all and a filter, %s: give --all for all letters, or the filter for those that it selects", r.Filter))
	}
	if r.Filter.IsZero() && !r.All {
		return usage(errors.New("which letters? Give a filter, such as --error or --id, or --all"))
	}
	const shown = 100 // of a dry run
	letters := "letters"
	if r.dryRun || ask && !a.yes && a.inTTY {
		list, err := source.List(c.Context(), r.Filter, desk.Page{Limit: shown, CountAll: true})
		if err != nil {
			return err
		}
		letters = r.boundBy(list, source.About().Live)
		if r.dryRun {
			err := a.printLetters(list, func() string { return listLine(c, source, list.Next) })
			would := ""
			if r.Limit > 0 {
				would = "; without --dry-run, " + letters + " would be tried"
			}
			fmt.Fprintf(a.err, "dry run: nothing was %s%s\n", map[desk.Action]string{desk.Send: "sent", desk.Move: "moved", desk.Drop: "dropped"}[action], would)
			return err
		}
		if r.Limit == 0 {
			return noneOf(0, "letter", list.Bound)
		}
		a.bound(list.Seen, 0, 0) // before the question
	}
	if ask {
		if err := a.confirmed("%s %s of %s (%s)", verb, letters, source.About().Name, r.Filter); err != nil {
			return err
		}
	}
	tell, end := a.watch()
	p, err := source.Execute(c.Context(), r.Redrive, tell)
	end()
	return a.result(p, err)
}

// boundBy bounds the redrive by the letters of a list, and returns their number as a text: what
// somebody agrees to is what is done.
func (r *redrive) boundBy(list desk.List, live bool) string {
	n, exact := list.Most()
	if exact || !live { // else the look has seen a part of the queue
		r.Look = list.At
	}
	if r.Limit == 0 || r.Limit > n {
		r.Limit = n
	}
	if exact {
		return letterCount(r.Limit)
	}
	return "at most " + letterCount(r.Limit)
}

func (a *app) sendCommand() *cobra.Command {
	var r redrive
	c := &cobra.Command{
		Use:   "send [QUEUE]",
		Short: "Send letters back to the queue that failed on them",
		Long: `Send publishes each message as it was published first, straight to the queue that
failed on it, without its own expiration, where it starts at attempt 1. A TTL of the
queue still counts. A letter leaves its place when the broker has confirmed the
message. Each redrive sends a letter once: a message that fails again meanwhile becomes
a new letter, which stays.

The redrive is written into the journal before it begins: rehop redrives stop stops it
from anywhere, and rehop redrives resume goes on with it after a stop, an error or a
crash.`,
		Example: `  rehop dlq send orders.dlq --error "no stock" --rate 100
  rehop dlq send orders.dlq --group 6c1d7e0b41a2f9d3 --canary 2m
  rehop dlq send orders.dlq --all --dry-run
  rehop dlq send orders.dlq --id 8d71590e81c72837a5
  rehop dlq send legacy_error --all --to orders`,
		Args: args(cobra.MaximumNArgs(1)), ValidArgsFunction: a.queueNames,
		RunE: func(c *cobra.Command, rest []string) error {
			return a.carryOut(c, &r, rest, desk.Send, "send", r.filter.all)
		},
	}
	r.flags(a, c)
	c.Flags().StringVar(&r.to, "to", "", "send there instead: a queue, exchange/key, or /queue if its name has a slash")
	c.Flags().DurationVar(&r.Canary, "canary", 0, "send one letter first, and no more if it is back within this time")
	return c
}

func (a *app) moveCommand() *cobra.Command {
	var r redrive
	c := &cobra.Command{
		Use:     "move [QUEUE] --to QUEUE",
		Short:   "Move letters as they are, with all headers, to another queue",
		Example: `  rehop dlq move orders.dlq --older 720h --to orders.parked`,
		Args:    args(cobra.MaximumNArgs(1)), ValidArgsFunction: a.queueNames,
		RunE: func(c *cobra.Command, rest []string) error {
			return a.carryOut(c, &r, rest, desk.Move, "move to "+r.to, true)
		},
	}
	r.flags(a, c)
	c.Flags().StringVar(&r.to, "to", "", "a queue, exchange/key, or /queue if its name has a slash")
	_ = c.MarkFlagRequired("to") // fails for unknown flags only
	return c
}

func (a *app) dropCommand() *cobra.Command {
	var r redrive
	c := &cobra.Command{
		Use:   "drop [QUEUE] --copy FILE",
		Short: "Delete letters, after writing them to a file",
		Long: `Drop appends each letter to the file, and deletes it when the file is on the disk.
rehop dlq import brings the letters back.`,
		Example: `  rehop dlq drop orders.dlq --error "no such customer" --copy dropped.jsonl`,
		Args:    args(cobra.MaximumNArgs(1)), ValidArgsFunction: a.queueNames,
		RunE: func(c *cobra.Command, rest []string) error {
			return a.carryOut(c, &r, rest, desk.Drop, "drop", true)
		},
	}
	r.flags(a, c)
	c.Flags().StringVar(&r.CopyTo, "copy", "", "file that the letters are appended to first")
	_ = c.MarkFlagRequired("copy") // fails for unknown flags only
	return c
}
