package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/rehop/rehop/desk"
)

// keepCommands are the commands that change the state of collected letters.
func (a *app) keepCommands() []*cobra.Command {
	return []*cobra.Command{
		a.keepCommand("park", "parked", desk.Keeper.Park, &cobra.Command{
			Short:   "Set collected letters aside, until somebody sends or releases them",
			Long:    "Park sets aside all letters that the flags select at this moment.",
			Example: `  rehop dlq park --store letters.db --error "no such customer" --why "asked Sales"`,
		}),
		a.keepCommand("archive", "archived", desk.Keeper.Archive, &cobra.Command{
			Short:   "Keep collected letters for the record, out of the lists",
			Long:    "Archive keeps all letters that the flags select at this moment, out of the lists.",
			Example: `  rehop dlq archive --store letters.db --older 720h`,
		}),
		a.keepCommand("release", "released", desk.Keeper.Release, &cobra.Command{
			Short: "Give collected letters to the forwarder of a service, which publishes them",
			Long: `Release marks all letters that the flags select at this moment as ready. The store.Forwarder of a service publishes those, each
to where it was published first. rehop dlq send publishes letters itself, to the queue
that failed on them.`,
			Example: `  rehop dlq release --store letters.db --state parked --queue orders`,
		}),
	}
}

func (a *app) keepCommand(name, done string, do func(desk.Keeper, context.Context, desk.Filter, desk.By) (int, error), c *cobra.Command) *cobra.Command {
	p := place{use: changes}
	var f filter
	c.Use, c.Args = name+" --store STORE", args(cobra.NoArgs)
	c.RunE = func(c *cobra.Command, _ []string) error {
		source, err := a.openFor(c.Context(), p, &f, nil, false)
		if err != nil {
			return err
		}
		which := f.read()
		if which.IsZero() {
			return usage(errors.New("which letters? Give a filter, such as --error or --id"))
		}
		n, err := do(source.(desk.Keeper), c.Context(), which, a.by()) // --store is required, and each store is one
		if err != nil {
			return err
		}
		fmt.Fprintf(a.out, "%s: %s\n", done, letterCount(n))
		return noneOf(n, "letter", "")
	}
	c.Flags().StringVar(&p.store, "store", "", "SQLite file, or postgres:// or mysql:// URL")
	_ = c.MarkFlagRequired("store") // fails for unknown flags only
	_ = c.MarkFlagFilename("store")
	f.flags(c)
	c.Flags().StringVar(&a.why, "why", "", "reason, for the audit")
	return c
}
