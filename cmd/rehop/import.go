package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/rehop/rehop/desk"
)

func (a *app) importCommand() *cobra.Command {
	var o desk.ImportOptions
	c := &cobra.Command{
		Use:   "import QUEUE FILE",
		Short: "Publish letters of a file to a queue, with every property and header they had",
		Example: `  rehop dlq import orders.dlq letters.jsonl
  rehop dlq import orders.dlq letters.jsonl --from 1201`,
		Args: args(cobra.ExactArgs(2)), ValidArgsFunction: a.queueNames,
		RunE: func(c *cobra.Command, rest []string) error {
			journal, err := a.journal()
			if err != nil {
				return err
			}
			in := a.in
			if rest[1] != "-" {
				f, err := os.Open(rest[1])
				if err != nil {
					return err
				}
				defer f.Close()
				in = f
			}
			conn, err := a.connect(c.Context())
			if err != nil {
				return err
			}
			o.Queue, o.By = rest[0], a.by()
			n, err := desk.Import(c.Context(), conn, in, journal, o, nil)
			fmt.Fprintf(a.err, "%s imported\n", letterCount(n))
			var line *desk.ImportError
			if errors.As(err, &line) {
				return fmt.Errorf("%w; go on with --from %d", err, line.Line)
			}
			return err
		},
	}
	c.Flags().IntVar(&o.From, "from", 1, "line to begin with")
	return c
}
