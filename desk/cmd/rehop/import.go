package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/rehop/rehop/desk"
)

func (a *app) importCommand() *cobra.Command {
	var o desk.ImportOptions
	c := &cobra.Command{
		Use:   "import QUEUE FILE",
		Short: "Publish letters of a file to a queue, with every property and header they had",
		Long: `Import publishes each line of a file that rehop dlq export or drop has written, and waits
until the broker has confirmed it. It says how far it came. Of an import that was killed,
rehop dlq audit says up to which line all letters are in the queue; up to 256 letters
behind that line may be there too.

A file whose letters the queue has had by an import of this journal is refused: --again
imports it once more. What comes from a pipe is not refused.`,
		Example: `  rehop dlq import orders.dlq letters.jsonl
  rehop dlq import orders.dlq letters.jsonl --from 1201`,
		Args: args(cobra.ExactArgs(2)), ValidArgsFunction: a.queueNames,
		RunE: func(c *cobra.Command, rest []string) error {
			if err := isURL(rest[:1]); err != nil {
				return err
			}
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
				if o.File, err = filepath.Abs(rest[1]); err != nil {
					return err
				}
			}
			conn, err := a.connect(c.Context())
			if err != nil {
				return err
			}
			o.Queue, o.By = rest[0], a.by()
			done, err := desk.Import(c.Context(), conn, in, journal, o)
			if errors.Is(err, desk.ErrImported) {
				return fmt.Errorf("%w; --again imports them once more, and --from LINE the rest of an import that ended early", err)
			}
			fmt.Fprintf(a.err, "%s imported\n", letterCount(done.Letters))
			if done.MaybeDuplicate > 0 {
				fmt.Fprintf(a.err, "%s of them perhaps twice\n", letterCount(done.MaybeDuplicate))
			}
			if err != nil && done.Next > 0 {
				return fmt.Errorf("%w; go on with --from %d", err, done.Next)
			}
			return err
		},
	}
	c.Flags().IntVar(&o.From, "from", 1, "line to begin with")
	c.Flags().BoolVar(&o.Again, "again", false, "import letters that the queue has had by an earlier import")
	return c
}
