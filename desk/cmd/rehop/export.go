package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
)

func (a *app) exportCommand() *cobra.Command {
	var p place
	var f filter
	var file string
	c := &cobra.Command{
		Use:   "export [QUEUE]",
		Short: "Write letters as lines of JSON; they stay where they are",
		Example: `  rehop dlq export orders.dlq --file letters.jsonl
  rehop dlq export --store letters.db --cause exhausted | jq .error`,
		Args: args(cobra.MaximumNArgs(1)), ValidArgsFunction: a.queueNames,
		RunE: func(c *cobra.Command, rest []string) (err error) {
			source, err := a.openFor(c.Context(), p, &f, rest, false)
			if err != nil {
				return err
			}
			out := a.out
			if file != "" && file != "-" {
				opened, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
				if err != nil {
					return ofFlag("--file", err)
				}
				defer func() { err = errors.Join(err, opened.Close()) }()
				out = opened
			}
			n, err := source.Export(c.Context(), f.read(), out, a.by())
			fmt.Fprintf(a.err, "%s written\n", letterCount(n))
			return cmp.Or(err, noneOf(n, "letter"))
		},
	}
	p.flags(c)
	f.flags(c)
	c.Flags().StringVar(&file, "file", "", "a new file; the standard output if not given")
	return c
}
